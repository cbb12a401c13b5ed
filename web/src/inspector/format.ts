/** Texts for numbers, and one line for each event. */

import type { StoredEvent } from "../protocol/types";

/** Write milliseconds in the unit that fits. */
export function duration(ms: number): string {
  if (ms < 1) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const minutes = Math.floor(ms / 60_000);
  return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function bytes(count: number): string {
  if (count < 1000) return `${count} B`;
  return count < 1_000_000 ? `${(count / 1000).toFixed(1)} kB` : `${(count / 1_000_000).toFixed(1)} MB`;
}

export function number(count: number): string {
  return count.toLocaleString("en");
}

/** What an event says, in one line. Its JSON is not parsed again: the list shows thousands. */
export function summary({ event, raw }: StoredEvent): string {
  switch (event.type) {
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
    case "TOOL_CALL_ARGS":
      return visible(event.delta);
    case "TEXT_MESSAGE_CHUNK":
    case "REASONING_MESSAGE_CHUNK":
    case "TOOL_CALL_CHUNK":
      return visible(event.delta ?? "");
    case "TEXT_MESSAGE_START":
      return `${event.role ?? "assistant"} ${event.messageId}`;
    case "TOOL_CALL_START":
      return `${event.toolCallName} ${event.toolCallId}`;
    case "TOOL_CALL_RESULT":
      return visible(typeof event.content === "string" ? event.content : `${event.content.length} parts`);
    case "STEP_STARTED":
    case "STEP_FINISHED":
      return event.stepName;
    case "SUBAGENT_STARTED":
      return `${event.name} ${event.subagentRunId}`;
    case "STATE_DELTA":
      return event.delta.map((operation) => `${operation.op} ${operation.path}`).join(", ");
    case "RUN_STARTED":
      return event.runId;
    case "RUN_FINISHED":
      return event.outcome?.type ?? "success";
    case "RUN_ERROR":
      return event.message;
    case "CUSTOM":
      return event.name;
    case "ACTIVITY_SNAPSHOT":
    case "ACTIVITY_DELTA":
      return `${event.activityType} ${event.messageId}`;
    case "TEXT_MESSAGE_END":
    case "REASONING_MESSAGE_START":
    case "REASONING_MESSAGE_END":
    case "REASONING_START":
    case "REASONING_END":
      return event.messageId;
    case "TOOL_CALL_END":
      return event.toolCallId;
    default:
      return raw.slice(0, 240).replace(/^\{"type":"[A-Z_]+",?/, "{");
  }
}

function visible(text: string): string {
  return text.slice(0, 200).replaceAll("\n", "⏎");
}

/** The group of an event type, for its colour. */
export function groupOf(type: string): string {
  if (type.startsWith("TEXT_")) return "text";
  if (type.startsWith("REASONING_")) return "reasoning";
  if (type.startsWith("TOOL_")) return "call";
  if (type.startsWith("STEP_")) return "step";
  if (type.startsWith("STATE_")) return "state";
  if (type.startsWith("SUBAGENT_")) return "subagent";
  if (type === "RUN_ERROR" || type === "unreadable") return "bad";
  if (type.startsWith("RUN_")) return "run";
  return "other";
}
