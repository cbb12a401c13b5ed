import { useAgent, useInterrupt, type Interrupt } from "@copilotkit/react-core/v2";
import { useState } from "react";

/** Questions of the agent: a form for what the schema names, or a tool call to be approved. Shown inside the chat. */
export function Questions() {
  useInterrupt({
    render: ({ interrupt, resolve, cancel }) => (
      <section className="card question" aria-label="Question">
        <p>{interrupt?.message}</p>
        {interrupt?.reason === "tool_call" ? (
          <ApprovalForm interrupt={interrupt} onAnswer={resolve} />
        ) : (
          <AnswerForm schema={interrupt?.responseSchema} onAnswer={resolve} />
        )}
        <button onClick={() => cancel()}>Cancel</button>
      </section>
    ),
  });
  return null;
}

export function AnswerForm({ schema, onAnswer }: { schema?: Record<string, any>; onAnswer: (payload: any) => void }) {
  const names = Object.keys(schema?.properties ?? { answer: {} });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onAnswer(Object.fromEntries(new FormData(event.currentTarget)));
      }}
    >
      {names.map((name) => (
        <label key={name}>
          {name} <input name={name} required />
        </label>
      ))}
      <button>Answer</button>
    </form>
  );
}

export function ApprovalForm({ interrupt, onAnswer }: { interrupt: Interrupt; onAnswer: (payload: any) => void }) {
  const { agent } = useAgent();
  const calls = agent.messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  const call = calls.find(({ id }) => id === interrupt.toolCallId);
  const [args, setArgs] = useState(call?.function.arguments ?? "{}");
  return (
    <>
      <label>
        Arguments of {call?.function.name} <textarea value={args} onChange={(event) => setArgs(event.target.value)} />
      </label>
      <button onClick={() => onAnswer({ approved: true, editedArgs: JSON.parse(args) })}>Approve</button>
      <button onClick={() => onAnswer({ approved: false })}>Refuse</button>
    </>
  );
}
