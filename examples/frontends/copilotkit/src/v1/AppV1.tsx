import { CopilotKit, useCoAgent, useCopilotAction, useLangGraphInterrupt } from "@copilotkit/react-core";
import { CopilotChat } from "@copilotkit/react-ui";
import "@copilotkit/react-ui/styles.css";
import { useState } from "react";
import { RUNTIME_URL, threadInAddress, USES_SINGLE_ENDPOINT } from "../address";
import { AnswerForm, ApprovalForm } from "../Questions";
import { RecipePanel, type RecipeState } from "../SharedState";

/** The same page with the hooks of CopilotKit v1, as pages written for LangGraph have them. */
export default function AppV1() {
  const [threadId] = useState(threadInAddress);
  return (
    <CopilotKit runtimeUrl={RUNTIME_URL} useSingleEndpoint={USES_SINGLE_ENDPOINT} agent="default" threadId={threadId}>
      <Page />
    </CopilotKit>
  );
}

function Page() {
  const { state, setState } = useCoAgent<RecipeState>({ name: "default", initialState: {} });

  useCopilotAction({
    name: "set_background",
    description: "Set the background colour of the page",
    parameters: [{ name: "colour", type: "string", enum: ["lavender", "honeydew", "white"] }],
    handler: async ({ colour }) => {
      document.body.style.backgroundColor = colour;
      return `The background is ${colour}.`;
    },
  });

  useCopilotAction({
    name: "confirm",
    description: "Ask the user to confirm something",
    parameters: [{ name: "what", type: "string" }],
    renderAndWaitForResponse: ({ args, respond, status }) => (
      <section className="card question" aria-label="Confirmation">
        <p>Confirm: {args.what}</p>
        {status === "executing" && <button onClick={() => respond?.("yes")}>Yes</button>}
        {status === "executing" && <button onClick={() => respond?.("no")}>No</button>}
      </section>
    ),
  });

  useCopilotAction({
    name: "get_weather",
    available: "disabled", // the agent has this tool itself; the page only draws its calls
    parameters: [{ name: "city", type: "string" }],
    render: ({ args, status, result }) => (
      <div className="card weather">
        {args.city} <strong>{status === "complete" && `${degreesOf(result)} °C`}</strong>
      </div>
    ),
  });

  useCopilotAction({
    name: "*",
    render: ({ name, args, result }: any) => (
      <div className="card">
        <code>
          {name}({JSON.stringify(args)})
        </code>
        <div>{typeof result === "string" ? result : JSON.stringify(result)}</div>
      </div>
    ),
  });

  useLangGraphInterrupt<any>({
    render: ({ event, resolve }) => (
      <section className="card question" aria-label="Question">
        <p>{typeof event.value === "string" ? event.value : event.value.message}</p>
        {event.value.reason === "tool_call" ? (
          <ApprovalForm interrupt={event.value} onAnswer={resolve} />
        ) : (
          <AnswerForm schema={event.value.responseSchema} onAnswer={resolve} />
        )}
      </section>
    ),
  });

  return (
    <div className="page two-columns">
      <main>
        <CopilotChat
          labels={{ title: "Aguila", initial: "Say help to see what I can do." }}
          attachments={{ enabled: true, accept: "image/*" }}
        />
      </main>
      <RecipePanel state={state} onChange={setState} />
    </div>
  );
}

function degreesOf(result: unknown): number {
  return (typeof result === "string" ? JSON.parse(result) : (result as any)).degrees;
}
