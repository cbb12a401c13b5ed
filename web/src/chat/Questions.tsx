/** What waits for the user: interrupts, approvals, and calls of front-end tools. */

import type { RefObject } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "../Icon";
import { uploadFile } from "../protocol/api";
import type { Interrupt, Json, ResumeEntry, ToolCall } from "../protocol/types";
import { formatTimeLeft, isObject, parseJson } from "./format";
import { setPageColour, TOOLS } from "./frontendTools";
import { Fold } from "./Messages";
import { findProblems, type Problem, type Schema, titleOf } from "./schemaCheck";
import { findUnread, initialValue, SchemaForm } from "./SchemaForm";
import type { Refusal, ThreadSession } from "./session";
import type { Forms } from "./unsent";
import { useFocusAfter } from "./useFocusAfter";

/** The reasons of interrupts that are answered with yes or no, unless a schema says otherwise. */
const APPROVALS = new Set(["tool_call", "confirmation"]);

type Answer = { status: "resolved"; payload: Json } | { status: "cancelled" };

/** Draw the forms of all open interrupts. Several are sent together, because a run answers all of them. */
export function Questions({ session, interrupts }: { session: ThreadSession; interrupts: readonly Interrupt[] }) {
  const [answers, setAnswers] = useState<{ [id: string]: Answer }>({});
  const send = (all: { [id: string]: Answer }) =>
    session.resume(interrupts.map((interrupt): ResumeEntry => ({ interruptId: interrupt.id, ...all[interrupt.id]! })));
  const isAlone = interrupts.length === 1;
  const refusal = session.refusal.value;
  const reopen = (id: string) => setAnswers((all) => Object.fromEntries(Object.entries(all).filter(([each]) => each !== id)));
  useLayoutEffect(() => {
    if (refusal !== null) reopen(refusal.interruptId);
  }, [refusal]);
  const missing = interrupts.filter((interrupt) => answers[interrupt.id] === undefined).length;
  return (
    <div class="questions">
      {interrupts.map((interrupt) => (
        <Question
          key={interrupt.id}
          session={session}
          interrupt={interrupt}
          call={callOf(session, interrupt.toolCallId)}
          answer={isAlone ? undefined : answers[interrupt.id]}
          onAnswer={(answer) => (isAlone ? void send({ [interrupt.id]: answer }) : setAnswers({ ...answers, [interrupt.id]: answer }))}
          refusal={refusal?.interruptId === interrupt.id ? refusal : null}
          onChange={() => reopen(interrupt.id)}
        />
      ))}
      {!isAlone && (
        <div class="row">
          <button class="primary" disabled={missing > 0} onClick={() => void send(answers)}>
            Send {interrupts.length} answers
          </button>
          {missing > 0 && <span class="soft">{missing} left to answer</span>}
        </div>
      )}
    </div>
  );
}

type QuestionProps = Omit<AnswerProps, "id"> & { interrupt: Interrupt; call: ToolCall | undefined; answer: Answer | undefined; onChange: () => void };

function Question({ session, interrupt, call, answer, onAnswer, refusal, onChange }: QuestionProps) {
  const given = { session, id: interrupt.id, onAnswer, refusal };
  const isCall = APPROVALS.has(interrupt.reason) && isApproval(interrupt.responseSchema);
  const left = useTimeLeft(interrupt.expiresAt);
  const isExpired = left !== null && left <= 0;
  useLayoutEffect(() => {
    if (isExpired && answer?.status === "resolved") onChange(); // the server would refuse it
  }, [isExpired]);
  return (
    <div role="group" class="card question" aria-label="Question">
      <h2 class="question-text">
        <Icon name={isCall ? "shield" : "question"} size={18} />
        <span>{interrupt.message ?? textIn(interrupt.metadata) ?? (call === undefined ? "The agent asks:" : `Allow the call of ${call.function.name}?`)}</span>
      </h2>
      {interrupt.message === undefined && interrupt.metadata !== undefined && <Fold summary="What the agent sent with the question" json={interrupt.metadata} />}
      {left !== null && !isExpired && <p class="soft">Expires in {formatTimeLeft(left)}.</p>}
      {isExpired && (
        <p class="is-bad" role="alert">
          This question has expired. It can no longer be answered.
        </p>
      )}
      {answer !== undefined && (
        <div class="row">
          <span>{answer.status === "cancelled" ? "Cancelled" : `Answer: ${JSON.stringify(answer.payload)}`}</span>
          <button onClick={onChange}>Change</button>
        </div>
      )}
      {/* The form keeps what was typed while its answer waits for the others. */}
      <div hidden={answer !== undefined}>
        {isExpired ? (
          <div class="row">
            <CancelButton onAnswer={onAnswer} />
          </div>
        ) : isCall ? (
          <ApprovalForm call={call} {...given} />
        ) : (
          <AnswerForm schema={interrupt.responseSchema} {...given} />
        )}
      </div>
    </div>
  );
}

/** Return the milliseconds until a time, from second to second; null without a time: a value that is none never expires. */
function useTimeLeft(expiresAt: string | undefined): number | null {
  const [now, setNow] = useState(Date.now);
  const left = expiresAt === undefined ? NaN : timeOf(expiresAt) - now;
  const isCounting = left > 0;
  useEffect(() => {
    if (!isCounting) return;
    const timer = setTimeout(() => setNow(Date.now()), (left % 1_000) + 1);
    return () => clearTimeout(timer);
  }, [now, isCounting]);
  return Number.isNaN(left) ? null : left;
}

/** Read a time as the server does: without an offset it is UTC. */
function timeOf(text: string): number {
  return Date.parse(/T[\d:.]+$/.test(text.trim()) ? `${text.trim()}Z` : text);
}

/** `id` is that of the interrupt. */
type AnswerProps = { session: ThreadSession; id: string; onAnswer: (answer: Answer) => void; refusal: Refusal | null };

/** Return what a form has, and a function that changes members of it. The session keeps it, unless it has a password. */
function useForm<T extends Forms[string]>(session: ThreadSession, id: string, initial: () => T, isSecret = false): [T, (changes: Partial<T>) => void] {
  const [own, setOwn] = useState(initial);
  const form = (session.forms.value[id] as T | undefined) ?? own;
  const change = (changes: Partial<T>) => {
    if (isSecret) setOwn((last) => ({ ...last, ...changes }));
    else session.keepForm(id, { ...(session.forms.peek()[id] ?? own), ...changes });
  };
  return [form, change];
}

function hasPassword(schema: Schema | undefined): boolean {
  return schema !== undefined && JSON.stringify(schema).includes('"format":"password"');
}

/** Return the problem that the server found, until the user changes the answer. The field gets the focus. */
function useRefusal(refusal: Refusal | null, form: RefObject<HTMLFormElement | null>) {
  const [dismissed, setDismissed] = useState<Refusal | null>(null);
  const isShown = refusal !== null && refusal !== dismissed;
  useLayoutEffect(() => {
    if (isShown) focusFirstWrong(form.current!);
  }, [refusal]);
  return { refused: isShown ? [refusal] : [], dismiss: () => setDismissed(refusal) };
}

function focusFirstWrong(form: HTMLFormElement): void {
  form.querySelector<HTMLElement>("[aria-invalid=true], .wrong-list")?.focus();
}

/** Say how many fields are marked. */
function Summary({ problems }: { problems: readonly Problem[] }) {
  const count = new Set(problems.map((one) => one.path)).size;
  return count === 0 ? null : (
    <p class="is-bad" role="alert">
      {count === 1 ? "One field needs a change." : `${count} fields need a change.`}
    </p>
  );
}

/** A form for an answer. Without a schema it is text, or JSON if the user says so. */
function AnswerForm({ session, id: interruptId, schema: given, onAnswer, refusal }: AnswerProps & { schema: Schema | undefined }) {
  const id = useId();
  const start = () => ({ value: initialValue(given ?? { type: "string" }), isJson: false });
  const [{ value, isJson }, keep] = useForm(session, interruptId, start, hasPassword(given));
  const schema = given ?? (isJson ? {} : { type: "string" });
  // From the first attempt to send on, what is wrong is marked while the user corrects it.
  const [attempts, setAttempts] = useState(0);
  const [unread, setUnread] = useState<readonly Problem[]>([]);
  const form = useRef<HTMLFormElement>(null);
  const { refused, dismiss } = useRefusal(refusal, form);
  const found = findProblems(schema, value, titleOf(schema, schema, "Answer"), schema).filter((one) => !unread.some((other) => other.path === one.path));
  const problems = attempts === 0 ? refused : [...unread, ...found, ...refused];
  const change = (changed: Json | undefined) => {
    keep({ value: changed });
    setUnread([]);
    dismiss();
  };
  useEffect(() => {
    // Whoever waits in the empty composer can answer at once.
    const focused = document.activeElement;
    if (focused instanceof HTMLTextAreaElement && focused.ariaLabel === "Message" && focused.value === "") {
      form.current!.querySelector<HTMLElement>("input, select, textarea")?.focus();
    }
  }, []);
  useLayoutEffect(() => {
    if (attempts > 0) focusFirstWrong(form.current!);
  }, [attempts]);
  return (
    <form
      ref={form}
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        const incomplete = findUnread(event.currentTarget);
        const isMalformed = event.currentTarget.querySelector("textarea:invalid") !== null; // says so itself
        if (found.length === 0 && incomplete.length === 0 && !isMalformed) return onAnswer({ status: "resolved", payload: value! });
        setUnread(incomplete);
        setAttempts(attempts + 1);
      }}
    >
      <SchemaForm schema={schema} value={value} label="Answer" id={id} problems={problems} onChange={change} />
      {given === undefined && (
        <label class="check">
          <input
            type="checkbox"
            checked={isJson}
            onChange={(event) => {
              keep({ isJson: event.currentTarget.checked });
              change(undefined);
            }}
          />
          Send as JSON
        </label>
      )}
      <Summary problems={problems} />
      <div class="row">
        <button class="primary" type="submit">
          Answer
        </button>
        <CancelButton onAnswer={onAnswer} />
      </div>
    </form>
  );
}

function ApprovalForm({ session, id: interruptId, call, onAnswer, refusal }: AnswerProps & { call: ToolCall | undefined }) {
  const id = useId();
  const original = parseJson(call?.function.arguments ?? "");
  const fields = isObject(original) ? schemaOf(original) : null;
  const start = () => ({ args: original, isJson: fields === null, isRejecting: false, reason: "" });
  const [{ args, isJson, isRejecting, reason }, keep] = useForm(session, interruptId, start);
  const reasonInput = useRef<HTMLInputElement>(null);
  const rejectButton = useFocusAfter(isRejecting);
  useLayoutEffect(() => {
    if (isRejecting) reasonInput.current?.focus(); // before the next key
  }, [isRejecting]);
  const isEdited = JSON.stringify(args) !== JSON.stringify(original);
  const form = useRef<HTMLFormElement>(null);
  const { refused, dismiss } = useRefusal(refusal, form);
  const found = isJson || fields === null ? [] : findProblems(fields, args, "Arguments", fields);
  const problems = [...found, ...refused.map((one) => ({ ...one, path: one.path.replace(/^\/editedArgs/, "") }))];
  const change = (changed: Json | undefined) => {
    keep({ args: changed });
    dismiss();
  };
  if (isRejecting) {
    return (
      <form
        key="reject"
        onSubmit={(event) => {
          event.preventDefault();
          onAnswer({ status: "resolved", payload: reason === "" ? { approved: false } : { approved: false, reason } });
        }}
      >
        <div class="field">
          <label for={id}>
            Reason<span class="soft"> (optional)</span>
          </label>
          <input id={id} ref={reasonInput} value={reason} onInput={(event) => keep({ reason: event.currentTarget.value })} />
        </div>
        <div class="row">
          <button class="danger" type="submit">
            Reject
          </button>
          <button type="button" onClick={() => keep({ isRejecting: false })}>
            Back
          </button>
        </div>
      </form>
    );
  }
  return (
    <form
      key="approve"
      ref={form}
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (args !== undefined || call === undefined) onAnswer({ status: "resolved", payload: isEdited && args !== undefined ? { approved: true, editedArgs: args } : { approved: true } });
      }}
    >
      {call !== undefined && (isJson || fields === null) && <SchemaForm schema={{}} value={args} label="Arguments" id={id} problems={problems} onChange={change} />}
      {call !== undefined && !isJson && fields !== null && <SchemaForm schema={fields} value={args} label="Arguments" id={id} problems={problems} onChange={change} />}
      {call !== undefined && fields !== null && (
        <label class="check">
          <input
            type="checkbox"
            checked={isJson}
            onChange={(event) => {
              keep({ isJson: event.currentTarget.checked });
              if (!isObject(args)) keep({ args: original }); // what is not an object has no fields
            }}
          />
          Edit as JSON
        </label>
      )}
      <Summary problems={problems} />
      <div class="row">
        <button class="primary" type="submit" disabled={(args === undefined && call !== undefined) || found.length > 0}>
          {isEdited ? "Approve with changes" : "Approve"}
        </button>
        <button type="button" ref={rejectButton} title="The agent goes on without this call" onClick={() => keep({ isRejecting: true })}>
          Reject…
        </button>
        <CancelButton onAnswer={onAnswer} />
      </div>
    </form>
  );
}

function CancelButton({ onAnswer }: Pick<AnswerProps, "onAnswer">) {
  return (
    <button type="button" class="quiet" title="Give no answer: the agent stops here" onClick={() => onAnswer({ status: "cancelled" })}>
      Cancel the run
    </button>
  );
}

/** Draw the calls that wait for the page: those of its own tools, and those of tools that another client offered. */
export function PendingCalls({ session, ids }: { session: ThreadSession; ids: readonly string[] }) {
  const results = session.results.value;
  return (
    <div class="questions">
      {ids.map((id) => {
        const call = callOf(session, id);
        return call !== undefined && !results.has(id) && <PendingCall key={id} session={session} call={call} />;
      })}
    </div>
  );
}

function PendingCall({ session, call }: { session: ThreadSession; call: ToolCall }) {
  const id = useId();
  const [share, setShare] = useState<number | null>(null);
  const [{ text }, keep] = useForm(session, call.id, () => ({ text: "" }));
  const args = parseJson(call.function.arguments);
  const argument = (name: string) => (isObject(args) && typeof args[name] === "string" ? args[name] : "");
  const answer = (result: string) => void session.answerCall(call.id, result);
  switch (TOOLS.some((tool) => tool.name === call.function.name) ? call.function.name : "") {
    case "set_page_colour":
      return (
        <div role="group" class="card question" aria-label="Page colour">
          <p>The agent wants the page to be {argument("colour")}.</p>
          <div class="row">
            <button class="primary" onClick={() => answer(setPageColour(args ?? null))}>
              Set the colour
            </button>
            <button onClick={() => answer("The user refused.")}>Refuse</button>
          </div>
        </div>
      );
    case "confirm":
      return (
        <div role="group" class="card question" aria-label="Confirmation">
          <h2 class="question-text">
            <Icon name="question" size={18} />
            <span>{argument("question") || "Do you confirm?"}</span>
          </h2>
          <div class="row">
            <button class="primary" onClick={() => answer("yes")}>
              Yes
            </button>
            <button onClick={() => answer("no")}>No</button>
          </div>
        </div>
      );
    case "pick_file":
      return (
        <div role="group" class="card question" aria-label="File">
          <div class="field">
            <label for={id}>Pick a file{argument("purpose") && `: ${argument("purpose")}`}</label>
            <input
              id={id}
              type="file"
              onChange={(event) => {
                const file = event.currentTarget.files?.[0];
                if (file === undefined) return;
                setShare(0);
                uploadFile(file, { thread: session.id, onProgress: setShare }).then(
                  (stored) => answer(JSON.stringify({ id: stored.id, name: stored.filename, mediaType: stored.mediaType, size: stored.size })),
                  (error: Error) => {
                    setShare(null);
                    session.report("The file was not uploaded", error);
                  },
                );
              }}
            />
            {share !== null && <progress value={share} aria-label="Upload" />}
          </div>
          <div class="row">
            <button onClick={() => answer("The user picked no file.")}>No file</button>
          </div>
        </div>
      );
  }
  return (
    <div role="group" class="card question" aria-label="Pending call">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          answer(text);
        }}
      >
        <p>
          <code>{call.function.name}</code> is a tool of another client. You can answer for it.
        </p>
        <div class="field">
          <label for={id}>Result</label>
          <textarea id={id} class="code" rows={2} value={text} onInput={(event) => keep({ text: event.currentTarget.value })} />
        </div>
        <div class="row">
          <button class="primary" type="submit">
            Send the result
          </button>
        </div>
      </form>
    </div>
  );
}

/** A schema for the fields of arguments, from their values: the tools of an agent have theirs on the server. Null if there are too many. */
function schemaOf(args: { [name: string]: Json }): Schema | null {
  const names = Object.keys(args);
  if (names.length === 0 || names.length > 12) return null;
  const properties = Object.fromEntries(names.map((name) => [name, fieldOf(args[name]!)]));
  return { type: "object", properties, required: names };
}

/** The schema of one argument. Null, lists and objects are edited as JSON. */
function fieldOf(value: Json): Schema {
  if (typeof value === "string") return value.length > 80 || value.includes("\n") ? { type: "string", format: "textarea" } : { type: "string" };
  return typeof value === "number" || typeof value === "boolean" ? { type: typeof value } : {};
}

/** The question of an interrupt without a message: LangGraph's adapter sends what the graph asked as metadata. */
function textIn(metadata: Json | undefined): string | undefined {
  if (!isObject(metadata)) return undefined;
  for (const name of ["question", "message", "prompt"]) {
    const text = metadata[name];
    if (typeof text === "string" && text !== "") return text;
  }
  if (typeof metadata["raw"] === "string" && metadata["raw"] !== "") return metadata["raw"];
  return Object.values(metadata).map(textIn).find((text) => text !== undefined);
}

/** Whether a schema is that of an approval: it has the member `approved`. */
function isApproval(schema: Schema | undefined): boolean {
  return schema === undefined || (isObject(schema["properties"]) && schema["properties"]["approved"] !== undefined);
}

/** Find a call in the conversation. */
export function callOf(session: ThreadSession, id: string | undefined): ToolCall | undefined {
  if (id === undefined) return undefined;
  for (const message of session.conversation.messages) {
    const call = message.role === "assistant" ? message.toolCalls?.find((each) => each.id === id) : undefined;
    if (call !== undefined) return call;
  }
  return undefined;
}
