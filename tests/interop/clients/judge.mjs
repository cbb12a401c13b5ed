// Reads [{"generation": "0.0.45", "events": [...]}, ...] from stdin. Writes for each entry a list with null for an event
// that the EventSchemas of that version accept, and the reason for one that they refuse.
import { readFileSync } from "node:fs";

const answers = [];
for (const { generation, events } of JSON.parse(readFileSync(0, "utf8"))) {
  const name = `core-${generation.replaceAll(".", "-")}`;
  const schemas = await import(generation.startsWith("0.") ? name : `${name}/schemas`);
  const schema = schemas.EventSchemas ?? schemas.EventSchema;
  answers.push(
    events.map((event) => {
      const parsed = schema.safeParse(event);
      return parsed.success ? null : JSON.stringify(parsed.error.issues).slice(0, 600);
    }),
  );
}
process.stdout.write(JSON.stringify(answers));
