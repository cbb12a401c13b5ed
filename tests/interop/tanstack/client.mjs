// TanStack AI's client over every feature it has. stdin: {url}; stdout: {name: what the page would show}.
// The server's agent is the demo.
import { readFileSync } from "node:fs";
import { ChatClient, fetchServerSentEvents } from "@tanstack/ai-client";
import { toolDefinition } from "@tanstack/ai";

const { url } = JSON.parse(readFileSync(0, "utf8"));
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** Waits for a condition; the deadline is only there to fail with a message. */
async function until(condition, what) {
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    const found = condition();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`waited in vain for ${what}`);
}

/** Fetches, and breaks the body of the first `cuts` responses off in the middle of an event, after some more each time. */
function cutting(cuts, seen) {
  return async (input, init) => {
    const response = await fetch(input, init);
    seen.push({ method: init.method, lastEventId: init.headers["Last-Event-ID"] ?? null });
    if (seen.length > cuts || !response.body) return response;
    const reader = response.body.getReader();
    let left = 700;
    const body = new ReadableStream({
      async pull(controller) {
        const { done, value } = await reader.read();
        if (done) return controller.close();
        if (value.length < left) {
          left -= value.length;
          return controller.enqueue(value);
        }
        controller.enqueue(value.subarray(0, left));
        await reader.cancel();
        controller.error(new TypeError("the connection was cut"));
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
}

/** Whether a client sends a message at once: while the response of a run is still open, it queues messages. */
const isIdle = (client) => client.getStatus() === "ready" && !client.getIsLoading();

const thread = async (threadId) => (await fetch(`${url}/threads/${threadId}`)).json();

function chat(threadId, { fetchClient, ...options } = {}) {
  const chunks = [];
  const errors = [];
  const connection = fetchServerSentEvents(url, { ...(fetchClient && { fetchClient }), reconnect: { delayMs: 1 } });
  const client = new ChatClient({
    connection,
    threadId,
    onChunk: (chunk) => chunks.push(chunk.type === "CUSTOM" ? `CUSTOM ${chunk.name}` : chunk.type),
    onError: (error) => errors.push(error.message),
    ...options,
  });
  client.shown = () => ({
    messages: structuredClone(client.getMessages()).map(({ id, role, parts }) => ({ id, role, parts })),
    interrupts: client.getInterrupts().map(({ id, kind, canResolve, message, binding }) => ({ id, kind, canResolve, message, binding })),
    status: client.getStatus(),
    chunks: [...chunks],
    errors: [...errors],
  });
  return client;
}

const colour = toolDefinition({
  name: "pick_colour",
  description: "Asks the page for a colour",
  inputSchema: { type: "object", properties: { hint: { type: "string" } }, required: ["hint"] },
});

const answers = {};

for (const feature of ["text", "tools", "reasoning", "state", "steps", "activity", "subagents", "generative", "error"]) {
  const client = chat(`plain ${feature}`);
  await client.sendMessage(`show ${feature}`);
  answers[feature] = client.shown();
}

{
  const client = chat("image");
  const source = { type: "data", value: PIXEL, mimeType: "image/png" };
  await client.sendMessage({ content: [{ type: "text", content: "show image" }, { type: "image", source }] });
  answers.image = client.shown();
  await client.sendMessage("show text"); // with the history that the client has made of it
  answers["after image"] = client.shown();
}

{
  const calls = [];
  const tool = colour.client(async (input) => {
    calls.push(input);
    return { colour: "green" };
  });
  const client = chat("client tool", { tools: [tool] });
  await client.sendMessage("call my frontend tool");
  await until(() => isIdle(client) && JSON.stringify(client.getMessages()).includes("answered"), "the answer");
  answers["client tool"] = { ...client.shown(), calls };
}

{
  // Cut while the call streams, and again: the call is started once all the same.
  const calls = [];
  const seen = [];
  const tool = colour.client(async (input) => {
    calls.push(input);
    return { colour: "green" };
  });
  const fetchClient = async (input, init) => {
    const response = await fetch(input, init);
    seen.push(init.headers["Last-Event-ID"] ?? null);
    if (seen.length > 1) return response;
    const text = await response.text();
    const end = text.indexOf("TOOL_CALL_ARGS");
    return new Response(text.slice(0, end), { status: 200, headers: response.headers });
  };
  const client = chat("client tool, cut", { tools: [tool], fetchClient });
  await client.sendMessage("call my frontend tool");
  await until(() => isIdle(client) && JSON.stringify(client.getMessages()).includes("answered"), "the answer");
  answers["client tool, cut"] = { ...client.shown(), calls, seen };
}

for (const [name, resolve] of [
  ["interrupt", (one) => one.resolveInterrupt({ colour: "red" })],
  ["interrupt, cancelled", (one) => one.cancel()],
]) {
  const client = chat(name);
  await client.sendMessage("show interrupt");
  const asked = client.shown();
  resolve(client.getInterrupts()[0]);
  await until(() => client.getInterrupts().length === 0 && isIdle(client), name);
  answers[name] = { asked, answered: client.shown() };
}

{
  const client = chat("approval");
  await client.sendMessage("show approval");
  const asked = client.shown();
  client.getInterrupts()[0].resolveInterrupt({ approved: true, editedArgs: { to: "bob@example.com", subject: "Owls" } });
  await until(() => client.getInterrupts().length === 0 && isIdle(client), "approval");
  const answered = client.shown();
  const before = await thread("approval");
  await client.sendMessage("show tools");
  await client.sendMessage("show reasoning");
  await client.sendMessage("show state");
  await client.sendMessage("show text");
  answers.approval = { asked, answered, before, after: await thread("approval"), errors: client.shown().errors };
}

{
  // Another tab: the transcript and the question come from the server.
  const first = chat("reload");
  await first.sendMessage("show tools");
  await first.sendMessage("show interrupt");
  const second = chat("reload", { persistence: true });
  second.attach();
  await until(() => second.getInterrupts().length === 1, "the question");
  const hydrated = second.shown();
  second.getInterrupts()[0].resolveInterrupt({ colour: "pink" });
  await until(() => second.getInterrupts().length === 0 && isIdle(second), "the answer");
  answers.hydrate = { before: first.shown(), hydrated, answered: second.shown() };
  const paged = chat("reload", { persistence: true, history: { pageSize: 1 } });
  paged.attach();
  await until(() => paged.getMessages().length > 0, "the last page");
  const newest = paged.shown().messages;
  await paged.loadOlderMessages();
  answers.pages = { newest, both: paged.shown().messages };
  const fresh = chat("never seen", { persistence: true });
  fresh.attach();
  await fresh.sendMessage("show text");
  answers.fresh = fresh.shown();
}

{
  // A reload while the run is on: hydrate, then join it from its first event.
  const first = chat("join");
  await first.sendMessage("show text");
  const sent = first.sendMessage("show slow");
  await until(() => JSON.stringify(first.getMessages()).includes("1 2 3 4"), "some words");
  const second = chat("join", { persistence: true });
  second.attach();
  await until(() => JSON.stringify(second.getMessages()).includes("1 2 3 4 5 6 7"), "the same words");
  const joined = second.shown();
  const runId = /run-[\w-]+/.exec(second.getResumeState()?.runId ?? "")?.[0] ?? second.getResumeState()?.runId;
  const cancelled = await fetch(`${url}/threads/join/runs/${encodeURIComponent(runId)}/cancel`, { method: "POST" });
  await sent;
  await until(() => isIdle(second), "the end");
  answers.join = { joined, first: first.shown(), second: second.shown(), cancelled: cancelled.status };
}

{
  const whole = chat("whole");
  await whole.sendMessage("show text");
  const seen = [];
  const client = chat("two cuts", { fetchClient: cutting(2, seen) });
  await client.sendMessage("show text");
  answers.cuts = { whole: whole.shown(), cut: client.shown(), seen };
}

process.stdout.write(JSON.stringify(answers), () => process.exit(0));
