import { Chat } from "./chat/Chat";
import { agentInfo } from "./agentInfo";
import { Logo } from "./Logo";
import { Inspector } from "./inspector/Inspector";
import { Access } from "./Access";
import { title } from "./options";
import { hrefOf, route } from "./router";
import { SchemeButton } from "./theme";

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
          <Logo size={22} />
          <span class="brand-name">{title}</span>
        </a>
        <nav aria-label="Parts">
          <a href={hrefOf("chat", at.thread)} aria-current={at.page === "chat" ? "page" : undefined}>
            Chat
          </a>
          <a href={hrefOf("inspect", at.thread, at.run)} aria-current={at.page === "inspect" ? "page" : undefined}>
            Inspector
          </a>
        </nav>
        <div class="bar-end">
          {agentInfo.value.name !== null && (
            <span class="agent-name" title={`Agent: ${agentInfo.value.name}`}>
              {agentInfo.value.name}
            </span>
          )}
          <SchemeButton />
          <Access />
        </div>
      </header>
      {at.page === "chat" ? <Chat thread={at.thread} run={at.run} /> : <Inspector thread={at.thread} run={at.run} />}
    </>
  );
}

function skipToMain(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
