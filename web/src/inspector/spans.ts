/** Finds the spans of a run: what opens and closes, when, and which events belong to it. */

import type { AguiEvent } from "../protocol/types";

export type SpanKind = "text" | "reasoning" | "call" | "step" | "subagent";

/** A span of the timeline. Times are milliseconds, indexes are those of its first and last event. */
export type TimelineSpan = {
  readonly at: number;
  readonly kind: SpanKind;
  readonly id: string;
  readonly label: string;
  /** The beginning of a text or a thought. */
  preview: string;
  readonly parent: number | null;
  readonly row: number;
  readonly start: number;
  readonly first: number;
  end: number | null;
  last: number;
  hasFailed: boolean;
};

export const NO_SPAN = -1;
const PREVIEW = 60;

/** Collects spans event by event. The cost of an event does not depend on the number of spans. */
export class SpanBuilder {
  readonly spans: TimelineSpan[] = [];
  /** The kinds of spans that the run has. */
  readonly kinds = new Set<SpanKind>();
  /** The number of rows that the spans need. */
  rows = 0;
  #open = new Map<string, number>();
  #closed = new Map<string, number>();
  /** The innermost open step or subagent of each owner. */
  #containers = new Map<string | null, number[]>();
  #rowEnds: number[] = [];

  /** Apply an event, whose chunks are expanded. Return the span that it belongs to, or NO_SPAN. */
  feed(event: AguiEvent, index: number, time: number): number {
    const owner = (event as { subagentRunId?: string }).subagentRunId ?? null;
    switch (event.type) {
      case "TEXT_MESSAGE_START":
        return this.#start("text", event.messageId, event.role ?? "assistant", owner, index, time);
      case "TEXT_MESSAGE_CONTENT":
        return this.#write(`text ${event.messageId}`, event.delta, index, owner);
      case "TEXT_MESSAGE_END":
        return this.#end(`text ${event.messageId}`, index, time, owner);
      case "REASONING_START":
        return this.#start("reasoning", `span ${event.messageId}`, "reasoning", owner, index, time);
      case "REASONING_END":
        return this.#end(`reasoning span ${event.messageId}`, index, time, owner);
      case "REASONING_MESSAGE_START":
        return this.#start("reasoning", event.messageId, "reasoning", owner, index, time);
      case "REASONING_MESSAGE_CONTENT":
        return this.#write(`reasoning ${event.messageId}`, event.delta, index, owner);
      case "REASONING_MESSAGE_END":
        return this.#end(`reasoning ${event.messageId}`, index, time, owner);
      case "TOOL_CALL_START":
        return this.#start("call", event.toolCallId, event.toolCallName, owner, index, time);
      case "TOOL_CALL_ARGS":
        return this.#touch(`call ${event.toolCallId}`, index, owner);
      case "TOOL_CALL_END":
        return this.#end(`call ${event.toolCallId}`, index, time, owner);
      case "TOOL_CALL_RESULT":
        return this.#end(`call ${event.toolCallId}`, index, time, owner); // the call takes until its result
      case "STEP_STARTED": {
        const at = this.#start("step", `${owner ?? ""} ${event.stepName}`, event.stepName, owner, index, time);
        this.#containersOf(owner).push(at);
        return at;
      }
      case "STEP_FINISHED": {
        const at = this.#end(`step ${owner ?? ""} ${event.stepName}`, index, time, owner);
        this.#leave(owner, at);
        return at;
      }
      case "SUBAGENT_STARTED": {
        const at = this.#start("subagent", event.subagentRunId, event.name, event.parentSubagentRunId ?? null, index, time);
        this.#containers.set(event.subagentRunId, [at]);
        return at;
      }
      case "SUBAGENT_FINISHED":
      case "SUBAGENT_ERROR": {
        const at = this.#end(`subagent ${event.subagentRunId}`, index, time, owner);
        if (at !== NO_SPAN && event.type === "SUBAGENT_ERROR") this.spans[at]!.hasFailed = true;
        return at;
      }
      case "RUN_FINISHED":
      case "RUN_ERROR":
        for (const at of this.#open.values()) {
          const span = this.spans[at]!;
          span.end = time;
          span.hasFailed ||= event.type === "RUN_ERROR";
          this.#rowEnds[span.row] = time;
        }
        this.#open.clear();
        this.#containers.clear();
        return NO_SPAN;
      default:
        return this.#containerOf(owner);
    }
  }

  /** Return whether a span is another one or is within it. */
  isWithin(at: number, ancestor: number): boolean {
    for (let one: number | null = at; one !== null && one !== NO_SPAN; one = this.spans[one]!.parent) if (one === ancestor) return true;
    return false;
  }

  #start(kind: SpanKind, id: string, label: string, owner: string | null, index: number, time: number): number {
    const container = this.#containerOf(owner);
    const parent = container === NO_SPAN ? null : container;
    let row = parent === null ? 0 : this.spans[parent]!.row + 1;
    while ((this.#rowEnds[row] ?? -Infinity) > time) row++;
    this.#rowEnds[row] = Infinity;
    this.rows = Math.max(this.rows, row + 1);
    const at = this.spans.length;
    this.kinds.add(kind);
    this.spans.push({ at, kind, id, label, preview: "", parent, row, start: time, first: index, end: null, last: index, hasFailed: false });
    this.#open.set(`${kind} ${id}`, at);
    return at;
  }

  #touch(key: string, index: number, owner: string | null): number {
    const at = this.#open.get(key);
    if (at === undefined) return this.#containerOf(owner);
    this.spans[at]!.last = index;
    return at;
  }

  #write(key: string, delta: string, index: number, owner: string | null): number {
    const at = this.#touch(key, index, owner);
    const span = this.#open.get(key) === at ? this.spans[at] : undefined;
    if (span !== undefined && span.preview.length < PREVIEW) span.preview += delta.slice(0, PREVIEW).replaceAll("\n", " ");
    return at;
  }

  #end(key: string, index: number, time: number, owner: string | null): number {
    const at = this.#open.get(key) ?? this.#closed.get(key);
    if (at === undefined) return this.#containerOf(owner);
    const span = this.spans[at]!;
    span.end = time;
    span.last = index;
    this.#rowEnds[span.row] = Math.max(time, this.#rowEnds[span.row] === Infinity ? time : (this.#rowEnds[span.row] ?? time));
    this.#open.delete(key);
    this.#closed.set(key, at);
    return at;
  }

  #containersOf(owner: string | null): number[] {
    let found = this.#containers.get(owner);
    if (found === undefined) this.#containers.set(owner, (found = []));
    return found;
  }

  #containerOf(owner: string | null): number {
    return this.#containers.get(owner)?.at(-1) ?? NO_SPAN;
  }

  #leave(owner: string | null, at: number): void {
    const containers = this.#containersOf(owner);
    const place = containers.lastIndexOf(at);
    if (place !== -1) containers.splice(place, 1);
  }
}
