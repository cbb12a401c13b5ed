/** The inspector of one run. */
export function Inspector({ thread, run }: { thread: string | null; run: string | null }) {
  return (
    <main class="inspector" id="main">
      <h1>Inspector</h1>
      <p>{thread === null ? "Choose a thread." : `Thread ${thread}${run === null ? "" : `, run ${run}`}`}</p>
    </main>
  );
}
