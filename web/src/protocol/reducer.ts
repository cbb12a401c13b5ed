/**
 * Reduces events to a conversation. The cost of an event does not depend on the events before it. An event that refers
 * to something unknown changes nothing: the server's check reports it.
 */

import { ChunkExpander, type Lanes } from "./chunks";
import { encrypted, keptBySnapshot, merged, MessageList, type MessageBuilder } from "./messages";
import { applyPatch, PatchError } from "./patch";
import type { ActivityMessage, AguiEvent, Interrupt, Json, Message, Metadata, Outcome, PatchOperation, TokenUsage, ToolCall } from "./types";

export type Span = { startedAt: number; endedAt: number | null };
export type RunState = Span & {
  runId: string;
  threadId: string;
  parentRunId: string | null;
  status: "running" | "finished" | "failed";
  outcome: Outcome | null;
  result: Json;
  error: { message: string; code?: string } | null;
  usage: TokenUsage[];
};
export type Step = Span & { name: string; subagentRunId: string | null; metadata: Json };
export type Subagent = Span & {
  id: string;
  name: string;
  description: string | null;
  parentSubagentRunId: string | null;
  parentToolCallId: string | null;
  parentMessageId: string | null;
  status: "running" | "finished" | "suspended" | "failed";
  result: Json;
  error: string | null;
};
export type Seed = { messages?: readonly Message[]; state?: Json; interrupts?: readonly Interrupt[]; pendingToolCallIds?: readonly string[] };

type CallStatus = "streaming" | "called" | "answered";

/** Everything that a conversation knows, to continue from later. It is never changed. */
export type Checkpoint = {
  readonly messages: readonly Message[];
  readonly state: Json;
  readonly interrupts: readonly Interrupt[];
  readonly pending: readonly string[];
  readonly run: RunState | null;
  readonly steps: readonly Step[];
  readonly subagents: ReadonlyMap<string, Subagent>;
  readonly times: ReadonlyMap<string, Span>;
  readonly open: ReadonlySet<string>;
  readonly calls: ReadonlyMap<string, CallStatus>;
  readonly lanes: Lanes;
};

type EventOf<T extends AguiEvent["type"]> = Extract<AguiEvent, { type: T }>;

export class Conversation {
  #messages: MessageList;
  #chunks = new ChunkExpander();
  #state: Json;
  #interrupts: readonly Interrupt[];
  #pending: readonly string[];
  #run: RunState | null = null;
  #steps: Step[] = [];
  #subagents = new Map<string, Subagent>();
  #times = new Map<string, Span>();
  #open = new Set<string>();
  #calls = new Map<string, CallStatus>();

  constructor(seed: Seed = {}) {
    this.#messages = new MessageList(seed.messages);
    this.#state = seed.state === undefined ? {} : seed.state;
    this.#interrupts = seed.interrupts ?? [];
    this.#pending = seed.pendingToolCallIds ?? [];
  }

  /** Continue from a checkpoint. */
  static from(checkpoint: Checkpoint): Conversation {
    const made = new Conversation();
    made.#messages = new MessageList(checkpoint.messages);
    made.#state = checkpoint.state;
    made.#interrupts = checkpoint.interrupts;
    made.#pending = checkpoint.pending;
    made.#run = checkpoint.run;
    made.#steps = [...checkpoint.steps];
    made.#subagents = new Map(checkpoint.subagents);
    made.#times = new Map(checkpoint.times);
    made.#open = new Set(checkpoint.open);
    made.#calls = new Map(checkpoint.calls);
    made.#chunks.lanes = checkpoint.lanes;
    return made;
  }

  /** Return the conversation as it is now. */
  checkpoint(): Checkpoint {
    return {
      messages: this.#messages.view(),
      state: this.#state,
      interrupts: this.#interrupts,
      pending: this.#pending,
      run: this.#run,
      steps: [...this.#steps],
      subagents: new Map(this.#subagents),
      times: new Map(this.#times),
      open: new Set(this.#open),
      calls: new Map(this.#calls),
      lanes: this.#chunks.lanes,
    };
  }

  /** The messages. The list is rebuilt when it is read after a change; unchanged messages keep their identity. */
  get messages(): readonly Message[] {
    return this.#messages.view();
  }

  /** The state. Changed paths are copied, the rest is shared. */
  get state(): Json {
    return this.#state;
  }

  /** The open interrupts: those of the last RUN_FINISHED, or of the seed. None during a run. */
  get interrupts(): readonly Interrupt[] {
    return this.#run?.status === "running" ? [] : this.#interrupts;
  }

  /** The ids of calls that wait for the front end. */
  get pendingToolCalls(): readonly string[] {
    return this.#pending;
  }

  /** The last run. */
  get run(): RunState | null {
    return this.#run;
  }

  /** The steps of the last run, in order of their start. */
  get steps(): readonly Step[] {
    return this.#steps;
  }

  /** The subagents of the last run, in order of their start. */
  get subagents(): ReadonlyMap<string, Subagent> {
    return this.#subagents;
  }

  /** When messages, calls and reasoning spans started and ended (ms), by their id. */
  get times(): ReadonlyMap<string, Span> {
    return this.#times;
  }

  /** The ids of messages, calls and reasoning that are still being written. */
  get open(): ReadonlySet<string> {
    return this.#open;
  }

  /** Apply the next event. `now` (ms) is used if the event has no timestamp. */
  apply(event: AguiEvent, now: number = Date.now()): void {
    if (this.#chunks.isPlain(event)) this.#apply(event, event.timestamp ?? now);
    else for (const expanded of this.#chunks.expand(event)) this.#apply(expanded, event.timestamp ?? now);
  }

  #apply(event: AguiEvent, now: number): void {
    switch (event.type) {
      case "TEXT_MESSAGE_CONTENT":
      case "REASONING_MESSAGE_CONTENT":
        return this.#appendText(event);
      case "TOOL_CALL_ARGS":
        return this.#appendArguments(event);
      case "TEXT_MESSAGE_START":
        this.#begin(event.messageId, now);
        return this.#startMessage(event, { role: event.role ?? "assistant", ...(event.name !== undefined && { name: event.name }) });
      case "REASONING_MESSAGE_START":
        this.#begin(event.messageId, now);
        return this.#startMessage(event, { role: "reasoning" });
      case "TEXT_MESSAGE_END":
      case "REASONING_MESSAGE_END":
        this.#end(event.messageId, now);
        return this.#mergeMetadata(event.messageId, event.metadata);
      case "REASONING_START":
        return this.#begin(event.messageId, now);
      case "REASONING_END":
        return this.#end(event.messageId, now);
      case "TOOL_CALL_START":
        this.#begin(event.toolCallId, now);
        return this.#startCall(event);
      case "TOOL_CALL_END":
        return this.#endCall(event, now);
      case "TOOL_CALL_RESULT":
        return this.#addResult(event, now);
      case "REASONING_ENCRYPTED_VALUE":
        return this.#encrypt(event);
      case "STATE_SNAPSHOT":
        this.#state = event.snapshot;
        return;
      case "STATE_DELTA":
        this.#patchState(event.delta);
        return;
      case "MESSAGES_SNAPSHOT":
        return this.#messages.applySnapshot(event.messages, keptBySnapshot(event.messages, event.metadata));
      case "ACTIVITY_SNAPSHOT":
        return this.#setActivity(event);
      case "ACTIVITY_DELTA":
        return this.#patchActivity(event);
      case "STEP_STARTED":
        this.#steps.push({
          name: event.stepName,
          subagentRunId: event.subagentRunId ?? null,
          metadata: event.metadata ?? null,
          startedAt: now,
          endedAt: null,
        });
        return;
      case "STEP_FINISHED":
        return this.#finishStep(event, now);
      case "SUBAGENT_STARTED":
        this.#subagents.set(event.subagentRunId, {
          id: event.subagentRunId,
          name: event.name,
          description: event.description ?? null,
          parentSubagentRunId: event.parentSubagentRunId ?? null,
          parentToolCallId: event.parentToolCallId ?? null,
          parentMessageId: event.parentMessageId ?? null,
          status: "running",
          result: null,
          error: null,
          startedAt: now,
          endedAt: null,
        });
        return;
      case "SUBAGENT_FINISHED":
        return this.#endSubagent(event.subagentRunId, now, {
          status: event.outcome?.type === "suspended" ? "suspended" : "finished",
          result: event.result ?? null,
        });
      case "SUBAGENT_ERROR":
        return this.#endSubagent(event.subagentRunId, now, { status: "failed", error: event.message });
      case "RUN_STARTED":
        return this.#startRun(event, now);
      case "RUN_FINISHED":
        return this.#finishRun(event, now);
      case "RUN_ERROR":
        return this.#failRun(event, now);
    }
  }

  // Runs

  #startRun(event: EventOf<"RUN_STARTED">, now: number): void {
    this.#run = {
      runId: event.runId,
      threadId: event.threadId,
      parentRunId: event.parentRunId ?? null,
      status: "running",
      outcome: null,
      result: null,
      error: null,
      usage: [],
      startedAt: now,
      endedAt: null,
    };
    this.#steps = [];
    this.#subagents = new Map();
    this.#calls = new Map();
    this.#pending = [];
    for (const message of event.input?.messages ?? []) if (!this.#messages.byId.has(message.id)) this.#messages.append(message);
  }

  #finishRun(event: EventOf<"RUN_FINISHED">, now: number): void {
    const run = this.#run ?? { runId: event.runId, threadId: event.threadId, parentRunId: null, error: null, startedAt: now };
    const outcome: Outcome = event.outcome ?? { type: "success" };
    this.#run = { ...run, status: "finished", outcome, result: event.result ?? null, usage: event.usage ?? [], endedAt: now };
    this.#interrupts = outcome.type === "interrupt" ? outcome.interrupts : [];
    this.#pending = this.#findPending(outcome);
    this.#endAll(now);
  }

  #failRun(event: EventOf<"RUN_ERROR">, now: number): void {
    const run = this.#run ?? { runId: "", threadId: "", parentRunId: null, outcome: null, result: null, usage: [], startedAt: now, endedAt: null };
    const error = { message: event.message, ...(event.code !== undefined && { code: event.code }) };
    this.#run = { ...run, status: "failed", error, usage: event.usage ?? run.usage, endedAt: now };
    if (run.endedAt === null) this.#pending = this.#findPending(null); // else RUN_FINISHED has said it (LIFE-15)
    this.#endAll(now);
  }

  /** Return the calls of the run that wait for the front end (FT-3, FT-4). */
  #findPending(outcome: Outcome | null): string[] {
    const listed = outcome?.type === "success" ? (outcome.pendingToolCallIds ?? []) : [];
    const wanted = listed.length > 0 ? listed : [...this.#calls].filter(([, status]) => status === "called").map(([id]) => id);
    if (wanted.length === 0) return [];
    const answered = new Set(this.messages.map((message) => (message.role === "tool" ? message.toolCallId : "")));
    return [...new Set(wanted)].filter((id) => !answered.has(id) && this.#messages.calls.has(id));
  }

  /** End what the end of a run ends: RUN_ERROR closes nothing itself (LIFE-13). */
  #endAll(now: number): void {
    for (const id of [...this.#open]) this.#end(id, now);
    this.#steps = this.#steps.map((step) => (step.endedAt === null ? { ...step, endedAt: now } : step));
    for (const [id, subagent] of this.#subagents) if (subagent.endedAt === null) this.#subagents.set(id, { ...subagent, endedAt: now });
  }

  #finishStep(event: EventOf<"STEP_FINISHED">, now: number): void {
    const owner = event.subagentRunId ?? null;
    const at = this.#steps.findLastIndex((step) => step.name === event.stepName && step.endedAt === null && step.subagentRunId === owner);
    const step = this.#steps[at];
    if (step === undefined) return;
    const metadata = event.metadata === undefined ? step.metadata : { ...(step.metadata as Metadata | null), ...event.metadata };
    this.#steps[at] = { ...step, endedAt: now, metadata };
  }

  #endSubagent(id: string, now: number, changes: Partial<Subagent>): void {
    const subagent = this.#subagents.get(id);
    if (subagent !== undefined) this.#subagents.set(id, { ...subagent, ...changes, endedAt: now });
  }

  // Text and reasoning

  #begin(id: string, now: number): void {
    this.#open.add(id);
    const span = this.#times.get(id);
    this.#times.set(id, { startedAt: span?.startedAt ?? now, endedAt: null });
  }

  #end(id: string, now: number): void {
    if (!this.#open.delete(id)) return;
    this.#times.set(id, { startedAt: this.#times.get(id)?.startedAt ?? now, endedAt: now });
  }

  #startMessage(event: { messageId: string; subagentRunId?: string; metadata?: Metadata }, fields: object): void {
    if (this.#messages.byId.has(event.messageId)) return this.#mergeMetadata(event.messageId, event.metadata);
    this.#messages.append({ id: event.messageId, content: "", ...fields, ...owner(event) } as unknown as Message);
  }

  #appendText(event: EventOf<"TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT">): void {
    const builder = this.#messages.byId.get(event.messageId);
    if (builder === undefined || builder.role === "activity") return;
    builder.added = (builder.added ?? "") + event.delta;
    if (event.metadata !== undefined) builder.message = merged(builder.message, event.metadata);
    this.#messages.mark(builder);
  }

  #mergeMetadata(id: string, metadata: Metadata | undefined): void {
    const builder = this.#messages.byId.get(id);
    if (builder === undefined || builder.role === "activity" || metadata === undefined) return;
    builder.message = merged(builder.message, metadata);
    this.#messages.mark(builder);
  }

  // Tool calls

  #startCall(event: EventOf<"TOOL_CALL_START">): void {
    const id = event.toolCallId;
    if (this.#calls.get(id) !== "answered") this.#calls.set(id, "streaming");
    const call = this.#messages.calls.get(id);
    if (call === undefined) {
      const made: ToolCall = { id, type: "function", function: { name: event.toolCallName, arguments: "" } };
      this.#messages.addCall(this.#parentOf(event), merged(made, event.metadata));
      return;
    }
    // Started again: it stays one call (TOOL-4).
    const renamed = { ...call.call, function: { ...call.call.function, name: event.toolCallName } };
    call.call = merged(renamed, event.metadata);
    this.#messages.markCall(call);
  }

  /** Find the assistant message for a call: the named parent, or a new one with the parent's or the call's id. */
  #parentOf(event: EventOf<"TOOL_CALL_START">): MessageBuilder {
    let id = event.toolCallId;
    if (event.parentMessageId) {
      const parent = this.#messages.find(event.parentMessageId, "assistant");
      if (parent !== undefined) return parent;
      if (!this.#messages.byId.has(event.parentMessageId)) id = event.parentMessageId;
    }
    const { subagentRunId } = event;
    return this.#messages.find(id, "assistant") ?? this.#messages.append({ id, role: "assistant", ...(subagentRunId !== undefined && { subagentRunId }) });
  }

  #appendArguments(event: EventOf<"TOOL_CALL_ARGS">): void {
    const call = this.#messages.calls.get(event.toolCallId);
    if (call === undefined) return;
    call.added += event.delta;
    call.call = merged(call.call, event.metadata);
    this.#messages.markCall(call);
  }

  #endCall(event: EventOf<"TOOL_CALL_END">, now: number): void {
    // A call takes until its result: the span ends there, but nothing more is written.
    this.#open.delete(event.toolCallId);
    const span = this.#times.get(event.toolCallId);
    this.#times.set(event.toolCallId, { startedAt: span?.startedAt ?? now, endedAt: now });
    if (this.#calls.get(event.toolCallId) === "streaming") this.#calls.set(event.toolCallId, "called");
    const call = this.#messages.calls.get(event.toolCallId);
    if (call === undefined || event.metadata === undefined) return;
    call.call = merged(call.call, event.metadata);
    this.#messages.markCall(call);
  }

  #addResult(event: EventOf<"TOOL_CALL_RESULT">, now: number): void {
    const { messageId, toolCallId, content } = event;
    this.#calls.set(toolCallId, "answered");
    const span = this.#times.get(toolCallId);
    if (span !== undefined) this.#times.set(toolCallId, { ...span, endedAt: now });
    const builder = this.#messages.find(messageId, "tool");
    if (builder !== undefined) {
      // Delivered again: the later result replaces the first one.
      const { error: _, subagentRunId: __, ...rest } = builder.message as Message & { error?: string };
      const { metadata, ...own } = owner(event);
      builder.message = merged({ ...rest, content, toolCallId, ...own } as Message, metadata);
      builder.added = null;
      this.#messages.mark(builder);
      return;
    }
    const message: Message = { id: messageId, role: "tool", toolCallId, content, ...owner(event) };
    const call = this.#messages.calls.get(toolCallId);
    if (call === undefined) this.#messages.append(message);
    else this.#messages.insertResult(call.parent, message);
  }

  #encrypt(event: EventOf<"REASONING_ENCRYPTED_VALUE">): void {
    if (event.subtype === "tool-call") {
      const call = this.#messages.calls.get(event.entityId);
      if (call === undefined) return;
      call.call = encrypted(call.call, event);
      this.#messages.markCall(call);
      return;
    }
    const builder = this.#messages.byId.get(event.entityId);
    if (builder === undefined || builder.role === "activity") return;
    builder.message = encrypted(builder.message, event);
    this.#messages.mark(builder);
  }

  #patchState(delta: readonly PatchOperation[]): void {
    const state = patched(this.#state, delta);
    if (state !== undefined) this.#state = state; // null is a state
  }

  // Activities

  #setActivity(event: EventOf<"ACTIVITY_SNAPSHOT">): void {
    const builder = this.#messages.byId.get(event.messageId);
    if (builder !== undefined && event.replace === false) {
      if (builder.role !== "activity" || event.metadata === undefined) return;
      builder.message = merged(builder.message, event.metadata);
      this.#messages.mark(builder);
      return;
    }
    const { activityType, content } = event;
    const activity: ActivityMessage = { id: event.messageId, role: "activity", activityType, content, ...owner(event) };
    if (builder === undefined) {
      this.#messages.append(activity);
    } else if (builder.role === "activity") {
      // Metadata outlives the content that it came with, the owner does not (ACT-5).
      builder.message = { ...activity, ...metadataOf(builder.message.metadata, event.metadata) };
      this.#messages.mark(builder);
    } else {
      this.#messages.replace(builder, activity);
    }
  }

  #patchActivity(event: EventOf<"ACTIVITY_DELTA">): void {
    const builder = this.#messages.byId.get(event.messageId);
    if (builder === undefined || builder.role !== "activity") return;
    let message = merged(builder.message as ActivityMessage, event.metadata); // also if the patch fails (ACT-10)
    const content = patched(message.content, event.patch);
    if (typeof content === "object" && content !== null && !Array.isArray(content)) {
      message = { ...message, content, activityType: event.activityType };
    }
    builder.message = message;
    this.#messages.mark(builder);
  }
}

function owner({ subagentRunId, metadata }: { subagentRunId?: string; metadata?: Metadata }): { subagentRunId?: string; metadata?: Metadata } {
  return { ...(subagentRunId !== undefined && { subagentRunId }), ...(metadata !== undefined && { metadata }) };
}

function metadataOf(before: Metadata | undefined, added: Metadata | undefined): { metadata?: Metadata } {
  return before === undefined && added === undefined ? {} : { metadata: { ...before, ...added } };
}

/** Apply a patch. Return undefined if it does not apply: then nothing changes (SNAP-9). */
function patched(document: Json, patch: readonly PatchOperation[]): Json | undefined {
  try {
    return applyPatch(document, patch);
  } catch (error) {
    if (error instanceof PatchError) return undefined;
    throw error;
  }
}
