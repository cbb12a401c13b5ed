// Reads lines {json, bytes}: an event as JSON, and our encoding of it as hex (without the frame's length).
// Writes for each a line {bytes, json}: the official encoding, and what the official decoder reads from our bytes.
import { createInterface } from "node:readline";
import { decode, encode } from "@ag-ui/proto";

for await (const line of createInterface({ input: process.stdin })) {
  const { json, bytes } = JSON.parse(line);
  const answer = {};
  try {
    answer.bytes = Buffer.from(encode(json)).toString("hex");
    answer.json = decode(Buffer.from(bytes, "hex"));
  } catch (error) {
    answer.error = String(error);
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
