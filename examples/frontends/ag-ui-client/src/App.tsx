import type { InputContent } from "@ag-ui/client";
import { useCallback, useEffect, useState } from "react";
import { Messages } from "./Messages";
import { Question } from "./Questions";
import { deleteThread, listThreads, renameThread, type Thread } from "./server";
import { useThread } from "./useThread";

export function App() {
  const [threadId, setThreadId] = useState(threadInAddress);
  const [threads, setThreads] = useState<Thread[]>([]);
  const refresh = useCallback(() => {
    listThreads().then(setThreads, () => setThreads([]));
  }, []);
  useEffect(refresh, [refresh]);

  function open(id: string) {
    const address = new URL(location.href);
    address.searchParams.set("thread", id);
    history.pushState(null, "", address);
    setThreadId(id);
  }

  return (
    <div className="page">
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
      <Chat key={threadId} threadId={threadId} onRunEnd={refresh} />
    </div>
  );
}

function Chat({ threadId, onRunEnd }: { threadId: string; onRunEnd: () => void }) {
  const thread = useThread(threadId, onRunEnd);
  const calls = thread.messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  const recipe = thread.state?.recipe;
  return (
    <>
      <main>
        <Messages messages={thread.messages} />
        {thread.openCalls.map((call) => (
          <section key={call.id} className="card question" aria-label="Confirmation">
            <p>
              {call.function.name} {call.function.arguments}
            </p>
            <button onClick={() => thread.answerCall(call.id, "yes")}>Yes</button>
            <button onClick={() => thread.answerCall(call.id, "no")}>No</button>
          </section>
        ))}
        {thread.interrupts.map((interrupt) => (
          <Question
            key={interrupt.id}
            interrupt={interrupt}
            call={calls.find(({ id }) => id === interrupt.toolCallId)}
            onAnswer={(answer) => thread.resume([answer])}
          />
        ))}
        {thread.error && <p role="alert">{thread.error}</p>}
        <Composer isRunning={thread.isRunning} onSend={thread.send} onStop={thread.stop} />
      </main>
      <aside aria-label="State">
        <h2>Shared state</h2>
        <label>
          Title{" "}
          <input
            aria-label="Recipe title"
            value={recipe?.title ?? ""}
            onChange={(event) => thread.setState({ ...thread.state, recipe: { ...recipe, title: event.target.value } })}
          />
        </label>
        <ul>{recipe?.ingredients?.map((ingredient: string) => <li key={ingredient}>{ingredient}</li>)}</ul>
      </aside>
    </>
  );
}

function Composer({ isRunning, onSend, onStop }: {
  isRunning: boolean;
  onSend: (content: string | InputContent[]) => void;
  onStop: () => void;
}) {
  const [text, setText] = useState("");
  const [images, setImages] = useState<InputContent[]>([]);
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        onSend(images.length ? [{ type: "text", text }, ...images] : text);
        setText("");
        setImages([]);
      }}
    >
      <label className="file" title="Attach an image">
        {images.length ? `${images.length} image` : "Image…"}
        <input
          type="file"
          accept="image/*"
          onChange={async (event) => {
            const files = [...(event.target.files ?? [])];
            setImages(await Promise.all(files.map(readImage)));
          }}
        />
      </label>
      <input aria-label="Message" placeholder="Say help to see what I can do" value={text} onChange={(e) => setText(e.target.value)} />
      {isRunning ? (
        <button type="button" onClick={onStop}>
          Stop
        </button>
      ) : (
        <button disabled={!text}>Send</button>
      )}
    </form>
  );
}

async function readImage(file: File): Promise<InputContent> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const value = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return { type: "image", source: { type: "data", value, mimeType: file.type } };
}

/** The thread that the address names. A page without one gets a new thread, and an address to come back to. */
function threadInAddress(): string {
  const address = new URL(location.href);
  const found = address.searchParams.get("thread");
  if (found) return found;
  const made = crypto.randomUUID();
  address.searchParams.set("thread", made);
  history.replaceState(null, "", address);
  return made;
}
