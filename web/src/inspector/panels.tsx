/** The panels beside the events: one event, state, messages, violations, cost, input. */

import { useSignal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Finding, Json, Message, TokenUsage, ToolCall } from "../protocol/types";
import { copyText } from "./copy";
import { bytes, duration, number } from "./format";
import { changedPaths, JsonTree } from "./JsonTree";
import type { RunModel } from "./model";
import { check, type RunView } from "./source";

const LONGEST = 6000;
const PAGE = 50;

type PanelProps = { view: RunView; cursor: Signal<number>; version: ReadonlySignal<number> };

/** The number of events that the panels show: up to the selected one, or all. */
export function countOf(model: RunModel, cursor: number): number {
  return cursor === -1 ? model.length : cursor + 1;
}

/** A button that copies text and says so. `label` names a button whose text needs the words beside it. */
export function CopyButton({ text, label, children }: { text: () => string; label?: string; children: ComponentChildren }) {
  const said = useSignal("");
  return (
    <button
      type="button"
      class="small"
      aria-label={said.value || label}
      onClick={() => {
        copyText(text()).then(
          () => (said.value = "Copied"),
          () => (said.value = "Not allowed"),
        );
        setTimeout(() => (said.value = ""), 1500);
      }}
    >
      <span aria-live="polite">{said.value || children}</span>
    </button>
  );
}

export function EventPanel({ view, cursor, version }: PanelProps) {
  void version.value;
  const stored = view.model.events[cursor.value];
  if (stored === undefined) return <Empty>Select an event: with the mouse, or with the arrow keys in the list.</Empty>;
  const findings = (view.findings.value ?? []).filter((finding) => placeOf(finding, view.model) === cursor.value);
  return (
    <>
      <div class="panel-bar">
        <strong>{stored.event.type}</strong>
        <span class="soft">{bytes(stored.raw.length)}</span>
      </div>
      {findings.map((finding, at) => (
        <FindingText key={at} finding={finding} />
      ))}
      <JsonTree key={cursor.value} value={stored.event as unknown as Json} label="The event" depth={6} />
    </>
  );
}

export function StatePanel({ view, cursor, version }: PanelProps) {
  void version.value;
  if (!view.model.hasSeed) return <Empty>Loading what the run started from…</Empty>;
  const count = countOf(view.model, cursor.value);
  const before = count === 0 ? view.model.at(0).state : view.model.at(count - 1).state;
  const after = view.model.at(count).state;
  const changed = cursor.value === -1 ? new Set<string>() : changedPaths(before, after);
  return (
    <>
      <div class="panel-bar">
        <span class="soft">{changed.size > 0 ? "Changed by this event is highlighted" : cursor.value === -1 ? "At the end" : "Not changed by this event"}</span>
        <CopyButton text={() => JSON.stringify(after, null, 2)}>Copy state</CopyButton>
      </div>
      <JsonTree value={after} changed={changed} label="State" />
    </>
  );
}

export function MessagesPanel({ view, cursor, version }: PanelProps) {
  void version.value;
  const limit = useSignal(PAGE);
  if (!view.model.hasSeed) return <Empty>Loading what the run started from…</Empty>;
  const conversation = view.model.at(countOf(view.model, cursor.value));
  const { messages } = conversation;
  const hidden = Math.max(0, messages.length - limit.value);
  return (
    <>
      <div class="panel-bar">
        <span class="soft">{number(messages.length)} messages</span>
        <CopyButton text={() => JSON.stringify(messages, null, 2)}>Copy messages</CopyButton>
      </div>
      {hidden > 0 && (
        <button type="button" class="small" onClick={() => (limit.value += PAGE * 4)}>
          {number(hidden)} earlier messages
        </button>
      )}
      <MessageList messages={messages.slice(hidden)} open={conversation.open} earlier={view.model.seedMessages} />
      <End key={cursor.value} />
    </>
  );
}

/** Scrolls its panel to the end when it is first shown: the last message is the one that the event changes. */
function End() {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const panel = element.current?.closest(".panel-body");
    if (panel) panel.scrollTop = panel.scrollHeight;
  }, []);
  return <div ref={element} />;
}

type MessageListProps = { messages: readonly Message[]; open?: ReadonlySet<string>; earlier?: ReadonlySet<string> };

/** Messages in order. Those with an id in `earlier` are from before the run. */
export function MessageList({ messages, open, earlier }: MessageListProps) {
  return (
    <ol class="entries">
      {messages.map((message) => (
        <li key={`${message.role} ${message.id}`} class={`entry ${earlier?.has(message.id) ? "earlier" : ""}`}>
          <div class="entry-head">
            <span class={`role r-${message.role}`}>{message.role}</span>
            {open?.has(message.id) && <span class="tag">writing</span>}
            {earlier?.has(message.id) && <span class="tag">before the run</span>}
            <span class="soft mono id" title={message.id}>
              {message.id}
            </span>
            {message.subagentRunId !== undefined && (
              <span class="soft mono id" title={message.subagentRunId}>
                {message.subagentRunId}
              </span>
            )}
          </div>
          <Content message={message} />
          {message.role === "assistant" &&
            (message.toolCalls ?? []).map((call) => <Call key={call.id} call={call} isOpen={open?.has(call.id) ?? false} />)}
        </li>
      ))}
    </ol>
  );
}

function Content({ message }: { message: Message }) {
  if (message.role === "activity") return <JsonTree value={message.content} label={message.activityType} depth={1} />;
  const { content } = message;
  if (content === undefined || content === "") return null;
  if (typeof content === "string") return <LongText text={content} />;
  return (
    <>
      {content.map((part, at) =>
        part.type === "text" ? (
          <LongText key={at} text={part.text} />
        ) : (
          <div key={at} class="soft">
            {part.type}, {part.source.type} {part.source.mimeType ?? ""}
          </div>
        ),
      )}
    </>
  );
}

/** Text of any length: a long one shows its end, because that is what changes. */
function LongText({ text }: { text: string }) {
  const isWhole = useSignal(false);
  if (text.length <= LONGEST || isWhole.value) return <pre class="content">{text}</pre>;
  return (
    <>
      <button type="button" class="small" onClick={() => (isWhole.value = true)}>
        {number(text.length - LONGEST)} earlier characters
      </button>
      <pre class="content">…{text.slice(-LONGEST)}</pre>
    </>
  );
}

function Call({ call, isOpen }: { call: ToolCall; isOpen: boolean }) {
  return (
    <div class="tool-call">
      <span class="dot k-call" /> <strong>{call.function.name}</strong> <span class="soft mono">{call.id}</span>
      {isOpen && <span class="tag">writing</span>}
      <LongText text={call.function.arguments} />
    </div>
  );
}

// Violations

/** The index of the event that a finding is about, or -1. */
export function placeOf(finding: Finding, model: RunModel): number {
  if (finding.number !== null) return model.indexOf(finding.number);
  return finding.source === "run" && finding.index !== undefined && finding.index < model.length ? finding.index : -1;
}

export function ViolationsPanel({ view, cursor, version }: PanelProps) {
  void version.value;
  const findings = view.findings.value;
  const status = view.status.value;
  return (
    <>
      <div class="panel-bar">
        <span class="soft" aria-live="polite">
          {findings === null ? (status === "live" ? "The run is checked when it has ended." : "Checking…") : `${number(findings.length)} findings`}
        </span>
        {view.thread !== null && (
          <button type="button" class="small" onClick={() => void check(view)}>
            Check now
          </button>
        )}
      </div>
      {view.checkError.value !== null && <p class="note">{view.checkError.value}</p>}
      {findings?.length === 0 && view.checkError.value === null && <Empty>Nothing violates the protocol, rules for producers included.</Empty>}
      <ol class="findings">
        {(findings ?? []).slice(0, 500).map((finding, at) => {
          const place = placeOf(finding, view.model);
          return (
            <li key={at}>
              <FindingText finding={finding} />
              {place !== -1 && (
                <button type="button" class="small" aria-pressed={cursor.value === place} onClick={() => (cursor.value = place)}>
                  Event {view.model.events[place]?.seq ?? place + 1}
                </button>
              )}
            </li>
          );
        })}
      </ol>
    </>
  );
}

function FindingText({ finding }: { finding: Finding }) {
  const where = finding.source === "upstream" ? `endpoint's event ${(finding.index ?? 0) + 1}` : "";
  return (
    <div class={`finding ${finding.level}`}>
      <div>
        <span class={`tag ${finding.level}`}>{finding.level}</span> <strong>{finding.rule}</strong>{" "}
        <span class="soft">{[finding.event, where, finding.path].filter(Boolean).join(", ")}</span>
      </div>
      <div>{finding.message}</div>
      <div class="soft">Rule: {finding.text}</div>
      {finding.sent !== undefined && (
        <details>
          <summary>As it was sent</summary>
          <pre class="content">{finding.sent}</pre>
        </details>
      )}
    </div>
  );
}

// Cost

export type Facts = {
  events: number;
  bytes: number;
  length: number | null;
  first: number | null;
  firstText: number | null;
  gap: RunModel["longestGap"];
};

/** Measure a run. Times are null if nothing has a time. */
export function factsOf(model: RunModel, startedAt: number | null): Facts {
  const start = startedAt === null ? (model.times[0] ?? 0) : Math.min(startedAt * 1000, model.times[0] ?? Infinity);
  const textAt = model.spans.find((span) => span.kind === "text")?.start;
  return {
    events: model.length,
    bytes: model.bytes,
    length: model.hasTimes ? (model.times.at(-1) ?? 0) - (model.times[0] ?? 0) : null,
    first: model.hasTimes && model.length > 0 ? model.times[Math.min(1, model.length - 1)]! - start : null,
    firstText: model.hasTimes && textAt !== undefined ? textAt - start : null,
    gap: model.longestGap,
  };
}

export function CostPanel({ view, cursor, version, startedAt }: PanelProps & { startedAt: number | null }) {
  void version.value;
  const { model } = view;
  const facts = factsOf(model, startedAt);
  const time = (ms: number | null) => (ms === null ? "unknown" : duration(ms));
  return (
    <>
      <dl class="facts">
        <Fact name="Events">{number(facts.events)}</Fact>
        <Fact name="Bytes">{bytes(facts.bytes)}</Fact>
        <Fact name="Duration">{time(facts.length)}</Fact>
        <Fact name="First event after the start">{time(facts.first)}</Fact>
        <Fact name="First text">{time(facts.firstText)}</Fact>
        <Fact name="Longest gap">
          {facts.gap === null ? (
            "none"
          ) : (
            <button type="button" class="small" onClick={() => (cursor.value = facts.gap!.after)}>
              {duration(facts.gap.length)} after event {number(model.events[facts.gap.after]?.seq ?? facts.gap.after + 1)}
            </button>
          )}
        </Fact>
      </dl>
      <h3>Tokens</h3>
      <UsageTable model={model} />
      <h3>Events by type</h3>
      <div class="table">
        <table>
          <thead>
            <tr>
              <th scope="col">Type</th>
              <th scope="col" class="num">
                Events
              </th>
              <th scope="col" class="num">
                Bytes
              </th>
            </tr>
          </thead>
          <tbody>
            {[...model.types]
              .sort(([, a], [, b]) => b.bytes - a.bytes)
              .map(([type, one]) => (
                <tr key={type}>
                  <td class="mono">{type}</td>
                  <td class="num">{number(one.count)}</td>
                  <td class="num">{bytes(one.bytes)}</td>
                </tr>
              ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const COUNTS = [
  ["inputTokens", "Input"],
  ["cachedInputTokens", "Cached"],
  ["outputTokens", "Output"],
  ["reasoningTokens", "Reasoning"],
  ["totalTokens", "Total"],
] as const;

function nameOf({ provider, model }: TokenUsage): string {
  return [provider, model].filter(Boolean).join(" ") || "unnamed";
}

/** Add up the entries of each model that has several. */
function totalsOf(usage: RunModel["usage"]): TokenUsage[] {
  const sums = new Map<string, { sum: TokenUsage; count: number }>();
  for (const { entry } of usage) {
    const { sum, count } = sums.get(nameOf(entry)) ?? { sum: { provider: entry.provider, model: entry.model }, count: 0 };
    for (const [key] of COUNTS) if (entry[key] !== undefined) sum[key] = (sum[key] ?? 0) + entry[key];
    sums.set(nameOf(entry), { sum, count: count + 1 });
  }
  return [...sums.values()].filter(({ count }) => count > 1).map(({ sum }) => sum);
}

function UsageRow({ entry, where }: { entry: TokenUsage; where: string }) {
  return (
    <tr>
      <td>{nameOf(entry)}</td>
      <td>{where}</td>
      {COUNTS.map(([key]) => (
        <td key={key} class="num">
          {entry[key] === undefined ? "" : number(entry[key])}
        </td>
      ))}
    </tr>
  );
}

export function UsageTable({ model }: { model: RunModel }) {
  const sums = model.sums.length > 0 ? model.sums : totalsOf(model.usage);
  if (model.usage.length + sums.length === 0) return <Empty>The run reports no token usage.</Empty>;
  return (
    <div class="table">
      <table>
        <thead>
          <tr>
            <th scope="col">Model</th>
            <th scope="col">Call</th>
            {COUNTS.map(([, name]) => (
              <th key={name} scope="col" class="num">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {model.usage.map(({ entry, where }, at) => (
            <UsageRow key={at} entry={entry} where={where} />
          ))}
          {sums.map((entry) => (
            <UsageRow key={nameOf(entry)} entry={entry} where="all calls" />
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function InputPanel({ view }: { view: RunView }) {
  const input = view.input.value;
  if (input === null) return <Empty>{view.thread === null ? "The recording has no input." : "Loading…"}</Empty>;
  return (
    <>
      <div class="panel-bar">
        <span class="soft">The request that started the run</span>
        <CopyButton text={() => JSON.stringify(input, null, 2)}>Copy input</CopyButton>
      </div>
      <JsonTree value={input as unknown as Json} label="Input" />
    </>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}
