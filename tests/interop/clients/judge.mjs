// Reads [{"generation": "0.0.45", "events": [...]}, ...] from stdin. Writes for each entry a list with null for an event
// that the EventSchemas of that client accept, and the reason for one that they refuse. The schemas are those of the
// @ag-ui/core that the client itself depends on: client 0.0.40 has core 0.0.39.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const answers = [];
for (const { generation, events } of JSON.parse(readFileSync(0, "utf8"))) {
  const client = createRequire(import.meta.url).resolve(`client-${generation.replaceAll(".", "-")}`);
  const schemas = createRequire(client)(generation.startsWith("0.") ? "@ag-ui/core" : "@ag-ui/core/schemas");
  const schema = schemas.EventSchemas ?? schemas.EventSchema;
  answers.push(
    events.map((event) => {
      const parsed = schema.safeParse(event);
      return parsed.success ? null : JSON.stringify(parsed.error.issues).slice(0, 600);
    }),
  );
}
process.stdout.write(JSON.stringify(answers));
