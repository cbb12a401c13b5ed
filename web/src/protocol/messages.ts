/**
 * The messages of a conversation: in order, by id, and their tool calls by id. An event costs the same however many
 * messages there are, except a snapshot and a result that is inserted. Messages that were read are never changed.
 */

import type { ActivityMessage, AssistantMessage, Message, Metadata, Part, ToolCall } from "./types";

export type Encrypted = { encryptedValue: string; encryptedValueType?: string };

/** A tool call that may get more arguments. */
export class CallBuilder {
  added = "";
  isDirty = false;

  constructor(
    public call: ToolCall,
    readonly parent: MessageBuilder,
    readonly index: number,
  ) {}

  build(): ToolCall {
    if (this.added !== "") {
      const { name, arguments: before } = this.call.function;
      this.call = { ...this.call, function: { name, arguments: before + this.added } };
      this.added = "";
    }
    this.isDirty = false;
    return this.call;
  }
}

/** A message that may still change, as a node of a linked list. */
export class MessageBuilder {
  next: MessageBuilder | null = null;
  /** Its position in the list that was last read. */
  index = -1;
  /** Text to append. The empty text counts: it gives content to a message without. */
  added: string | null = null;
  isDirty = false;
  calls: CallBuilder[] = [];
  dirtyCalls: CallBuilder[] = [];

  constructor(public message: Message) {
    this.#index();
  }

  get id(): string {
    return this.message.id;
  }

  get role(): Message["role"] {
    return this.message.role;
  }

  /** Continue with another message. Only the position stays. */
  reset(message: Message): void {
    this.message = message;
    this.added = null;
    this.dirtyCalls = [];
    this.#index();
  }

  #index(): void {
    const calls = (this.message as AssistantMessage).toolCalls ?? [];
    this.calls = this.message.role === "assistant" ? calls.map((call, at) => new CallBuilder(call, this, at)) : [];
  }

  build(): Message {
    const changes: { content?: string | Part[]; toolCalls?: ToolCall[] } = {};
    if (this.added !== null) {
      changes.content = appendText((this.message as { content?: string | Part[] }).content, this.added);
      this.added = null;
    }
    if (this.dirtyCalls.length > 0) {
      const calls = [...((this.message as AssistantMessage).toolCalls ?? [])];
      for (const builder of this.dirtyCalls) calls[builder.index] = builder.build();
      changes.toolCalls = calls;
      this.dirtyCalls = [];
    }
    if (changes.content !== undefined || changes.toolCalls !== undefined) this.message = { ...this.message, ...changes } as Message;
    this.isDirty = false;
    return this.message;
  }
}

/** Append text to content. In a list of parts it goes to a last text part, or else to a new part (TXT-3). */
function appendText(content: string | Part[] | undefined, text: string): string | Part[] {
  if (!Array.isArray(content)) return (content ?? "") + text;
  const last = content.at(-1);
  if (text === "") return content;
  return last?.type === "text" ? [...content.slice(0, -1), { ...last, text: last.text + text }] : [...content, { type: "text", text }];
}

/** Merge metadata by key: the last value wins (META-4). */
export function merged<T extends { metadata?: Metadata }>(value: T, metadata: Metadata | undefined): T {
  return metadata === undefined ? value : { ...value, metadata: { ...value.metadata, ...metadata } };
}

/** Set an encrypted value. One without a type removes the old type (ENC-5). */
export function encrypted<T extends Encrypted | object>(value: T, { encryptedValue, encryptedValueType }: Encrypted): T {
  const { encryptedValueType: _, ...rest } = value as T & Encrypted;
  return { ...rest, encryptedValue, ...(encryptedValueType !== undefined && { encryptedValueType }) } as T;
}

export class MessageList {
  readonly byId = new Map<string, MessageBuilder>();
  readonly calls = new Map<string, CallBuilder>();
  /** Messages whose id means another one, by role and id: producers reuse ids, although ENV-12 forbids it. */
  #sameId = new Map<string, MessageBuilder>();
  #lastResults = new Map<MessageBuilder, MessageBuilder>();
  #head: MessageBuilder | null = null;
  #tail: MessageBuilder | null = null;
  #list: readonly Message[] = [];
  #dirty: MessageBuilder[] = [];
  #isReordered = false;

  constructor(messages: readonly Message[] = []) {
    for (const message of messages) this.put(message);
  }

  /** Return the messages in order: the same list again if nothing has changed. */
  view(): readonly Message[] {
    if (this.#isReordered) {
      const list: Message[] = [];
      for (let builder = this.#head; builder !== null; builder = builder.next) {
        builder.index = list.length;
        list.push(builder.build());
      }
      this.#list = list;
    } else if (this.#dirty.length > 0) {
      const list = [...this.#list];
      for (const builder of this.#dirty) {
        if (builder.index === -1) builder.index = list.length; // new ones were marked in their order
        list[builder.index] = builder.build();
      }
      this.#list = list;
    }
    this.#dirty = [];
    this.#isReordered = false;
    return this.#list;
  }

  /** Find the message with an id and role, also if the id alone means another one. */
  find(id: string, role: Message["role"]): MessageBuilder | undefined {
    const found = this.byId.get(id);
    return found === undefined || found.role === role ? found : this.#sameId.get(`${role} ${id}`);
  }

  mark(builder: MessageBuilder): void {
    if (builder.isDirty) return;
    builder.isDirty = true;
    this.#dirty.push(builder);
  }

  markCall(call: CallBuilder): void {
    if (call.isDirty) return;
    call.isDirty = true;
    call.parent.dirtyCalls.push(call);
    this.mark(call.parent);
  }

  /** Append a message, or replace the one with its id and role. */
  put(message: Message): void {
    const found = this.find(message.id, message.role);
    if (found === undefined) this.append(message);
    else this.replace(found, message);
  }

  append(message: Message): MessageBuilder {
    const builder = new MessageBuilder(message);
    this.#register(builder);
    this.#link(builder);
    return builder;
  }

  /** Add a call to an assistant message. */
  addCall(parent: MessageBuilder, call: ToolCall): void {
    const builder = new CallBuilder(call, parent, parent.calls.length);
    parent.calls.push(builder);
    this.calls.set(call.id, builder);
    this.markCall(builder);
  }

  /** Insert a tool message after the message with the call, and after the results that follow it. */
  insertResult(parent: MessageBuilder, message: Message): void {
    let before = this.#lastResults.get(parent) ?? parent;
    while (before.next?.role === "tool") before = before.next;
    const result = new MessageBuilder(message);
    this.#register(result);
    this.#lastResults.set(parent, result);
    if (before === this.#tail) {
      this.#link(result);
      return;
    }
    result.next = before.next;
    before.next = result;
    this.#isReordered = true;
  }

  /** Replace a message by another one with the same id. */
  replace(builder: MessageBuilder, message: Message): void {
    const own = builder.calls.filter((call) => this.calls.get(call.call.id) === call);
    for (const call of own) this.calls.delete(call.call.id);
    builder.reset(message);
    this.#indexCalls(builder);
    this.#lastResults.clear();
    this.mark(builder);
    // Another message may have a call with the same id, which the id then means.
    if (own.some((call) => !this.calls.has(call.call.id))) {
      for (let other = this.#head; other !== null; other = other.next) this.#indexCalls(other);
    }
  }

  /** Replace the messages by those of a snapshot. Others stay if `isKept` (MSGS-1, MSGS-2). */
  applySnapshot(messages: readonly Message[], isKept: (message: Message) => boolean): void {
    const remaining = new Map(messages.map((message) => [`${message.role} ${message.id}`, message]));
    const roles = new Map<string, Message["role"][]>();
    for (const { id, role } of remaining.values()) roles.set(id, [...(roles.get(id) ?? []), role]);
    const result: Message[] = [];
    for (let builder = this.#head; builder !== null; builder = builder.next) {
      const { id, role } = builder;
      const fitting = [role, ...(roles.get(id) ?? []).filter((other) => this.find(id, other) === undefined)];
      const key = fitting.map((other) => `${other} ${id}`).find((other) => remaining.has(other));
      if (key !== undefined) {
        result.push(remaining.get(key)!);
        remaining.delete(key);
      } else if (isKept(builder.message)) {
        result.push(builder.build());
      }
    }
    this.byId.clear();
    this.calls.clear();
    this.#sameId.clear();
    this.#lastResults.clear();
    this.#head = this.#tail = null;
    this.#dirty = [];
    for (const message of [...result, ...remaining.values()]) this.append(message);
    this.#isReordered = true;
  }

  #link(builder: MessageBuilder): void {
    if (this.#tail === null) this.#head = builder;
    else this.#tail.next = builder;
    this.#tail = builder;
    this.mark(builder);
  }

  #register(builder: MessageBuilder): void {
    const found = this.byId.get(builder.id);
    if (found === undefined) {
      this.byId.set(builder.id, builder);
    } else if (found.role === "tool") {
      this.#sameId.set(`tool ${builder.id}`, found);
      this.byId.set(builder.id, builder);
    } else {
      this.#sameId.set(`${builder.role} ${builder.id}`, builder);
    }
    this.#indexCalls(builder);
  }

  #indexCalls(builder: MessageBuilder): void {
    for (const call of builder.calls) if (!this.calls.has(call.call.id)) this.calls.set(call.call.id, call);
  }
}

/** Return which messages stay although a snapshot does not have them (MSGS-2, MSGS-3). */
export function keptBySnapshot(messages: readonly Message[], metadata: Metadata | undefined): (message: Message) => boolean {
  const roles = new Set(messages.map((message) => message.role));
  let keepsActivities = !roles.has("activity");
  let complete: unknown[] = [];
  const scope = metadata?.["@ag-ui/client"];
  if (scope !== undefined) {
    if (typeof scope !== "object" || scope === null || Array.isArray(scope)) {
      keepsActivities = true;
    } else if ("authoritativeActivityTypes" in scope) {
      const types = scope["authoritativeActivityTypes"];
      keepsActivities = types !== null;
      if (Array.isArray(types) && types.every((type) => typeof type === "string")) complete = types;
    }
  }
  return (message) => {
    if (message.role === "reasoning") return !roles.has("reasoning");
    return message.role === "activity" && keepsActivities && !complete.includes((message as ActivityMessage).activityType);
  };
}
