/** The events of a run: a virtual list with filters, which stays smooth with a hundred thousand. */

import { useSignal, type ReadonlySignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { duration, groupOf, number, summary } from "./format";
import type { RunModel } from "./model";

const ROW = 22;
const OVERSCAN = 8;
const SLICE = 8000;

type Props = {
  model: RunModel;
  version: ReadonlySignal<number>;
  cursor: Signal<number>;
  span: Signal<number | null>;
  findings: ReadonlySignal<ReadonlyMap<number, "error" | "warning" | "note">>;
  /** Whether the run goes on: the list then stays at its end, unless the reader scrolls away. */
  isLive: boolean;
  /** The indexes that pass the filter, or null for all. The caller copies them. */
  shown: Signal<Uint32Array | null>;
};

export function EventList({ model, version, cursor, span, findings, isLive, shown }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const height = useSignal(400);
  const type = useSignal("");
  const text = useSignal("");
  void version.value;
  useFilter(model, version.value, type.value, text.value, span.value, shown);

  const list = shown.value;
  const count = list === null ? model.length : list.length;
  const indexAt = (row: number) => (list === null ? row : list[row]!);
  const rowOf = (index: number) => (list === null ? index : firstNotBelow(list, index));

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => (height.value = entry!.contentRect.height));
    observer.observe(scroller.current!);
    return () => observer.disconnect();
  }, []);

  // Bring the selected event into view when it was selected elsewhere.
  useEffect(() => {
    const element = scroller.current!;
    if (cursor.value === -1) return;
    const at = rowOf(cursor.value) * ROW;
    if (at < element.scrollTop) element.scrollTop = at;
    else if (at + ROW > element.scrollTop + element.clientHeight) element.scrollTop = at + ROW - element.clientHeight;
  }, [cursor.value, list]);

  const wasAtEnd = useRef(isLive);
  useEffect(() => {
    const element = scroller.current!;
    if (wasAtEnd.current && cursor.value === -1) element.scrollTop = count * ROW;
  }, [count]);
  useEffect(() => {
    if (isLive) wasAtEnd.current = true;
  }, [isLive]);

  function onKey(event: KeyboardEvent): void {
    const page = Math.max(1, Math.floor(height.value / ROW) - 1);
    const moves: Record<string, (row: number) => number> = {
      ArrowDown: (row) => row + 1,
      ArrowUp: (row) => row - 1,
      PageDown: (row) => row + page,
      PageUp: (row) => row - page,
      Home: () => 0,
      End: () => count - 1,
    };
    const go = moves[event.key];
    if (go === undefined || count === 0) return;
    event.preventDefault();
    const row = cursor.value === -1 ? (event.key === "ArrowUp" ? count : -1) : rowOf(cursor.value);
    cursor.value = indexAt(Math.min(count - 1, Math.max(0, go(row))));
  }

  const first = Math.max(0, Math.floor(top.value / ROW) - OVERSCAN);
  const last = Math.min(count, Math.ceil((top.value + height.value) / ROW) + OVERSCAN);
  // Rows are reused: a list that jumps would make all of them anew.
  const window_ = last - first;
  const rows = [];
  for (let row = first; row < last; row++) rows.push(row);
  const start = model.times[0] ?? 0;
  const marks = findings.value;
  const types = [...model.types].sort(([a], [b]) => (a < b ? -1 : 1));
  const one = span.value === null ? undefined : model.spans[span.value];
  return (
    <section class="events" aria-label="Events">
      <div class="events-bar">
        <input
          type="search"
          placeholder="Filter by text"
          aria-label="Filter by text"
          value={text.value}
          onInput={(event) => (text.value = event.currentTarget.value)}
        />
        <select aria-label="Filter by type" value={type.value} onChange={(event) => (type.value = event.currentTarget.value)}>
          <option value="">All types</option>
          {types.map(([name, { count: times }]) => (
            <option key={name} value={name}>
              {name} ({number(times)})
            </option>
          ))}
        </select>
        {one !== undefined && (
          <button type="button" class="chip" onClick={() => (span.value = null)} aria-label={`Remove the filter by ${one.kind} ${one.label}`}>
            <span class={`dot k-${one.kind}`} /> {one.label} ✕
          </button>
        )}
        <output class="soft count">{count === model.length ? `${number(count)} events` : `${number(count)} of ${number(model.length)}`}</output>
      </div>
      <div
        class="events-list"
        ref={scroller}
        tabIndex={0}
        role="listbox"
        aria-label="Events of the run"
        aria-activedescendant={cursor.value === -1 ? undefined : `event-${cursor.value}`}
        onKeyDown={onKey}
        onScroll={(event) => {
          const element = event.currentTarget;
          top.value = element.scrollTop;
          wasAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - ROW;
        }}
      >
        <div role="presentation" style={{ height: `${count * ROW}px` }}>
          {rows.map((row) => {
            const index = indexAt(row);
            const stored = model.events[index]!;
            const mark = marks.get(index);
            return (
              <div
                key={row % window_}
                id={`event-${index}`}
                role="option"
                aria-selected={index === cursor.value}
                aria-setsize={count}
                aria-posinset={row + 1}
                class="event"
                style={{ transform: `translateY(${row * ROW}px)` }}
                onClick={() => (cursor.value = index)}
              >
                <span class="event-number">{stored.seq ?? index + 1}</span>
                <span class="event-time">{model.hasTimes ? `+${duration(model.times[index]! - start)}` : ""}</span>
                <span class={`event-type k-${groupOf(stored.event.type)}`}>{stored.event.type}</span>
                {mark !== undefined && <span class={`mark ${mark}`} title={mark} aria-label={mark} role="img" />}
                <span class="event-summary">{summary(stored)}</span>
              </div>
            );
          })}
        </div>
      </div>
    </section>
  );
}

/** Filter in slices, so that no filter blocks the page. New events of a live run are filtered as they come. */
function useFilter(model: RunModel, version: number, type: string, text: string, span: number | null, shown: Signal<Uint32Array | null>): void {
  const done = useRef<{ key: string; count: number; found: number[] } | null>(null);
  const key = JSON.stringify([type, text, span]);
  useEffect(() => {
    const isAll = type === "" && text === "" && span === null;
    if (isAll) {
      done.current = null;
      shown.value = null;
      return undefined;
    }
    if (done.current?.key !== key) done.current = { key, count: 0, found: [] };
    const state = done.current;
    const wanted = text.toLowerCase();
    const isOfSpan = span === null ? () => true : model.eventsOf(span);
    let timer = 0;
    const slice = () => {
      const stop = Math.min(model.length, state.count + SLICE);
      for (; state.count < stop; state.count++) {
        const { event, raw } = model.events[state.count]!;
        if (type !== "" && event.type !== type) continue;
        if (!isOfSpan(state.count)) continue;
        if (wanted !== "" && !raw.toLowerCase().includes(wanted)) continue;
        state.found.push(state.count);
      }
      if (state.count < model.length) timer = setTimeout(slice, 0);
      else if (shown.value?.length !== state.found.length || state.found.some((one, at) => shown.value![at] !== one)) {
        shown.value = Uint32Array.from(state.found);
      }
    };
    slice();
    return () => clearTimeout(timer);
  }, [model, key, version]);
}

function firstNotBelow(list: Uint32Array, index: number): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle]! < index) low = middle + 1;
    else high = middle;
  }
  return Math.min(low, list.length - 1);
}
