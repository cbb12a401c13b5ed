import {
  ActivityRenderer,
  ChatList,
  ChatMessage,
  ChatSender,
  isActivityContent,
  isToolCallContent,
  stateManager,
  ToolCallRenderer,
  useAgentActivity,
  useAgentToolcall,
  type ChatMessagesData,
  type TdAttachmentItem,
  type TdChatListApi,
  type ToolCall,
} from "@tdesign-react/chat";
import "@tdesign-react/chat/es/style/index.js";
import { useEffect, useRef, useState } from "react";
import { Question } from "./Questions";
import { getThread, type StoredThread } from "./server";
import { threadInAddress, Threads } from "./Threads";
import { ACTIVITIES, TOOL_CARDS } from "./tools";
import { useThread } from "./useThread";

export function App() {
  const [threadId, setThreadId] = useState(threadInAddress);
  const [loaded, setLoaded] = useState<{ id: string; thread: StoredThread }>();
  useAgentToolcall(TOOL_CARDS);
  useAgentActivity(ACTIVITIES);
  useEffect(() => {
    let isCurrent = true;
    void getThread(threadId).then((thread) => {
      if (!isCurrent) return;
      stateManager.clear(); // it is one for the page, and has the state of the thread before
      setLoaded({ id: threadId, thread });
    });
    return () => {
      isCurrent = false;
    };
  }, [threadId]);
  return (
    <div className="page">
      <Threads threadId={threadId} onOpen={setThreadId} />
      {loaded?.id === threadId && <Chat key={threadId} threadId={threadId} stored={loaded.thread} />}
    </div>
  );
}

function Chat({ threadId, stored }: { threadId: string; stored: StoredThread }) {
  const thread = useThread(threadId, stored);
  const list = useRef<HTMLElement & TdChatListApi>(undefined);
  useEffect(() => list.current?.scrollList({ to: "bottom" }), [thread.messages]); // with React 19 it does not by itself
  const { recipe } = thread.state;
  return (
    <>
      <main>
        <div className="messages" role="log" aria-label="Messages">
          <ChatList ref={list}>
            {thread.messages.map((message) => (
              <ChatMessage
                key={message.id}
                message={message}
                placement={message.role === "user" ? "right" : "left"}
                variant={message.role === "user" ? "base" : "text"}
                chatContentProps={{ thinking: { collapsed: false } }}
              >
                <Cards message={message} resultOf={thread.resultOf} onAnswer={thread.answerCall} />
              </ChatMessage>
            ))}
          </ChatList>
        </div>
        {thread.interrupts.map((interrupt) => (
          <Question
            key={interrupt.id}
            interrupt={interrupt}
            args={thread.calls.find(({ toolCallId }) => toolCallId === interrupt.toolCallId)?.args}
            onAnswer={thread.resume}
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

/** Tool calls and activities of a message, each in the slot that TDesign Chat keeps for it. */
function Cards({ message, resultOf, onAnswer }: {
  message: ChatMessagesData;
  resultOf: (call: ToolCall) => string | undefined;
  onAnswer: (toolCallId: string, content: string) => void;
}) {
  if (message.role !== "assistant") return null;
  return message.content?.map((content, index) => {
    const slot = `${content.type}-${index}`;
    if (isToolCallContent(content)) {
      const call = { ...content.data, result: resultOf(content.data) };
      return (
        <div key={slot} slot={slot}>
          <ToolCallRenderer toolCall={call} onRespond={({ toolCallId }, response) => onAnswer(toolCallId, response)} />
        </div>
      );
    }
    if (isActivityContent(content)) {
      return (
        <div key={slot} slot={slot}>
          <ActivityRenderer activity={content.data} />
        </div>
      );
    }
    return null;
  });
}

function Composer({ isRunning, onSend, onStop }: {
  isRunning: boolean;
  onSend: ReturnType<typeof useThread>["send"];
  onStop: () => void;
}) {
  const [text, setText] = useState("");
  const [images, setImages] = useState<TdAttachmentItem[]>([]);
  return (
    <ChatSender
      value={text}
      placeholder="Say help to see what I can do"
      loading={isRunning}
      actions={["attachment", "send"]}
      uploadProps={{ accept: "image/*" }}
      attachmentsProps={{ items: images }}
      onChange={(event) => setText(event.detail)}
      onFileSelect={async (event) => setImages(await Promise.all((event.detail as unknown as File[]).map(readImage)))}
      onFileRemove={(event) => setImages(event.detail)}
      onSend={() => {
        onSend(text, images.map(({ name, url }) => ({ fileType: "image", name, url })));
        setText("");
        setImages([]);
      }}
      onStop={onStop}
    />
  );
}

/** Read a chosen file into a data URL. */
function readImage(file: File): Promise<TdAttachmentItem> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve({ fileType: "image", name: file.name, size: file.size, url: String(reader.result) });
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
