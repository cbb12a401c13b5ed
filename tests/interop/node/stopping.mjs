// abortRun() of the official client, stock and as docs/frontends.md extends it.
// stdin: {url, code, threads}; stdout: {}. `code` is the class of the document.
import { readFileSync } from "node:fs";
import { HttpAgent } from "@ag-ui/client";

const { url, code, threads } = JSON.parse(readFileSync(0, "utf8"));
const CancellingAgent = new Function("HttpAgent", "SERVER", `${code}; return CancellingAgent;`)(HttpAgent, url);

async function stop(Agent, threadId) {
  const agent = new Agent({ url, threadId, initialMessages: [{ id: "m", role: "user", content: "Hi" }] });
  await agent.runAgent({}, { onTextMessageContentEvent: () => agent.abortRun() }).catch(() => {});
}

await stop(HttpAgent, threads.stock);
await stop(CancellingAgent, threads.cancelling);
process.stdout.write("{}");
