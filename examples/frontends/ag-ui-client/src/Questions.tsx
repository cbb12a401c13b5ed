import type { Interrupt, ResumeEntry, ToolCall } from "@ag-ui/client";
import { useState } from "react";

/** A question of the agent: a form for what its schema names, or a tool call to be approved. */
export function Question({ interrupt, call, onAnswer }: {
  interrupt: Interrupt;
  call?: ToolCall;
  onAnswer: (answer: ResumeEntry) => void;
}) {
  const answer = (payload: unknown) => onAnswer({ interruptId: interrupt.id, status: "resolved", payload });
  return (
    <section className="card question" aria-label="Question">
      <p>{interrupt.message}</p>
      {interrupt.reason === "tool_call" ? (
        <ApprovalForm call={call} onAnswer={answer} />
      ) : (
        <AnswerForm schema={interrupt.responseSchema} onAnswer={answer} />
      )}
      <button onClick={() => onAnswer({ interruptId: interrupt.id, status: "cancelled" })}>Cancel</button>
    </section>
  );
}

function AnswerForm({ schema, onAnswer }: { schema?: Record<string, any>; onAnswer: (payload: unknown) => void }) {
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

function ApprovalForm({ call, onAnswer }: { call?: ToolCall; onAnswer: (payload: unknown) => void }) {
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
