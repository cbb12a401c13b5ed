// The peer for the client rows: @ag-ui/client 1.0.0 over Node's own fetch.
// usage: node client_peer.mjs <module dir> <url>   prints {seconds, text} as JSON
import { createRequire } from "node:module";
import { join } from "node:path";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
const [dir, url] = process.argv.slice(2);
const { HttpAgent } = createRequire(join(dir, "x.js"))("@ag-ui/client");

const agent = new HttpAgent({ url, threadId: "t" });
const start = process.cpuUsage();
await agent.runAgent({ runId: "r" });
const { user, system } = process.cpuUsage(start);
const seconds = (user + system) / 1e6;
console.log(JSON.stringify({ seconds, text: agent.messages.at(-1).content }));
