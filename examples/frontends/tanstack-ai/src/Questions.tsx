import type { GenericAGUIInterrupt, UIMessage } from "@tanstack/ai-client";
import { useState } from "react";

/** A question of the agent: a form for what its schema names, or a tool call to be approved. */
export function Question({ interrupt, messages }: { interrupt: GenericAGUIInterrupt; messages: UIMessage[] }) {
  return (
    <section className="card question" aria-label="Question">
      <p>{interrupt.message}</p>
      {interrupt.reason === "tool_call" ? (
        <ApprovalForm messages={messages} onAnswer={interrupt.resolveInterrupt} />
      ) : (
        <AnswerForm schema={interrupt.responseSchema} onAnswer={interrupt.resolveInterrupt} />
      )}
      <button onClick={() => interrupt.cancel()}>Cancel</button>
    </section>
  );
}

function AnswerForm({ schema, onAnswer }: { schema?: any; onAnswer: (payload: unknown) => void }) {
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

function ApprovalForm({ messages, onAnswer }: { messages: UIMessage[]; onAnswer: (payload: unknown) => void }) {
  const parts = messages.flatMap((message) => message.parts);
  const call = parts.findLast((part) => part.type === "tool-call"); // the run has stopped at it
  const [args, setArgs] = useState(call?.type === "tool-call" ? call.arguments : "{}");
  return (
    <>
      <label>
        Arguments <textarea value={args} onChange={(event) => setArgs(event.target.value)} />
      </label>
      <button onClick={() => onAnswer({ approved: true, editedArgs: JSON.parse(args) })}>Approve</button>
      <button onClick={() => onAnswer({ approved: false })}>Refuse</button>
    </>
  );
}
