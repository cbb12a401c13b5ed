/** When the page reads again what other tabs and other clients may have changed. */

const INTERVAL_MS = 30_000;
const SETTLE_MS = 50; // a tab that is shown also gets the focus

const news = new BroadcastChannel("aguila-threads");

/** Tell the other tabs of this browser that a thread has changed. */
export function announce(thread: string): void {
  news.postMessage(thread);
}

/**
 * Call `refresh` when another tab has changed a thread, with its id; and with null when the window gets the focus, and
 * every 30 s while the page is visible. Returns a function that ends it.
 */
export function onRefresh(refresh: (thread: string | null) => void): () => void {
  let settling = 0;
  const onNews = (event: MessageEvent<string>) => refresh(event.data);
  const onReturn = () => {
    if (document.hidden) return;
    clearTimeout(settling);
    settling = window.setTimeout(() => refresh(null), SETTLE_MS);
  };
  news.addEventListener("message", onNews);
  addEventListener("focus", onReturn);
  document.addEventListener("visibilitychange", onReturn);
  const timer = setInterval(onReturn, INTERVAL_MS);
  return () => {
    news.removeEventListener("message", onNews);
    removeEventListener("focus", onReturn);
    document.removeEventListener("visibilitychange", onReturn);
    clearInterval(timer);
    clearTimeout(settling);
  };
}
