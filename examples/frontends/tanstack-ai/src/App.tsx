import type { ContentPart } from "@tanstack/ai";
import { fetchServerSentEvents, useChat } from "@tanstack/ai-react";
import type { GenericAGUIInterrupt } from "@tanstack/ai-client";
import { useMemo, useState } from "react";
import { Messages } from "./Messages";
import { Question } from "./Questions";
import { cancelRuns, SERVER } from "./server";
import { threadInAddress, Threads } from "./Threads";
import { pageTools, type Confirmation } from "./tools";

const connection = fetchServerSentEvents(`${SERVER}/`);

export function App() {
  const [threadId, setThreadId] = useState(threadInAddress);
  return (
    <div className="page two-columns">
      <Threads threadId={threadId} onOpen={setThreadId} />
      <Chat key={threadId} threadId={threadId} />
    </div>
  );
}

function Chat({ threadId }: { threadId: string }) {
  const [confirmations, setConfirmations] = useState<Confirmation[]>([]);
  const tools = useMemo(() => pageTools((asked) => setConfirmations((before) => [...before, asked])), []);
  // `persistence: true` has the server keep the messages: a reload shows them and joins a run that is still on.
  const chat = useChat({ connection, threadId, tools, persistence: true });
  const isRunning = chat.isLoading || chat.sessionGenerating;
  return (
    <main>
      <Messages messages={chat.messages} />
      {confirmations.map((confirmation) => (
        <section key={confirmation.what} className="card question" aria-label="Confirmation">
          <p>Confirm: {confirmation.what}</p>
          {["Yes", "No"].map((answer) => (
            <button
              key={answer}
              onClick={() => {
                confirmation.answer(answer.toLowerCase());
                setConfirmations((before) => before.filter((other) => other !== confirmation));
              }}
            >
              {answer}
            </button>
          ))}
        </section>
      ))}
      {chat.interrupts.map((interrupt) => (
        <Question key={interrupt.id} interrupt={interrupt as GenericAGUIInterrupt} messages={chat.messages} />
      ))}
      {chat.error && <p role="alert">{chat.error.message}</p>}
      <Composer
        isRunning={isRunning}
        onSend={(text, images) =>
          void chat.sendMessage(images.length ? { content: [{ type: "text", content: text }, ...images] } : text)
        }
        onStop={() => void cancelRuns(threadId)} // chat.stop() would only close the connection
      />
    </main>
  );
}

function Composer({ isRunning, onSend, onStop }: {
  isRunning: boolean;
  onSend: (text: string, images: ContentPart[]) => void;
  onStop: () => void;
}) {
  const [text, setText] = useState("");
  const [images, setImages] = useState<ContentPart[]>([]);
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        onSend(text, images);
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

async function readImage(file: File): Promise<ContentPart> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const value = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return { type: "image", source: { type: "data", value, mimeType: file.type } };
}
