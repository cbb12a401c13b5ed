// One generation of @ag-ui/client over every feature of the demo. stdin: {url, version, only?}; stdout: {feature: what the page has}.
// Only what that generation documents is used: HttpAgent, its subscriber, and `resume` where it has one.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const said = [];
for (const level of ["log", "info", "warn", "error", "debug"]) {
  console[level] = (...args) => said.push(`${level}: ${args.map(String).join(" ")}`.slice(0, 500));
}
const { url, version, only } = JSON.parse(readFileSync(0, "utf8"));
const patch = version.startsWith("0") ? Number(version.split("-")[2]) : Infinity;
const modern = await import(`client-${version}`);
// Pages get these packages from a bundler. Node's own loader does not find the functions of fast-json-patch in the ES
// modules of 0.0.45 to 0.0.50, so that they cannot apply a patch there; their CommonJS files are what a bundler makes of them.
const bundled = patch <= 50 ? createRequire(import.meta.url)(`client-${version}`) : modern;
const { HttpAgent, compactEvents } = bundled;
const HAS_RESUME = patch >= 57;

/** A page that can also read protobuf. */
class BinaryAgent extends HttpAgent {
  requestInit(input) {
    const init = super.requestInit(input);
    return { ...init, headers: { ...init.headers, Accept: "application/vnd.ag-ui.event+proto, text/event-stream" } };
  }
}
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const TOOL = {
  name: "pick_date",
  description: "Lets the user pick a date",
  parameters: { type: "object", properties: { month: { type: "string" } }, required: ["month"] },
};

let counter = 0;
const user = (content) => ({ id: `user-${++counter}`, role: "user", content });
const page = (threadId, path = "", Agent = HttpAgent) => new Agent({ url: url + path, threadId: `${version} ${threadId}` });
const address = (threadId) => `${url}/threads/${encodeURIComponent(`${version} ${threadId}`)}`;

/** One run: what the subscriber was told, and what the page has afterwards. */
async function run(agent, parameters = {}, onEvent = () => {}) {
  const seen = { events: [], finished: null, error: null, failed: null, thrown: null };
  try {
    await agent.runAgent(
      { runId: `run-${++counter}`, ...parameters },
      {
        onEvent({ event }) {
          seen.events.push(structuredClone(event));
          onEvent(event);
        },
        onRunFinishedEvent: ({ event }) => void (seen.finished = structuredClone(event)),
        onRunErrorEvent: ({ event }) => void (seen.error = structuredClone(event)),
        onRunFailed: ({ error }) => void (seen.failed = String(error)),
      },
    );
  } catch (error) {
    seen.thrown = String(error);
  }
  // CopilotKit's runner compacts what it has seen before it stores it.
  let compacted = null;
  try {
    compacted = compactEvents ? compactEvents(structuredClone(seen.events)).length : null;
  } catch (error) {
    seen.thrown ??= `compactEvents: ${error}`;
  }
  return structuredClone({ ...seen, compacted, messages: agent.messages, state: agent.state });
}

async function ask(agent, content, parameters) {
  agent.addMessage(user(content));
  return run(agent, parameters);
}

/** Answers the question that a run ended with, as a page of this generation can. */
async function answer(agent, first, payload, status = "resolved") {
  const [interrupt] = first.finished?.outcome?.interrupts ?? [];
  if (!interrupt) return { thrown: "the page was told of no interrupt" };
  if (HAS_RESUME) {
    const entry = status === "resolved" ? { interruptId: interrupt.id, status, payload } : { interruptId: interrupt.id, status };
    return run(agent, { resume: [entry] });
  }
  return run(agent, { forwardedProps: { command: { resume: payload } } });
}

const openCalls = (messages) => {
  const answered = new Set(messages.filter(({ role }) => role === "tool").map(({ toolCallId }) => toolCallId));
  return messages.flatMap(({ toolCalls = [] }) => toolCalls).filter(({ id }) => !answered.has(id));
};

const features = {
  ...Object.fromEntries(
    ["help", "text", "tools", "state", "reasoning", "activity", "steps", "subagents", "generative", "error"].map((keyword) => [
      keyword,
      () => ask(page(keyword), `Show me ${keyword}`),
    ]),
  ),

  "state in Node": () => ask(page("state in Node", "", modern.HttpAgent), "Show me state"),

  async protobuf() {
    const told = {};
    for (const keyword of ["tools", "reasoning", "activity"]) {
      told[keyword] = await ask(page(`protobuf ${keyword}`, "", BinaryAgent), `Show me ${keyword}`);
    }
    return told;
  },

  async frontend() {
    const agent = page("frontend");
    const first = await ask(agent, "Show me frontend tools", { tools: [TOOL] });
    const [call] = openCalls(agent.messages);
    if (!call) return { first, then: { thrown: "the page was told of no call" } };
    agent.addMessage({ id: `tool-${++counter}`, role: "tool", toolCallId: call.id, content: "the 3rd of May" });
    return { first, then: await run(agent, { tools: [TOOL] }) };
  },

  async image() {
    const agent = page("image");
    const source = { type: "data", value: PIXEL, mimeType: "image/png" };
    const old = { type: "binary", mimeType: "image/png", data: PIXEL };
    const first = await ask(agent, [{ type: "text", text: "Show me image" }, patch < 50 ? old : { type: "image", source }]);
    const then = await ask(agent, "Show me text"); // which sends the history again
    return { first, then, thread: await (await fetch(address("image"))).json() };
  },

  async interrupt() {
    const agent = page("interrupt");
    const first = await ask(agent, "Show me interrupt");
    const then = await answer(agent, first, { colour: "green" });
    return { first, then, last: await ask(agent, "Show me text") };
  },

  async "interrupt, cancelled"() {
    const agent = page("interrupt, cancelled");
    const first = await ask(agent, "Show me interrupt");
    if (!HAS_RESUME) return { first, then: null };
    return { first, then: await answer(agent, first, null, "cancelled") };
  },

  async approval() {
    const agent = page("approval");
    const first = await ask(agent, "Show me approval");
    const payload = { approved: true, editedArgs: { to: "grace@example.com", subject: "Owls" } };
    return { first, then: await answer(agent, first, payload) };
  },

  async slow() {
    const agent = page("slow");
    agent.addMessage(user("Show me slow"));
    let words = 0;
    const cancelled = await run(agent, { runId: "slow" }, ({ type }) => {
      if (type === "TEXT_MESSAGE_CONTENT" && ++words === 3) void fetch(`${address("slow")}/runs/slow/cancel`, { method: "POST" });
    });
    const other = page("slow", "/connect");
    const connected = await run(other);
    return { cancelled, connected, then: await ask(agent, "Show me text") };
  },

  async stop() {
    const agent = page("stop");
    agent.addMessage(user("Show me slow"));
    let words = 0;
    const stopped = await run(agent, {}, ({ type }) => {
      if (type === "TEXT_MESSAGE_CONTENT" && ++words === 3) agent.abortRun();
    });
    return { stopped, then: await ask(agent, "Show me text") };
  },

  async connect() {
    const agent = page("connect");
    for (const keyword of ["state", "tools", "image", "reasoning", "activity", "subagents"]) await ask(agent, `Show me ${keyword}`);
    const last = await ask(agent, "Show me interrupt");
    const other = page("connect", "/connect");
    const connected = await run(other);
    other.url = url;
    return { last, connected, then: await answer(other, connected, { colour: "red" }) };
  },

  async "connect while it runs"() {
    const name = "connect while it runs";
    const agent = page(name);
    agent.addMessage(user("Show me slow"));
    let joined = null;
    let words = 0;
    const watched = await run(agent, { runId: "slow" }, ({ type }) => {
      if (type !== "TEXT_MESSAGE_CONTENT" || ++words !== 3) return;
      let more = 0;
      joined = run(page(name, "/connect"), {}, (event) => {
        if (event.type !== "TEXT_MESSAGE_CONTENT" || ++more !== 4) return;
        void fetch(`${address(name)}/runs/slow/cancel`, { method: "POST" });
      });
    });
    return { watched, joined: await joined };
  },
};

const found = {};
await Promise.all(
  Object.entries(features).filter(([name]) => !only || only.includes(name)).map(async ([name, play]) => {
    try {
      found[name] = await play();
    } catch (error) {
      found[name] = { thrown: String(error?.stack ?? error) };
    }
  }),
);
process.stdout.write(JSON.stringify({ features: found, console: said }), () => process.exit(0));
