// Reads lines {json, bytes}: an event as JSON, and an encoding as hex (without the frame's length); either may be absent.
// Writes for each a line {bytes, json}: the official encoding, and what the official decoder reads from the bytes;
// or {error, unknown}: why it could not, and whether because the event is of a kind it does not know.
import { createInterface } from "node:readline";
import { AGUIUnknownEventTypeError, decode, encode } from "@ag-ui/proto";

for await (const line of createInterface({ input: process.stdin })) {
  const { json, bytes } = JSON.parse(line);
  const answer = {};
  try {
    if (json !== undefined) answer.bytes = Buffer.from(encode(json)).toString("hex");
    if (bytes !== undefined) answer.json = decode(Buffer.from(bytes, "hex"));
  } catch (error) {
    answer.error = String(error);
    answer.unknown = error instanceof AGUIUnknownEventTypeError;
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
