/**
 * Expands chunks to start, content and end events. Each owner (the agent, or a subagent) has one lane with at most one
 * chunked item (CHK-6). A chunk that cannot be expanded is dropped: the server's check reports it.
 */

import type { AguiEvent, EventType } from "./types";

type Kind = {
  start: EventType;
  content: EventType;
  end: EventType;
  id: "messageId" | "toolCallId";
  /** Members of the start event. Later chunks must not contradict them (CHK-5). */
  opener: Record<string, string | undefined>;
  required: string[];
};
type Chunk = {
  type: string;
  delta?: string;
  metadata?: object;
  timestamp?: number;
  rawEvent?: unknown;
  subagentRunId?: string;
} & Record<string, unknown>;
type Item = { kind: Kind; id: string; owner: string | undefined; fields: Record<string, unknown> };

const KINDS: Record<string, Kind> = {
  TEXT_MESSAGE_CHUNK: {
    start: "TEXT_MESSAGE_START",
    content: "TEXT_MESSAGE_CONTENT",
    end: "TEXT_MESSAGE_END",
    id: "messageId",
    opener: { role: "assistant", name: undefined },
    required: [],
  },
  TOOL_CALL_CHUNK: {
    start: "TOOL_CALL_START",
    content: "TOOL_CALL_ARGS",
    end: "TOOL_CALL_END",
    id: "toolCallId",
    opener: { toolCallName: undefined, parentMessageId: undefined },
    required: ["toolCallName"],
  },
  REASONING_MESSAGE_CHUNK: {
    start: "REASONING_MESSAGE_START",
    content: "REASONING_MESSAGE_CONTENT",
    end: "REASONING_MESSAGE_END",
    id: "messageId",
    opener: {},
    required: [],
  },
};
const CONSTANT: Record<string, object> = { REASONING_MESSAGE_CHUNK: { role: "reasoning" } };

/** Events that end the chunked item of their own lane (CHK-7 b, d). */
const ENDS_LANE = new Set([
  "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END",
  "TOOL_CALL_RESULT", "REASONING_START", "REASONING_END", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT",
  "REASONING_MESSAGE_END", "STEP_STARTED", "STEP_FINISHED", "STATE_SNAPSHOT", "STATE_DELTA", "CUSTOM", "SUBAGENT_FINISHED",
  "SUBAGENT_ERROR",
]); // prettier-ignore
/** Events that end every chunked item (CHK-7 c). */
const ENDS_ALL = new Set(["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"]);

export type Lanes = ReadonlyMap<string | undefined, Item>;

export class ChunkExpander {
  #lanes = new Map<string | undefined, Item>();

  /** The open items by owner, to continue with later. */
  get lanes(): Lanes {
    return new Map(this.#lanes);
  }

  set lanes(lanes: Lanes) {
    this.#lanes = new Map(lanes);
  }

  /** Whether an event expands to itself alone. */
  isPlain(event: AguiEvent): boolean {
    return this.#lanes.size === 0 && !(event.type in KINDS);
  }

  /** Return the events that an event expands to. */
  expand(event: AguiEvent): AguiEvent[] {
    const kind = KINDS[event.type];
    if (kind !== undefined) return this.#expandChunk(kind, event as unknown as Chunk);
    if (ENDS_ALL.has(event.type)) {
      const ended = [...this.#lanes.values()].map(endOf);
      this.#lanes.clear();
      return [...ended, event];
    }
    const lane = (event as { subagentRunId?: string }).subagentRunId;
    const item = ENDS_LANE.has(event.type) ? this.#lanes.get(lane) : undefined;
    if (item === undefined) return [event];
    this.#lanes.delete(lane);
    return [endOf(item), event];
  }

  #expandChunk(kind: Kind, chunk: Chunk): AguiEvent[] {
    const id = chunk[kind.id] as string | undefined;
    const lane = this.#laneOf(kind, chunk, id);
    if (lane === null) return [];
    const item = this.#lanes.get(lane);
    if (item !== undefined && item.kind === kind && (id === undefined || id === item.id)) {
      const contradicts = Object.entries(item.fields).some(([name, value]) => chunk[name] !== undefined && chunk[name] !== value);
      const isEmpty = chunk.delta === undefined && chunk.rawEvent === undefined && chunk.metadata === undefined;
      return contradicts || isEmpty ? [] : [contentOf(item, chunk)];
    }
    if (id === undefined || kind.required.some((name) => chunk[name] === undefined)) return [];
    const fields = Object.fromEntries(Object.entries(kind.opener).map(([name, absent]) => [name, chunk[name] ?? absent]));
    const opened: Item = { kind, id, owner: chunk.subagentRunId, fields };
    const events: AguiEvent[] = [];
    if (item !== undefined) {
      this.#lanes.delete(lane);
      events.push(endOf(item));
    }
    this.#lanes.set(lane, opened);
    const { metadata, timestamp, subagentRunId } = chunk;
    events.push(eventOf({ type: kind.start, [kind.id]: id, ...fields, ...CONSTANT[chunk.type], metadata, timestamp, subagentRunId }));
    if (chunk.delta !== undefined || chunk.rawEvent !== undefined) events.push(contentOf(opened, chunk));
    return events;
  }

  /** Find the lane of a chunk (CHK-8): by its id, else by its tag, else the only lane with an item of the kind. */
  #laneOf(kind: Kind, chunk: Chunk, id: string | undefined): string | undefined | null {
    const tag = chunk.subagentRunId;
    const own = this.#lanes.get(tag);
    if (own !== undefined && own.kind === kind && (id === undefined || id === own.id)) return tag;
    const lanes = [...this.#lanes].filter(([, item]) => item.kind === kind);
    if (id !== undefined) {
      const found = lanes.find(([, item]) => item.id === id);
      if (found === undefined) return tag;
      return tag === undefined || tag === found[0] ? found[0] : null;
    }
    if (tag !== undefined || lanes.length === 0) return tag;
    return lanes.length === 1 ? lanes[0]![0] : null;
  }
}

function contentOf(item: Item, chunk: Chunk): AguiEvent {
  const { metadata, timestamp, rawEvent } = chunk;
  const subagentRunId = chunk.subagentRunId ?? item.owner;
  return eventOf({ type: item.kind.content, [item.kind.id]: item.id, delta: chunk.delta ?? "", subagentRunId, metadata, timestamp, rawEvent });
}

function endOf(item: Item): AguiEvent {
  return eventOf({ type: item.kind.end, [item.kind.id]: item.id, subagentRunId: item.owner });
}

/** Make an event of members, without the absent ones. */
function eventOf(members: Record<string, unknown>): AguiEvent {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as unknown as AguiEvent;
}
