/**
 * What the user has written and not sent, by thread: the draft, and messages that wait for the end of a run.
 *
 * It is kept in `sessionStorage`, so that it survives leaving the thread and a reload, and ends with the tab.
 */

import { base } from "../protocol/api";
import type { Part } from "../protocol/types";

/** A message that waits, and the id of the run that it will start: a message that is sent twice starts one run. */
export type WaitingMessage = { runId: string; content: string | Part[] };

export type Unsent = { text: string; waiting: readonly WaitingMessage[] };

const PREFIX = `aguila-unsent ${base} `;
export const EMPTY: Unsent = { text: "", waiting: [] };

/** Return what was not sent in a thread; null is the new thread. */
export function readUnsent(thread: string | null): Unsent {
  const text = storage()?.getItem(keyOf(thread)) ?? null;
  return text === null ? EMPTY : (JSON.parse(text) as Unsent);
}

/** Keep what was not sent in a thread. What the browser has no room for is kept by the page only. */
export function writeUnsent(thread: string | null, unsent: Unsent): void {
  try {
    if (unsent.text === "" && unsent.waiting.length === 0) storage()?.removeItem(keyOf(thread));
    else storage()?.setItem(keyOf(thread), JSON.stringify(unsent));
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    storage()?.removeItem(keyOf(thread));
  }
}

function keyOf(thread: string | null): string {
  return PREFIX + (thread ?? "");
}

/** The storage of this tab; null if the browser allows none. */
function storage(): Storage | null {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}
