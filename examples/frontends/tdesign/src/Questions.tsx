import { useState } from "react";
import type { Interrupt } from "./server";

export interface Answer {
  interruptId: string;
  status: "resolved" | "cancelled";
  payload?: unknown;
}

/** A question of the agent: a form for what its schema names, or a tool call to be approved. */
export function Question({ interrupt, args, onAnswer }: {
  interrupt: Interrupt;
  /** The arguments of the call that waits for consent, as JSON text. */
  args?: string;
  onAnswer: (answer: Answer) => void;
}) {
  const resolve = (payload: unknown) => onAnswer({ interruptId: interrupt.id, status: "resolved", payload });
  return (
    <section className="card question" aria-label="Question">
      <p>{interrupt.message}</p>
      {interrupt.reason === "tool_call" ? (
        <ApprovalForm args={args ?? "{}"} onAnswer={resolve} />
      ) : (
        <AnswerForm schema={interrupt.responseSchema} onAnswer={resolve} />
      )}
      <button onClick={() => onAnswer({ interruptId: interrupt.id, status: "cancelled" })}>Cancel</button>
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

function ApprovalForm({ args, onAnswer }: { args: string; onAnswer: (payload: unknown) => void }) {
  const [text, setText] = useState(args);
  return (
    <>
      <label>
        Arguments <textarea value={text} onChange={(event) => setText(event.target.value)} />
      </label>
      <button onClick={() => onAnswer({ approved: true, editedArgs: JSON.parse(text) })}>Approve</button>
      <button onClick={() => onAnswer({ approved: false })}>Refuse</button>
    </>
  );
}
