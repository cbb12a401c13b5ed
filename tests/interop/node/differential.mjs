// Reads streams with the official client: one JSON object {body, messages, state} per line of stdin, one verdict per line
// of stdout. `body` is the SSE text that the agent's own `fetch` option answers with, so the whole pipeline runs:
// SSE parser, compatibility boundary, enforcement, chunk expansion, verification, reduction, agent commit.
import { createInterface } from "node:readline";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
process.env.NODE_ENV = "production"; // elsewhere the client freezes what it hands to subscribers: slow, and nobody writes here
for (const level of ["log", "info", "warn", "error", "debug"]) console[level] = () => {};
const { HttpAgent } = await import("@ag-ui/client");

const encoder = new TextEncoder();

async function read({ body, messages, state }) {
  const answer = async () =>
    new Response(encoder.encode(body), { status: 200, headers: { "content-type": "text/event-stream" } });
  const agent = new HttpAgent({
    url: "http://127.0.0.1:9/",
    fetch: answer,
    threadId: "thread",
    initialMessages: messages,
    initialState: state,
  });
  const events = [];
  const runs = [];
  const subscriber = {
    onEvent({ event }) {
      events.push(structuredClone(event));
    },
    onRunStartedEvent({ event }) {
      runs.push({ runId: event.runId, outcome: null });
    },
    onRunFinishedEvent({ event, outcome, pendingToolCallIds }) {
      Object.assign(runs.at(-1), { outcome, result: event.result, pending: pendingToolCallIds });
    },
    onRunErrorEvent({ event }) {
      if (runs.length === 0 || runs.at(-1).outcome === "error") runs.push({});
      const { runId, result } = runs.at(-1); // a late failure is the last word on the run (LIFE-15)
      runs[runs.length - 1] = { runId, outcome: "error", result, error: event.message };
    },
  };
  try {
    await agent.runAgent({ runId: "run" }, subscriber);
  } catch (error) {
    return { verdict: "rejected", error: `${error?.name}: ${error?.message}`.slice(0, 2000) };
  }
  const { messages: held, state: reached, pendingInterrupts } = agent;
  return { verdict: "accepted", messages: held, state: reached, interrupts: pendingInterrupts, runs, events };
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  if (line === "") continue;
  const outcome = await read(JSON.parse(line));
  let text;
  try {
    text = JSON.stringify(outcome);
  } catch (error) {
    text = JSON.stringify({ verdict: "rejected", error: `what it accepted is not JSON: ${error.message}` }); // circular
  }
  process.stdout.write(text + "\n");
}
