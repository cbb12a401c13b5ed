/** Reads and writes recordings: JSON lines, SSE, or a JSON array. The browser reads a dropped file itself. */

import type { AguiEvent, Json, RunAgentInput, StoredEvent } from "../protocol/types";
import { SSEParser } from "../protocol/stream";

/** A recorded run. Events without times have none. */
export type RecordedRun = { name: string; input: RunAgentInput | null; events: StoredEvent[] };

/** Return the runs of a recording. Throws an Error that says what is wrong. */
export function readRecording(text: string): RecordedRun[] {
  const start = text.replace(/^\ufeff/, "").trimStart();
  let runs: RecordedRun[];
  if (start.startsWith("[")) runs = [runOf(null, readArray(start))];
  else if (start.startsWith("{")) runs = readLines(start);
  else runs = [runOf(null, readSSE(start))];
  runs = runs.flatMap((run) => (run.input === null ? splitRuns(run.events) : [run])).filter((run) => run.events.length > 0);
  if (runs.length === 0) throw new Error("The file has no events. A recording is SSE, JSON lines or a JSON array of events.");
  return runs.map((run, at) => ({ ...run, name: nameOf(run, at) }));
}

function readArray(text: string): StoredEvent[] {
  const found: unknown = JSON.parse(text);
  if (!Array.isArray(found)) throw new Error("The file is not a JSON array of events.");
  return found.map((event) => storedOf(JSON.stringify(event), event));
}

function readLines(text: string): RecordedRun[] {
  const runs: RecordedRun[] = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    let found: { type?: unknown; ms?: number | null; input?: RunAgentInput | null; event?: unknown };
    try {
      found = JSON.parse(line) as typeof found;
    } catch {
      found = { type: "unreadable" };
    }
    if (found.type === undefined && "input" in found) {
      runs.push(runOf(found.input ?? null, []));
      continue;
    }
    if (runs.length === 0) runs.push(runOf(null, []));
    const events = runs.at(-1)!.events;
    if (found.type === undefined && "event" in found) events.push(storedOf(JSON.stringify(found.event), found.event, found.ms));
    else events.push(storedOf(line, found));
  }
  return runs;
}

function readSSE(text: string): StoredEvent[] {
  return new SSEParser().feed(text.endsWith("\n\n") ? text : `${text}\n\n`);
}

function storedOf(raw: string, event: unknown, ms?: number | null): StoredEvent {
  const isEvent = typeof event === "object" && event !== null && typeof (event as { type?: unknown }).type === "string";
  const stored: StoredEvent = { seq: null, event: (isEvent ? event : { type: "unreadable" }) as AguiEvent, raw };
  if (typeof ms === "number") stored.time = ms;
  return stored;
}

function runOf(input: RunAgentInput | null, events: StoredEvent[]): RecordedRun {
  return { name: "", input, events };
}

function splitRuns(events: StoredEvent[]): RecordedRun[] {
  const runs: RecordedRun[] = [];
  for (const stored of events) {
    const isStart = stored.event.type === "RUN_STARTED" && (runs.at(-1)?.events.length ?? 0) > 0;
    if (runs.length === 0 || isStart) runs.push(runOf(null, []));
    runs.at(-1)!.events.push(stored);
  }
  return runs;
}

function nameOf(run: RecordedRun, at: number): string {
  const started = run.events.find(({ event }) => event.type === "RUN_STARTED");
  return started?.event.type === "RUN_STARTED" ? started.event.runId : `run ${at + 1}`;
}

/** Return a run as lines of a recording, which `aguila check`, `replay` and `inspect` read. */
export function writeRecording(input: RunAgentInput | Json | null, events: readonly StoredEvent[], times: readonly number[] | null): string {
  const lines = input === null ? [] : [`{"ms":0,"input":${JSON.stringify(input)}}`];
  const start = times?.[0] ?? 0;
  events.forEach(({ raw }, at) => lines.push(times === null ? raw : `{"ms":${Math.round(times[at]! - start)},"event":${raw}}`));
  return `${lines.join("\n")}\n`;
}
