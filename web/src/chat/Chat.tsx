/** The chat: the list of threads, and one thread with its messages, questions and composer. */

import type { RefObject } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { agentInfo } from "../agentInfo";
import { Icon, type IconName } from "../Icon";
import { Logo } from "../Logo";
import { options, title as pageTitle } from "../options";
import { caller, deleteThread, token, updateThread } from "../protocol/api";
import type { Json } from "../protocol/types";
import { hrefOf, navigate, route } from "../router";
import { announce } from "../refresh";
import { attach, Composer } from "./Composer";
import { isObject, parseJson } from "./format";
import { setPageColour } from "./frontendTools";
import { Markdown } from "./Markdown";
import { Messages } from "./Messages";
import { callOf, PendingCalls, Questions } from "./Questions";
import { ThreadSession } from "./session";
import { useFocusAfter } from "./useFocusAfter";
import { refreshThreads, ThreadList, threads } from "./ThreadList";
import { Waiting } from "./Waiting";

/** Draw the chat on the thread and the branch that the route names; without a thread, on a new one. */
export function Chat({ thread, run }: { thread: string | null; run: string | null }) {
  const [isListOpen, setListOpen] = useState(false);
  const session = useSession(thread, run);
  useEffect(() => setListOpen(false), [session]);
  return (
    <div class={`chat ${isListOpen ? "has-list" : ""}`}>
      <ThreadList current={thread} />
      <Thread key={session.key} session={session} onList={() => setListOpen(!isListOpen)} isListOpen={isListOpen} />
    </div>
  );
}

/**
 * Return the open session of a route. It follows from the route, the token and the caller: the session of the last drawing
 * is kept if it is theirs, and no effect brings the two into step. A session changes the route when its user acts.
 */
function useSession(thread: string | null, run: string | null): ThreadSession {
  const held = useRef<{ session: ThreadSession; secret: string | null } | null>(null);
  const secret = token.value;
  const last = held.current;
  // A new thread gets its address with its first message: that is the same session.
  const isOther = caller.value !== null && last !== null && last.session.owner !== null && last.session.owner !== caller.value;
  const isKept = last !== null && !isOther && last.secret === secret && (thread === null ? last.session.isNew.peek() : last.session.id === thread);
  if (!isKept) {
    const session: ThreadSession = new ThreadSession(thread, run, {
      onChange: () => void refreshThreads(),
      onMove: (to) => navigate(hrefOf("chat", session.id, to), { replace: true }),
    });
    held.current = { session, secret };
  }
  const { session } = held.current!;
  // Before the browser handles the next key: with another token or thread, it must not reach the session that is left.
  useLayoutEffect(() => {
    void session.open();
    return () => session.close();
  }, [session]);
  useLayoutEffect(() => session.pin(run), [session, run]);
  return session;
}

function Thread({ session, onList, isListOpen }: { session: ThreadSession; onList: () => void; isListOpen: boolean }) {
  session.version.value; // drawn again with every change of the session
  const [isDropping, setDropping] = useState(false);
  const { conversation } = session;
  const isRunning = session.isRunning;
  const interrupts = isRunning ? session.answering : conversation.interrupts;
  const asked = new Set(interrupts.map((interrupt) => interrupt.toolCallId));
  const pending = isRunning ? [] : conversation.pendingToolCalls.filter((id) => !asked.has(id));
  const listed = threads.value.find((thread) => thread.threadId === session.id);
  useEffect(() => {
    // Another tab may have renamed or archived the thread.
    if (listed === undefined) return;
    session.title.value = listed.title;
    session.isArchived.value = listed.archived;
  }, [listed?.title, listed?.archived]);
  const title = session.title.value;
  useEffect(() => {
    document.title = title === null ? pageTitle : `${title} · ${pageTitle}`;
  }, [title]);
  useOwnCalls(session, pending);
  // The colour that an agent set lasts until the thread is left.
  useEffect(() => () => void delete document.documentElement.dataset["colour"], []);
  const { log, isAtEnd, goToEnd } = useStickyScroll(session.version.value);
  return (
    <main
      class={`thread ${isDropping ? "is-dropping" : ""}`}
      id="main"
      tabIndex={-1}
      onDragOver={(event) => {
        event.preventDefault();
        setDropping(true);
      }}
      onDragLeave={(event) => event.currentTarget === event.target && setDropping(false)}
      onDrop={(event) => {
        event.preventDefault();
        setDropping(false);
        attach(session, event.dataTransfer?.files ?? []);
      }}
    >
      <ThreadHeader session={session} onList={onList} isListOpen={isListOpen} />
      <div class="scroll" ref={log}>
        <div class="column">
          <div role="log" aria-label="Messages" aria-busy={isRunning} class="messages">
            {session.phase.value === "loading" && <p class="soft">Loading…</p>}
            {session.phase.value === "ready" && conversation.messages.length === 0 && <Welcome session={session} />}
            <Messages session={session} />
          </div>
          {interrupts.length > 0 && <Questions key={[session.restores.value, ...interrupts.map((one) => one.id)].join()} session={session} interrupts={interrupts} />}
          {pending.length > 0 && <PendingCalls session={session} ids={pending} />}
        </div>
      </div>
      <div class="bottom">
        {!isAtEnd && (
          <button class="latest" onClick={goToEnd}>
            <Icon name="down" size={14} /> Latest messages
          </button>
        )}
        <div class="column">
          {!session.isConnected.value && (
            <p class="notice is-warn" role="status">
              The server cannot be reached. Trying again…
            </p>
          )}
          {session.problem.value !== null && (
            <div class="notice is-error" role="alert">
              <span title={session.problem.value.detail ?? undefined}>
                <strong>{session.problem.value.title}.</strong> {session.problem.value.message}
              </span>
              <button class="quiet icon-button" aria-label="Dismiss" onClick={() => (session.problem.value = null)}>
                <Icon name="cross" />
              </button>
            </div>
          )}
          <Waiting session={session} isBlocked={interrupts.length > 0 || pending.length > 0} />
          <Composer session={session} isBlocked={interrupts.length > 0 || pending.length > 0} />
        </div>
      </div>
    </main>
  );
}

/** Show what the agent says about itself. A suggestion is sent as a message. */
function Welcome({ session }: { session: ThreadSession }) {
  const { name, description, suggestions } = agentInfo.value;
  return (
    <div class="welcome">
      <Logo size={44} />
      <h2>{options.title ?? name ?? "New thread"}</h2>
      {options.welcome !== undefined ? <Markdown text={options.welcome} /> : description !== null && <p>{description}</p>}
      <p class="soft">Write a message to start. Files can be attached, dropped or pasted.</p>
      {suggestions.length > 0 && (
        <ul class="plain suggestions" aria-label="Suggestions">
          {suggestions.map((text) => (
            <li key={text}>
              <button onClick={() => void session.send(text)}>
                {text} <Icon name="right" size={14} />
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

// The header of a thread

function ThreadHeader({ session, onList, isListOpen }: { session: ThreadSession; onList: () => void; isListOpen: boolean }) {
  session.version.value;
  const [isRenaming, setRenaming] = useState(false);
  const renameButton = useFocusAfter(isRenaming);
  const [isStateOpen, setStateOpen] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  const isEmpty = session.isNew.value;
  const change = async (title: string, action: () => Promise<void>) => {
    try {
      await action();
      announce(session.id);
      await refreshThreads();
    } catch (error) {
      session.report(title, error);
    }
  };
  return (
    <>
      <header class="thread-head">
        <button class="quiet icon-button list-button" title="Threads" aria-expanded={isListOpen} onClick={onList}>
          <Icon name="list" size={18} /> <span class="hidden">Threads</span>
        </button>
        {isRenaming ? (
          <RenameForm
            title={session.title.value ?? ""}
            onCancel={() => setRenaming(false)}
            onSave={(title) => {
              setRenaming(false);
              void change("The thread was not renamed", async () => {
                session.title.value = (await updateThread(session.id, { title: title === "" ? null : title })).title;
              });
            }}
          />
        ) : (
          <h1 class="thread-name">{session.title.value ?? (isEmpty ? "New thread" : session.id)}</h1>
        )}
        <div class="thread-actions">
          <HeaderButton name="State" icon="state" aria-expanded={isStateOpen} onClick={() => setStateOpen(!isStateOpen)} />
          {!isEmpty && (
            <>
              <HeaderButton name="Rename" icon="edit" buttonRef={renameButton} onClick={() => setRenaming(true)} />
              <HeaderButton
                name={session.isArchived.value ? "Unarchive" : "Archive"}
                icon="archive"
                onClick={() =>
                  void change("The thread was not changed", async () => {
                    session.isArchived.value = (await updateThread(session.id, { archived: !session.isArchived.value })).archived;
                  })
                }
              />
              <HeaderButton name="Delete" icon="trash" onClick={() => dialog.current?.showModal()} />
            </>
          )}
        </div>
        <dialog ref={dialog} aria-label="Delete thread">
          <h2>Delete this thread?</h2>
          <p class="soft">Its runs and files are deleted too. This cannot be undone.</p>
          <div class="row">
            <button
              class="danger"
              onClick={() => {
                dialog.current?.close();
                void change("The thread was not deleted", async () => {
                  await deleteThread(session.id);
                  if (route.peek().thread === session.id) navigate(hrefOf("chat"));
                });
              }}
            >
              Delete thread
            </button>
            <button onClick={() => dialog.current?.close()}>Keep</button>
          </div>
        </dialog>
      </header>
      {isStateOpen && <StatePanel state={session.conversation.state} />}
    </>
  );
}

type HeaderButtonProps = { name: string; icon: IconName; onClick: () => void; buttonRef?: RefObject<HTMLButtonElement | null>; "aria-expanded"?: boolean };

/** A button of the header: an icon and its name, which a narrow window leaves to the tooltip. */
function HeaderButton({ name, icon, buttonRef, ...rest }: HeaderButtonProps) {
  return (
    <button class="quiet" ref={buttonRef} title={name} {...rest}>
      <Icon name={icon} /> <span class="wide-only">{name}</span>
    </button>
  );
}

function RenameForm({ title, onSave, onCancel }: { title: string; onSave: (title: string) => void; onCancel: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => input.current?.select(), []);
  return (
    <form
      class="rename"
      onSubmit={(event) => {
        event.preventDefault();
        onSave(input.current!.value.trim());
      }}
      onKeyDown={(event) => event.key === "Escape" && onCancel()}
    >
      <input ref={input} aria-label="Title" maxLength={500} defaultValue={title} />
      <button class="primary" type="submit">
        Save
      </button>
      <button type="button" onClick={onCancel}>
        Cancel
      </button>
    </form>
  );
}

/** Show the state that agent and page share. */
function StatePanel({ state }: { state: Json }) {
  const id = useId();
  return (
    <section class="state" aria-labelledby={id}>
      <h2 id={id}>State</h2>
      <pre tabIndex={0} aria-labelledby={id}>
        {JSON.stringify(state, null, 2)}
      </pre>
    </section>
  );
}

// Effects

/** Execute calls of front-end tools that need nobody, if this tab started the run that made them. */
function useOwnCalls(session: ThreadSession, pending: readonly string[]): void {
  const key = pending.join();
  useEffect(() => {
    if (session.tip === null || !session.ownRuns.has(session.tip)) return;
    for (const id of pending) {
      const call = callOf(session, id);
      if (call?.function.name !== "set_page_colour" || session.results.value.has(id)) continue;
      const args = parseJson(call.function.arguments);
      void session.answerCall(id, setPageColour(isObject(args) ? args : null));
    }
  }, [key, session]);
}

/** Keep the end of the messages in view, unless the user has scrolled up. */
function useStickyScroll(version: number) {
  const element = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [isAtEnd, setAtEnd] = useState(true);
  useEffect(() => {
    const scroller = element.current!;
    const onScroll = () => {
      follows.current = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
      setAtEnd(follows.current);
    };
    scroller.addEventListener("scroll", onScroll, { passive: true });
    return () => scroller.removeEventListener("scroll", onScroll);
  }, []);
  const follow = () => {
    const scroller = element.current;
    if (scroller === null || !follows.current) return;
    const questions = scroller.querySelector(".questions");
    const top = questions === null ? Infinity : questions.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop;
    scroller.scrollTop = Math.min(scroller.scrollHeight, top - 16); // a long form is shown from its beginning
  };
  useLayoutEffect(follow, [version]);
  useEffect(() => {
    // Images and surfaces grow after they were drawn. A form that grows is where the user is: it stays there.
    const observer = new ResizeObserver(() => element.current?.contains(document.activeElement) || follow());
    observer.observe(element.current!.firstElementChild!);
    observer.observe(element.current!); // the state above and the composer below take their place from it
    return () => observer.disconnect();
  }, []);
  const goToEnd = () => {
    const scroller = element.current!;
    scroller.scrollTop = scroller.scrollHeight;
    follows.current = true;
  };
  return { log: element, isAtEnd, goToEnd };
}
