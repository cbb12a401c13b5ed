import { a2uiDefaultTheme, CopilotChat, CopilotKitProvider, createA2UIMessageRenderer } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { useState } from "react";
import { goToThread, HEADERS, RUNTIME_URL, threadInAddress, USES_SINGLE_ENDPOINT } from "./address";
import { planRenderer } from "./Plan";
import { Questions } from "./Questions";
import { SharedState } from "./SharedState";
import { Threads } from "./Threads";
import { Tools } from "./Tools";

const activityRenderers = [planRenderer, createA2UIMessageRenderer({ theme: a2uiDefaultTheme })];

export default function App() {
  const [threadId, setThreadId] = useState(threadInAddress);
  const [error, setError] = useState<string>();
  return (
    <CopilotKitProvider
      runtimeUrl={RUNTIME_URL}
      headers={HEADERS}
      useSingleEndpoint={USES_SINGLE_ENDPOINT}
      renderActivityMessages={activityRenderers}
      onError={({ error }) => setError(error.message)}
    >
      <Tools />
      <Questions />
      <div className="page">
        <Threads threadId={threadId} onOpen={(id) => setThreadId(goToThread(id))} />
        <main>
          {error && (
            <p role="alert" onClick={() => setError(undefined)}>
              {error}
            </p>
          )}
          <CopilotChat key={threadId} threadId={threadId} attachments={{ enabled: true, accept: "image/*" }} />
        </main>
        <SharedState />
      </div>
    </CopilotKitProvider>
  );
}
