/** Where the messages, steps, subagents and custom events of one run stand: an outline that is drawn as nested boxes. */

import { Conversation } from "../protocol/reducer";
import type { AguiEvent, Json } from "../protocol/types";

export type Entry =
  | { kind: "message"; id: string }
  | { kind: "custom"; name: string; value: Json }
  | { kind: "step"; name: string; index: number; entries: Entry[] }
  | { kind: "subagent"; id: string; entries: Entry[] };

type OpenStep = { name: string; entries: Entry[] };

/** The outline of one run, with a conversation of its own events for durations, errors and usage. */
export class RunLayout {
  readonly conversation = new Conversation();
  readonly entries: Entry[] = [];
  #seen = new Set<string>();
  #steps = 0;
  #openSteps = new Map<string | null, OpenStep[]>();
  #subagents = new Map<string, Entry[]>();

  /** Take the next event of the run. Returns the id of a message that is new in this run. */
  take(event: AguiEvent, now: number): string | null {
    this.conversation.apply(event, now);
    switch (event.type) {
      case "TEXT_MESSAGE_START":
      case "TEXT_MESSAGE_CHUNK":
      case "REASONING_MESSAGE_START":
      case "REASONING_MESSAGE_CHUNK":
      case "ACTIVITY_SNAPSHOT":
        return this.#addMessage(event.messageId, event.subagentRunId);
      case "TOOL_CALL_START":
      case "TOOL_CALL_CHUNK":
        return this.#addMessage(event.parentMessageId || event.toolCallId, event.subagentRunId);
      case "CUSTOM":
        this.#at(event.subagentRunId).push({ kind: "custom", name: event.name, value: event.value });
        return null;
      case "STEP_STARTED": {
        const entry: Entry = { kind: "step", name: event.stepName, index: this.#steps++, entries: [] };
        this.#at(event.subagentRunId).push(entry);
        const owner = event.subagentRunId ?? null;
        this.#openSteps.set(owner, [...(this.#openSteps.get(owner) ?? []), entry]);
        return null;
      }
      case "STEP_FINISHED": {
        const owner = event.subagentRunId ?? null;
        this.#openSteps.set(owner, (this.#openSteps.get(owner) ?? []).filter((step) => step.name !== event.stepName));
        return null;
      }
      case "SUBAGENT_STARTED": {
        const entry: Entry = { kind: "subagent", id: event.subagentRunId, entries: [] };
        this.#at(event.parentSubagentRunId).push(entry);
        this.#subagents.set(event.subagentRunId, entry.entries);
        return null;
      }
    }
    return null;
  }

  /** Where the next entry of an owner goes: its innermost open step, its own box, or the run. */
  #at(owner: string | undefined): Entry[] {
    const step = this.#openSteps.get(owner ?? null)?.at(-1);
    return step?.entries ?? (owner === undefined ? undefined : this.#subagents.get(owner)) ?? this.entries;
  }

  #addMessage(id: string | undefined, owner: string | undefined): string | null {
    if (id === undefined || this.#seen.has(id)) return null;
    this.#seen.add(id);
    this.#at(owner).push({ kind: "message", id });
    return id;
  }
}
