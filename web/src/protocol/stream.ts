/** Reads the events of a response. */

import type { AguiEvent, StoredEvent } from "./types";

/** Splits SSE into frames: text in, the events that it completes out. */
export class SSEParser {
  #rest = "";
  #data: string[] = [];
  #id: string | null = null;
  #time: number | null = null;
  #endedWithCR = false;

  /** Whether the text so far ends inside a frame. */
  get isInsideFrame(): boolean {
    return this.#rest !== "" || this.#data.length > 0;
  }

  /** Return the events that the next piece of text completes. Throws SyntaxError for data that is not JSON. */
  feed(text: string): StoredEvent[] {
    if (this.#endedWithCR && text.startsWith("\n")) text = text.slice(1);
    this.#endedWithCR = text.endsWith("\r");
    const events: StoredEvent[] = [];
    const whole = this.#rest + text;
    let start = 0;
    // indexOf is much faster than a regular expression on the usual stream, which has LF only.
    const hasCR = whole.includes("\r");
    for (;;) {
      let end = whole.indexOf("\n", start);
      let next = end + 1;
      if (hasCR) {
        const cr = whole.indexOf("\r", start);
        if (cr !== -1 && (end === -1 || cr < end)) {
          end = cr;
          next = whole[cr + 1] === "\n" ? cr + 2 : cr + 1;
        }
      }
      if (end === -1) break;
      if (end === start) this.#dispatch(events);
      else this.#line(whole.slice(start, end));
      start = next;
    }
    this.#rest = whole.slice(start);
    return events;
  }

  #line(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) {
      // `?times=true`: the time when the events that follow were stored.
      if (line.startsWith(": time=")) this.#time = Number(line.slice(7)) || null;
      return;
    }
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this.#data.push(value);
    else if (name === "id") this.#id = value;
  }

  #dispatch(events: StoredEvent[]): void {
    if (this.#data.length > 0) {
      const raw = this.#data.length === 1 ? this.#data[0]! : this.#data.join("\n");
      // The id is the cursor: the number of the event, and the token of the run that wrote it.
      const seq = this.#id !== null && /^\d+(-|$)/.test(this.#id) ? Number.parseInt(this.#id, 10) : null;
      const stored: StoredEvent = { seq, event: JSON.parse(raw) as AguiEvent, raw };
      if (seq !== null && this.#id !== null) stored.cursor = this.#id;
      if (this.#time !== null) stored.time = this.#time;
      events.push(stored);
    }
    this.#data = [];
    this.#id = null;
  }
}

/** Bytes that are parsed at a time: a fast server sends megabytes in one piece. */
const SLICE = 1 << 16;

/** Read the events of a response, in the batches in which they arrive. Throws if the body breaks off inside a frame. */
export async function* readBatches(response: Response): AsyncGenerator<StoredEvent[]> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new SSEParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      for (let at = 0; at < value.length; at += SLICE) {
        const batch = parser.feed(decoder.decode(value.subarray(at, at + SLICE), { stream: true }));
        if (batch.length > 0) yield batch;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
  parser.feed(decoder.decode());
  if (parser.isInsideFrame) throw new Error("the stream broke off inside an event");
}

/** Read the events of a response one by one. Throws if the body breaks off inside a frame. */
export async function* readEvents(response: Response): AsyncGenerator<StoredEvent> {
  for await (const batch of readBatches(response)) yield* batch;
}
