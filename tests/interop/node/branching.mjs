// The official client, which branches by cutting off the end of its history. stdin: {url}; stdout: {history, console}.
import { readFileSync } from "node:fs";

const said = [];
for (const level of ["log", "info", "warn", "error", "debug"]) {
  console[level] = (...args) => said.push(`${level}: ${args.map(String).join(" ")}`.slice(0, 2000));
}
const { HttpAgent } = await import("@ag-ui/client");
const { url } = JSON.parse(readFileSync(0, "utf8"));

const history = {};

/** Run with these messages, as a page does that has been edited; keep what the page holds afterwards. */
async function turn(agent, runId, messages) {
  agent.setMessages(messages);
  await agent.runAgent({ runId });
  history[runId] = structuredClone(agent.messages);
}

const user = (id, content) => ({ id, role: "user", content });
const agent = new HttpAgent({ url, threadId: "t" });
await turn(agent, "r1", [user("u1", "one")]);
await turn(agent, "r2", [...history.r1, user("u2", "two")]);
await turn(agent, "r3", [...history.r2, user("u3", "three")]);
// From each earlier run.
await turn(agent, "r4", [...history.r1, user("u4", "from the first")]);
await turn(agent, "r5", [...history.r2, user("u5", "from the second")]);
// Another answer, an edited question, an edited first question.
await turn(agent, "r6", history.r3.slice(0, -1));
await turn(agent, "r7", [...history.r1, user("u2", "two, edited")]);
await turn(agent, "r8", [user("u1", "one, edited")]);
// Another page still shows the first branch.
const other = new HttpAgent({ url, threadId: "t" });
await turn(other, "r9", [...history.r3, user("u9", "from the third")]);
process.stdout.write(JSON.stringify({ history, console: said }));
