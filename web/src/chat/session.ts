/**
 * One thread in the page: its conversation, its runs, and the stream that keeps them up to date.
 *
 * `GET /threads/{id}` has the messages with those of the user. The log has the agents' events, from which come
 * durations, steps, subagents and errors. Events after the view are applied to the conversation too.
 */

import { effect, type Signal, signal, untracked } from "@preact/signals";
import { ApiError, base, caller, cancelRun, getThread, startRun, threadEvents, updateThread } from "../protocol/api";
import { Conversation } from "../protocol/reducer";
import { readBatches } from "../protocol/stream";
import type { Interrupt, Json, Message, Part, ResumeEntry, StoredEvent, ThreadView, UserMessage } from "../protocol/types";
import { announce, onRefresh } from "../refresh";
import { TOOLS } from "./frontendTools";
import { RunLayout } from "./runLayout";
import { RunTree } from "./runTree";
import { type Attachment, attachmentOf, type Edits, EMPTY, type Forms, readUnsent, type WaitingMessage, writeUnsent } from "./unsent";
import { inWords } from "./words";

const MAX_WAIT_MS = 5_000;
const MAX_EVENTS = 300_000; // of a longer log the page shows the messages, without durations and steps

function newRunId(): string {
  return `run-${crypto.randomUUID()}`;
}

/** What a session tells the page. */
export type SessionHooks = {
  /** The list of threads has changed. */
  onChange: () => void;
  /** The session shows another branch, or has become a thread of the server: its address names this run, or none. */
  onMove: (run: string | null) => void;
};

/** A request that was refused, as it is shown; `detail` is for developers. */
export type Problem = { title: string; message: string; detail: string | null };

/** An answer that does not match the schema of its interrupt: where in the answer, as a JSON pointer, and why. */
export type Refusal = { interruptId: string; path: string; text: string };

export class ThreadSession {
  /** The id of the thread. That of a new one may change once, when its files are restored. */
  id: string;
  /** Tells this session from others of the same thread. */
  readonly key = crypto.randomUUID();
  /** Whose session it is: the first caller that the server names; null before. */
  owner: string | null = null;
  /** Whether no message was sent yet in a thread that the page has made up: it has no address. */
  readonly isNew: Signal<boolean>;
  readonly version = signal(0);
  readonly phase = signal<"loading" | "ready" | "failed">("loading");
  readonly isConnected = signal(true);
  readonly problem = signal<Problem | null>(null);
  readonly refusal = signal<Refusal | null>(null);
  readonly title = signal<string | null>(null);
  readonly isArchived = signal(false);
  /** What the user is writing. */
  readonly draft = signal("");
  readonly attachments = signal<readonly Attachment[]>([]);
  readonly forms = signal<Forms>({});
  readonly edits = signal<Edits>({});
  /** How often forms were restored: they are drawn anew. */
  readonly restores = signal(0);
  /** Messages that wait for the end of a run, in the order in which they are sent. */
  readonly waiting = signal<readonly WaitingMessage[]>([]);
  /** Whether the messages wait for their user: the last run failed, or the first of them was not sent. */
  readonly isHeld = signal(false);
  /** Results of front-end calls that wait until all calls of the run have one, by call id. */
  readonly results = signal<ReadonlyMap<string, string>>(new Map());

  conversation = new Conversation();
  /** The interrupts whose answers are on their way: their forms stay until the server has accepted them. */
  answering: readonly Interrupt[] = [];
  tree = new RunTree();
  layouts = new Map<string, RunLayout>();
  /** The last run of the branch that is shown. */
  tip: string | null = null;
  /** The run that the address names: its branch is shown, and new runs elsewhere do not replace it. */
  pinned: string | null;
  /** Runs that this tab started: it executes their front-end calls. */
  readonly ownRuns = new Set<string>();

  /** The runs that wrote a message, in the order of the log: an activity may be updated by a later run. */
  #runsOf = new Map<string, string[]>();
  #seq = 0;
  /** What the server sent with event `#seq`, to continue after it. */
  #cursor = "0";
  #viewLast = 0;
  #logRun: string | null = null;
  #isClosed = false;
  #isStored = false;
  #isStarting = false;
  #isSending = false;
  #next: Response | null = null;
  #stream: AbortController | null = null;
  #wake: (() => void) | null = null;
  /** Whether the thread may have changed since the log was asked for. */
  #hasNews = false;
  #frame = 0;
  #loads = 0;
  #release: (() => void) | null = null;

  /** Without an id, the session is that of a new thread. */
  constructor(
    thread: string | null,
    run: string | null,
    readonly hooks: SessionHooks,
  ) {
    this.id = thread ?? `thread-${crypto.randomUUID()}`;
    this.isNew = signal(thread === null);
    this.pinned = run;
  }

  /** Load the thread, unless it is new, and follow it until it is closed. */
  async open(): Promise<void> {
    const endRefresh = onRefresh(this.#onRefresh);
    const endKeeping = effect(() => this.#keep(caller.value));
    this.#release = () => {
      endRefresh();
      endKeeping();
    };
    if (this.isNew.value) this.phase.value = "ready";
    else await this.#load(this.pinned);
    void this.#follow();
  }

  /** Stop following. */
  close(): void {
    this.#isClosed = true;
    this.#stream?.abort();
    this.#wake?.();
    this.#release?.();
  }

  /** Keep what is not sent in the storage of its owner. Who that is, the server says first; then restore what is there. */
  #keep(by: string | null): void {
    if (by === null) return;
    if (this.owner === null) untracked(() => this.#restore(by));
    if (by !== this.owner) return;
    const files = this.attachments.value.flatMap(({ name, type, source }) => (source === null ? [] : [{ name, type, source }]));
    const isNew = this.isNew.value;
    writeUnsent(by, isNew ? null : this.id, {
      ...(isNew && files.length > 0 && { id: this.id }),
      text: this.draft.value,
      files,
      waiting: this.waiting.value,
      forms: this.forms.value,
      edits: this.edits.value,
    });
  }

  #restore(by: string): void {
    this.owner = by;
    const unsent = readUnsent(by, this.isNew.value ? null : this.id);
    if (unsent.id !== undefined && this.attachments.value.length === 0) this.id = unsent.id;
    this.draft.value = [unsent.text, this.draft.value].filter((each) => each !== "").join("\n");
    this.attachments.value = [...unsent.files.map(attachmentOf), ...this.attachments.value];
    this.forms.value = { ...unsent.forms, ...this.forms.value };
    this.edits.value = { ...unsent.edits, ...this.edits.value };
    if (Object.keys(unsent.forms).length > 0) this.restores.value += 1;
    if (unsent.waiting.length === 0) return;
    this.waiting.value = [...unsent.waiting, ...this.waiting.value];
    this.isHeld.value = !this.isRunning;
  }

  get isRunning(): boolean {
    return this.#isStarting || this.tree.latest?.status === "running";
  }

  /** The run of the shown branch that made a message; undefined if that is unknown. */
  runOf(message: Message, path: ReadonlySet<string> = this.path()): string | undefined {
    return this.#runsOf.get(message.id)?.find((run) => path.has(run));
  }

  /** The first run of the shown branch that answers a user message; undefined if it is unknown. */
  turnOf(message: Message, path: ReadonlySet<string> = this.path()): string | undefined {
    if (message.id.startsWith("user-")) {
      const found = this.tree.siblings(message.id.slice(5)).find((node) => path.has(node.runId));
      if (found !== undefined) return found.runId;
    }
    const messages = this.conversation.messages;
    const at = messages.findIndex((each) => each.id === message.id);
    const answer = messages[at + 1];
    const run = answer === undefined || answer.role === "user" ? undefined : this.runOf(answer, path);
    if (run === undefined || messages[at - 1]?.role === "user") return run;
    // A run that only asked left no message: it began the turn that its answer continues.
    const before = messages.slice(0, at).findLast((each) => this.runOf(each, path) !== undefined);
    const previous = before === undefined ? undefined : this.runOf(before, path);
    const runs = [...path];
    let first = runs.indexOf(run);
    while (first > 0 && runs[first - 1] !== previous && this.tree.get(runs[first - 1]!)?.status === "interrupt") first--;
    return runs[first];
  }

  /** The runs of the shown branch, from the first. */
  path(): ReadonlySet<string> {
    return new Set(this.tree.path(this.tip).map((node) => node.runId));
  }

  // Actions

  /** Send a message of the user, or let it wait until the run has ended. Returns false if it was refused. */
  async send(content: string | Part[]): Promise<boolean> {
    const message: WaitingMessage = { runId: newRunId(), content };
    if (!this.isRunning && this.phase.value !== "loading" && this.waiting.value.length === 0) return this.#send(message);
    this.waiting.value = [...this.waiting.value, message];
    this.sendWaiting();
    return true;
  }

  /** Send the first message that waits, unless a run is in progress or a question is open. */
  sendWaiting(): void {
    this.isHeld.value = false;
    void this.#sendNext();
  }

  /** Remove a message that waits. */
  takeBack(message: WaitingMessage): void {
    this.waiting.value = this.waiting.value.filter((each) => each !== message);
  }

  get #canSendNext(): boolean {
    const { conversation } = this;
    if (this.waiting.value.length === 0 || this.isHeld.value || this.#isClosed || this.phase.value !== "ready" || this.isRunning) return false;
    return conversation.interrupts.length === 0 && conversation.pendingToolCalls.length === 0; // its user answers first
  }

  /** Send the first message that waits. Of several tabs one does so at a time, after what the others have sent. */
  async #sendNext(): Promise<void> {
    if (this.#isSending || !this.#canSendNext) return;
    this.#isSending = true;
    await navigator.locks.request(`aguila-send ${base} ${this.id}`, () => this.#sendFirst().finally(() => (this.#isSending = false)));
  }

  async #sendFirst(): Promise<void> {
    if (!(await this.#readLatest()) || !this.#canSendNext) return;
    const [message, ...rest] = this.waiting.value;
    this.waiting.value = rest;
    if (await this.#send(message!)) return;
    this.waiting.value = [message!, ...this.waiting.value];
    this.isHeld.value = true;
  }

  /** Read the thread as the server has it. Returns false, and holds the messages that wait, if it cannot be read. */
  async #readLatest(): Promise<boolean> {
    if (!this.#isStored) return true;
    for (;;) {
      const load = ++this.#loads;
      let view: ThreadView;
      try {
        view = await this.#persist(() => getThread(this.id, this.pinned ?? undefined));
      } catch (error) {
        this.isHeld.value = true;
        this.#report("The message was not sent", error);
        return false;
      }
      if (load !== this.#loads) continue; // another branch was chosen meanwhile
      this.#seed(view);
      this.#changed();
      if (this.isRunning) this.#wake?.(); // follow the run of the other tab
      return true;
    }
  }

  async #send({ runId, content }: WaitingMessage): Promise<boolean> {
    const message: UserMessage = { id: `user-${runId}`, role: "user", content };
    const isFirst = this.conversation.messages.length === 0 && this.title.value === null;
    const isSent = await this.#start(runId, [...this.conversation.messages, message], this.tip);
    if (isSent && isFirst) void this.#suggestTitle(content);
    return isSent;
  }

  /** Keep what a form has. */
  keepForm(id: string, form: Forms[string]): void {
    this.forms.value = { ...this.forms.value, [id]: form };
  }

  /** Keep the new text of a message; null ends its editing. */
  keepEdit(id: string, text: string | null): void {
    const { [id]: _, ...others } = this.edits.value;
    this.edits.value = text === null ? others : { ...others, [id]: text };
  }

  /** Ask again for the answer to a user message. With `content` the message is changed first. Starts a branch. */
  async branch(message: UserMessage, content?: string | Part[]): Promise<boolean> {
    const run = this.turnOf(message);
    const messages = this.conversation.messages;
    const before = messages.slice(0, messages.findIndex((each) => each.id === message.id));
    const runId = newRunId();
    const sent: UserMessage = content === undefined ? message : { ...message, content, id: `user-${runId}` };
    // A run that names itself as its parent starts at the root of the thread.
    const parent = (run === undefined ? null : this.tree.get(run)?.parent) ?? runId;
    let state: Json = {};
    if (parent !== runId) {
      try {
        state = (await getThread(this.id, parent)).state;
      } catch (error) {
        this.#report("The message was not sent", error);
        return false;
      }
    }
    return this.#start(runId, [...before, sent], parent, { state });
  }

  /** Answer the open interrupts. */
  async resume(answers: ResumeEntry[]): Promise<boolean> {
    return this.#start(newRunId(), [...this.conversation.messages], this.tip, { resume: answers });
  }

  /** Record the result of a front-end call. When all calls have one, the next run brings them to the agent. */
  async answerCall(callId: string, content: string): Promise<void> {
    const results = new Map(this.results.value).set(callId, content);
    this.results.value = results;
    const pending = this.conversation.pendingToolCalls;
    if (this.isRunning || !pending.every((id) => results.has(id))) return;
    const messages = [...this.conversation.messages];
    for (const id of pending) {
      const parent = messages.findIndex((each) => each.role === "assistant" && each.toolCalls?.some((call) => call.id === id));
      let at = parent + 1;
      while (messages[at]?.role === "tool") at++;
      messages.splice(at, 0, { id: `tool-${crypto.randomUUID()}`, role: "tool", toolCallId: id, content: results.get(id)! });
    }
    await this.#start(newRunId(), messages, this.tip);
  }

  /** Stop the run in progress. */
  async stop(): Promise<void> {
    const run = this.tree.latest;
    if (run === undefined) return;
    try {
      await cancelRun(this.id, run.runId);
    } catch (error) {
      this.#report("The run was not stopped", error);
    }
  }

  /** Go to the branch that continues a run. */
  show(run: string): void {
    const leaf = this.tree.leaf(run);
    this.hooks.onMove(leaf === this.tree.latest?.runId ? null : leaf);
  }

  /** Show the branch that the address names by its last run; null names the latest branch. */
  pin(run: string | null): void {
    if (run === this.pinned) return;
    this.pinned = run;
    void this.#load(run);
  }

  /** Show a problem. */
  report(title: string, error: unknown): void {
    this.#report(title, error);
  }

  // Loading and following

  async #load(run: string | null): Promise<void> {
    const load = ++this.#loads;
    try {
      const view = await getThread(this.id, run ?? undefined);
      if (load !== this.#loads) return; // another branch was chosen meanwhile
      this.#seed(view);
      if (this.phase.value === "failed") this.problem.value = null;
      this.phase.value = "ready";
    } catch (error) {
      if (load !== this.#loads) return;
      if (error instanceof ApiError && error.status === 404) {
        if (run !== null && run === this.pinned) {
          this.#move(null); // the thread has no such run
          return this.#load(null);
        }
        this.phase.value = "ready"; // a new thread
      } else if (error instanceof ApiError && error.status === 0) {
        this.isConnected.value = false;
        await this.#pause(1_000);
        if (!this.#isClosed) return this.#load(run);
      } else {
        this.isConnected.value = true;
        this.phase.value = "failed";
        this.#report("The thread was not loaded", error);
      }
    }
    this.#changed();
    void this.#sendNext();
  }

  #seed(view: ThreadView): void {
    this.conversation = new Conversation(view);
    this.tree = new RunTree(view.runs);
    this.tip = view.tip;
    this.title.value = view.title;
    this.isArchived.value = view.archived;
    this.results.value = new Map();
    this.#viewLast = view.last;
    this.#isStored = true;
    // What was answered elsewhere needs no answer. Another branch has other questions.
    if (this.pinned === null && !this.isRunning) this.#keepForms([...this.conversation.interrupts.map((one) => one.id), ...this.conversation.pendingToolCalls]);
    if (this.isRunning) this.isHeld.value = false; // messages that waited before a reload go on waiting
    const running = view.runs.find((run) => run.status === "running");
    if (this.#seq === 0 && view.last > MAX_EVENTS) {
      this.#seq = view.last;
      this.#cursor = view.cursor;
      this.#logRun = running?.runId ?? null;
    }
  }

  #keepForms(ids: readonly string[]): void {
    this.forms.value = Object.fromEntries(Object.entries(this.forms.value).filter(([id]) => ids.includes(id)));
  }

  /** Read the log for as long as the session is open: live during a run, and from time to time for runs of others. */
  async #follow(): Promise<void> {
    let failures = 0;
    while (!this.#isClosed) {
      if (!this.#isStored && this.#next === null) {
        await this.#pause(Infinity);
        if (this.phase.value === "failed" && !this.#isClosed) await this.#load(this.pinned);
        continue;
      }
      this.#stream = new AbortController();
      const before = this.#seq;
      try {
        const response = this.#next ?? (await threadEvents(this.id, { after: this.#cursor, times: true, signal: this.#stream.signal }));
        this.#next = null;
        for await (const batch of readBatches(response)) {
          this.isConnected.value = true;
          for (const stored of batch) {
            const loading = this.#take(stored);
            if (loading !== undefined) await loading;
          }
          this.#changed();
          void this.#sendNext();
          if (this.#next !== null || this.#isClosed) break;
        }
        this.isConnected.value = true;
      } catch (error) {
        if (this.#next !== null || this.#isClosed) continue;
        failures += 1;
        await this.#recover(error, failures);
        continue;
      }
      if (this.#next !== null) continue;
      failures = this.#seq > before ? 0 : failures + 1;
      if (!this.isRunning) {
        failures = 0;
        await this.#pause(Infinity);
      } else if (failures > 1) {
        // The log has nothing new and the run has not ended here: read what the server says about it.
        await this.#pause(Math.min(MAX_WAIT_MS, 100 * 2 ** failures));
        if (!this.#isStarting) await this.#load(this.tip);
      }
    }
  }

  /** React to a stream that failed. */
  async #recover(error: unknown, failures: number): Promise<void> {
    const status = error instanceof ApiError ? error.status : 0;
    if (status === 410) {
      if (this.#isStarting) return this.#pause(200);
      // The log does not have the event any more: the run was compacted, or an older copy of the store was put back.
      this.#seq = 0;
      this.#cursor = "0";
      this.layouts.clear();
      return this.#load(this.pinned);
    }
    if (status === 404) {
      if (this.#isStarting) return this.#pause(200);
      this.#seq = 0;
      this.#cursor = "0";
      this.layouts.clear();
      this.conversation = new Conversation();
      this.tree = new RunTree();
      this.tip = null;
      this.#isStored = false;
      this.#report("The thread was deleted", "It is no longer on the server. A message starts it again.");
      this.#changed();
      return;
    }
    this.isConnected.value = status === 401 || status === 403; // the server is there, and refuses
    if (this.isConnected.value) return this.#pause(Infinity);
    await this.#pause(Math.min(MAX_WAIT_MS, 250 * 2 ** failures));
  }

  /** Take the next event of the log. Returns a promise if the thread has to be loaded first. */
  #take({ seq, cursor, event, time }: StoredEvent): Promise<void> | undefined {
    if (seq !== null) {
      if (seq <= this.#seq) return undefined;
      this.#seq = seq;
      this.#cursor = cursor ?? String(seq);
    }
    const isNew = seq === null || seq > this.#viewLast;
    let loading: Promise<void> | undefined;
    if (event.type === "RUN_STARTED") {
      this.#logRun = event.runId;
      const node = this.tree.get(event.runId) ?? this.tree.add(event.runId, event.parentRunId, "running");
      if (isNew) {
        node.status = "running";
        // A run of another tab or client: its user message is not in the log.
        if (event.runId !== this.tip && this.pinned === null) loading = this.#load(event.runId);
      }
    }
    const run = this.#logRun;
    if (run === null) return loading;
    const layout = this.layouts.get(run) ?? new RunLayout();
    this.layouts.set(run, layout);
    const message = layout.take(event, time ?? Date.now());
    if (message !== null) this.#runsOf.set(message, [...(this.#runsOf.get(message) ?? []), run]);
    if (isNew && run === this.tip && loading === undefined) this.conversation.apply(event, time);
    if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") {
      const node = this.tree.get(run);
      if (node !== undefined && isNew) node.status = event.type === "RUN_ERROR" ? "error" : (event.outcome?.type ?? "success");
      if (isNew) {
        this.isHeld.value = event.type === "RUN_ERROR"; // what was written before the failure may not fit any more
        if (this.ownRuns.has(run)) announce(this.id);
        this.hooks.onChange();
      }
    }
    return loading;
  }

  /** Start a run. A request that is lost on the way is sent again: the server knows it by the id of its run. */
  async #start(runId: string, messages: Message[], parent: string | null, options: { resume?: ResumeEntry[]; state?: Json } = {}): Promise<boolean> {
    if (this.isRunning) return false;
    const { resume, state = this.conversation.state } = options;
    const { conversation, tip, pinned } = this;
    this.problem.value = null;
    this.refusal.value = null;
    this.answering = resume === undefined ? [] : conversation.interrupts;
    this.#isStarting = true;
    this.conversation = new Conversation({ messages, state });
    this.tree.add(runId, parent, "running");
    this.ownRuns.add(runId);
    this.tip = runId;
    if (this.isNew.value) {
      this.isNew.value = false;
      if (this.owner !== null) writeUnsent(this.owner, null, EMPTY);
    }
    this.#loads++;
    this.#move(null);
    this.#changed();
    const input = {
      threadId: this.id,
      runId,
      ...(parent !== null && { parentRunId: parent }),
      messages: messages.filter((message) => message.role !== "activity"),
      state,
      tools: TOOLS,
      context: [],
      ...(resume !== undefined && { resume }),
    };
    try {
      this.#next = await this.#persist(() => startRun(input));
    } catch (error) {
      this.conversation = conversation;
      this.tip = tip;
      this.#move(pinned);
      this.tree.remove(runId);
      this.#isStarting = false;
      this.answering = [];
      this.refusal.value = refusalOf(error, resume ?? []);
      if (resume !== undefined && error instanceof ApiError && [404, 409, 410].includes(error.status)) {
        await this.#load(this.pinned); // the question is not open any more
        this.#wake?.();
        if (error.code === "interrupt_stale") error = "The question was answered in another tab or by another client, or is not open any more. This is the thread as it is now.";
      }
      if (this.refusal.value === null) this.#report(resume === undefined ? "The message was not sent" : "The answer was not sent", error);
      this.#changed();
      return false;
    }
    this.results.value = new Map();
    this.answering = [];
    this.#keepForms([]);
    this.#isStarting = false;
    this.#isStored = true;
    this.#stream?.abort();
    this.#wake?.();
    announce(this.id);
    this.hooks.onChange();
    return true;
  }

  /** Do a request, and do it again while the server cannot be reached. */
  async #persist<T>(request: () => Promise<T>): Promise<T> {
    for (let failures = 1; ; failures++) {
      try {
        const response = await request();
        this.isConnected.value = true;
        return response;
      } catch (error) {
        const status = error instanceof ApiError ? error.status : -1;
        this.isConnected.value = status !== 0 && status !== 503;
        if (this.isConnected.value || failures > 12 || this.#isClosed) throw error;
        await new Promise((resolve) => setTimeout(resolve, Math.min(MAX_WAIT_MS, 250 * 2 ** failures)));
      }
    }
  }

  async #suggestTitle(content: string | Part[]): Promise<void> {
    const text = typeof content === "string" ? content : content.map((part) => (part.type === "text" ? part.text : "")).join(" ");
    const title = text.trim().replace(/\s+/g, " ").slice(0, 60);
    if (title === "" || this.title.value !== null) return;
    try {
      this.title.value = (await updateThread(this.id, { title })).title;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // without a title the thread is listed by its id
    }
    this.hooks.onChange();
  }

  #report(title: string, error: unknown): void {
    this.problem.value = { title, ...inWords(error) };
  }

  /** Change the address of what is shown, at the same time as what is shown. */
  #move(run: string | null): void {
    this.pinned = run;
    if (!this.#isClosed) this.hooks.onMove(run);
  }

  // Waiting and drawing

  /** Wait for some time, or until something wakes the session up; `onRefresh` does. */
  async #pause(milliseconds: number): Promise<void> {
    const hasNews = this.#hasNews;
    this.#hasNews = false;
    if (hasNews) return;
    await new Promise<void>((resolve) => {
      const timer = milliseconds === Infinity ? undefined : setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = null;
  }

  #onRefresh = (thread: string | null) => {
    if (thread !== null && thread !== this.id) return;
    if (thread === this.id) this.#isStored = true;
    if (this.#wake === null) this.#hasNews = true;
    else this.#wake();
  };

  /** Draw at most once a frame. */
  #changed(): void {
    if (this.#frame !== 0) return;
    const draw = () => {
      clearTimeout(this.#frame);
      this.#frame = 0;
      this.version.value += 1;
    };
    this.#frame = window.setTimeout(draw, 16);
  }
}

/** Read from an error which answer the server refused, and why; null if it refused something else. */
function refusalOf(error: unknown, answers: readonly ResumeEntry[]): Refusal | null {
  if (!(error instanceof ApiError) || error.code !== "interrupt_answer_invalid") return null;
  const [, index, path = ""] = /^\/resume\/(\d+)\/payload(.*)$/.exec(error.path ?? "") ?? [];
  const answer = answers[Number(index)];
  return answer === undefined ? null : { interruptId: answer.interruptId, path, text: `The server refuses it: ${error.message.replace(/^.*?responseSchema: /s, "")}.` };
}
