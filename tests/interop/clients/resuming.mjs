// Resumes as CopilotKit's useInterrupt (1.74) does: under the run id of the run that asked, with a tool message of its
// own beside the answer to a tool_call interrupt; or, if the client knows no interrupts, as pages for LangGraph do.
// Reads {url, generation}; writes what came of each turn.
import { readFileSync } from "node:fs";

const said = [];
for (const level of ["log", "info", "warn", "error", "debug"]) {
  console[level] = (...args) => said.push(`${level}: ${args.map(String).join(" ")}`.slice(0, 1000));
}
const { url, generation } = JSON.parse(readFileSync(0, "utf8"));
const { HttpAgent } = await import(`client-${generation.replaceAll(".", "-")}`);

async function run(agent, parameters) {
  const turn = { runIds: [], legacy: [], standard: null, error: null };
  try {
    await agent.runAgent(parameters, {
      onEvent: ({ event }) => {
        if (event.type === "RUN_STARTED" || event.type === "RUN_FINISHED") turn.runIds.push(event.runId);
        if (event.type === "RUN_FINISHED") turn.standard = event.outcome?.interrupts ?? null;
        if (event.type === "RUN_ERROR") turn.error = event.message;
      },
      onCustomEvent: ({ event }) => void (event.name === "on_interrupt" && turn.legacy.push(event.value)),
    });
  } catch (error) {
    turn.error = `thrown ${error.message}`;
  }
  turn.messages = structuredClone(agent.messages);
  return turn;
}

function answered(agent, interrupts, payload) {
  for (const { toolCallId, reason } of interrupts) {
    if (toolCallId && reason === "tool_call") {
      agent.addMessage({ id: `own-${toolCallId}`, role: "tool", toolCallId, content: JSON.stringify(payload) });
    }
  }
  return interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload }));
}

const turns = [];
const legacy = [];
if (generation !== "0.0.45" && generation !== "0.0.53") {
  const agent = new HttpAgent({ url, threadId: "standard" });
  agent.addMessage({ id: "u1", role: "user", content: "Pay" });
  turns.push(await run(agent, { runId: "r1" }));
  turns.push(await run(agent, { runId: "r1", resume: answered(agent, turns.at(-1).standard, { approved: true }) }));
  turns.push(await run(agent, { runId: "r1", resume: answered(agent, turns.at(-1).standard, "thanks") }));
  agent.addMessage({ id: "u2", role: "user", content: "What was paid?" });
  turns.push(await run(agent, { runId: "r2" }));
}
{
  const agent = new HttpAgent({ url, threadId: "legacy" });
  agent.addMessage({ id: "u1", role: "user", content: "Pay" });
  let turn = await run(agent, { runId: "r1" });
  legacy.push(turn);
  for (const payload of ['{"approved": true}', "thanks"]) {
    const interruptEvent = turn.legacy.at(-1);
    turn = await run(agent, { runId: "r1", forwardedProps: { command: { resume: payload, interruptEvent } } });
    legacy.push(turn);
  }
}
process.stdout.write(JSON.stringify({ turns, legacy, console: said }));
