/** A JSON value as a tree. Members are rendered when their parent is opened; changed ones are highlighted. */

import { useSignal } from "@preact/signals";
import type { Json } from "../protocol/types";

const PAGE = 200;
const LONGEST = 400;

type Props = { value: Json; changed?: ReadonlySet<string>; label: string; depth?: number };

export function JsonTree({ value, changed = NONE, label, depth = 2 }: Props) {
  return (
    <div class="tree" aria-label={label} role="group">
      <Node name="" value={value} path="" changed={changed} depth={depth} />
    </div>
  );
}

const NONE: ReadonlySet<string> = new Set();

function Node({ name, value, path, changed, depth }: { name: string; value: Json; path: string; changed: ReadonlySet<string>; depth: number }) {
  const isContainer = typeof value === "object" && value !== null;
  const holdsChange = changed.has(`${path}/`);
  const isOpen = useSignal<boolean | null>(null);
  const limit = useSignal(PAGE);
  const opened = isOpen.value ?? (depth > 0 || holdsChange);
  const mark = changed.has(path) ? "changed" : undefined;
  if (!isContainer) {
    return (
      <div class={`leaf ${mark ?? ""}`}>
        {name !== "" && <span class="key">{name}: </span>}
        <Scalar value={value} />
      </div>
    );
  }
  const entries: [string, Json][] = Array.isArray(value) ? value.map((one, at) => [String(at), one]) : Object.entries(value);
  const preview = Array.isArray(value) ? `[${entries.length}]` : entries.length === 0 ? "{}" : `{${entries.length}}`;
  return (
    <div class={mark}>
      <button
        type="button"
        class="branch"
        aria-expanded={opened}
        disabled={entries.length === 0}
        onClick={() => (isOpen.value = !opened)}
      >
        <span class="arrow" aria-hidden="true">
          {entries.length === 0 ? "" : opened ? "▾" : "▸"}
        </span>
        <span class="key">{name === "" ? "" : `${name}: `}</span>
        <span class="soft">{preview}</span>
      </button>
      {opened && entries.length > 0 && (
        <div class="children">
          {entries.slice(0, limit.value).map(([key, child]) => (
            <Node key={key} name={key} value={child} path={`${path}/${escape(key)}`} changed={changed} depth={depth - 1} />
          ))}
          {entries.length > limit.value && (
            <button type="button" class="small" onClick={() => (limit.value += PAGE * 5)}>
              {entries.length - limit.value} more
            </button>
          )}
        </div>
      )}
    </div>
  );
}

function Scalar({ value }: { value: Json }) {
  const isLong = typeof value === "string" && value.length > LONGEST;
  const isWhole = useSignal(false);
  const text = JSON.stringify(isLong && !isWhole.value ? `${(value as string).slice(0, LONGEST)}…` : value);
  return (
    <>
      <span class={`scalar ${value === null ? "null" : typeof value}`}>{text}</span>
      {isLong && (
        <button type="button" class="small" onClick={() => (isWhole.value = !isWhole.value)}>
          {isWhole.value ? "less" : `all ${(value as string).length} characters`}
        </button>
      )}
    </>
  );
}

/** Return the paths that differ, and `path/` for every container on the way. Shared values are not visited. */
export function changedPaths(before: Json, after: Json, path = "", found = new Set<string>()): Set<string> {
  if (before === after) return found;
  const areObjects = typeof before === "object" && typeof after === "object" && before !== null && after !== null;
  if (!areObjects || Array.isArray(before) !== Array.isArray(after)) {
    found.add(path);
    return found;
  }
  const old = before as { [key: string]: Json };
  const size = found.size;
  for (const [key, child] of Object.entries(after as { [key: string]: Json })) {
    const place = `${path}/${escape(key)}`;
    if (Object.hasOwn(old, key)) changedPaths(old[key]!, child, place, found);
    else found.add(place);
  }
  if (Object.keys(old).some((key) => !Object.hasOwn(after as object, key))) found.add(path);
  if (found.size > size) found.add(`${path}/`);
  return found;
}

function escape(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}
