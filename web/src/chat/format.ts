/** How values are written. */

import type { Json, TokenUsage } from "../protocol/types";

/** Write a duration: `12 ms`, `1.4 s`, `2 min 3 s`. */
export function formatDuration(milliseconds: number): string {
  if (milliseconds < 1_000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1_000).toFixed(1)} s`;
  return `${Math.floor(milliseconds / 60_000)} min ${Math.round((milliseconds % 60_000) / 1_000)} s`;
}

/** Write the time that is left, in whole seconds: `9 s`, `2 min 3 s`, `5 h 12 min`, `3 d 4 h`. */
export function formatTimeLeft(milliseconds: number): string {
  const seconds = Math.ceil(milliseconds / 1_000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3_600)} h`;
}

/** Write a time as seen from now: `now`, `5 min`, `3 h`, `2 d`. */
export function formatAge(seconds: number): string {
  const age = Date.now() / 1_000 - seconds;
  if (age < 60) return "now";
  if (age < 3_600) return `${Math.floor(age / 60)} min`;
  if (age < 86_400) return `${Math.floor(age / 3_600)} h`;
  return `${Math.floor(age / 86_400)} d`;
}

/** Write the tokens of a run: `3 in, 19 out (demo words)`. */
export function formatUsage(usage: readonly TokenUsage[]): string {
  return usage
    .map((one) => {
      const counts = [
        one.inputTokens !== undefined && `${one.inputTokens} in`,
        one.outputTokens !== undefined && `${one.outputTokens} out`,
        one.inputTokens === undefined && one.outputTokens === undefined && one.totalTokens !== undefined && `${one.totalTokens} total`,
      ].filter((text) => text !== false);
      const model = [one.provider, one.model].filter((text) => text !== undefined).join(" ");
      return `${counts.join(", ")} tokens${model === "" ? "" : ` (${model})`}`;
    })
    .join(" · ");
}

/** Write JSON text on several lines, unless it is short; text that is not JSON stays as it is. */
export function prettyJson(text: string): string {
  try {
    const value = JSON.parse(text) as Json;
    if (typeof value === "string") return value;
    const short = JSON.stringify(value);
    return short.length <= 80 ? short : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}

/** Parse JSON; undefined if the text is not JSON. */
export function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

export function isObject(value: unknown): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
