// One run of one generation of @ag-ui/client, which declares its version. stdin: {url, version}; stdout: {events, messages, thrown}.
import { readFileSync } from "node:fs";

for (const level of ["log", "info", "warn", "error", "debug"]) console[level] = () => {};
const { url, version } = JSON.parse(readFileSync(0, "utf8"));
const { HttpAgent } = await import(`client-${version.replaceAll(".", "-")}`);

/** Declares the library's version, as a 0.x client does that wants its own dialect. 1.0.0 declares the protocol's itself. */
class Declaring extends HttpAgent {
  requestInit(input) {
    const init = super.requestInit(input);
    return { ...init, body: JSON.stringify({ ...JSON.parse(init.body), protocolVersion: version }) };
  }
}

const Agent = version.startsWith("0.") ? Declaring : HttpAgent;
const agent = new Agent({ url, threadId: `thread ${version}` });
agent.addMessage({ id: "user-1", role: "user", content: "hi" });
const seen = { events: [], thrown: null };
try {
  await agent.runAgent({ runId: "run-1" }, { onEvent: ({ event }) => void seen.events.push(structuredClone(event)) });
} catch (error) {
  seen.thrown = String(error);
}
process.stdout.write(JSON.stringify({ ...seen, messages: agent.messages }));
