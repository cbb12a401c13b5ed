// Runs every feature of the demo with stock clients of several generations.
// stdin: {"url", "generations": [...], "features": [...]}; stdout: {"0.0.45": {"text": {...}, ...}, ...}.
import { readFileSync } from "node:fs";

for (const level of ["log", "info", "warn", "error", "debug"]) console[level] = () => {};

const { url, generations, features } = JSON.parse(readFileSync(0, "utf8"));
const TOOL = { name: "pick", description: "Picks", parameters: { type: "object", properties: { n: { type: "integer" } } } };
const report = {};

for (const generation of generations) {
  const client = await import(`client-${generation.replaceAll(".", "-")}`);
  report[generation] = {};
  await Promise.all(
    features.map(async (feature) => {
      const threadId = `${generation}-${feature}`;
      const agent = new client.HttpAgent({ url, threadId, initialState: { n: 1 } });
      const runs = [];
      async function run(message, parameters = {}) {
        if (message !== null) agent.messages.push({ id: `${threadId}-${agent.messages.length}`, ...message });
        const seen = { events: [], failed: null, error: null };
        try {
          await agent.runAgent(
            { runId: `${threadId}-run-${runs.length}`, tools: [TOOL], context: [], ...parameters },
            {
              onEvent({ event }) {
                seen.events.push(structuredClone(event));
              },
              onRunErrorEvent({ event }) {
                seen.error = event.message;
              },
              onRunFailed({ error }) {
                seen.failed = String(error).slice(0, 800);
              },
            },
          );
        } catch (error) {
          seen.failed ??= String(error).slice(0, 800);
        }
        if (client.compactEvents !== undefined) {
          try {
            seen.compacted = client.compactEvents(seen.events);
          } catch (error) {
            seen.failed ??= `compactEvents: ${error}`.slice(0, 800);
          }
        }
        seen.state = structuredClone(agent.state);
        runs.push(seen);
        return seen;
      }
      const first = await run({ role: "user", content: feature });
      const calls = agent.messages.flatMap((message) => message.toolCalls ?? []).filter((call) => call.function.name === "pick");
      if (feature === "frontend" && calls.length > 0) {
        await run({ role: "tool", toolCallId: calls[0].id, content: "seven" });
      }
      const last = first.events.at(-1);
      if (last?.outcome?.type === "interrupt") {
        const payload = feature === "interrupt" ? { colour: "red" } : { approved: true };
        const resume = last.outcome.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload }));
        await run(null, { resume });
      }
      await run({ role: "user", content: "text" });
      report[generation][feature] = { runs, messages: structuredClone(agent.messages), state: agent.state };
    }),
  );
}
process.stdout.write(JSON.stringify(report), () => process.exit(0));
