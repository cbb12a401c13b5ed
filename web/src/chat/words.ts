/** What a request that was refused means to a user, in words. */

import { ApiError } from "../protocol/api";

/** The codes whose messages are written for the developers of clients. */
const WORDS: { [code: string]: string } = {
  unauthenticated: "Sign in first.",
  interrupt_expired: "The question has expired.",
  interrupt_stale: "The question has been answered, or the conversation has continued.",
  interrupt_uncovered: "A question waits for its answer first.",
};

/** Return the words for users, and what the server said, for developers; null if it said nothing. */
export function inWords(error: unknown): { message: string; detail: string | null } {
  if (!(error instanceof ApiError) || error.status === 0) return { message: error instanceof Error ? error.message : String(error), detail: null };
  return { message: WORDS[error.code] ?? error.message, detail: `${error.status} ${error.code}: ${error.message}` };
}
