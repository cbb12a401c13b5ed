import { useCallback, useEffect, useState } from "react";
import { deleteThread, listThreads, renameThread, type Thread } from "./server";

/** The threads that the server keeps. */
export function Threads({ threadId, onOpen }: { threadId: string; onOpen: (id: string) => void }) {
  const [threads, setThreads] = useState<Thread[]>([]);
  const refresh = useCallback(() => {
    listThreads().then(setThreads, () => setThreads([]));
  }, []);
  useEffect(() => {
    refresh();
    const timer = setInterval(refresh, 2000);
    return () => clearInterval(timer);
  }, [refresh]);

  function open(id: string) {
    goToThread(id);
    onOpen(id);
  }

  return (
    <nav aria-label="Threads">
      <button onClick={() => open(crypto.randomUUID())}>New thread</button>
      <ul>
        {threads.map((thread) => (
          <li key={thread.threadId} aria-current={thread.threadId === threadId}>
            <button className="link" onClick={() => open(thread.threadId)}>
              {thread.title ?? thread.threadId.slice(0, 8)}
            </button>
            <button
              aria-label="Rename"
              onClick={async () => {
                const title = prompt("Title", thread.title ?? "");
                if (title) await renameThread(thread.threadId, title);
                refresh();
              }}
            >
              ✎
            </button>
            <button
              aria-label="Delete"
              onClick={async () => {
                await deleteThread(thread.threadId);
                refresh();
                if (thread.threadId === threadId) open(crypto.randomUUID());
              }}
            >
              ✕
            </button>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** The thread that the address names. A page without one gets a new thread, and an address to come back to. */
export function threadInAddress(): string {
  return new URL(location.href).searchParams.get("thread") ?? goToThread(crypto.randomUUID());
}

/** Put a thread into the address, so that a reload comes back to it. */
function goToThread(id: string): string {
  const address = new URL(location.href);
  address.searchParams.set("thread", id);
  history.replaceState(null, "", address);
  return id;
}
