// Reads streams with the page's SSE reader, and recordings. Input: {"bodies": [[base64, ...], ...], "recordings": [text, ...]}.
// Output: the events or the error of each.
import { importModule, readInput } from "./bundle.mjs";

const { readEvents } = await importModule("protocol/stream.ts");
const { readRecording } = await importModule("inspector/recording.ts");

const { bodies, recordings } = await readInput();
const found = { bodies: [], recordings: [] };
for (const pieces of bodies) {
  const body = new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(new Uint8Array(Buffer.from(piece, "base64")));
      controller.close();
    },
  });
  const events = [];
  let error = null;
  try {
    for await (const stored of readEvents(new Response(body))) events.push(stored);
  } catch (problem) {
    error = problem.message;
  }
  found.bodies.push({ events, error });
}
for (const text of recordings) {
  try {
    found.recordings.push(readRecording(text));
  } catch (problem) {
    found.recordings.push(problem.message);
  }
}
process.stdout.write(JSON.stringify(found));
