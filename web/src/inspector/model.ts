/**
 * A run in memory: its events, spans and costs, and the conversation as of any event. Events are added in batches;
 * checkpoints make every position quick to reach.
 */

import { ChunkExpander } from "../protocol/chunks";
import { Conversation, type Checkpoint, type Seed } from "../protocol/reducer";
import type { AguiEvent, StoredEvent, TokenUsage } from "../protocol/types";
import { SpanBuilder, type SpanKind, type TimelineSpan } from "./spans";

/** Events between two checkpoints. */
const SPACING = 4096;

export type Usage = { entry: TokenUsage; where: string; index: number };
export type Gap = { length: number; after: number };

export class RunModel {
  readonly events: StoredEvent[] = [];
  /** Milliseconds since 1970, or event numbers if nothing has a time. */
  readonly times: number[] = [];
  /** The span of each event, or NO_SPAN. */
  readonly spanOf: number[] = [];
  readonly types = new Map<string, { count: number; bytes: number }>();
  /** The tokens by model, as the end of the run has them. */
  readonly sums: TokenUsage[] = [];
  /** The tokens of single model calls. */
  readonly usage: Usage[] = [];
  bytes = 0;
  longestGap: Gap | null = null;
  /** Whether the times are known. If not, they are event numbers. */
  hasTimes = false;
  #builder = new SpanBuilder();
  #chunks = new ChunkExpander();
  #seed: Seed | null;
  #checkpoints: Checkpoint[] = [];
  #reduced = 0;
  #end: Conversation | null = null;
  /** The conversation that was asked for last, to continue from. */
  #recent: { count: number; conversation: Conversation } | null = null;

  /** Without a seed the conversation is unknown until `setSeed`. */
  constructor(seed: Seed | null = null) {
    this.#seed = seed;
  }

  get length(): number {
    return this.events.length;
  }

  get spans(): readonly TimelineSpan[] {
    return this.#builder.spans;
  }

  get kinds(): ReadonlySet<SpanKind> {
    return this.#builder.kinds;
  }

  get rows(): number {
    return this.#builder.rows;
  }

  /** The ids of the messages that the run started from. */
  get seedMessages(): ReadonlySet<string> {
    return new Set((this.#seed?.messages ?? []).map((message) => message.id));
  }

  get hasSeed(): boolean {
    return this.#seed !== null;
  }

  /** Set what the run started from. */
  setSeed(seed: Seed): void {
    this.#seed = seed;
    this.#checkpoints = [];
    this.#reduced = 0;
    this.#end = this.#recent = null;
  }

  /** Add the next events. */
  push(batch: readonly StoredEvent[]): void {
    for (const stored of batch) this.#add(stored);
  }

  #add(stored: StoredEvent): void {
    const { event, raw } = stored;
    const index = this.events.length;
    const known = stored.time ?? event.timestamp;
    if (index === 0) this.hasTimes = known !== undefined;
    const before = this.times[index - 1];
    const time = this.hasTimes ? Math.max(known ?? before ?? 0, before ?? -Infinity) : index;
    this.events.push(stored);
    this.times.push(time);
    if (before !== undefined && this.hasTimes && time - before > (this.longestGap?.length ?? 0)) {
      this.longestGap = { length: time - before, after: index - 1 };
    }
    const bytes = utf8Length(raw);
    this.bytes += bytes;
    const entry = this.types.get(event.type);
    if (entry === undefined) {
      this.types.set(event.type, { count: 1, bytes });
    } else {
      entry.count++;
      entry.bytes += bytes;
    }
    let span: number;
    if (this.#chunks.isPlain(event)) span = this.#builder.feed(event, index, time);
    else span = this.#chunks.expand(event).reduce((_, one) => this.#builder.feed(one, index, time), -1);
    this.spanOf.push(span);
    this.#collectUsage(event, index);
  }

  #collectUsage(event: AguiEvent, index: number): void {
    if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") {
      for (const entry of event.usage ?? []) this.sums.push(entry);
      const own = event.metadata?.["aguila"];
      const calls = typeof own === "object" && own !== null && !Array.isArray(own) ? own["modelCalls"] : undefined;
      if (Array.isArray(calls)) calls.forEach((entry, at) => this.usage.push({ entry: entry as TokenUsage, where: `call ${at + 1}`, index }));
      return;
    }
    const own = event.metadata?.["usage"];
    if (typeof own !== "object" || own === null) return;
    const span = this.#builder.spans[this.spanOf[index]!];
    for (const entry of Array.isArray(own) ? own : [own]) this.usage.push({ entry: entry as TokenUsage, where: span?.label ?? event.type, index });
  }

  /** Reduce at most `limit` further events into checkpoints. Return whether there are more. */
  reduceSome(limit = SPACING): boolean {
    if (this.#seed === null) return false;
    this.#end ??= new Conversation(this.#seed);
    const stop = Math.min(this.length, this.#reduced + limit);
    for (; this.#reduced < stop; this.#reduced++) {
      if (this.#reduced % SPACING === 0) this.#checkpoints.push(this.#end.checkpoint());
      this.#end.apply(this.events[this.#reduced]!.event, this.times[this.#reduced]);
    }
    return this.#reduced < this.length;
  }

  /** Return the conversation after the first `count` events. Do not apply events to it. */
  at(count: number): Conversation {
    while (this.#reduced < count && this.reduceSome()) continue;
    if (this.#end !== null && count === this.#reduced) return this.#end;
    const number = Math.min(Math.floor(count / SPACING), this.#checkpoints.length - 1);
    const recent = this.#recent;
    let start = number * SPACING;
    let conversation: Conversation;
    if (recent !== null && recent.count <= count && recent.count >= start) {
      ({ conversation } = recent);
      start = recent.count;
    } else {
      const checkpoint = this.#checkpoints[number];
      conversation = checkpoint === undefined ? new Conversation(this.#seed ?? {}) : Conversation.from(checkpoint);
      if (checkpoint === undefined) start = 0;
    }
    for (let index = start; index < count; index++) conversation.apply(this.events[index]!.event, this.times[index]);
    this.#recent = { count, conversation };
    return conversation;
  }

  /** Return the indexes of the events of a span and of the spans within it. */
  eventsOf(span: number): (index: number) => boolean {
    const { first, last } = this.spans[span]!;
    return (index) => index >= first && index <= last && this.#builder.isWithin(this.spanOf[index]!, span);
  }

  /** Return the index of the event with a sequence number, or -1. */
  indexOf(seq: number): number {
    let low = 0;
    let high = this.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const found = this.events[middle]!.seq ?? middle;
      if (found === seq) return middle;
      if (found < seq) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  /** Return the index of the first event at a time or later. */
  firstAt(time: number): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle]! < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function utf8Length(text: string): number {
  let length = text.length;
  // eslint-disable-next-line no-control-regex
  if (/^[\x00-\x7f]*$/.test(text)) return length;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code > 0x7f) length++;
    if (code > 0x7ff) length++;
    if (code >= 0xd800 && code <= 0xdbff) {
      at++; // a pair is four bytes
    }
  }
  return length;
}
