// The official client when a run fails that has used its answer. stdin: {url}; stdout: {name: what came of it}.
// The server's agent asks "May I pay?", pays, and fails once in every thread.
import { readFileSync } from "node:fs";

const said = [];
for (const level of ["log", "info", "warn", "error", "debug"]) {
  console[level] = (...args) => said.push(`${level}: ${args.map(String).join(" ")}`.slice(0, 2000));
}
const { HttpAgent } = await import("@ag-ui/client");
const { url } = JSON.parse(readFileSync(0, "utf8"));

async function run(agent, parameters) {
  let ended = null;
  try {
    await agent.runAgent(parameters, {
      onRunFinishedEvent: ({ event }) => void (ended = event.outcome?.type ?? "success"),
      onRunErrorEvent: ({ event }) => void (ended = `error ${event.code}`),
    });
  } catch (error) {
    ended = `thrown ${error.message}`;
  }
  const messages = agent.messages.map(({ role, content }) => ({ role, content }));
  return structuredClone({ ended, pending: agent.pendingInterrupts.map(({ id }) => id), messages, state: agent.state });
}

async function failed(name) {
  const agent = new HttpAgent({ url, threadId: name });
  agent.addMessage({ id: "u1", role: "user", content: "Go" });
  const asked = await run(agent, { runId: "r1" });
  const resume = asked.pending.map((interruptId) => ({ interruptId, status: "resolved", payload: { approved: true } }));
  return { agent, resume, turns: [asked, await run(agent, { runId: "r2", resume })] };
}

const answers = {};
{
  const { agent, resume, turns } = await failed("the same answer");
  turns.push(await run(agent, { runId: "r3", resume }));
  agent.addMessage({ id: "u2", role: "user", content: "Again" });
  turns.push(await run(agent, { runId: "r4" }));
  answers["the same answer"] = turns;
}
{
  const { agent, resume, turns } = await failed("given up");
  turns.push(await run(agent, { runId: "r3" }));
  turns.push(await run(agent, { runId: "r4", resume: resume.map(({ interruptId }) => ({ interruptId, status: "cancelled" })) }));
  agent.addMessage({ id: "u2", role: "user", content: "Again" });
  turns.push(await run(agent, { runId: "r5" }));
  answers["given up"] = turns;
}
process.stdout.write(JSON.stringify({ answers, console: said }));
