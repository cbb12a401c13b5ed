// The peer for the consume rows: @ag-ui/client 1.0.0 reads the same SSE bytes, given to it by its own `fetch` option.
// usage: node consume_peer.mjs <module dir> <file.sse> ...   prints {file: seconds} as JSON
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
const [dir, ...files] = process.argv.slice(2);
const { HttpAgent } = createRequire(join(dir, "x.js"))("@ag-ui/client");

const CHUNK = 65536; // what a socket read brings at most; the same for both sides

function fetchOf(bytes) {
  return async () =>
    new Response(
      new ReadableStream({
        start(controller) {
          for (let i = 0; i < bytes.length; i += CHUNK) controller.enqueue(bytes.subarray(i, i + CHUNK));
          controller.close();
        },
      }),
      { status: 200, headers: { "content-type": "text/event-stream" } },
    );
}

const seconds = {};
for (const file of files) {
  const bytes = new Uint8Array(readFileSync(file));
  const agent = new HttpAgent({ url: "http://127.0.0.1:9/", fetch: fetchOf(bytes), threadId: "t" });
  const start = process.hrtime.bigint();
  await agent.runAgent({ runId: "r" });
  seconds[file] = Number(process.hrtime.bigint() - start) / 1e9;
  if (agent.messages.length === 0 && Object.keys(agent.state).length === 0) throw new Error(`nothing was read from ${file}`);
}
console.log(JSON.stringify(seconds));
