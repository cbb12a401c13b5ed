import { useAuiState } from "@assistant-ui/react";
import { useAgUiInterrupts, useAgUiSubmitInterruptResponses, type AgUiInterrupt } from "@assistant-ui/react-ag-ui";
import { useState } from "react";

/** Questions of the agent: a form for what the schema names, or a tool call to be approved. */
export function Questions() {
  const interrupts = useAgUiInterrupts();
  const submit = useAgUiSubmitInterruptResponses();
  return interrupts.map((interrupt) => {
    const answer = (payload: unknown) => void submit([{ interruptId: interrupt.id, status: "resolved", payload }]);
    return (
      <section key={interrupt.id} className="card question" aria-label="Question">
        <p>{interrupt.message}</p>
        {interrupt.reason === "tool_call" ? (
          <ApprovalForm interrupt={interrupt} onAnswer={answer} />
        ) : (
          <AnswerForm schema={interrupt.responseSchema} onAnswer={answer} />
        )}
        <button onClick={() => void submit([{ interruptId: interrupt.id, status: "cancelled" }])}>Cancel</button>
      </section>
    );
  });
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

function ApprovalForm({ interrupt, onAnswer }: { interrupt: AgUiInterrupt; onAnswer: (payload: unknown) => void }) {
  const messages = useAuiState((state) => state.thread.messages);
  const parts = messages.flatMap((message) => (message.role === "assistant" ? [...message.content] : []));
  const call = parts.find((part) => part.type === "tool-call" && part.toolCallId === interrupt.toolCallId);
  const [args, setArgs] = useState(call?.type === "tool-call" ? call.argsText : "{}");
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
