/** Reduces events to a conversation. The interface is in web/README.md; this is a placeholder without a reducer. */

import type { AguiEvent, Interrupt, Json, Message, Outcome, TokenUsage } from "./types";

export type Span = { startedAt: number; endedAt: number | null };
export type RunState = Span & {
  runId: string;
  threadId: string;
  parentRunId: string | null;
  status: "running" | "finished" | "failed";
  outcome: Outcome | null;
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

export class Conversation {
  readonly messages: readonly Message[];
  readonly state: Json;
  readonly interrupts: readonly Interrupt[] = [];
  readonly pendingToolCalls: readonly string[] = [];
  readonly run: RunState | null = null;
  readonly steps: readonly Step[] = [];
  readonly subagents: ReadonlyMap<string, Subagent> = new Map();
  readonly times: ReadonlyMap<string, Span> = new Map();
  readonly open: ReadonlySet<string> = new Set();

  constructor(seed: { messages?: Message[]; state?: Json; interrupts?: Interrupt[]; pendingToolCallIds?: string[] } = {}) {
    this.messages = seed.messages ?? [];
    this.state = seed.state ?? null;
  }

  apply(_event: AguiEvent, _now?: number): void {}
}
