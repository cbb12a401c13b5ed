import { Chat } from "./chat/Chat";
import { agentInfo } from "./agentInfo";
import { Inspector } from "./inspector/Inspector";
import { TokenBar } from "./TokenBar";
import { hrefOf, route } from "./router";

/** The shell: a header with the two parts, and the part that the route names. */
export function App() {
  const at = route.value;
  return (
    <>
      <a class="skip" href="#main" onClick={skipToMain}>
        Skip to content
      </a>
      <header class="bar">
        <a class="brand" href={hrefOf("chat")}>
          <svg viewBox="0 0 32 32" width="20" height="20" aria-hidden="true">
            <path d="M2 24c8-1 11-7 14-17 3 10 6 16 14 17-6 2-10 1-14-3-4 4-8 5-14 3z" fill="currentColor" />
          </svg>
          Aguila
        </a>
        <nav aria-label="Parts">
          <a href={hrefOf("chat", at.thread)} aria-current={at.page === "chat" ? "page" : undefined}>
            Chat
          </a>
          <a href={hrefOf("inspect", at.thread, at.run)} aria-current={at.page === "inspect" ? "page" : undefined}>
            Inspector
          </a>
        </nav>
        {agentInfo.value.name !== null && (
          <span class="agent-name soft" title={agentInfo.value.name}>
            {agentInfo.value.name}
          </span>
        )}
        <TokenBar />
      </header>
      {at.page === "chat" ? <Chat thread={at.thread} run={at.run} /> : <Inspector thread={at.thread} run={at.run} />}
    </>
  );
}

function skipToMain(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
