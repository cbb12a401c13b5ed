// Reduces streams with the page's reducer. Input: {"streams": [{"seed": ..., "events": [...], "restores": bool}]}.
// Output: for each stream the conversation after every event.
import { importModule, readInput } from "./bundle.mjs";

const { Conversation } = await importModule("protocol/reducer.ts");

const viewOf = ({ messages, state, interrupts, pendingToolCalls, run }) =>
  ({ messages, state, interrupts, pendingToolCalls, isRunning: run?.status === "running" });

const { streams } = await readInput();
const views = streams.map(({ seed, events, restores }) => {
  let conversation = new Conversation(seed);
  return events.map((event) => {
    conversation.apply(event, 0);
    if (restores) conversation = Conversation.from(conversation.checkpoint());
    return viewOf(conversation);
  });
});
process.stdout.write(JSON.stringify(views));
