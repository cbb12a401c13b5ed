import { useAgent, useThreads } from "@copilotkit/react-core/v2";
import { useEffect } from "react";

/** The threads that the server keeps. */
export function Threads({ threadId, onOpen }: { threadId: string; onOpen: (id: string) => void }) {
  const { agent } = useAgent();
  const { threads, listError, refetchThreads, renameThread, deleteThread } = useThreads({ agentId: "default" });

  useEffect(() => {
    const subscription = agent.subscribe({ onRunFinalized: () => refetchThreads() });
    return () => subscription.unsubscribe();
  }, [agent, refetchThreads]);

  return (
    <nav aria-label="Threads">
      <button onClick={() => onOpen(crypto.randomUUID())}>New thread</button>
      {listError && <p role="alert">{listError.message}</p>}
      <ul>
        {threads.map((thread) => (
          <li key={thread.id} aria-current={thread.id === threadId}>
            <button className="link" onClick={() => onOpen(thread.id)}>
              {thread.name ?? thread.id.slice(0, 8)}
            </button>
            <button
              aria-label="Rename"
              onClick={async () => {
                const name = prompt("Title", thread.name ?? "");
                if (name) await renameThread(thread.id, name);
              }}
            >
              ✎
            </button>
            <button
              aria-label="Delete"
              onClick={async () => {
                await deleteThread(thread.id);
                if (thread.id === threadId) onOpen(crypto.randomUUID());
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
