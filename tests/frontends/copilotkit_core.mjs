// Drives CopilotKit's own client (@copilotkit/core, below its React components) against a server that runs no Node.
// Arguments: the folder with node_modules, the runtime's address, and the transport: rest, auto or single.
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, url, transport] = process.argv.slice(2);
globalThis.window = globalThis; // the client connects in browsers only
globalThis.location = new URL("http://localhost/");
const { CopilotKitCore, ɵcreateThreadStore } = createRequire(join(folder, "package.json"))("@copilotkit/core");

async function until(what, condition) {
  const end = Date.now() + 60000;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`timeout: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const errors = [];
async function connected() {
  const core = new CopilotKitCore({ runtimeUrl: url, runtimeTransport: transport });
  core.subscribe({ onError: ({ code, error }) => errors.push(`${code}: ${error}`) });
  core.connect?.();
  await until("connected", () => core.runtimeConnectionStatus === "connected");
  return core;
}

const found = { errors };
const core = await connected();
found.transport = core.runtimeTransport;
found.agents = Object.keys(core.agents);
const agent = core.getAgent("default");
agent.threadId = "t";
await core.connectAgent({ agent });
found.before = agent.messages.length;

agent.addMessage({ id: "u1", role: "user", content: "Hello" });
await core.runAgent({ agent });
found.messages = agent.messages.map(({ role, content }) => [role, content]);
found.state = agent.state;

const other = await connected();
const visitor = other.getAgent("default");
visitor.threadId = "t";
await other.connectAgent({ agent: visitor });
found.joined = visitor.messages.map(({ role, content }) => [role, content]);

agent.addMessage({ id: "u2", role: "user", content: "slow" });
const running = core.runAgent({ agent });
await until("the first words", () => agent.messages.length === 4);
core.stopAgent({ agent });
await running;
found.isRunning = agent.isRunning;

const store = ɵcreateThreadStore({ fetch: core.ɵruntimeFetch });
const thread = () => store.getState().threads.find(({ id }) => id === "t");
store.start();
store.setContext({ runtimeUrl: url, headers: {}, agentId: "default", includeArchived: false });
await until("the list", () => thread());
async function changed(what, change, condition) {
  await change;
  store.refetchThreads();
  await until(what, condition);
}
await changed("renamed", store.renameThread("t", "Eagles"), () => thread()?.name === "Eagles");
await changed("archived", store.archiveThread("t"), () => !thread());
await changed("restored", store.unarchiveThread("t"), () => thread());
await changed("deleted", store.deleteThread("t"), () => !thread());

core.addSuggestionsConfig({ instructions: "Suggest", consumerAgentId: "default", available: "always" });
core.reloadSuggestions("default");
await until("suggestions", () => {
  const { suggestions, isLoading } = core.getSuggestions("default");
  return suggestions.length > 0 && !isLoading;
});
found.suggestions = core.getSuggestions("default").suggestions.map(({ title }) => title);
process.stdout.write(JSON.stringify(found));
process.exit(0);
