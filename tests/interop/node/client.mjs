// The official client against a real server. stdin: {url}; stdout: {scenarios: {name: what came of it}, console: [...]}.
// Every agent here is a stock HttpAgent, or the smallest subclass that its documentation allows.
import { readFileSync } from "node:fs";

const said = [];
for (const level of ["log", "info", "warn", "error", "debug"]) {
  console[level] = (...args) => said.push(`${level}: ${args.map(String).join(" ")}`.slice(0, 2000));
}
process.on("warning", (warning) => said.push(`warning: ${warning}`));
const { HttpAgent, runHttpRequest, transformHttpEventStream } = await import("@ag-ui/client");

const { url } = JSON.parse(readFileSync(0, "utf8"));
const PROTO = "application/vnd.ag-ui.event+proto";

class BinaryAgent extends HttpAgent {
  requestInit(input) {
    const init = super.requestInit(input);
    return { ...init, headers: { ...init.headers, Accept: PROTO } };
  }
}

class JoiningAgent extends HttpAgent {
  connect(input) {
    const ask = () => this.fetch(`${url}/connect`, { ...this.requestInit(input), signal: undefined });
    return transformHttpEventStream(runHttpRequest(ask));
  }
}

function make(Agent, name, more = {}) {
  const types = [];
  const fetching = async (...args) => {
    const response = await fetch(...args);
    types.push(response.headers.get("content-type"));
    return response;
  };
  const agent = new Agent({ url, threadId: name, fetch: fetching, ...more });
  agent.contentTypes = types;
  return agent;
}

let counter = 0;
const user = (content) => ({ id: `user-${++counter}`, role: "user", content });

// One run, and everything its subscriber was told.
async function run(agent, parameters = {}, onEvent = () => {}, verb = "runAgent") {
  const seen = { events: [], failed: null, error: null, outcome: null };
  const { newMessages, result } = await agent[verb](
    { runId: `run-${++counter}`, ...parameters },
    {
      onEvent({ event }) {
        seen.events.push(structuredClone(event));
        onEvent(event);
      },
      onRunFinishedEvent({ outcome, interrupts, pendingToolCallIds }) {
        seen.outcome = { outcome, interrupts, pendingToolCallIds };
      },
      onRunErrorEvent({ event }) {
        seen.error = { message: event.message, code: event.code };
      },
      onRunFailed({ error }) {
        seen.failed = String(error);
      },
    },
  );
  return { ...seen, newMessages, result, messages: agent.messages, state: agent.state, types: agent.contentTypes };
}

async function ask(agent, content, parameters) {
  agent.addMessage(user(content));
  return structuredClone(await run(agent, parameters));
}

const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const TOOL = {
  name: "pick_date",
  description: "Lets the user pick a date",
  parameters: { type: "object", properties: { month: { type: "string" } }, required: ["month"] },
};

const features = (Agent, prefix) => ({
  ...Object.fromEntries(
    ["help", "text", "tools", "state", "reasoning", "activity", "steps", "subagents", "generative", "error"].map(
      (keyword) => [`${prefix}${keyword}`, () => ask(make(Agent, `${prefix}${keyword}`), `Show me ${keyword}`)],
    ),
  ),
  [`${prefix}frontend`]: async () => {
    const agent = make(Agent, `${prefix}frontend`);
    const first = await ask(agent, "Show me frontend tools", { tools: [TOOL] });
    const [toolCallId] = first.outcome.pendingToolCallIds;
    agent.addMessage({ id: `tool-${++counter}`, role: "tool", toolCallId, content: "the 3rd of May" });
    return { first, then: structuredClone(await run(agent, { tools: [TOOL] })) };
  },
  [`${prefix}image`]: async () => {
    const upload = await fetch(`${url}/files`, {
      method: "POST",
      headers: { "content-type": "image/png" },
      body: Buffer.from(PIXEL, "base64"),
    });
    const { source } = await upload.json();
    const inline = { type: "data", value: PIXEL, mimeType: "image/png" };
    return ask(make(Agent, `${prefix}image`), [
      { type: "text", text: "Show me image" },
      { type: "image", source: inline },
      { type: "image", source },
    ]);
  },
  [`${prefix}interrupt`]: async () => {
    const agent = make(Agent, `${prefix}interrupt`);
    const first = await ask(agent, "Show me interrupt");
    const [{ id }] = agent.pendingInterrupts;
    const resume = [{ interruptId: id, status: "resolved", payload: { colour: "green" } }];
    const then = structuredClone(await run(agent, { resume }));
    const pending = agent.pendingInterrupts;
    return { first, then, pending, last: await ask(agent, "Show me text") };
  },
  [`${prefix}interrupt cancelled`]: async () => {
    const agent = make(Agent, `${prefix}interrupt cancelled`);
    const first = await ask(agent, "Show me interrupt");
    const resume = [{ interruptId: agent.pendingInterrupts[0].id, status: "cancelled" }];
    return { first, then: structuredClone(await run(agent, { resume })) };
  },
  [`${prefix}approval`]: async () => {
    const agent = make(Agent, `${prefix}approval`);
    const first = await ask(agent, "Show me approval");
    const payload = { approved: true, editedArgs: { to: "grace@example.com", subject: "Owls" } };
    const resume = [{ interruptId: agent.pendingInterrupts[0].id, status: "resolved", payload }];
    return { first, then: structuredClone(await run(agent, { resume })) };
  },
  [`${prefix}stop and go on`]: async () => {
    const agent = make(Agent, `${prefix}stop and go on`);
    agent.addMessage(user("Show me slow"));
    let words = 0;
    const stopped = structuredClone(
      await run(agent, {}, ({ type }) => {
        if (type === "TEXT_MESSAGE_CONTENT" && ++words === 3) agent.abortRun();
      }),
    );
    return { stopped, then: await ask(agent, "Show me text") };
  },
  [`${prefix}approval refused`]: async () => {
    const agent = make(Agent, `${prefix}approval refused`);
    const first = await ask(agent, "Show me approval");
    const payload = { approved: false };
    const resume = [{ interruptId: agent.pendingInterrupts[0].id, status: "resolved", payload }];
    return { first, then: structuredClone(await run(agent, { resume })) };
  },
});

const scenarios = {
  ...features(HttpAgent, ""),
  ...features(BinaryAgent, "binary "),

  async "join after the end"() {
    const first = make(HttpAgent, "join after the end");
    await ask(first, "Show me state");
    await ask(first, "Show me tools");
    await ask(first, "Show me activity");
    const last = await ask(first, "Show me interrupt");
    const joining = make(JoiningAgent, "join after the end");
    const joined = structuredClone(await run(joining, {}, undefined, "connectAgent"));
    const resume = [{ interruptId: joining.pendingInterrupts[0].id, status: "resolved", payload: { colour: "red" } }];
    return { last, joined, then: structuredClone(await run(joining, { resume })) };
  },

  async "join after a failure"() {
    const first = await ask(make(HttpAgent, "join after a failure"), "Show me error");
    const joining = make(JoiningAgent, "join after a failure");
    const joined = structuredClone(await run(joining, {}, undefined, "connectAgent"));
    joining.addMessage(user("Show me text"));
    return { first, joined, then: structuredClone(await run(joining)) };
  },

  async "join while it runs"() {
    const watching = make(HttpAgent, "join while it runs");
    watching.addMessage(user("Show me slow"));
    const joining = make(JoiningAgent, "join while it runs");
    let joined = null;
    let words = 0;
    const watched = await run(watching, { runId: "slow" }, ({ type }) => {
      if (type !== "TEXT_MESSAGE_CONTENT" || ++words !== 3) return;
      let more = 0;
      joined = run(joining, {}, (event) => {
        if (event.type !== "TEXT_MESSAGE_CONTENT" || ++more !== 4) return;
        void fetch(`${url}/threads/${encodeURIComponent("join while it runs")}/runs/slow/cancel`, { method: "POST" });
      }, "connectAgent");
    });
    return { watched: structuredClone(watched), joined: structuredClone(await joined) };
  },
};

const answers = {};
await Promise.all(
  Object.entries(scenarios).map(async ([name, play]) => {
    try {
      answers[name] = await play();
    } catch (error) {
      answers[name] = { thrown: String(error?.stack ?? error) };
    }
  }),
);
process.stdout.write(JSON.stringify({ scenarios: answers, console: said }));
