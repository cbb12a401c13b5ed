/** The inspector: threads and runs, and one run in all its parts. */

import { signal, useComputed, useSignal, type ReadonlySignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Icon } from "../Icon";
import { ApiError, getRecording, getRunInput, getThread, listThreads, runEvents, token } from "../protocol/api";
import { formatAge } from "../chat/format";
import { readBatches } from "../protocol/stream";
import type { Finding, Json, Message, RunRecord, StoredEvent, ThreadSummary } from "../protocol/types";
import { options } from "../options";
import { onRefresh } from "../refresh";
import { hrefOf, navigate } from "../router";
import { Compare } from "./Compare";
import { asCurl, asJson, asPytest, saveText } from "./copy";
import { EventList } from "./EventList";
import { bytes, duration, number } from "./format";
import { CopyButton, CostPanel, countOf, EventPanel, InputPanel, MessagesPanel, placeOf, StatePanel, ViolationsPanel } from "./panels";
import { readRecording, writeRecording, type RecordedRun } from "./recording";
import { messageOf, openRecorded, openRun, type RunView } from "./source";
import { Timeline } from "./Timeline";
import "./inspector.css";

/** A test with more events than these is no test that someone reads. */
const MOST_TESTED = 5000;

/** On a narrow screen, what is not needed at first is folded. */
const isNarrow = matchMedia("(max-width: 800px)").matches;

type Recording = { name: string; runs: RecordedRun[]; findings: Finding[] | null };

type Place = { thread: string | null; run: string | null };

/** The inspector. With another token everything is loaded anew. */
export function Inspector(place: Place) {
  return <InspectorOf key={token.value ?? ""} {...place} />;
}

function InspectorOf({ thread, run }: Place) {
  const recording = useSignal<Recording | null>(null);
  const recordedRun = useSignal(0);
  const error = useSignal<string | null>(null);
  const isOver = useSignal(false);
  const { threads, next, loadMore } = useThreads(error);
  const runs = useRuns(thread, threads, error);
  const compared = useSignal<string | null>(null);

  // `aguila inspect FILE` opens the page with the name of the recording.
  useEffect(() => {
    const name = new URLSearchParams(location.search).get("recording");
    if (name === null) return;
    getRecording().then(
      ({ text, findings }) => (recording.value = { name, runs: readRecording(text), findings }),
      (problem: unknown) => (error.value = `The recording cannot be opened: ${messageOf(problem)}`),
    );
  }, []);

  // Without a run, the last one of the thread is shown.
  const latest = runs.value.at(-1)?.runId ?? null;
  useEffect(() => {
    if (thread !== null && run === null && latest !== null && runs.value[0]?.threadId === thread) {
      navigate(hrefOf("inspect", thread, latest), { replace: true });
    }
  }, [thread, run, latest]);
  useEffect(() => {
    compared.value = null;
    if (thread !== null) recording.value = null;
  }, [thread, run]);

  async function open(file: File | undefined): Promise<void> {
    if (file === undefined) return;
    try {
      const opened = { name: file.name, runs: readRecording(await file.text()), findings: null };
      navigate(hrefOf("inspect"));
      recordedRun.value = 0;
      recording.value = opened;
      error.value = null;
    } catch (problem) {
      error.value = `${file.name} cannot be opened: ${messageOf(problem)}`;
    }
  }

  const shown = recording.value;
  return (
    <main
      class={`inspector ${isOver.value ? "over" : ""}`}
      id="main"
      tabIndex={-1}
      onDragOver={(event) => {
        event.preventDefault();
        isOver.value = true;
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) isOver.value = false;
      }}
      onDrop={(event) => {
        event.preventDefault();
        isOver.value = false;
        void open(event.dataTransfer?.files[0]);
      }}
    >
      <h1 class="offscreen">Inspector</h1>
      <Sidebar thread={thread} run={run} threads={threads.value} runs={runs.value} recording={recording} recordedRun={recordedRun} onFile={(file) => void open(file)} onMore={next.value === null ? null : loadMore} />
      <div class="inspected">
        {error.value !== null && (
          <p class="problem" role="alert">
            {error.value}{" "}
            <button type="button" class="small" onClick={() => (error.value = null)}>
              Dismiss
            </button>
          </p>
        )}
        {shown !== null ? (
          <RecordedRunPage key={`${shown.name} ${recordedRun.value}`} recording={shown} at={recordedRun.value} />
        ) : thread !== null && run !== null ? (
          <StoredRunPage key={`${thread} ${run}`} thread={thread} run={run} runs={runs.value} compared={compared} />
        ) : (
          <Welcome hasThread={thread !== null} />
        )}
      </div>
    </main>
  );
}

/** What stands there before a run is chosen. */
function Welcome({ hasThread }: { hasThread: boolean }) {
  return (
    <div class="inspector-welcome">
      <Icon name="inspect" size={40} />
      {hasThread ? (
        <p>This thread has no runs yet.</p>
      ) : (
        <>
          <h2>Choose a thread to inspect its runs</h2>
          <p class="soft">
            Or drop a recording here: <code>.jsonl</code>, <code>.sse</code> or <code>.json</code>. It stays in the browser.
          </p>
        </>
      )}
    </div>
  );
}

/** The threads: the first page is kept up to date, older ones are loaded on demand. */
function useThreads(error: Signal<string | null>) {
  const latest = useSignal<ThreadSummary[]>([]);
  const older = useSignal<ThreadSummary[]>([]);
  const next = useSignal<string | null>(null);
  useEffect(() => {
    let problemOfList: string | null = null;
    const refresh = async () => {
      try {
        const found = await listThreads({ limit: 100 });
        latest.value = found.threads;
        if (error.value === problemOfList) error.value = null;
        if (older.value.length === 0) next.value = found.next;
      } catch (problem) {
        problemOfList = error.value = messageOf(problem);
      }
    };
    void refresh();
    return onRefresh(() => void refresh());
  }, []);
  const threads = useComputed(() => {
    const known = new Set(latest.value.map((one) => one.threadId));
    return [...latest.value, ...older.value.filter((one) => !known.has(one.threadId))];
  });
  const loadMore = () => {
    if (next.value === null) return;
    listThreads({ limit: 100, before: next.value }).then(
      (found) => {
        older.value = [...older.value, ...found.threads];
        next.value = found.next;
      },
      (problem: unknown) => (error.value = messageOf(problem)),
    );
  };
  return { threads, next, loadMore };
}

/** A run with a name for people: the message that started it, or its id. */
type NamedRun = RunRecord & { name: string };

/** Names that were found already, by thread and run. */
const names = new Map<string, string>();
/** Runs whose requests are read for their names. */
const MOST_NAMED = 30;

function textOf(message: Message): string {
  if (message.role !== "user") return "";
  const { content } = message;
  return (typeof content === "string" ? content : content.map((part) => (part.type === "text" ? part.text : "")).join(" ")).trim();
}

/** Name runs by the messages of the page, whose ids carry that of their run. */
function withNames(runs: readonly RunRecord[], messages: readonly Message[]): NamedRun[] {
  const thread = runs[0]?.threadId ?? "";
  for (const message of messages) {
    const text = textOf(message);
    if (text !== "" && message.id.startsWith("user-")) names.set(`${thread} ${message.id.slice(5)}`, text);
  }
  return runs.map((run) => ({ ...run, name: names.get(`${thread} ${run.runId}`) ?? run.runId }));
}

/** Name the runs of other branches and those that continue a run: their requests have the message. */
async function nameRest(thread: string, runs: Signal<NamedRun[]>, isCurrent: () => boolean): Promise<void> {
  const unnamed = runs.value.filter((run) => run.name === run.runId).slice(-MOST_NAMED);
  for (const { runId } of unnamed) {
    let input;
    try {
      ({ input } = await getRunInput(thread, runId));
    } catch (problem) {
      if (problem instanceof ApiError) return; // the ids have to do
      throw problem;
    }
    if (!isCurrent()) return;
    const messages = input.messages ?? [];
    const text = messages.map(textOf).findLast((each) => each !== "") ?? "";
    const continues = (input.resume ?? []).length > 0 || messages.at(-1)?.role === "tool";
    if (text === "") continue;
    names.set(`${thread} ${runId}`, continues ? `${text} (continued)` : text);
    runs.value = runs.value.map((run) => (run.runId === runId ? { ...run, name: names.get(`${thread} ${runId}`)! } : run));
  }
}

/** The runs of a thread, read again when their number or the end of the log has changed. */
function useRuns(thread: string | null, threads: ReadonlySignal<ThreadSummary[]>, error: Signal<string | null>): Signal<NamedRun[]> {
  const runs = useSignal<NamedRun[]>([]);
  const summary = threads.value.find((one) => one.threadId === thread);
  const state = summary === undefined ? "" : `${summary.runs} ${summary.runningRunId ?? ""}`;
  useEffect(() => {
    if (thread === null) {
      runs.value = [];
      return undefined;
    }
    let isCurrent = true;
    getThread(thread).then(
      (found) => {
        if (!isCurrent) return;
        runs.value = withNames(found.runs, found.messages);
        void nameRest(thread, runs, () => isCurrent);
      },
      (problem: unknown) => {
        if (isCurrent) error.value = messageOf(problem);
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [thread, state]);
  return runs;
}

type SidebarProps = {
  thread: string | null;
  run: string | null;
  threads: ThreadSummary[];
  runs: NamedRun[];
  recording: Signal<Recording | null>;
  recordedRun: Signal<number>;
  onFile: (file: File | undefined) => void;
  /** Loads older threads, if there are any. */
  onMore: (() => void) | null;
};

function Sidebar({ thread, run, threads, runs, recording, recordedRun, onFile, onMore }: SidebarProps) {
  const file = useRef<HTMLInputElement>(null);
  const isFolded = useSignal(false);
  useEffect(() => {
    isFolded.value = isNarrow && (run !== null || recording.value !== null); // without a run there is nothing else to see
  }, [run, recording.value]);
  const shown = recording.value;
  const known = threads.some((one) => one.threadId === thread);
  return (
    <nav class={`side ${isFolded.value ? "folded" : ""}`} aria-label="Threads and runs">
      <div class="side-bar">
        <button type="button" class="small side-fold" aria-expanded={!isFolded.value} onClick={() => (isFolded.value = !isFolded.value)}>
          <Icon name="list" /> Threads
        </button>
        <button type="button" class="small side-open" onClick={() => file.current?.click()}>
          <Icon name="open" /> Open recording
        </button>
        <input
          ref={file}
          type="file"
          accept=".jsonl,.ndjson,.sse,.txt,.json"
          hidden
          onChange={(event) => {
            onFile(event.currentTarget.files?.[0]);
            event.currentTarget.value = "";
          }}
        />
      </div>
      <div class="side-list">
        {shown !== null && (
          <>
            <h2>{shown.name}</h2>
            <ul>
              {shown.runs.map((one, at) => (
                <li key={at}>
                  <button type="button" class="item" aria-current={at === recordedRun.value ? "true" : undefined} onClick={() => (recordedRun.value = at)}>
                    <span class="mono">{one.name}</span> <span class="soft">{number(one.events.length)} events</span>
                  </button>
                </li>
              ))}
            </ul>
          </>
        )}
        <h2>Threads</h2>
        {threads.length === 0 && <p class="soft pad">No threads yet.</p>}
        <ul>
          {thread !== null && !known && <ThreadItem thread={thread} title={thread} isRunning={false} updatedAt={null} isCurrent run={run} runs={runs} />}
          {threads.map((one) => (
            <ThreadItem
              key={one.threadId}
              thread={one.threadId}
              title={one.title ?? one.threadId}
              isRunning={one.isRunning}
              updatedAt={one.updatedAt}
              isCurrent={one.threadId === thread}
              run={run}
              runs={one.threadId === thread ? runs : []}
            />
          ))}
        </ul>
        {onMore !== null && (
          <button type="button" class="small more" onClick={onMore}>
            Older threads
          </button>
        )}
      </div>
    </nav>
  );
}

type ThreadItemProps = { thread: string; title: string; isRunning: boolean; updatedAt: number | null; isCurrent: boolean; run: string | null; runs: NamedRun[] };

function ThreadItem({ thread, title, isRunning, updatedAt, isCurrent, run, runs }: ThreadItemProps) {
  return (
    <li class={isCurrent ? "is-open" : undefined}>
      <a class="item" href={hrefOf("inspect", thread)} title={thread} aria-current={isCurrent && run === null ? "true" : undefined}>
        <span class="title">{title}</span> {isRunning ? <span class="tag live">live</span> : updatedAt !== null && <span class="soft age">{formatAge(updatedAt)}</span>}
      </a>
      {isCurrent && runs.length > 0 && (
        <ul class="runs">
          {runs.map((one) => (
            <li key={one.runId}>
              <a class="item" href={hrefOf("inspect", thread, one.runId)} title={one.runId} aria-current={one.runId === run ? "true" : undefined}>
                <span class={`run-state ${one.status}`} role="img" aria-label={one.status} />
                <span class={one.name === one.runId ? "mono title" : "title"}>{one.name}</span>
                <span class="soft">{one.endedAt === null ? "" : duration((one.endedAt - one.startedAt) * 1000)}</span>
              </a>
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}

function RecordedRunPage({ recording, at }: { recording: Recording; at: number }) {
  const view = useView(() => openRecorded(recording.runs[at]!, recording.findings, at));
  return <RunPage view={view} record={null} others={[]} compared={null} />;
}

type StoredRunPageProps = { thread: string; run: string; runs: NamedRun[]; compared: Signal<string | null> };

function StoredRunPage({ thread, run, runs, compared }: StoredRunPageProps) {
  const view = useView(() => openRun(thread, run));
  const record = runs.find((one) => one.runId === run) ?? null;
  const other = compared.value;
  if (other !== null) {
    return (
      <>
        <div class="run-bar">
          <button type="button" class="small" onClick={() => (compared.value = null)}>
            Back to the run
          </button>
        </div>
        <ComparePage key={other} view={view} record={record} other={other} otherRecord={runs.find((one) => one.runId === other) ?? null} thread={thread} />
      </>
    );
  }
  return <RunPage view={view} record={record} others={runs.filter((one) => one.runId !== run)} compared={compared} />;
}

type ComparePageProps = { view: RunView; record: NamedRun | null; other: string; otherRecord: NamedRun | null; thread: string };

function ComparePage({ view, record, other, otherRecord, thread }: ComparePageProps) {
  const second = useView(() => openRun(thread, other));
  return <Compare left={sideOf(view, record)} right={sideOf(second, otherRecord)} />;
}

function sideOf(view: RunView, record: NamedRun | null) {
  return { view, name: record?.name ?? view.title, startedAt: record?.startedAt ?? null };
}

/** Open a view once, and close it with the component. */
function useView(open: () => RunView): RunView {
  const view = useRef<RunView | null>(null);
  view.current ??= open();
  useEffect(() => () => view.current?.close(), []);
  return view.current;
}

const TABS = ["Event", "State", "Messages", "Violations", "Cost", "Input"] as const;
type Tab = (typeof TABS)[number];

/** The panel that is shown: another run shows the same. */
const tab = signal<Tab>("Messages");

type RunPageProps = { view: RunView; record: NamedRun | null; others: NamedRun[]; compared: Signal<string | null> | null };

function RunPage({ view, record, others, compared }: RunPageProps) {
  const { model, version } = view;
  const cursor = useSignal(-1);
  const span = useSignal<number | null>(null);
  const shown = useSignal<Uint32Array | null>(null);
  const findings = useComputed(() => {
    void version.value;
    const rank = { note: 0, warning: 1, error: 2 };
    const found = new Map<number, Finding["level"]>();
    for (const finding of view.findings.value ?? []) {
      const place = placeOf(finding, model);
      const known = found.get(place);
      if (place !== -1 && (known === undefined || rank[finding.level] > rank[known])) found.set(place, finding.level);
    }
    return found;
  });
  const marks = useComputed(() => [...findings.value].filter(([, level]) => level !== "note").map(([index]) => index));
  const selectSpan = (at: number | null) => {
    span.value = at;
    if (at !== null) cursor.value = model.spans[at]!.last;
  };
  void version.value;
  const props = { view, cursor, version };
  const violations = (view.findings.value ?? []).filter((finding) => finding.level !== "note").length;
  return (
    <>
      <RunBar view={view} record={record} others={others} compared={compared} cursor={cursor} shown={shown} />
      <Timeline model={model} version={version} cursor={cursor} span={span} onSpan={selectSpan} marks={marks} label="Timeline" />
      <Slider view={view} cursor={cursor} />
      <div class="split">
        <EventList model={model} version={version} cursor={cursor} span={span} findings={findings} isLive={record !== null && record.endedAt === null} shown={shown} />
        <section class="panel" aria-label="Details">
          <div class="tabs" role="tablist" aria-label="Details" onKeyDown={moveTab}>
            {TABS.map((name) => (
              <button
                key={name}
                id={`tab-${name}`}
                type="button"
                role="tab"
                aria-selected={tab.value === name}
                aria-controls="panel"
                tabIndex={tab.value === name ? 0 : -1}
                onClick={() => (tab.value = name)}
              >
                {name}
                {name === "Violations" && violations > 0 && <span class="badge">{violations}</span>}
              </button>
            ))}
          </div>
          <div class="panel-body" role="tabpanel" id="panel" aria-labelledby={`tab-${tab.value}`} tabIndex={0}>
            {tab.value === "Event" && <EventPanel {...props} />}
            {tab.value === "State" && <StatePanel {...props} />}
            {tab.value === "Messages" && <MessagesPanel {...props} />}
            {tab.value === "Violations" && <ViolationsPanel {...props} />}
            {tab.value === "Cost" && <CostPanel {...props} startedAt={record?.startedAt ?? null} />}
            {tab.value === "Input" && <InputPanel view={view} />}
          </div>
        </section>
      </div>
    </>
  );
}

function moveTab(event: KeyboardEvent): void {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  tab.value = TABS[(TABS.indexOf(tab.value) + by + TABS.length) % TABS.length]!;
  document.getElementById(`tab-${tab.value}`)?.focus();
}

const STATUS = { loading: "loading", live: "live", ended: "", broken: "connection lost" };

type RunBarProps = RunPageProps & { cursor: Signal<number>; shown: Signal<Uint32Array | null> };

function RunBar({ view, record, others, compared, cursor, shown }: RunBarProps) {
  const { model } = view;
  void view.version.value;
  const status = STATUS[view.status.value];
  const outcome = outcomeOf(view);
  const selected = () => {
    const stored = model.events[cursor.value];
    if (stored !== undefined) return [stored];
    return shown.value === null ? model.events : [...shown.value].map((index) => model.events[index]!);
  };
  const count = countOf(model, cursor.value);
  const isNamed = record !== null && record.name !== record.runId;
  const copied = cursor.value !== -1 ? "event" : shown.value === null ? "all" : "shown";
  return (
    <div class="run-bar">
      <div class="run-title">
        <h2 class={isNamed ? undefined : "mono"} title={isNamed ? record.name : view.run}>
          {isNamed ? record.name : view.title}
        </h2>
        {isNamed && (
          <span class="soft mono id" title={view.run}>
            {view.run}
          </span>
        )}
      </div>
      <Trace view={view} />
      {outcome !== "" && <span class={`tag ${outcome}`}>{outcome}</span>}
      {status !== "" && (
        <span class={`tag ${view.status.value}`} role="status">
          {status}
        </span>
      )}
      <span class="soft">
        {number(model.length)} events{model.hasTimes ? `, ${duration((model.times.at(-1) ?? 0) - (model.times[0] ?? 0))}` : ""}, {bytes(model.bytes)}
      </span>
      {view.error.value !== null && <span class="bad">{view.error.value}</span>}
      <details class="run-more" open={!isNarrow}>
        <summary>Copy, compare, download</summary>
        <div class="run-actions">
          <div class="button-group">
            <span class="soft">Copy</span>
            <CopyButton text={() => asJson(selected())} label={`Copy ${copied} as JSON`}>
              {copied} as JSON
            </CopyButton>
            <CopyButton text={() => asCurl(view)} label="Copy as curl">
              curl
            </CopyButton>
            {model.hasSeed && count <= MOST_TESTED && (
              <CopyButton text={() => asPytest(view, count)} label="Copy as pytest">
                pytest
              </CopyButton>
            )}
          </div>
          <div class="button-group">
            <span class="soft">Download</span>
            <button type="button" class="small" aria-label="Download run" onClick={() => saveText(`${view.run}.jsonl`, writeRecording(view.input.value, model.events, model.hasTimes ? model.times : null))}>
              run
            </button>
            {view.thread !== null && (
              <button type="button" class="small" aria-label="Download thread" onClick={() => void downloadThread(view)}>
                thread
              </button>
            )}
          </div>
          {compared !== null && others.length > 0 && (
            <select aria-label="Compare with another run" value="" onChange={(event) => (compared.value = event.currentTarget.value || null)}>
              <option value="">Compare with…</option>
              {others.map((one) => (
                <option key={one.runId} value={one.runId}>
                  {one.name}
                  {record !== null && one.parentRunId === record.parentRunId ? " (same parent)" : ""}
                </option>
              ))}
            </select>
          )}
        </div>
      </details>
    </div>
  );
}

/** The trace of a run that its server traced: a link if the app has the address of traces, else a button to copy its id. */
function Trace({ view }: { view: RunView }) {
  const id = traceIdOf(view);
  if (id === null) return null;
  const address = options.traceUrl?.replaceAll("{trace_id}", id);
  const name = `trace ${id.slice(0, 8)}…`;
  if (address === undefined) {
    return (
      <CopyButton text={() => id} label={`Copy the trace id ${id}`}>
        {name}
      </CopyButton>
    );
  }
  return (
    <a href={address} target="_blank" rel="noreferrer" title={id}>
      {name}
    </a>
  );
}

function traceIdOf(view: RunView): string | null {
  const own = view.model.events[0]?.event.metadata?.aguila as { traceparent?: Json } | undefined;
  return /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(String(own?.traceparent))?.[1] ?? null;
}

function outcomeOf(view: RunView): string {
  const last = view.model.events.at(-1)?.event;
  if (last?.type === "RUN_ERROR") return "error";
  return last?.type === "RUN_FINISHED" ? (last.outcome?.type ?? "success") : "";
}

/** Save the runs of a thread, each with its request. Of a run that goes on, what is shown is saved. */
async function downloadThread(view: RunView): Promise<void> {
  const thread = view.thread!;
  try {
    const lines: string[] = [];
    for (const { runId, endedAt } of (await getThread(thread)).runs) {
      const { input } = await getRunInput(thread, runId);
      const events: StoredEvent[] = endedAt === null && runId === view.run ? [...view.model.events] : [];
      if (endedAt !== null) for await (const batch of readBatches(await runEvents(thread, runId, { times: true }))) events.push(...batch);
      const times = events.map((stored) => stored.time ?? 0);
      lines.push(writeRecording(input, events, times.includes(0) ? null : times));
    }
    saveText(`${thread}.jsonl`, lines.join(""));
  } catch (error) {
    view.error.value = `The thread was not downloaded: ${messageOf(error)}`;
  }
}

/** Moves through the run: messages, state and timeline are shown as of the selected event. */
function Slider({ view, cursor }: { view: RunView; cursor: Signal<number> }) {
  const { model } = view;
  void view.version.value;
  const last = model.length - 1;
  const at = cursor.value === -1 ? last : cursor.value;
  const go = (index: number) => (cursor.value = Math.min(last, Math.max(0, index)));
  return (
    <div class="slider">
      <button type="button" class="small" aria-label="First event" disabled={last < 0} onClick={() => go(0)}>
        «
      </button>
      <button type="button" class="small" aria-label="Previous event" disabled={last < 0} onClick={() => go(at - 1)}>
        ‹
      </button>
      <input
        type="range"
        min={0}
        max={Math.max(0, last)}
        value={Math.max(0, at)}
        disabled={last < 0}
        aria-label="Show the run as of event"
        onInput={(event) => go(Number(event.currentTarget.value))}
      />
      <button type="button" class="small" aria-label="Next event" disabled={last < 0} onClick={() => go(at + 1)}>
        ›
      </button>
      <button type="button" class="small" disabled={cursor.value === -1} onClick={() => (cursor.value = -1)}>
        End
      </button>
      <output class="soft">
        {cursor.value === -1 ? "at the end" : `event ${number(model.events[at]?.seq ?? at + 1)}`}
        {model.hasTimes && last >= 0 ? `, +${duration(model.times[at]! - model.times[0]!)}` : ""}
      </output>
    </div>
  );
}
