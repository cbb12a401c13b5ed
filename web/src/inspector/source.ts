/** Loads runs into models: from the server, live or stored, or from a recording. */

import { signal, type Signal } from "@preact/signals";
import { ApiError, checkRun, getRunInput, runEvents } from "../protocol/api";
import { readBatches } from "../protocol/stream";
import type { Finding, RunAgentInput } from "../protocol/types";
import { RunModel } from "./model";
import type { RecordedRun } from "./recording";

/** Milliseconds of work before the browser gets its turn. */
const TURN = 12;

export type Status = "loading" | "live" | "ended" | "broken";

/** A run that is shown. `version` changes when the model has changed. */
export class RunView {
  readonly model: RunModel;
  readonly version: Signal<number> = signal(0);
  readonly status: Signal<Status> = signal<Status>("loading");
  readonly error: Signal<string | null> = signal<string | null>(null);
  readonly input: Signal<RunAgentInput | null> = signal<RunAgentInput | null>(null);
  /** Null while the server checks. */
  readonly findings: Signal<Finding[] | null> = signal<Finding[] | null>(null);
  readonly checkError: Signal<string | null> = signal<string | null>(null);
  #stop = new AbortController();
  #isScheduled = false;

  constructor(
    readonly title: string,
    readonly thread: string | null,
    readonly run: string,
    model: RunModel,
  ) {
    this.model = model;
  }

  close(): void {
    this.#stop.abort();
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Show what has changed soon, and reduce the rest in slices that block nobody. */
  changed(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const show = () => {
      this.#isScheduled = false;
      this.version.value++;
      this.#reduce();
    };
    // A long run is shown less often while it grows. A hidden page has no frames, but its runs go on.
    const delay = document.hidden ? 250 : Math.min(250, this.model.length / 100);
    if (delay < 16) requestAnimationFrame(show);
    else setTimeout(show, delay);
  }

  #isReducing = false;

  #reduce(): void {
    if (this.#isReducing) return;
    this.#isReducing = true;
    const slice = () => {
      if (!this.signal.aborted && this.model.reduceSome()) return setTimeout(slice, 0);
      this.#isReducing = false;
      return undefined;
    };
    slice();
  }
}

/** Open a run of the server. */
export function openRun(thread: string, run: string): RunView {
  const view = new RunView(run, thread, run, new RunModel());
  void loadEvents(view, thread, run);
  void loadInput(view, thread, run);
  return view;
}

/** Open a run of a recording. `stream` is its place in the file. */
export function openRecorded(recorded: RecordedRun, findings: Finding[] | null, stream: number): RunView {
  const model = new RunModel({ messages: recorded.input?.messages ?? [], state: recorded.input?.state ?? {} });
  const view = new RunView(recorded.name, null, recorded.name, model);
  view.input.value = recorded.input;
  if (findings === null) view.checkError.value = "A dropped file is read by the browser alone. `aguila inspect FILE` also checks it.";
  view.findings.value = (findings ?? []).filter((finding) => (finding.stream ?? 0) === stream);
  // In slices, so that a large file does not block the page.
  let at = 0;
  const slice = () => {
    if (view.signal.aborted) return;
    model.push(recorded.events.slice(at, (at += 5000)));
    if (at < recorded.events.length) setTimeout(slice, 0);
    else view.status.value = "ended";
    view.changed();
  };
  slice();
  return view;
}

async function loadInput(view: RunView, thread: string, run: string): Promise<void> {
  try {
    const start = await getRunInput(thread, run);
    view.input.value = start.input;
    view.model.setSeed({ messages: start.messages, state: start.state });
  } catch (error) {
    if (view.signal.aborted) return;
    view.error.value = `What the run started from is unknown: ${messageOf(error)}`;
    view.model.setSeed({});
  }
  view.changed();
}

async function loadEvents(view: RunView, thread: string, run: string): Promise<void> {
  let pauseAt = performance.now() + TURN;
  for (let attempt = 0; !view.signal.aborted; attempt++) {
    const after = view.model.events.at(-1)?.cursor;
    try {
      const response = await runEvents(thread, run, { after, times: true, signal: view.signal });
      for await (const batch of readBatches(response)) {
        if (view.signal.aborted) return;
        if (performance.now() > pauseAt) {
          await pause();
          pauseAt = performance.now() + TURN;
        }
        attempt = 0;
        view.model.push(batch);
        view.error.value = null;
        view.status.value = "live";
        view.changed();
      }
      if (hasEnded(view.model)) break;
    } catch (error) {
      if (view.signal.aborted) return;
      view.error.value = messageOf(error);
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
        view.status.value = "broken";
        return;
      }
    }
    view.status.value = "broken";
    await new Promise((resolve) => setTimeout(resolve, Math.min(8000, 250 * 2 ** attempt)));
  }
  view.status.value = "ended";
  view.changed();
  await check(view);
}

/** Let the browser handle input and draw. */
function pause(): Promise<void> {
  return new Promise((resolve) => {
    const channel = new MessageChannel(); // a timer would wait for at least 4 ms
    channel.port1.onmessage = () => {
      channel.port1.close();
      resolve();
    };
    channel.port2.postMessage(null);
  });
}

/** Ask the server what the run violates. */
export async function check(view: RunView): Promise<void> {
  if (view.thread === null) return;
  try {
    view.checkError.value = null;
    view.findings.value = (await checkRun(view.thread, view.run)).findings;
  } catch (error) {
    if (!view.signal.aborted) view.checkError.value = messageOf(error);
  }
}

function hasEnded(model: RunModel): boolean {
  const type = model.events.at(-1)?.event.type;
  return type === "RUN_FINISHED" || type === "RUN_ERROR";
}

export function messageOf(error: unknown): string {
  if (error instanceof ApiError && error.status !== 0) return `${error.message} (${error.status} ${error.code})`;
  return error instanceof Error ? error.message : String(error);
}
