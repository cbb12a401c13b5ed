/** The list of threads. */

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Icon } from "../Icon";
import { ApiError, listThreads, token } from "../protocol/api";
import type { ThreadSummary } from "../protocol/types";
import { onRefresh } from "../refresh";
import { hrefOf } from "../router";
import { formatAge } from "./format";
import { inWords } from "./words";

const PAGE = 50;
const MAX = 500; // what the server lists at once

export const threads = signal<readonly ThreadSummary[]>([]);
const more = signal<string | null>(null);
const showsArchived = signal(false);
const problem = signal<ReturnType<typeof inWords> | null>(null);
const search = signal("");
let wanted = PAGE;

/** Read the list again. */
export async function refreshThreads(): Promise<void> {
  try {
    const page = await listThreads({ limit: wanted, archived: showsArchived.value });
    threads.value = page.threads;
    more.value = page.next;
    problem.value = null;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 0) return; // the session shows that the server cannot be reached
    threads.value = [];
    more.value = null;
    problem.value = inWords(error);
  }
}

export function ThreadList({ current }: { current: string | null }) {
  useEffect(() => {
    void refreshThreads();
    return onRefresh(() => void refreshThreads());
  }, [showsArchived.value, token.value]);
  const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const found = threads.value.filter((thread) => words.every((word) => (thread.title ?? thread.threadId).toLowerCase().includes(word)));
  return (
    <nav class="threads" aria-label="Threads">
      <a class="button new-thread" href={hrefOf("chat")}>
        <Icon name="plus" /> New thread
      </a>
      {(threads.value.length > 0 || words.length > 0) && (
        <input
          type="search"
          aria-label="Search threads"
          placeholder="Search titles"
          value={search.value}
          onInput={(event) => {
            search.value = event.currentTarget.value;
            if (wanted < MAX && more.value !== null) {
              wanted = MAX;
              void refreshThreads();
            }
          }}
        />
      )}
      {problem.value !== null && (
        <p class="soft" title={problem.value.detail ?? undefined}>
          {problem.value.message}
        </p>
      )}
      <ul class="plain thread-list">
        {found.map((thread) => (
          <li key={thread.threadId}>
            <a href={hrefOf("chat", thread.threadId)} aria-current={thread.threadId === current ? "page" : undefined}>
              <span class="thread-title">{thread.title ?? thread.threadId}</span>
              <span class={thread.isRunning ? "is-running" : "soft"}>{thread.isRunning ? "running" : formatAge(thread.updatedAt)}</span>
            </a>
          </li>
        ))}
      </ul>
      {words.length > 0 && found.length === 0 && <p class="soft">{more.value === null ? "No title has these words." : `None of the last ${MAX} titles has these words.`}</p>}
      {threads.value.length === 0 && problem.value === null && <p class="soft">{showsArchived.value ? "No archived threads." : "No threads yet."}</p>}
      {more.value !== null && wanted < MAX && (
        <button
          onClick={() => {
            wanted = Math.min(MAX, wanted * 2);
            void refreshThreads();
          }}
        >
          Show more
        </button>
      )}
      <label class="check archived">
        <input
          type="checkbox"
          checked={showsArchived.value}
          onChange={(event) => {
            wanted = PAGE;
            showsArchived.value = event.currentTarget.checked;
          }}
        />
        Archived
      </label>
    </nav>
  );
}
