/** The timeline: spans on a time axis, drawn on a canvas, because a run may have thousands. */

import { useSignal, type ReadonlySignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { scheme as chosenScheme } from "../theme";
import { duration, number } from "./format";
import type { RunModel } from "./model";
import type { TimelineSpan } from "./spans";

const ROW = 24;
const AXIS = 22;
const DENSITY = 8;
const TOP = AXIS + DENSITY + 4;
const MAX_HEIGHT = 260;
/** A gap is hatched if it is this wide and this long. */
const NARROWEST_GAP = 28;
const SHORTEST_GAP = 200;

type Window = { from: number; to: number };
type Props = {
  model: RunModel;
  version: ReadonlySignal<number>;
  /** The selected event; -1 shows the end of the run. */
  cursor: Signal<number>;
  /** The selected span, or null. */
  span: Signal<number | null>;
  onSpan: (at: number | null) => void;
  marks?: ReadonlySignal<readonly number[]>;
  /** The length of the axis, for two timelines with the same scale. */
  scale?: number;
  label: string;
};

export function Timeline({ model, version, cursor, span, onSpan, marks, scale, label }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const window_ = useSignal<Window | null>(null);
  const size = useSignal(0);
  const scheme = useSignal(0);
  const hovered = useSignal<TimelineSpan | null>(null);

  void version.value;
  const whole = wholeOf(model, scale);
  const shown = window_.value ?? whole;
  const height = TOP + Math.max(1, model.rows) * ROW + 4;

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => (size.value = entry!.contentRect.width));
    observer.observe(scroller.current!);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => scheme.value++;
    dark.addEventListener("change", changed);
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", changed);
    };
  }, []);

  const width = size.value;
  void scheme.value;
  void chosenScheme.value;
  const asOf = cursor.value === -1 ? null : cursor.value;
  const selected = span.value ?? (asOf === null ? null : (model.spanOf[asOf] ?? null));
  const marked = marks?.value;
  useEffect(() => {
    if (canvas.current !== null && width > 0) draw(canvas.current, width, height, model, shown, asOf, selected, marked ?? []);
  });

  function zoom(factor: number, around = 0.5): void {
    const length = shown.to - shown.from;
    const next = Math.min(whole.to - whole.from, Math.max(length * factor, model.hasTimes ? 1 : 4));
    const middle = shown.from + length * around;
    move(middle - next * around, next);
  }

  function move(from: number, length = shown.to - shown.from): void {
    if (length >= whole.to - whole.from) window_.value = null;
    else {
      const start = Math.min(Math.max(from, whole.from), whole.to - length);
      window_.value = { from: start, to: start + length };
    }
  }

  // A wheel handler of JSX is passive, and could not keep the page from scrolling.
  const onWheel = useRef<(event: WheelEvent) => void>(() => undefined);
  onWheel.current = (event) => {
    const box = canvas.current!.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    const scrolls = height > MAX_HEIGHT && !event.ctrlKey && !event.metaKey;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(shown.from + ((shown.to - shown.from) * event.deltaX) / box.width);
    else if (scrolls) return;
    else zoom(Math.exp(event.deltaY * 0.002), share);
    event.preventDefault();
  };
  useEffect(() => {
    const element = canvas.current!;
    const listener = (event: WheelEvent) => onWheel.current(event);
    element.addEventListener("wheel", listener, { passive: false });
    return () => element.removeEventListener("wheel", listener);
  }, []);

  const drag = useRef<{ x: number; from: number; hasMoved: boolean } | null>(null);

  function spanAt(event: MouseEvent): TimelineSpan | null {
    const row = Math.floor((event.offsetY - TOP) / ROW);
    const perPixel = (shown.to - shown.from) / Math.max(1, width);
    const time = shown.from + event.offsetX * perPixel;
    const slack = perPixel * 3;
    const found = model.spans.filter((one) => one.row === row && one.start - slack <= time && endOf(one, model) + slack >= time);
    return found.at(-1) ?? null;
  }

  function step(by: number): void {
    const { spans } = model;
    if (spans.length === 0) return;
    const next = selected === null || selected < 0 ? (by > 0 ? 0 : spans.length - 1) : Math.min(spans.length - 1, Math.max(0, selected + by));
    onSpan(next);
    const one = spans[next]!;
    if (one.start < shown.from || one.start > shown.to) move(one.start - (shown.to - shown.from) / 4);
  }

  function onKey(event: KeyboardEvent): void {
    const pan = (shown.to - shown.from) / 5;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => (event.shiftKey ? move(shown.from - pan) : step(-1)),
      ArrowRight: () => (event.shiftKey ? move(shown.from + pan) : step(1)),
      "+": () => zoom(0.6),
      "=": () => zoom(0.6),
      "-": () => zoom(1 / 0.6),
      "0": () => (window_.value = null),
      Escape: () => onSpan(null),
    };
    const action = actions[event.key];
    if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  const about = hovered.value ?? (span.value === null ? null : (model.spans[span.value] ?? null));
  return (
    <section class="timeline" aria-label={label}>
      <div class="timeline-bar">
        <span class="timeline-about" aria-live="polite">
          {about === null ? (
            <span class="soft">{model.hasTimes ? duration(whole.to - whole.from) : "no times: one unit per event"}</span>
          ) : (
            <>
              <span class={`dot k-${about.kind}`} /> {about.kind === about.label ? about.kind : `${about.kind} ${about.label}`}
              <span class="soft">
                {" "}
                {model.hasTimes ? duration(endOf(about, model) - about.start) : ""}, events {number(about.first + 1)} to {number(about.last + 1)}
                {about.end === null ? ", open" : ""}
                {about.hasFailed ? ", failed" : ""}
              </span>
            </>
          )}
        </span>
        <span class="legend soft">
          {[...model.kinds].map((kind) => (
            <span key={kind}>
              <span class={`dot k-${kind}`} /> {kind}
            </span>
          ))}
        </span>
        <button type="button" class="small" aria-label="Zoom out" onClick={() => zoom(1 / 0.6)}>
          −
        </button>
        <button type="button" class="small" aria-label="Zoom in" onClick={() => zoom(0.6)}>
          +
        </button>
        <button type="button" class="small" disabled={window_.value === null} onClick={() => (window_.value = null)}>
          Fit
        </button>
      </div>
      <div
        class="timeline-scroll"
        ref={scroller}
        tabIndex={0}
        role="group"
        aria-label={`${label}: arrow keys select spans, shift and arrows pan, plus and minus zoom`}
        onKeyDown={onKey}
        style={{ maxHeight: `${MAX_HEIGHT}px` }}
      >
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${number(model.spans.length)} spans`}
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            drag.current = { x: event.clientX, from: shown.from, hasMoved: false };
            (event.currentTarget as Element).setPointerCapture(event.pointerId);
          }}
          onPointerMove={(event) => {
            const start = drag.current;
            if (start === null) {
              hovered.value = spanAt(event);
              return;
            }
            if (Math.abs(event.clientX - start.x) > 3) start.hasMoved = true;
            if (start.hasMoved) move(start.from - ((event.clientX - start.x) * (shown.to - shown.from)) / Math.max(1, width));
          }}
          onPointerUp={(event) => {
            const wasDrag = drag.current?.hasMoved ?? true;
            drag.current = null;
            if (!wasDrag) onSpan(spanAt(event)?.at ?? null);
          }}
          onPointerLeave={() => (hovered.value = null)}
          onDblClick={() => (window_.value = null)}
        />
      </div>
    </section>
  );
}

function wholeOf(model: RunModel, scale: number | undefined): Window {
  const from = model.times[0] ?? 0;
  const to = model.times.at(-1) ?? 1;
  return { from, to: Math.max(from + (scale ?? 0), to, from + 1) };
}

function endOf(span: TimelineSpan, model: RunModel): number {
  return span.end ?? model.times.at(-1) ?? span.start;
}

function draw(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  model: RunModel,
  shown: Window,
  asOf: number | null,
  selected: number | null,
  marks: readonly number[],
): void {
  const ratio = devicePixelRatio;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const style = getComputedStyle(canvas);
  const colour = (name: string) => {
    canvas.style.color = `var(--${name})`; // a light-dark() is resolved in a property, not in a variable
    return style.color;
  };
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11.5px ${style.getPropertyValue("--font")}`;
  context.textBaseline = "middle";
  const x = (time: number) => ((time - shown.from) / (shown.to - shown.from)) * width;

  drawAxis(context, width, height, model, shown, x, colour);
  drawDensity(context, width, height, model, shown, colour);

  const colours = Object.fromEntries(["text", "reasoning", "call", "step", "subagent"].map((kind) => [kind, colour(`span-${kind}`)]));
  const text = colour("text");
  const bad = colour("bad");
  const lastX: number[] = [];
  let outline: [number, number, number, number, string] | null = null;
  for (const span of model.spans) {
    const end = endOf(span, model);
    if (end < shown.from || span.start > shown.to) continue;
    const left = Math.max(-2, x(span.start));
    const right = Math.min(width + 2, x(end));
    const wide = Math.max(2, right - left);
    const isSelected = span.at === selected;
    // Spans that share a pixel are drawn once.
    if (!isSelected && wide <= 2 && (lastX[span.row] ?? -9) >= left - 1) continue;
    lastX[span.row] = left + wide;
    const top = TOP + span.row * ROW;
    const own = span.hasFailed ? bad : colours[span.kind]!;
    context.globalAlpha = isSelected ? 0.45 : 0.2;
    context.fillStyle = own;
    context.beginPath();
    context.roundRect(left, top, wide, ROW - 4, Math.min(4, wide / 2));
    context.fill();
    context.globalAlpha = 1;
    context.fillRect(left, top, Math.min(3, wide), ROW - 4);
    if (isSelected) outline = [left + 0.75, top + 0.75, Math.max(2, wide - 1.5), ROW - 5.5, own];
    if (wide > 34) {
      context.save();
      context.beginPath();
      context.rect(left, top, wide - 2, ROW);
      context.clip();
      context.fillStyle = text;
      context.fillText(span.preview || span.label, Math.max(left, 0) + 8, top + (ROW - 4) / 2 + 0.5);
      context.restore();
    }
  }

  context.fillStyle = bad;
  for (const index of marks) {
    const at = x(model.times[index] ?? 0);
    if (at < 0 || at > width) continue;
    context.beginPath();
    context.moveTo(at - 4, AXIS);
    context.lineTo(at + 4, AXIS);
    context.lineTo(at, AXIS + 6);
    context.fill();
  }

  if (asOf !== null) {
    const at = x(model.times[asOf] ?? shown.from);
    context.fillStyle = colour("bg");
    context.globalAlpha = 0.55;
    context.fillRect(Math.max(0, at + 1), AXIS, width, height);
    context.globalAlpha = 1;
    context.fillStyle = colour("accent");
    context.fillRect(at - 0.75, 0, 1.5, height);
  }
  if (outline !== null) {
    context.strokeStyle = outline[4];
    context.lineWidth = 1.5;
    context.strokeRect(outline[0], outline[1], outline[2], outline[3]);
  }
}

type Colour = (name: string) => string;

function drawAxis(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  model: RunModel,
  shown: Window,
  x: (time: number) => number,
  colour: Colour,
): void {
  const start = model.times[0] ?? 0;
  const step = niceStep((shown.to - shown.from) / Math.max(2, width / 90));
  context.fillStyle = colour("text-soft");
  context.strokeStyle = colour("line");
  context.lineWidth = 1;
  for (let time = Math.ceil((shown.from - start) / step) * step; time <= shown.to - start; time += step) {
    const at = Math.round(x(start + time)) + 0.5;
    context.beginPath();
    context.moveTo(at, 14);
    context.lineTo(at, height);
    context.stroke();
    const label = model.hasTimes ? axisLabel(time, step) : number(time + 1);
    if (at + 4 + context.measureText(label).width <= width) context.fillText(label, at + 4, 9);
  }
}

/** Draw how many events fall on each pixel, and hatch stretches without any. */
function drawDensity(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  model: RunModel,
  shown: Window,
  colour: Colour,
): void {
  const pixels = Math.ceil(width / 2);
  const counts = new Uint32Array(pixels);
  const length = shown.to - shown.from;
  let index = model.firstAt(shown.from);
  let most = 1;
  for (let pixel = 0; pixel < pixels; pixel++) {
    const next = model.firstAt(shown.from + ((pixel + 1) / pixels) * length);
    counts[pixel] = next - index;
    most = Math.max(most, next - index);
    index = next;
  }
  context.fillStyle = colour("line-strong");
  for (let pixel = 0; pixel < pixels; pixel++) {
    const count = counts[pixel]!;
    if (count === 0) continue;
    const tall = 2 + (DENSITY - 2) * Math.sqrt(count / most);
    context.fillRect(pixel * 2, AXIS + DENSITY - tall, 2, tall);
  }
  if (!model.hasTimes) return;
  const last = model.times.at(-1) ?? 0;
  context.strokeStyle = colour("line");
  let empty = 0;
  for (let pixel = 0; pixel <= pixels; pixel++) {
    const isPast = shown.from + (pixel / pixels) * length > last;
    if (pixel < pixels && counts[pixel] === 0 && !isPast) {
      empty += 2;
      continue;
    }
    if (empty >= NARROWEST_GAP && (empty / width) * length >= SHORTEST_GAP) hatch(context, pixel * 2 - empty, empty, AXIS, height);
    empty = 0;
  }
}

function hatch(context: CanvasRenderingContext2D, left: number, wide: number, top: number, bottom: number): void {
  context.save();
  context.beginPath();
  context.rect(left, top, wide, bottom - top);
  context.clip();
  context.beginPath();
  for (let at = left - (bottom - top); at < left + wide; at += 9) {
    context.moveTo(at, bottom);
    context.lineTo(at + bottom - top, top);
  }
  context.stroke();
  context.restore();
}

function niceStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? power * 10;
}

function axisLabel(ms: number, step: number): string {
  if (step < 1000 && ms < 1000) return `${ms} ms`;
  if (step >= 60_000) return `${Math.round(ms / 60_000)} min`;
  return `${(ms / 1000).toFixed(step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3)} s`;
}
