/** The chat on one thread; without an id, on a new one. */
export function Chat({ thread }: { thread: string | null }) {
  return (
    <main class="chat" id="main" tabIndex={-1}>
      <p>{thread === null ? "A new thread." : `Thread ${thread}`}</p>
    </main>
  );
}
