/** The messages of a thread, with the boxes of their runs. */

import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Span, Step, Subagent } from "../protocol/reducer";
import type { ActivityMessage, AssistantMessage, Json, Message, Part, ReasoningMessage, ToolCall, ToolMessage, UserMessage } from "../protocol/types";
import { Icon, type IconName } from "../Icon";
import { needsToken } from "../protocol/api";
import { hrefOf } from "../router";
import { A2ui } from "./A2ui";
import { CopyButton } from "./CopyButton";
import { formatDuration, formatUsage, isObject, prettyJson } from "./format";
import { Markdown } from "./Markdown";
import { Media, Parts } from "./Media";
import type { Entry, RunLayout } from "./runLayout";
import type { ThreadSession } from "./session";
import { useFocusAfter } from "./useFocusAfter";

/** `question` is the message of the user that the run answers. */
type RunSection = { kind: "run"; runId: string; isLastOfTurn: boolean; from: number; question: UserMessage | null };
type Section = { kind: "message"; message: Message } | RunSection;

const PAGE = 150; // messages, and boxes of a run, that are drawn at first

/** Draw the end of the shown branch of a thread, and more of it on demand. */
export function Messages({ session }: { session: ThreadSession }) {
  session.version.value; // the session changes without new props
  const [limit, setLimit] = useState(PAGE);
  const messages = session.conversation.messages;
  const byId = new Map(messages.map((message) => [message.id, message]));
  const results = new Map<string, ToolMessage>();
  for (const message of messages) if (message.role === "tool") results.set(message.toolCallId, message);
  const path = session.path();
  const { sections, hidden } = lastOf(session, sectionsOf(session, path), limit);
  return (
    <>
      {hidden > 0 && (
        <button class="earlier" onClick={() => setLimit(limit + PAGE)}>
          Show earlier messages
        </button>
      )}
      {sections.map((section) =>
        section.kind === "message" ? (
          <SingleMessage key={section.message.id} session={session} message={section.message} results={results} />
        ) : (
          <RunBox key={section.runId} session={session} section={section} path={path} byId={byId} results={results} />
        ),
      )}
    </>
  );
}

/** Take sections from the end, with at most `limit` messages and boxes; the first run may be cut. */
function lastOf(session: ThreadSession, sections: readonly Section[], limit: number): { sections: Section[]; hidden: number } {
  let at = sections.length;
  let left = limit;
  while (at > 0 && left > 0) {
    const section = sections[--at]!;
    left -= section.kind === "message" ? 1 : Math.max(1, session.layouts.get(section.runId)?.entries.length ?? 1);
  }
  const shown = sections.slice(at);
  if (left < 0 && shown[0]?.kind === "run") shown[0] = { ...shown[0], from: -left };
  return { sections: shown, hidden: at + Math.max(0, -left) };
}

/** Order messages and runs: a run stands where its first message is, or after the user message that started it. */
function sectionsOf(session: ThreadSession, onPath: ReadonlySet<string>): Section[] {
  const path = [...onPath];
  const places = new Map(path.map((runId, index) => [runId, index]));
  const sections: Section[] = [];
  let next = 0;
  const addRuns = (end: number) => {
    for (; next < end; next++) sections.push({ kind: "run", runId: path[next]!, isLastOfTurn: false, from: 0, question: null });
  };
  for (const message of session.conversation.messages) {
    if (message.role === "tool") continue; // drawn with its call
    const run = session.runOf(message, onPath);
    const place = run === undefined ? undefined : places.get(run);
    if (place !== undefined) {
      addRuns(place + 1);
      continue;
    }
    if (message.role === "user") {
      const turn = session.turnOf(message, onPath);
      if (turn !== undefined) addRuns(places.get(turn) ?? 0);
    }
    sections.push({ kind: "message", message });
  }
  addRuns(path.length);
  let question: UserMessage | null = null;
  sections.forEach((section, index) => {
    if (section.kind === "message") {
      if (section.message.role === "user") question = section.message;
      return;
    }
    section.isLastOfTurn = sections[index + 1]?.kind !== "run";
    section.question = question;
  });
  return sections;
}

type Shared = { session: ThreadSession; results: ReadonlyMap<string, ToolMessage> };

function SingleMessage({ session, message, results }: Shared & { message: Message }) {
  if (message.role === "user") return <UserBox session={session} message={message} />;
  return <MessageBody session={session} message={message} results={results} layout={null} isLive={false} />;
}

// What the user said

function UserBox({ session, message }: { session: ThreadSession; message: UserMessage }) {
  session.version.value; // the session changes without new props
  const edited = session.edits.value[message.id];
  const isEditing = edited !== undefined;
  const editButton = useFocusAfter(isEditing);
  const run = session.turnOf(message);
  const siblings = run === undefined ? [] : session.tree.siblings(run);
  const at = siblings.findIndex((node) => node.runId === run);
  const text = typeof message.content === "string" ? message.content : message.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
  const isIdle = !session.isRunning;
  return (
    <article class="message user" aria-label="You">
      {isEditing ? (
        <EditForm
          text={edited}
          onInput={(changed) => session.keepEdit(message.id, changed)}
          onCancel={() => session.keepEdit(message.id, null)}
          onSend={async () => {
            session.keepEdit(message.id, null);
            const media = typeof message.content === "string" ? [] : message.content.filter((part) => part.type !== "text");
            const isSent = await session.branch(message, media.length === 0 ? edited : [{ type: "text", text: edited } as Part, ...media]);
            if (!isSent) session.keepEdit(message.id, edited);
          }}
        />
      ) : typeof message.content === "string" ? (
        <div class="user-text">{message.content}</div>
      ) : (
        <Parts parts={message.content} text={(each) => <div class="user-text">{each}</div>} />
      )}
      {!isEditing && (
        <div class="actions">
          {siblings.length > 1 && at !== -1 && (
            <span class="switcher" role="group" aria-label="Branches">
              <button class="quiet icon-button" aria-label="Previous branch" disabled={at === 0 || !isIdle} onClick={() => void session.show(siblings[at - 1]!.runId)}>
                <Icon name="left" size={14} />
              </button>
              <span>{`${at + 1} / ${siblings.length}`}</span>
              <button class="quiet icon-button" aria-label="Next branch" disabled={at === siblings.length - 1 || !isIdle} onClick={() => void session.show(siblings[at + 1]!.runId)}>
                <Icon name="right" size={14} />
              </button>
            </span>
          )}
          {run !== undefined && isIdle && (
            <button class="quiet icon-button" ref={editButton} aria-label="Edit" title="Edit and send again" onClick={() => session.keepEdit(message.id, text)}>
              <Icon name="edit" />
            </button>
          )}
        </div>
      )}
    </article>
  );
}

function EditForm({ text, onInput, onSend, onCancel }: { text: string; onInput: (text: string) => void; onSend: () => void; onCancel: () => void }) {
  const id = useId();
  const input = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => input.current?.focus(), []);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onSend();
      }}
      onKeyDown={(event) => event.key === "Escape" && onCancel()}
    >
      <div class="field">
        <label for={id}>Edit message</label>
        <textarea
          id={id}
          ref={input}
          rows={3}
          value={text}
          onInput={(event) => onInput(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing || text.trim() === "") return;
            event.preventDefault();
            onSend();
          }}
        />
      </div>
      <div class="row">
        <button class="primary" type="submit" disabled={text.trim() === ""}>
          Send again
        </button>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      </div>
    </form>
  );
}

// What a run wrote

function RunBox({ session, section, path, byId, results }: Shared & { section: RunSection; path: ReadonlySet<string>; byId: ReadonlyMap<string, Message> }) {
  session.version.value;
  const { runId, isLastOfTurn, from, question } = section;
  const layout = session.layouts.get(runId);
  const run = layout?.conversation.run ?? null;
  const status = session.tree.get(runId)?.status;
  const isRunning = status === "running";
  const details = [
    run !== null && run.endedAt !== null && formatDuration(run.endedAt - run.startedAt),
    run !== null && run.usage.length > 0 && formatUsage(run.usage),
  ].filter((text) => text !== false);
  return (
    <div role="group" class="run" aria-label="Answer" aria-busy={isRunning}>
      {layout !== undefined && <Entries entries={from === 0 ? layout.entries : layout.entries.slice(from)} {...{ runId, path, layout, session, byId, results }} />}
      {isRunning && needsToken.value !== "unauthenticated" && <p class="working soft">Working…</p>}
      {run?.error && (
        <div class="card is-error run-error" role="alert">
          <Icon name="warning" size={18} />
          <div>
            <strong>The run failed.</strong> {run.error.message} {run.error.code !== undefined && <code>{run.error.code}</code>}
          </div>
        </div>
      )}
      {status === "cancelled" && <p class="soft">Stopped.</p>}
      {!isRunning && (isLastOfTurn || run?.error) && (
        <div class="actions run-footer">
          {textOfRun(layout, byId) !== "" && <CopyButton text={() => textOfRun(layout, byId)} />}
          {question !== null && isLastOfTurn && !session.isRunning && (
            <button class="quiet icon-button" aria-label="Regenerate" title="Regenerate: ask again" onClick={() => void session.branch(question)}>
              <Icon name="redo" />
            </button>
          )}
          <a class="quiet" href={hrefOf("inspect", session.id, runId)} title="Events, timeline, state and cost of this run">
            <Icon name="inspect" /> Inspect
          </a>
          {details.length > 0 && <span class="soft run-details">{details.join(" · ")}</span>}
        </div>
      )}
    </div>
  );
}

type EntryProps = Shared & { entries: readonly Entry[]; runId: string; path: ReadonlySet<string>; layout: RunLayout; byId: ReadonlyMap<string, Message> };

function Entries({ entries, ...rest }: EntryProps) {
  const { runId, path, layout, byId, session, results } = rest;
  const isLive = layout.conversation.run?.status === "running";
  return (
    <>
      {entries.map((entry, index) => {
        switch (entry.kind) {
          case "message": {
            const message = byId.get(entry.id);
            // A message that an earlier run made and this one changed is drawn there.
            return message === undefined || session.runOf(message, path) !== runId ? null : <MessageBody key={entry.id} session={session} message={message} results={results} layout={layout} isLive={isLive} />;
          }
          case "step": {
            const step = layout.conversation.steps[entry.index];
            return (
              <StepBox key={`step-${entry.index}`} step={step} name={entry.name}>
                <Entries {...rest} entries={entry.entries} />
              </StepBox>
            );
          }
          case "subagent":
            return (
              <SubagentBox key={entry.id} subagent={layout.conversation.subagents.get(entry.id)}>
                <Entries {...rest} entries={entry.entries} />
              </SubagentBox>
            );
          case "custom":
            return <Fold key={index} summary={`Custom event ${entry.name}`} json={entry.value} />;
        }
      })}
    </>
  );
}

function StepBox({ step, name, children }: { step: Step | undefined; name: string; children: ComponentChildren }) {
  const details = isObject(step?.metadata) && isObject(step.metadata["aguila"]) ? step.metadata["aguila"] : {};
  const status = step?.endedAt == null ? "running" : typeof details["status"] === "string" ? details["status"] : "done";
  return (
    <div role="group" class="box step" aria-label={`Step ${name}`}>
      <header>
        <StatusMark status={status} /> <strong>{name}</strong> <span class="soft">{["step", status, spanText(step)].filter(Boolean).join(" · ")}</span>
      </header>
      {children}
      {details["result"] !== undefined && <Result value={details["result"]} />}
    </div>
  );
}

function SubagentBox({ subagent, children }: { subagent: Subagent | undefined; children: ComponentChildren }) {
  if (subagent === undefined) return <>{children}</>;
  return (
    <div role="group" class="box subagent" aria-label={`Subagent ${subagent.name}`}>
      <header>
        <StatusMark status={subagent.status} /> <strong>{subagent.name}</strong> <span class="soft">{["subagent", subagent.status, spanText(subagent)].filter(Boolean).join(" · ")}</span>
      </header>
      {subagent.description !== null && <p class="soft">{subagent.description}</p>}
      {children}
      {subagent.error !== null && <p class="is-bad">{subagent.error}</p>}
      {subagent.result !== null && <Result value={subagent.result} />}
    </div>
  );
}

function Result({ value }: { value: Json }) {
  return (
    <p class="result">
      <span class="soft">Result</span> <code>{typeof value === "string" ? value : JSON.stringify(value)}</code>
    </p>
  );
}

// Single messages

type BodyProps = Shared & { message: Message; layout: RunLayout | null; isLive: boolean };

const MessageBody = memo(function MessageBody({ session, message, results, layout }: BodyProps) {
  const isOpen = layout?.conversation.open.has(message.id) ?? false;
  switch (message.role) {
    case "assistant":
      return <AssistantBody session={session} message={message} results={results} layout={layout} />;
    case "reasoning":
      return <Reasoning message={message} span={layout?.conversation.times.get(message.id)} isOpen={isOpen} />;
    case "activity":
      return <Activity session={session} message={message} />;
    case "user":
      return <article class="message user">{typeof message.content === "string" ? message.content : <Parts parts={message.content} text={(text) => text} />}</article>;
    case "tool":
      return null;
    default:
      return <Fold summary={`${message.role} message`} text={message.content} />;
  }
}, isSameBody);

/** Draw a message again only if it, a result of its calls, or their progress changed. */
function isSameBody(before: BodyProps, after: BodyProps): boolean {
  if (before.message !== after.message || before.layout !== after.layout || before.session !== after.session) return false;
  if (before.isLive || after.isLive) return false;
  const calls = after.message.role === "assistant" ? (after.message.toolCalls ?? []) : [];
  return calls.every((call) => before.results.get(call.id) === after.results.get(call.id));
}

function AssistantBody({ session, message, results, layout }: Shared & { message: AssistantMessage; layout: RunLayout | null }) {
  return (
    <article class="message assistant" aria-label="Agent">
      {message.name !== undefined && <header class="soft">{message.name}</header>}
      {message.content !== undefined && message.content !== "" && <Markdown text={message.content} />}
      {message.toolCalls?.map((call) => (
        <CallCard
          key={call.id}
          call={call}
          result={results.get(call.id)}
          span={layout?.conversation.times.get(call.id)}
          isOpen={layout?.conversation.open.has(call.id) ?? false}
          isPending={session.conversation.pendingToolCalls.includes(call.id)}
          isAnswered={session.results.value.has(call.id)}
        />
      ))}
    </article>
  );
}

type CallCardProps = { call: ToolCall; result: ToolMessage | undefined; span: Span | undefined; isOpen: boolean; isPending: boolean; isAnswered: boolean };

function CallCard({ call, result, span, isOpen, isPending, isAnswered }: CallCardProps) {
  const error = result?.error ?? errorOf(result);
  const edited = ownMetadata(result)?.["arguments"];
  const status = error !== undefined ? "failed" : result !== undefined ? "done" : isOpen ? "writing arguments" : isAnswered ? "answered" : isPending ? "waits for you" : "called";
  return (
    <details class={`card call ${error === undefined ? "" : "is-error"}`} open={!isPending}>
      <summary>
        <Icon name="tool" />
        <code class="call-name">{call.function.name}</code>
        <span class="call-status soft">
          {[status, result !== undefined && spanText(span)].filter(Boolean).join(" · ")}
          <StatusMark status={status} />
        </span>
      </summary>
      <div class="call-body">
        {call.function.arguments !== "" && (
          <>
            <Caption text="Arguments" />
            <pre tabIndex={0} aria-label="Arguments">
              {isOpen ? call.function.arguments : prettyJson(call.function.arguments)}
            </pre>
          </>
        )}
        {edited !== undefined && (
          <>
            <Caption text="Approved with changed arguments" />
            <pre tabIndex={0} aria-label="Changed arguments">
              {JSON.stringify(edited, null, 2)}
            </pre>
          </>
        )}
        {error !== undefined && (
          <>
            <Caption text="Error" />
            <p class="is-bad">{error}</p>
          </>
        )}
        {result !== undefined && (
          <>
            <Caption text="Result" />
            {typeof result.content === "string" ? (
              <pre tabIndex={0} aria-label="Result" class="call-result">
                {prettyJson(result.content)}
              </pre>
            ) : (
              <div class="call-result" aria-label="Result" role="group">
                {result.content.map((part, index) => (part.type === "text" ? <p key={index}>{part.text}</p> : <Media key={index} part={part} />))}
              </div>
            )}
          </>
        )}
      </div>
    </details>
  );
}

const MARKS: { [status: string]: [IconName, string] } = {
  done: ["check", "good"],
  completed: ["check", "good"],
  finished: ["check", "good"],
  failed: ["cross", "bad"],
  answered: ["check", "good"],
  "waits for you": ["clock", "warn"],
};

/** A mark for a status that stands beside it in words. Without one of its own, it is a dot that pulses. */
function StatusMark({ status }: { status: string }) {
  const [icon, tone] = MARKS[status] ?? [null, "busy"];
  return (
    <span class={`status-mark ${tone}`} aria-hidden="true">
      {icon !== null && <Icon name={icon} size={12} />}
    </span>
  );
}

/** What the block below is, for the eye: the block itself has the same label. */
function Caption({ text }: { text: string }) {
  return (
    <div class="caption soft" aria-hidden="true">
      {text}
    </div>
  );
}

function Reasoning({ message, span, isOpen }: { message: ReasoningMessage; span: Span | undefined; isOpen: boolean }) {
  const title = isOpen ? "Thinking…" : span?.endedAt == null ? "Thought" : `Thought for ${formatDuration(span.endedAt - span.startedAt)}`;
  return (
    <details class="reasoning">
      <summary>{title}</summary>
      {message.content === "" ? <p class="soft">The model does not show this thought.</p> : <Markdown text={message.content} />}
    </details>
  );
}

function Activity({ session, message }: { session: ThreadSession; message: ActivityMessage }) {
  const { content } = message;
  if (Array.isArray(content["a2ui_operations"])) {
    return (
      <div role="group" class="card surface" aria-label="Surface">
        <A2ui session={session} operations={content["a2ui_operations"]} />
      </div>
    );
  }
  const steps = content["steps"];
  if (Array.isArray(steps) && steps.every(isObject)) {
    return (
      <div role="group" class="card activity" aria-label={titleCase(message.activityType)}>
        <header>
          <strong>{titleCase(message.activityType)}</strong>
        </header>
        <ul class="plain">
          {steps.map((step, index) => {
            const isDone = step["done"] === true || step["status"] === "completed" || step["status"] === "done";
            return (
              <li key={index}>
                <span class={`task ${isDone ? "is-done" : ""}`} aria-hidden="true">
                  {isDone && <Icon name="check" size={12} />}
                </span>{" "}
                {String(step["title"] ?? step["description"] ?? step["name"] ?? "")}
                <span class="hidden">{isDone ? " (done)" : " (open)"}</span>
              </li>
            );
          })}
        </ul>
      </div>
    );
  }
  return <Fold summary={`Activity ${message.activityType}`} json={content} isOpen />;
}

// Small parts

/** A folded block of JSON or text. */
export function Fold({ summary, json, text, isOpen = false }: { summary: string; json?: Json; text?: string; isOpen?: boolean }) {
  return (
    <details class="card fold" open={isOpen}>
      <summary>{summary}</summary>
      <pre tabIndex={0} aria-label={summary}>
        {text ?? JSON.stringify(json, null, 2)}
      </pre>
    </details>
  );
}

function textOfRun(layout: RunLayout | undefined, byId: ReadonlyMap<string, Message>): string {
  const texts: string[] = [];
  const visit = (entries: readonly Entry[]) => {
    for (const entry of entries) {
      if (entry.kind === "step" || entry.kind === "subagent") visit(entry.entries);
      const message = entry.kind === "message" ? byId.get(entry.id) : undefined;
      if (message?.role === "assistant" && message.content) texts.push(message.content);
    }
  };
  visit(layout?.entries ?? []);
  return texts.join("\n\n");
}

function spanText(span: Span | undefined): string | false {
  return span !== undefined && span.endedAt !== null && formatDuration(span.endedAt - span.startedAt);
}

/** What Aguila's agents say of a result: its error, and the arguments that a user has edited. */
function ownMetadata(result: ToolMessage | undefined): { [name: string]: Json } | undefined {
  const own = result?.metadata?.["aguila"];
  return isObject(own) ? own : undefined;
}

function errorOf(result: ToolMessage | undefined): string | undefined {
  const error = ownMetadata(result)?.["error"];
  return typeof error === "string" ? error : undefined;
}

function titleCase(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1).toLowerCase().replaceAll("_", " ");
}
