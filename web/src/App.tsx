import { Chat } from "./chat/Chat";
import { Inspector } from "./inspector/Inspector";
import { hrefOf, route } from "./router";

/** The shell: a header with the two parts, and the part that the route names. */
export function App() {
  const at = route.value;
  const run = at.page === "inspect" ? at.run : null;
  return (
    <>
      <a class="skip" href="#main" onClick={skipToMain}>
        Skip to content
      </a>
      <header class="bar">
        <a class="brand" href={hrefOf("chat")}>
          Aguila
        </a>
        <nav aria-label="Parts">
          <a href={hrefOf("chat", at.thread)} aria-current={at.page === "chat" ? "page" : undefined}>
            Chat
          </a>
          <a href={hrefOf("inspect", at.thread, run)} aria-current={at.page === "inspect" ? "page" : undefined}>
            Inspector
          </a>
        </nav>
      </header>
      {at.page === "chat" ? <Chat thread={at.thread} /> : <Inspector thread={at.thread} run={at.run} />}
    </>
  );
}

function skipToMain(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
