// A plain Node server on @ag-ui/encoder: SSE, or protobuf if the client asks for it. Takes its port as the only argument.
// The first word of the last user message chooses the feature, as script.py says; GET /probe tells how agents ended.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";

// The packages are those of the interop tests.
const require = createRequire(new URL("../../interop/node/package.json", import.meta.url));
const { EventEncoder } = require("@ag-ui/encoder");
const { EventType } = require("@ag-ui/core");

const counts = { begun: 0, cancelled: 0, ended: 0, ticks: 0 };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function* text(words) {
  const messageId = randomUUID();
  yield { type: EventType.TEXT_MESSAGE_START, messageId, role: "assistant" };
  for (const delta of words) yield { type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta };
  yield { type: EventType.TEXT_MESSAGE_END, messageId };
}

function* toolCall(toolCallId, toolCallName, json) {
  yield { type: EventType.TOOL_CALL_START, toolCallId, toolCallName };
  yield { type: EventType.TOOL_CALL_ARGS, toolCallId, delta: json.slice(0, 6) };
  yield { type: EventType.TOOL_CALL_ARGS, toolCallId, delta: json.slice(6) };
  yield { type: EventType.TOOL_CALL_END, toolCallId };
}

function* reasoning(words) {
  const messageId = randomUUID();
  yield { type: EventType.REASONING_START, messageId };
  yield { type: EventType.REASONING_MESSAGE_START, messageId, role: "reasoning" };
  for (const delta of words) yield { type: EventType.REASONING_MESSAGE_CONTENT, messageId, delta };
  yield { type: EventType.REASONING_MESSAGE_END, messageId };
  yield { type: EventType.REASONING_END, messageId };
}

async function* ticks(isGone) {
  const messageId = randomUUID();
  counts.begun += 1;
  yield { type: EventType.TEXT_MESSAGE_START, messageId, role: "assistant" };
  for (let i = 0; i < 600; i += 1) {
    if (isGone()) {
      counts.cancelled += 1;
      return;
    }
    counts.ticks += 1;
    yield { type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta: "tick " };
    await pause(100);
  }
  yield { type: EventType.TEXT_MESSAGE_END, messageId };
  counts.ended += 1;
}

async function* agent(input, isGone) {
  if (input.messages.at(-1).role === "tool") return yield* text(["The colour is teal."]);
  const user = input.messages.filter((message) => message.role === "user").at(-1);
  switch (user.content.split(" ")[0]) {
    case "text":
      return yield* text(["Hello ", "from ", "the ", "other ", "side."]);
    case "backend": {
      const toolCallId = randomUUID();
      yield* toolCall(toolCallId, "add", '{"a": 2, "b": 3}');
      yield { type: EventType.TOOL_CALL_RESULT, messageId: randomUUID(), toolCallId, content: "5" };
      return yield* text(["The sum is 5."]);
    }
    case "two": {
      const results = [[randomUUID(), '{"a": 1, "b": 2}', "3"], [randomUUID(), '{"a": 3, "b": 4}', "7"]];
      for (const [toolCallId, json] of results) yield* toolCall(toolCallId, "add", json);
      for (const [toolCallId, , content] of results) {
        yield { type: EventType.TOOL_CALL_RESULT, messageId: randomUUID(), toolCallId, content };
      }
      return yield* text(["The sums are 3 and 7."]);
    }
    case "frontend":
      yield* toolCall("call-colour", "favourite_colour", '{"of": "Ada"}');
      return { type: "success", pendingToolCallIds: ["call-colour"] };
    case "state":
      yield { type: EventType.STATE_SNAPSHOT, snapshot: input.state };
      yield { type: EventType.STATE_DELTA, delta: [{ op: "replace", path: "/count", value: input.state.count + 1 }] };
      return yield* text(["Counted."]);
    case "reasoning":
      yield* reasoning(["Let me ", "think."]);
      return yield* text(["Forty-two."]);
    case "interrupt":
      if (!input.resume) return { type: "interrupt", interrupts: [{ id: randomUUID(), reason: "confirmation", message: "Send it?" }] };
      return yield* text([input.resume.every((entry) => entry.payload?.approved) ? "Sent." : "Not sent."]);
    case "error":
      yield* text(["So far so good."]);
      throw new Error("the agent broke");
    case "cancel":
      return yield* ticks(isGone);
    default:
      return yield* text(["word0 ", "word1 ", "word2 ", "word3 ", "word4 "]);
  }
}

async function run(request, response) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const input = JSON.parse(Buffer.concat(pieces).toString("utf8"));
  const encoder = new EventEncoder({ accept: request.headers.accept });
  response.writeHead(200, { "Content-Type": encoder.getContentType(), "Cache-Control": "no-cache" });
  const send = (event) => response.write(encoder.encodeBinary(event));
  const { threadId, runId } = input;
  send({ type: EventType.RUN_STARTED, threadId, runId, protocolVersion: "1.0" });
  try {
    const events = agent(input, () => response.destroyed);
    for (;;) {
      const { value, done } = await events.next(); // at last the outcome, if there is more to it than success
      if (done) {
        send({ type: EventType.RUN_FINISHED, threadId, runId, ...(value && { outcome: value }) });
        break;
      }
      send(value);
    }
  } catch {
    send({ type: EventType.RUN_ERROR, message: "the run failed" });
  }
  response.end();
}

createServer((request, response) => {
  if (request.url === "/probe") response.end(JSON.stringify(counts));
  else if (request.url === "/" && request.method === "POST") run(request, response);
  else response.writeHead(404).end();
}).listen(Number(process.argv[2]), "127.0.0.1");
