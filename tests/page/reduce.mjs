// Reduces streams with the page's reducer. Input: {"streams": [{"seed": ..., "events": [...], "restores": bool}]}, one JSON document.
// Output: for each stream the conversation after every event.
import { createRequire } from "node:module";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const web = join(dirname(fileURLToPath(import.meta.url)), "../../web");
const require = createRequire(join(web, "package.json"));
const { rolldown } = await import(pathToFileURL(require.resolve("rolldown")).href);

const folder = mkdtempSync(join(tmpdir(), "aguila-reducer-"));
const file = join(folder, "reducer.mjs");
const bundle = await rolldown({ input: join(web, "src/protocol/reducer.ts"), logLevel: "silent" });
await bundle.write({ file, format: "esm" });
const { Conversation } = await import(pathToFileURL(file).href);
rmSync(folder, { recursive: true });

const viewOf = ({ messages, state, interrupts, pendingToolCalls, run }) =>
  ({ messages, state, interrupts, pendingToolCalls, isRunning: run?.status === "running" });

let text = "";
for await (const piece of process.stdin) text += piece;
const views = JSON.parse(text).streams.map(({ seed, events, restores }) => {
  let conversation = new Conversation(seed);
  return events.map((event) => {
    conversation.apply(event, 0);
    if (restores) conversation = Conversation.from(conversation.checkpoint());
    return viewOf(conversation);
  });
});
process.stdout.write(JSON.stringify(views));
