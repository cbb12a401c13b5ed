/** Calls the server. Every request carries the bearer token, if there is one. */

import { effect, signal } from "@preact/signals";
import type { CheckReport, Finding, Json, Metadata, RunAgentInput, RunRecord, RunStart, ThreadSummary, ThreadView, UploadedFile } from "./types";

/** The address of the server, with a trailing slash: below a mount path the server writes it into the page. */
export const base = new URL(document.querySelector<HTMLMetaElement>('meta[name="aguila-base"]')?.content ?? "./", location.href).href;

/** Whether callers without a token may list and change threads and upload files: the server writes it into the page. */
const isAnonymousAllowed = document.querySelector<HTMLMetaElement>('meta[name="aguila-anonymous"]')?.content !== "run";

const TOKEN = `aguila-token ${base}`;

/** The bearer token. The tab keeps it until it is closed: a reload asks for it no more, and other tabs do not have it. */
export const token = signal<string | null>(sessionStorage.getItem(TOKEN));

/** Whom the server takes the page for: an opaque id, the same for the same user; null until the server has said it. */
export const caller = signal<string | null>(null);

effect(() => {
  caller.value = isAnonymousAllowed ? null : "anonymous"; // such a server knows nobody
  if (token.value === null) sessionStorage.removeItem(TOKEN);
  else sessionStorage.setItem(TOKEN, token.value);
});

/** Why the last request was refused: the shell asks for a token. */
export const needsToken = signal<"unauthenticated" | "forbidden" | null>(null);

/** Whether the server has answered a request of this page. */
export const hasAccess = signal(false);

/** A response with an error status. `code`, `path` and `reference` are those of the server's error, if it sent one. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly path: string | null = null,
    readonly reference: string | null = null,
  ) {
    super(message);
  }
}

type EventOptions = { after?: string; compact?: boolean; times?: boolean; signal?: AbortSignal };
type Query = Record<string, string | number | boolean | undefined>;

const segment = encodeURIComponent;
const runPath = (thread: string, run: string) => `threads/${segment(thread)}/runs/${segment(run)}`;

type ThreadPage = { threads: ThreadSummary[]; next: string | null; caller: string };

let lastPage: { key: string; etag: string; page: ThreadPage } | null = null;

/** Read a page of threads. If it has not changed since the last call, the result is the same object. */
export async function listThreads(options: { before?: string; archived?: boolean; limit?: number } = {}): Promise<ThreadPage> {
  checkOwner();
  const used = token.value;
  const key = `${used ?? ""} ${urlOf("threads", options)}`;
  const known = lastPage?.key === key ? lastPage : null;
  const response = await call("threads", { query: options, etag: known?.etag });
  if (known !== null && response.status === 304) return known.page; // another user would have another ETag
  const page = await json<ThreadPage>(response);
  if (used === token.value) caller.value = page.caller;
  const etag = response.headers.get("ETag");
  lastPage = etag === null ? null : { key, etag, page };
  return page;
}

export async function getThread(thread: string, run?: string): Promise<ThreadView> {
  return json(await call(`threads/${segment(thread)}`, { query: { run } }));
}

export async function updateThread(
  thread: string,
  change: { title?: string | null; archived?: boolean; metadata?: Metadata | null },
): Promise<ThreadSummary> {
  checkOwner();
  return json(await call(`threads/${segment(thread)}`, { method: "PATCH", body: change }));
}

export async function deleteThread(thread: string): Promise<void> {
  checkOwner();
  await call(`threads/${segment(thread)}`, { method: "DELETE" });
}

export async function getRun(thread: string, run: string): Promise<RunRecord> {
  return json(await call(runPath(thread, run)));
}

export async function cancelRun(thread: string, run: string): Promise<void> {
  await call(`${runPath(thread, run)}/cancel`, { method: "POST" });
}

/** The request of a run, and the messages and the state that its events change. */
export async function getRunInput(thread: string, run: string): Promise<RunStart> {
  return json(await call(`${runPath(thread, run)}/input`));
}

/** The findings of the server's verifier about a run. */
export async function checkRun(thread: string, run: string): Promise<CheckReport> {
  return json(await call(`${runPath(thread, run)}/check`));
}

/** Start a run. The response streams its events. */
export async function startRun(input: RunAgentInput, signal?: AbortSignal): Promise<Response> {
  return call("", { method: "POST", query: { times: true }, body: { protocolVersion: "1.1", ...input }, accept: "text/event-stream", signal });
}

export async function threadEvents(thread: string, options: EventOptions = {}): Promise<Response> {
  return events(`threads/${segment(thread)}/events`, options);
}

export async function runEvents(thread: string, run: string, options: EventOptions = {}): Promise<Response> {
  return events(`${runPath(thread, run)}/events`, options);
}

function events(path: string, { signal, ...query }: EventOptions): Promise<Response> {
  return call(path, { query: { ...query, protocolVersion: "1.1" }, accept: "text/event-stream", signal });
}

/** The recording that `aguila inspect FILE` serves, and its findings. */
export async function getRecording(): Promise<{ text: string; findings: Finding[] }> {
  const [text, check] = await Promise.all([call("_recording").then((response) => response.text()), call("_recording/check")]);
  return { text, findings: (await json<{ findings: Finding[] }>(check)).findings };
}

export async function getCapabilities(): Promise<Json> {
  return json(await call("capabilities"));
}

/** Upload a file. By XMLHttpRequest, because fetch reports no progress of an upload. */
export function uploadFile(
  file: File,
  { thread, onProgress, signal }: { thread?: string; onProgress?: (share: number) => void; signal?: AbortSignal } = {},
): Promise<UploadedFile> {
  return new Promise((resolve, reject) => {
    checkOwner();
    const request = new XMLHttpRequest();
    const form = new FormData();
    form.append("file", file, file.name);
    request.open("POST", urlOf("files", { threadId: thread }));
    const used = token.value;
    if (used !== null) request.setRequestHeader("Authorization", `Bearer ${used}`);
    request.upload.onprogress = (event) => onProgress?.(event.lengthComputable ? event.loaded / event.total : 0);
    request.onerror = () => reject(new ApiError(0, "unreachable", "The server cannot be reached."));
    request.onabort = () => reject(new DOMException("The upload was stopped.", "AbortError"));
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) resolve(JSON.parse(request.responseText) as UploadedFile);
      else reject(errorOf(request.status, request.responseText, used));
    };
    signal?.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

/** Throw what the server would answer to a caller without a token, without a request that is known to fail. */
function checkOwner(): void {
  if (isAnonymousAllowed || token.value !== null) return;
  const message = "This server lists and changes threads only for authenticated callers; App(allow_anonymous=True) opens them.";
  throw new ApiError(403, "anonymous_not_allowed", message);
}

const fileUrls = new Map<string, Promise<string>>();

/** Return a blob: URL of a stored file, which is fetched once. */
export function fileUrl(id: string): Promise<string> {
  let found = fileUrls.get(id);
  if (found === undefined) {
    found = call(`files/${segment(id)}`)
      .then((response) => response.blob())
      .then((blob) => URL.createObjectURL(blob));
    found.catch(() => fileUrls.delete(id));
    fileUrls.set(id, found);
  }
  return found;
}

/** Return the address of a path below the server's, with a query. Absent values are left out. */
export function urlOf(path: string, query: Query = {}): string {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, String(value));
  return url.href;
}

async function call(
  path: string,
  options: { method?: string; query?: Query; body?: unknown; accept?: string; etag?: string; signal?: AbortSignal } = {},
): Promise<Response> {
  const headers: Record<string, string> = { Accept: options.accept ?? "application/json" };
  const used = token.value;
  if (used !== null) headers["Authorization"] = `Bearer ${used}`;
  if (options.etag !== undefined) headers["If-None-Match"] = options.etag;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(urlOf(path, options.query), {
      method: options.method ?? "GET",
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server cannot be reached.");
  }
  if (!response.ok && response.status !== 304) throw errorOf(response.status, await response.text(), used);
  hasAccess.value = true;
  if (used === token.value && needsToken.value === "unauthenticated") needsToken.value = null; // signed in again, perhaps in another tab
  if (options.method !== undefined && needsToken.value === "forbidden") needsToken.value = null; // the reads go on all the time
  return response;
}

async function json<T>(response: Response): Promise<T> {
  return (await response.json()) as T;
}

/** Make the error of a response, and ask for a token if the response does. `used` is the token of the request. */
function errorOf(status: number, body: string, used: string | null): ApiError {
  if (used === token.value) {
    if (status === 401) needsToken.value = "unauthenticated";
    if (status === 403) needsToken.value = "forbidden";
  }
  let found: { code?: string; message?: string; path?: string } = {};
  try {
    found = (JSON.parse(body) as { error?: typeof found }).error ?? {};
  } catch {
    // A proxy answers in HTML: the status has to do.
  }
  const message = found.message ?? `The server answered with status ${status}.`;
  const reference = /Reference: (\S+)/.exec(message)?.[1] ?? null;
  return new ApiError(status, found.code ?? `http_${status}`, message, found.path ?? null, reference);
}
