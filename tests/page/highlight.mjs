// Prints the CPU time in milliseconds that the colours of a text take, for each [text, language] on standard input.
import { importModule, readInput } from "./bundle.mjs";

const { highlight } = await importModule("chat/highlight.ts");

const times = (await readInput()).map(([text, language]) => {
  const before = process.cpuUsage();
  highlight(text, language);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
});
console.log(JSON.stringify(times));
