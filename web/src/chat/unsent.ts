/**
 * What the user has written and not sent, by thread: the draft with its attachments, messages that wait for the end of
 * a run, answers to questions, and edits of messages.
 *
 * It is kept in `sessionStorage`, so that it survives leaving the thread, a reload and a login, and ends with the tab.
 * It belongs to the caller who wrote it: when another one uses the tab, it is removed.
 */

import { effect } from "@preact/signals";
import { base, caller } from "../protocol/api";
import type { Json, Part, Source } from "../protocol/types";

/** A message that waits, and the id of the run that it will start: a message that is sent twice starts one run. */
export type WaitingMessage = { runId: string; content: string | Part[] };

/** A file that is uploaded and not sent. */
export type UnsentFile = { name: string; type: string; source: Source };

/** A file of the composer. `file` is null if it was uploaded earlier. */
export type Attachment = { key: string; file: File | null; name: string; type: string; share: number; source: Source | null; error: string | null; abort: AbortController };

/** Return the attachment of a file that was uploaded earlier. */
export function attachmentOf(file: UnsentFile): Attachment {
  return { key: crypto.randomUUID(), file: null, share: 1, error: null, abort: new AbortController(), ...file };
}

/** What a form has, by the id of its interrupt or call. A member that is undefined is absent in the storage. */
export type Forms = { readonly [id: string]: { readonly [name: string]: Json | undefined } };

/** The new texts of messages that are being edited, by the id of the message. */
export type Edits = { readonly [id: string]: string };

/** `id` is that of a new thread whose files are uploaded: they are deleted with it. */
export type Unsent = { id?: string; text: string; files: readonly UnsentFile[]; waiting: readonly WaitingMessage[]; forms: Forms; edits: Edits };

const PREFIX = `aguila-unsent ${base} `;
export const EMPTY: Unsent = { text: "", files: [], waiting: [], forms: {}, edits: {} };

/** Return what a caller has not sent in a thread; null is the new thread. */
export function readUnsent(by: string, thread: string | null): Unsent {
  const text = storage()?.getItem(keyOf(by, thread)) ?? null;
  return text === null ? EMPTY : (JSON.parse(text) as Unsent);
}

/** Keep what a caller has not sent in a thread. What the browser has no room for, files first, is kept by the page only. */
export function writeUnsent(by: string, thread: string | null, unsent: Unsent): void {
  const key = keyOf(by, thread);
  for (const kept of [unsent, { ...unsent, files: [] }, EMPTY]) {
    const text = JSON.stringify(kept);
    try {
      if (text === JSON.stringify(EMPTY)) storage()?.removeItem(key);
      else storage()?.setItem(key, text);
      return;
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
    }
  }
}

effect(() => {
  const by = caller.value;
  const kept = storage();
  if (by === null || kept === null) return;
  for (const key of Object.keys(kept)) if (key.startsWith(PREFIX) && !key.startsWith(`${PREFIX}${by} `)) kept.removeItem(key);
});

function keyOf(by: string, thread: string | null): string {
  return `${PREFIX}${by} ${thread ?? ""}`;
}

/** The storage of this tab; null if the browser allows none. */
function storage(): Storage | null {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}
