/** The wire types of AG-UI 1.1 that the page reads and writes, and the JSON of Aguila's routes. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Metadata = { [key: string]: Json };

export type Source =
  | { type: "data"; value: string; mimeType: string }
  | { type: "url"; value: string; mimeType?: string }
  | { type: "file"; value: string; provider?: string; mimeType?: string };
export type TextPart = { type: "text"; text: string; id?: string; metadata?: Json };
export type MediaPart = { type: "image" | "audio" | "video" | "document"; source: Source; id?: string; metadata?: Json };
export type Part = TextPart | MediaPart;

export type ToolCall = {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
  encryptedValue?: string;
  encryptedValueType?: string;
  metadata?: Metadata;
};

type BaseMessage = { id: string; subagentRunId?: string; metadata?: Metadata; encryptedValue?: string; encryptedValueType?: string };
export type TextMessage = BaseMessage & { role: "developer" | "system"; content: string; name?: string };
export type AssistantMessage = BaseMessage & { role: "assistant"; content?: string; toolCalls?: ToolCall[]; name?: string };
export type UserMessage = BaseMessage & { role: "user"; content: string | Part[]; name?: string };
export type ToolMessage = BaseMessage & { role: "tool"; content: string | Part[]; toolCallId: string; error?: string };
export type ActivityMessage = BaseMessage & { role: "activity"; activityType: string; content: { [key: string]: Json } };
export type ReasoningMessage = BaseMessage & { role: "reasoning"; content: string };
export type Message = TextMessage | AssistantMessage | UserMessage | ToolMessage | ActivityMessage | ReasoningMessage;

export type PatchOperation = { op: string; path: string; from?: string; value?: Json };

export type Interrupt = {
  id: string;
  reason: string;
  message?: string;
  toolCallId?: string;
  responseSchema?: { [key: string]: Json };
  expiresAt?: string;
  metadata?: Metadata;
  subagentRunId?: string;
};
export type Outcome =
  | { type: "success"; pendingToolCallIds?: string[] }
  | { type: "interrupt"; interrupts: Interrupt[] }
  | { type: "cancelled" };
export type SubagentOutcome = { type: "success" } | { type: "suspended"; interruptIds?: string[] };
export type TokenUsage = {
  provider?: string;
  model?: string;
  inputTokens?: number;
  outputTokens?: number;
  totalTokens?: number;
  reasoningTokens?: number;
  cachedInputTokens?: number;
  cacheWriteInputTokens?: number;
};
export type Tool = { name: string; description: string; parameters?: Json; metadata?: Metadata };
export type ResumeEntry = { interruptId: string; status: "resolved" | "cancelled"; payload?: Json; metadata?: Metadata };
export type RunAgentInput = {
  threadId: string;
  runId: string;
  messages: Message[];
  protocolVersion?: string;
  parentRunId?: string;
  state?: Json;
  tools?: Tool[];
  context?: { description: string; value: string }[];
  forwardedProps?: Json;
  resume?: ResumeEntry[];
};

type Base = { timestamp?: number; rawEvent?: Json; metadata?: Metadata };
type Owned = Base & { subagentRunId?: string };
type TextRole = "developer" | "system" | "assistant" | "user";

/** An event of the protocol. The reducer ignores a type that is not listed here. */
export type AguiEvent =
  | (Base & { type: "RUN_STARTED"; threadId: string; runId: string; protocolVersion?: string; parentRunId?: string; input?: RunAgentInput })
  | (Base & { type: "RUN_FINISHED"; threadId: string; runId: string; result?: Json; outcome?: Outcome; usage?: TokenUsage[] })
  | (Base & { type: "RUN_ERROR"; message: string; code?: string; usage?: TokenUsage[] })
  | (Owned & { type: "STEP_STARTED"; stepName: string })
  | (Owned & { type: "STEP_FINISHED"; stepName: string })
  | (Owned & { type: "TEXT_MESSAGE_START"; messageId: string; role?: TextRole; name?: string })
  | (Owned & { type: "TEXT_MESSAGE_CONTENT"; messageId: string; delta: string })
  | (Owned & { type: "TEXT_MESSAGE_END"; messageId: string })
  | (Owned & { type: "TEXT_MESSAGE_CHUNK"; messageId?: string; role?: TextRole; delta?: string; name?: string })
  | (Owned & { type: "TOOL_CALL_START"; toolCallId: string; toolCallName: string; parentMessageId?: string })
  | (Owned & { type: "TOOL_CALL_ARGS"; toolCallId: string; delta: string })
  | (Owned & { type: "TOOL_CALL_END"; toolCallId: string })
  | (Owned & { type: "TOOL_CALL_CHUNK"; toolCallId?: string; toolCallName?: string; parentMessageId?: string; delta?: string })
  | (Owned & { type: "TOOL_CALL_RESULT"; messageId: string; toolCallId: string; content: string | Part[]; role?: "tool" })
  | (Owned & { type: "REASONING_START"; messageId: string })
  | (Owned & { type: "REASONING_MESSAGE_START"; messageId: string; role: "reasoning" })
  | (Owned & { type: "REASONING_MESSAGE_CONTENT"; messageId: string; delta: string })
  | (Owned & { type: "REASONING_MESSAGE_END"; messageId: string })
  | (Owned & { type: "REASONING_MESSAGE_CHUNK"; messageId?: string; delta?: string })
  | (Owned & { type: "REASONING_END"; messageId: string })
  | (Owned & { type: "REASONING_ENCRYPTED_VALUE"; subtype: "message" | "tool-call"; entityId: string; encryptedValue: string; encryptedValueType?: string })
  | (Owned & { type: "STATE_SNAPSHOT"; snapshot: Json })
  | (Owned & { type: "STATE_DELTA"; delta: PatchOperation[] })
  | (Base & { type: "MESSAGES_SNAPSHOT"; messages: Message[] })
  | (Owned & { type: "ACTIVITY_SNAPSHOT"; messageId: string; activityType: string; content: { [key: string]: Json }; replace?: boolean })
  | (Owned & { type: "ACTIVITY_DELTA"; messageId: string; activityType: string; patch: PatchOperation[] })
  | (Base & { type: "SUBAGENT_STARTED"; subagentRunId: string; name: string; description?: string; parentSubagentRunId?: string; parentToolCallId?: string; parentMessageId?: string })
  | (Base & { type: "SUBAGENT_FINISHED"; subagentRunId: string; result?: Json; outcome?: SubagentOutcome })
  | (Base & { type: "SUBAGENT_ERROR"; subagentRunId: string; message: string; code?: string })
  | (Owned & { type: "RAW"; event: Json; source?: string })
  | (Owned & { type: "CUSTOM"; name: string; value: Json });
export type EventType = AguiEvent["type"];

/** An event with its place in the log (the `id:` of its SSE frame), its JSON, and the time (ms) when it was stored. */
export type StoredEvent = { seq: number | null; cursor?: string; event: AguiEvent; raw: string; time?: number };

/** A row of `GET /threads`. */
export type ThreadSummary = {
  threadId: string;
  createdAt: number;
  updatedAt: number;
  last: number;
  cursor: string;
  runs: number;
  isRunning: boolean;
  runningRunId: string | null;
  agent: string;
  title: string | null;
  archived: boolean;
  metadata: Metadata | null;
};

/** A run in `GET /threads/{id}`. Times are seconds since 1970. */
export type RunRecord = {
  threadId: string;
  runId: string;
  agent: string;
  parentRunId: string | null;
  status: string;
  cancelRequested: boolean;
  first: number;
  last: number;
  cursor: string;
  startedAt: number;
  endedAt: number | null;
};

/** `GET /threads/{id}`. */
export type ThreadView = {
  threadId: string;
  agent: string;
  title: string | null;
  archived: boolean;
  metadata: Metadata | null;
  messages: Message[];
  state: Json;
  interrupts: Interrupt[];
  pendingToolCallIds: string[];
  last: number;
  cursor: string;
  tip: string | null;
  runs: RunRecord[];
};

/** The answer of `POST /files`. */
export type UploadedFile = { id: string; mediaType: string; filename: string | null; size: number; source: Source };

/** `GET /threads/{id}/runs/{run}/input`. */
export type RunStart = { input: RunAgentInput; messages: Message[]; state: Json };

/** A finding of the verifier. `index` counts the events of its source, `number` is the sequence number in the log. */
export type Finding = {
  source: "run" | "upstream";
  level: "error" | "warning" | "note";
  rule: string;
  message: string;
  text: string;
  help: string;
  number: number | null;
  index?: number;
  event?: string;
  path?: string;
  /** The stream of a recording that the index counts in. */
  stream?: number;
  /** The event as another server sent it. */
  sent?: string;
};

/** `GET /threads/{id}/runs/{run}/check`. */
export type CheckReport = {
  threadId: string;
  runId: string;
  events: number;
  upstreamEvents?: number;
  isRunning: boolean;
  findings: Finding[];
};
