const query = new URLSearchParams(location.search);

const address: string = query.get("server") ?? import.meta.env.VITE_AGUILA_URL ?? "http://127.0.0.1:8000";

/** The address of `aguila serve`, without a slash at the end: paths are appended to it. */
export const SERVER = address.replace(/\/+$/, "");

export interface Thread {
  threadId: string;
  title?: string;
}

/** A question that a run has ended with. */
export interface Interrupt {
  id: string;
  reason?: string;
  message?: string;
  responseSchema?: any;
  toolCallId?: string;
}

/** What the server keeps of a thread. */
export interface StoredThread {
  messages: any[];
  state: any;
  interrupts: Interrupt[];
  runs: { runId: string; status: string }[];
}

const NEW_THREAD: StoredThread = { messages: [], state: {}, interrupts: [], runs: [] };

/** Load a thread; a thread without messages if the server has none of this id. */
export async function getThread(id: string): Promise<StoredThread> {
  return (await call("GET", `/threads/${encodeURIComponent(id)}`)) ?? NEW_THREAD;
}

export async function listThreads(): Promise<Thread[]> {
  return (await call("GET", "/threads")).threads;
}

export async function renameThread(id: string, title: string): Promise<void> {
  await call("PATCH", `/threads/${encodeURIComponent(id)}`, { title });
}

export async function deleteThread(id: string): Promise<void> {
  await call("DELETE", `/threads/${encodeURIComponent(id)}`);
}

/** Cancel whatever runs on the thread. Closing the connection would not: the run belongs to the server. */
export async function cancelRuns(id: string): Promise<void> {
  await call("POST", `/threads/${encodeURIComponent(id)}/cancel`);
}

async function call(method: string, path: string, body?: unknown): Promise<any> {
  const response = await fetch(SERVER + path, {
    method,
    headers: { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (method === "GET" && response.status === 404) return undefined;
  if (!response.ok) throw new Error(`${method} ${path}: HTTP ${response.status} ${await response.text()}`);
  return response.status === 204 ? undefined : response.json();
}
