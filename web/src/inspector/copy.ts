/** What can be copied or saved: JSON, a curl command, a test for pytest, a recording. */

import { base } from "../protocol/api";
import type { StoredEvent } from "../protocol/types";
import type { RunView } from "./source";

/** Copy text to the clipboard. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Only pages of HTTPS or of this machine have a clipboard.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Save text as a file. */
export function saveText(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
  link.download = name.replaceAll(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** One event is an object, several are an array. */
export function asJson(events: readonly StoredEvent[]): string {
  const parsed = events.map(({ event, raw }) => (event.type === ("unreadable" as string) ? raw : event));
  return JSON.stringify(parsed.length === 1 ? parsed[0] : parsed, null, 2);
}

/** The request of the run, on a new thread: a run id is used once per thread. */
export function asCurl(view: RunView): string {
  const input = view.input.value;
  if (input === null) {
    const path = view.thread === null ? "" : `threads/${encodeURIComponent(view.thread)}/runs/${encodeURIComponent(view.run)}/events`;
    return `curl -N ${quoted(new URL(path, base).href)}`;
  }
  const id = crypto.randomUUID().slice(0, 8);
  const body = JSON.stringify({ ...input, threadId: `${input.threadId}-${id}`, runId: `${input.runId}-${id}` });
  return `curl -N ${quoted(base)} \\\n  -H 'content-type: application/json' -H 'accept: text/event-stream' \\\n  -d ${quoted(body)}`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A test that reads the first events of the run and expects what they mean here. */
export function asPytest(view: RunView, count: number): string {
  const conversation = view.model.at(count);
  const events = view.model.events.slice(0, count).map(({ raw }) => `    ${python(raw)},`);
  const name = view.run.replaceAll(/\W+/g, "_").toLowerCase();
  return `import json

from aguila.codec import EventDecoder, decode, encode
from aguila.protocol import Message
from aguila.stream import reduce

MESSAGES = ${python(JSON.stringify(startOf(view).messages))}
STATE = ${python(JSON.stringify(startOf(view).state))}
EVENTS = [
${events.join("\n")}
]


def test_run_${name}():
    decoder = EventDecoder()
    events = [event for data in EVENTS for event in decoder.feed(data)]
    found = reduce(events, messages=decode(MESSAGES, list[Message]), state=json.loads(STATE))
    assert json.loads(encode(found.messages)) == json.loads(${python(JSON.stringify(conversation.messages))})
    assert found.state == json.loads(${python(JSON.stringify(conversation.state))})
`;
}

function startOf(view: RunView): { messages: unknown; state: unknown } {
  const start = view.model.at(0);
  return { messages: start.messages, state: start.state };
}

/** A Python string literal: raw if that is possible, because JSON has many quotes. */
function python(text: string): string {
  return text.includes("'''") || /['\\\r\n]$|[\r\n]/.test(text) ? JSON.stringify(text) : `r'''${text}'''`;
}
