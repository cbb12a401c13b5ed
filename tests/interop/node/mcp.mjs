// The official client against an agent with MCP servers. stdin: {url}; stdout: what each run ended with.
import { readFileSync } from "node:fs";
import { HttpAgent } from "@ag-ui/client";

const { url } = JSON.parse(readFileSync(0, "utf8"));
const agent = new HttpAgent({ url, initialMessages: [{ id: "u1", role: "user", content: "go" }] });
const turns = [];
let resume;
do {
  let outcome;
  await agent.runAgent(
    { runId: `run-${turns.length}`, resume },
    {
      onEvent({ event }) {
        if (event.type === "RUN_FINISHED") outcome = event.outcome;
      },
    },
  );
  turns.push({ outcome, messages: structuredClone(agent.messages) });
  resume = outcome?.interrupts?.map(({ id, reason }) => ({
    interruptId: id,
    status: "resolved",
    payload: reason === "tool_call" ? { approved: true } : { name: "Ann", check: true },
  }));
} while (resume);
process.stdout.write(JSON.stringify(turns));
