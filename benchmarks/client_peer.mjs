// The peer for the client rows: @ag-ui/client 1.0.0 over Node's own fetch.
// usage: node client_peer.mjs <module dir> <url>   prints {seconds, text} as JSON
import { createRequire } from "node:module";
import { join } from "node:path";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
const [dir, url] = process.argv.slice(2);
const { HttpAgent } = createRequire(join(dir, "x.js"))("@ag-ui/client");

let seconds = Infinity;
let text = "";
for (let turn = 0; turn < 2; turn++) {
  const agent = new HttpAgent({ url, threadId: "t" });
  const start = process.hrtime.bigint();
  await agent.runAgent({ runId: "r" });
  seconds = Math.min(seconds, Number(process.hrtime.bigint() - start) / 1e9);
  text = agent.messages.at(-1).content;
}
console.log(JSON.stringify({ seconds, text }));
