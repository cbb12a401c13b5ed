/** The inspector: threads and runs, and one run in all its parts. */

import { useComputed, useSignal, type ReadonlySignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { getRecording, getThread, listThreads, threadEvents, token } from "../protocol/api";
import { readBatches } from "../protocol/stream";
import type { Finding, Message, RunRecord, StoredEvent, ThreadSummary } from "../protocol/types";
import { hrefOf, navigate } from "../router";
import { Compare } from "./Compare";
import { asCurl, asJson, asPytest, saveText } from "./copy";
import { EventList } from "./EventList";
import { bytes, duration, number } from "./format";
import { CopyButton, CostPanel, countOf, Empty, EventPanel, InputPanel, MessagesPanel, placeOf, StatePanel, ViolationsPanel } from "./panels";
import { readRecording, writeRecording, type RecordedRun } from "./recording";
import { messageOf, openRecorded, openRun, type RunView } from "./source";
import { Timeline } from "./Timeline";
import "./inspector.css";

const REFRESH = 3000;
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
          <Empty>
            {thread !== null
              ? "This thread has no runs yet."
              : "Choose a thread, or drop a recording (.jsonl, .sse or .json) here. It stays in the browser."}
          </Empty>
        )}
      </div>
    </main>
  );
}

/** The threads: the first page is refreshed while the page is visible, older ones are loaded on demand. */
function useThreads(error: Signal<string | null>) {
  const latest = useSignal<ThreadSummary[]>([]);
  const older = useSignal<ThreadSummary[]>([]);
  const next = useSignal<string | null>(null);
  useEffect(() => {
    let timer = 0;
    const refresh = async () => {
      try {
        if (!document.hidden) {
          const found = await listThreads({ limit: 100 });
          latest.value = found.threads;
          if (older.value.length === 0) next.value = found.next;
        }
        timer = setTimeout(() => void refresh(), REFRESH);
      } catch (problem) {
        error.value = messageOf(problem);
        timer = setTimeout(() => void refresh(), REFRESH * 4);
      }
    };
    void refresh();
    return () => clearTimeout(timer);
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

/** Name runs by the messages of the page, whose ids carry that of their run. */
function withNames(runs: readonly RunRecord[], messages: readonly Message[]): NamedRun[] {
  const names = new Map<string, string>();
  for (const { id, role, content } of messages) {
    if (role !== "user" || !id.startsWith("user-")) continue;
    const text = typeof content === "string" ? content : content.map((part) => (part.type === "text" ? part.text : "")).join(" ");
    if (text.trim() !== "") names.set(id.slice(5), text.trim());
  }
  return runs.map((run) => ({ ...run, name: names.get(run.runId) ?? run.runId }));
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
        if (isCurrent) runs.value = withNames(found.runs, found.messages);
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
  const isFolded = useSignal(isNarrow);
  const shown = recording.value;
  const known = threads.some((one) => one.threadId === thread);
  return (
    <nav class={`side ${isFolded.value ? "folded" : ""}`} aria-label="Threads and runs">
      <div class="side-bar">
        <button type="button" class="small side-fold" aria-expanded={!isFolded.value} onClick={() => (isFolded.value = !isFolded.value)}>
          Threads
        </button>
        <button type="button" class="small" onClick={() => file.current?.click()}>
          Open recording
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
          {thread !== null && !known && <ThreadItem thread={thread} title={thread} isRunning={false} isCurrent run={run} runs={runs} />}
          {threads.map((one) => (
            <ThreadItem
              key={one.threadId}
              thread={one.threadId}
              title={one.title ?? one.threadId}
              isRunning={one.isRunning}
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

type ThreadItemProps = { thread: string; title: string; isRunning: boolean; isCurrent: boolean; run: string | null; runs: NamedRun[] };

function ThreadItem({ thread, title, isRunning, isCurrent, run, runs }: ThreadItemProps) {
  return (
    <li>
      <a class="item" href={hrefOf("inspect", thread)} title={thread} aria-current={isCurrent && run === null ? "true" : undefined}>
        <span class="title">{title}</span> {isRunning && <span class="tag live">live</span>}
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

type ComparePageProps = { view: RunView; record: RunRecord | null; other: string; otherRecord: RunRecord | null; thread: string };

function ComparePage({ view, record, other, otherRecord, thread }: ComparePageProps) {
  const second = useView(() => openRun(thread, other));
  return <Compare left={{ view, startedAt: record?.startedAt ?? null }} right={{ view: second, startedAt: otherRecord?.startedAt ?? null }} />;
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

type RunPageProps = { view: RunView; record: RunRecord | null; others: NamedRun[]; compared: Signal<string | null> | null };

function RunPage({ view, record, others, compared }: RunPageProps) {
  const { model, version } = view;
  const cursor = useSignal(-1);
  const span = useSignal<number | null>(null);
  const shown = useSignal<Uint32Array | null>(null);
  const tab = useSignal<Tab>("Messages");
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
          <div class="tabs" role="tablist" aria-label="Details" onKeyDown={(event) => moveTab(event, tab)}>
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

function moveTab(event: KeyboardEvent, tab: Signal<Tab>): void {
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
  return (
    <div class="run-bar">
      <h2 class="mono" title={view.run}>
        {view.title}
      </h2>
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
          <CopyButton text={() => asJson(selected())}>{cursor.value === -1 ? (shown.value === null ? "Copy all as JSON" : "Copy shown as JSON") : "Copy event as JSON"}</CopyButton>
          <CopyButton text={() => asCurl(view)}>Copy as curl</CopyButton>
          {model.hasSeed && count <= MOST_TESTED && <CopyButton text={() => asPytest(view, count)}>Copy as pytest</CopyButton>}
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
          <button type="button" class="small" onClick={() => saveText(`${view.run}.jsonl`, writeRecording(view.input.value, model.events, model.hasTimes ? model.times : null))}>
            Download run
          </button>
          {view.thread !== null && (
            <button type="button" class="small" onClick={() => void downloadThread(view.thread!)}>
              Download thread
            </button>
          )}
        </div>
      </details>
    </div>
  );
}

function outcomeOf(view: RunView): string {
  const last = view.model.events.at(-1)?.event;
  if (last?.type === "RUN_ERROR") return "error";
  return last?.type === "RUN_FINISHED" ? (last.outcome?.type ?? "success") : "";
}

async function downloadThread(thread: string): Promise<void> {
  const events: StoredEvent[] = [];
  for await (const batch of readBatches(await threadEvents(thread, { times: true }))) events.push(...batch);
  const times = events.map((stored) => stored.time ?? 0);
  saveText(`${thread}.jsonl`, writeRecording(null, events, times.includes(0) ? null : times));
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
