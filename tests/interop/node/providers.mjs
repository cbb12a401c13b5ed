// The official client against agents that are models. stdin: {urls: {provider: url}}; stdout: {provider: {scenario: ...}}.
import { readFileSync } from "node:fs";
import { HttpAgent } from "@ag-ui/client";

const { urls } = JSON.parse(readFileSync(0, "utf8"));
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const PICK_DATE = {
  name: "pick_date",
  description: "Lets the user pick a date",
  parameters: { type: "object", properties: { month: { type: "string" } } },
};

let counter = 0;

async function run(agent, parameters = {}) {
  const seen = { types: [], outcome: null, usage: null, error: null };
  await agent.runAgent(
    { runId: `run-${++counter}`, ...parameters },
    {
      onEvent({ event }) {
        seen.types.push(event.type);
        if (event.type === "RUN_FINISHED") Object.assign(seen, { outcome: event.outcome, usage: event.usage });
        if (event.type === "RUN_ERROR") seen.error = event.code;
      },
    },
  );
  return { ...seen, messages: structuredClone(agent.messages) };
}

function begin(url, content) {
  const messages = [{ id: `user-${++counter}`, role: "user", content }];
  return new HttpAgent({ url, threadId: `thread-${++counter}`, initialMessages: messages });
}

async function play(url) {
  const told = {};
  const tools = begin(url, "weather in two");
  told.tools = [await run(tools)];
  tools.addMessage({ id: `user-${++counter}`, role: "user", content: "hello" });
  told.tools.push(await run(tools));

  const approval = begin(url, "pay");
  told.approval = [await run(approval)];
  const resume = told.approval[0].outcome.interrupts.map(({ id }) => ({
    interruptId: id,
    status: "resolved",
    payload: { approved: true },
  }));
  told.approval.push(await run(approval, { resume }));

  const frontend = begin(url, "date");
  told.frontend = [await run(frontend, { tools: [PICK_DATE] })];
  const call = frontend.messages.at(-1).toolCalls[0];
  frontend.addMessage({ id: `tool-${++counter}`, role: "tool", toolCallId: call.id, content: "12 May" });
  told.frontend.push(await run(frontend, { tools: [PICK_DATE] }));

  const image = { type: "image", source: { type: "data", value: PIXEL, mimeType: "image/png" } };
  told.images = [await run(begin(url, [{ type: "text", text: "look" }, image]))];

  const reasoning = begin(url, "think");
  told.reasoning = [await run(reasoning)];
  reasoning.addMessage({ id: `user-${++counter}`, role: "user", content: "hello" });
  told.reasoning.push(await run(reasoning));
  return told;
}

const all = {};
for (const [provider, url] of Object.entries(urls)) all[provider] = await play(url);
process.stdout.write(JSON.stringify(all));
