import {
  AssistantRuntimeProvider,
  AuiConfig,
  AuiIf,
  ComposerPrimitive,
  SimpleImageAttachmentAdapter,
  ThreadPrimitive,
  Tools,
} from "@assistant-ui/react";
import { useAgUiRuntime } from "@assistant-ui/react-ag-ui";
import { useState } from "react";
import { ThreadAgent, threadHistory } from "./agent";
import { Messages } from "./Messages";
import { Questions } from "./Questions";
import { SERVER } from "./server";
import { SharedState } from "./SharedState";
import { threadInAddress, Threads } from "./Threads";
import { toolkit } from "./tools";

const config = AuiConfig({ tools: Tools({ toolkit }) });
const attachments = new SimpleImageAttachmentAdapter();

export function App() {
  const [threadId, setThreadId] = useState(threadInAddress);
  return (
    <div className="page">
      <Threads threadId={threadId} onOpen={setThreadId} />
      <Chat key={threadId} threadId={threadId} />
    </div>
  );
}

function Chat({ threadId }: { threadId: string }) {
  const [agent] = useState(() => new ThreadAgent({ url: `${SERVER}/`, threadId }));
  const [history] = useState(() => threadHistory(threadId));
  const [error, setError] = useState<string>();
  const runtime = useAgUiRuntime({
    agent,
    adapters: { attachments, history },
    onError: (failure) => setError(failure.message),
  });
  return (
    <AssistantRuntimeProvider runtime={runtime} config={config}>
      <ThreadPrimitive.Root asChild>
        <main>
          <Messages />
          <Questions />
          {error && (
            <p role="alert" onClick={() => setError(undefined)}>
              {error}
            </p>
          )}
          <ComposerPrimitive.Root className="composer">
            <ComposerPrimitive.AddAttachment>Image…</ComposerPrimitive.AddAttachment>
            <ComposerPrimitive.Attachments components={{ Attachment: () => <span>1 image</span> }} />
            <ComposerPrimitive.Input aria-label="Message" placeholder="Say help to see what I can do" rows={1} />
            <AuiIf condition={(state) => !state.thread.isRunning}>
              <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
            </AuiIf>
            <AuiIf condition={(state) => state.thread.isRunning}>
              <ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel>
            </AuiIf>
          </ComposerPrimitive.Root>
        </main>
      </ThreadPrimitive.Root>
      <SharedState />
    </AssistantRuntimeProvider>
  );
}
