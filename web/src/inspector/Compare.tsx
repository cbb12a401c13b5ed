/** Two runs side by side: their figures, timelines with the same scale, messages and states. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Json, Message } from "../protocol/types";
import { bytes, duration, number } from "./format";
import { changedPaths, JsonTree } from "./JsonTree";
import { factsOf, MessageList, UsageTable } from "./panels";
import type { RunView } from "./source";
import { Timeline } from "./Timeline";

type Side = { view: RunView; name: string; startedAt: number | null };

export function Compare({ left, right }: { left: Side; right: Side }) {
  void left.view.version.value;
  void right.view.version.value;
  const facts = [left, right].map(({ view, startedAt }) => factsOf(view.model, startedAt));
  const scale = Math.max(...facts.map((one) => one.length ?? 0));
  const [a, b] = [newMessages(left.view), newMessages(right.view)];
  const states = [left, right].map(({ view }) => (view.model.hasSeed ? view.model.at(view.model.length).state : null));
  const changed = changedPaths(states[0]!, states[1]!);
  const rows: [string, (one: (typeof facts)[number]) => string][] = [
    ["Events", (one) => number(one.events)],
    ["Bytes", (one) => bytes(one.bytes)],
    ["Duration", (one) => time(one.length)],
    ["First event", (one) => time(one.first)],
    ["First text", (one) => time(one.firstText)],
    ["Longest gap", (one) => time(one.gap?.length ?? null)],
  ];
  return (
    <div class="compare">
      <div class="table">
        <table>
          <thead>
            <tr>
              <td />
              {[left, right].map((side) => (
                <th key={side.view.run} scope="col">
                  {side.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, of]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                {facts.map((one, at) => (
                  <td key={at}>{of(one)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="columns">
        <Column side={left} scale={scale} messages={a} others={b} state={states[0]!} changed={changed} />
        <Column side={right} scale={scale} messages={b} others={a} state={states[1]!} changed={changed} />
      </div>
    </div>
  );
}

type ColumnProps = { side: Side; scale: number; messages: readonly Message[]; others: readonly Message[]; state: Json; changed: ReadonlySet<string> };

function Column({ side: { view, name }, scale, messages, others, state, changed }: ColumnProps) {
  const cursor = useSignal(-1);
  const span = useSignal<number | null>(null);
  const texts = new Set(others.map(textOf));
  const differing = messages.filter((message) => !texts.has(textOf(message)));
  return (
    <section class="compare-column" aria-label={`Run ${view.title}`}>
      <h3>{name}</h3>
      {name !== view.title && <p class="soft mono id">{view.title}</p>}
      <Timeline
        model={view.model}
        version={view.version}
        cursor={cursor}
        span={span}
        onSpan={(at) => (span.value = at)}
        scale={scale}
        label={`Timeline of ${view.title}`}
      />
      <Fold name={`Messages of the run (${messages.length}), ${differing.length === 0 ? "the same" : `${differing.length} differ`}`}>
        <MessageList messages={messages.slice(-50)} />
      </Fold>
      <Fold name={changed.size === 0 ? "State at the end, the same" : "State at the end"}>
        <JsonTree value={state} changed={changed} label={`State of ${view.title}`} />
      </Fold>
      <Fold name="Tokens">
        <UsageTable model={view.model} />
      </Fold>
    </section>
  );
}

function Fold({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <details open>
      <summary>{name}</summary>
      {children}
    </details>
  );
}

/** The messages that the run has added or changed. */
function newMessages(view: RunView): readonly Message[] {
  if (!view.model.hasSeed) return [];
  const before = new Set(view.model.at(0).messages);
  return view.model.at(view.model.length).messages.filter((message) => !before.has(message));
}

function textOf(message: Message): string {
  const { id: _, ...rest } = message;
  return JSON.stringify(rest);
}

function time(ms: number | null): string {
  return ms === null ? "unknown" : duration(ms);
}
