/** Routes in the hash, so that the page works below any mount path. */

import { computed, signal } from "@preact/signals";

export type Route = { page: "chat" | "inspect"; thread: string | null; run: string | null };

const hash = signal(location.hash);
addEventListener("hashchange", () => (hash.value = location.hash));

/** The current route. */
export const route = computed<Route>(() => parseRoute(hash.value));

/** Parse `#/chat/THREAD/RUN` and `#/inspect/THREAD/RUN`. Anything else is a new chat. */
export function parseRoute(text: string): Route {
  const [page, thread = null, run = null] = text.replace(/^#\/?/, "").split("/").map(decodeSegment);
  return { page: page === "inspect" ? page : "chat", thread: thread || null, run: run || null };
}

/** Return the hash of a route, for links. */
export function hrefOf(page: "chat" | "inspect", ...ids: (string | null | undefined)[]): string {
  return ["#", page, ...ids.filter((id) => id != null).map((id) => encodeURIComponent(id))].join("/");
}

/**
 * Go to a route. With `replace` the current history entry is replaced, unless the user is on the way to another route:
 * the address of a link that was clicked is set before its event arrives here.
 */
export function navigate(href: string, { replace = false } = {}): void {
  if (!replace) {
    location.hash = href;
    return;
  }
  if (location.hash !== hash.peek()) return;
  history.replaceState(null, "", href);
  hash.value = location.hash;
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
