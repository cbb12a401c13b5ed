// A model server that nobody here wrote. stdin: one line {fixtures: [...]}, then nothing until the end; stdout: its address.
import { createInterface } from "node:readline";
import { LLMock } from "@copilotkit/aimock";

const lines = createInterface({ input: process.stdin });
let mock;
lines.on("line", async (line) => {
  mock = new LLMock({ port: 0, host: "127.0.0.1" });
  for (const fixture of JSON.parse(line).fixtures) mock.addFixture(fixture);
  await mock.start();
  process.stdout.write(`${mock.url}\n`);
});
lines.on("close", async () => {
  await mock?.stop();
  process.exit(0);
});
