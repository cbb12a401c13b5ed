// Reads JSON lines {"schema": "Event", "document": "<JSON text>"} and answers each with a line: {"ok": true, "written":
// "<JSON text>"}, what the schema made of the document, written as @ag-ui/encoder writes it, or {"ok": false, "error": ...}.

import * as schemas from "@ag-ui/core/schemas";
import { readFileSync } from "node:fs";

const answers = [];
for (const line of readFileSync(0, "utf8").split("\n")) {
  if (line === "") continue;
  const { schema, document } = JSON.parse(line);
  const parsed = schemas[`${schema}Schema`].safeParse(JSON.parse(document));
  answers.push(
    JSON.stringify(
      parsed.success
        ? { ok: true, written: JSON.stringify(parsed.data) }
        : { ok: false, error: JSON.stringify(parsed.error.issues) },
    ),
  );
}
process.stdout.write(answers.join("\n") + "\n");
