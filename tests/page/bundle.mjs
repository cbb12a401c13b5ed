// Imports a TypeScript module of the page into Node.
import { createRequire } from "node:module";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const web = join(dirname(fileURLToPath(import.meta.url)), "../../web");
const require = createRequire(join(web, "package.json"));
const { rolldown } = await import(pathToFileURL(require.resolve("rolldown")).href);

/** Import a module below web/src. */
export async function importModule(path) {
  const folder = mkdtempSync(join(tmpdir(), "aguila-page-"));
  const file = join(folder, "module.mjs");
  const bundle = await rolldown({ input: join(web, "src", path), logLevel: "silent" });
  await bundle.write({ file, format: "esm" });
  const found = await import(pathToFileURL(file).href);
  rmSync(folder, { recursive: true });
  return found;
}

/** Return the JSON document on standard input. */
export async function readInput() {
  let text = "";
  for await (const piece of process.stdin) text += piece;
  return JSON.parse(text);
}
