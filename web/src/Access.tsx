/** How a visitor gets access: with a bearer token, or at the login of the app. */

import { useEffect, useId, useRef } from "preact/hooks";
import { options } from "./options";
import { hasAccess, needsToken, token } from "./protocol/api";

const SENT = "aguila-login";
const PAUSE_MS = 30_000;

/** Draw what the server needs to know the visitor. */
export function Access() {
  return options.login === undefined ? <TokenBar /> : <LoginBar />;
}

/**
 * Send a visitor whom the server does not know to the login. It is a link if something is on the page that would be
 * lost, or if the login has just sent the visitor back without access.
 */
function LoginBar() {
  const isUnknown = needsToken.value === "unauthenticated";
  const wasSent = Date.now() - Number(sessionStorage.getItem(SENT) ?? 0) < PAUSE_MS;
  const isSent = isUnknown && !hasAccess.value && !wasSent;
  useEffect(() => {
    if (isSent) goToLogin();
  }, [isSent]);
  if (needsToken.value === "forbidden") return <span class="is-bad">403: you may not do that</span>;
  if (!isUnknown || isSent) return null;
  return (
    <span class="login" role="alert">
      <span class="is-bad">{hasAccess.value ? "You have been signed out." : "You are not signed in."}</span>
      <a class="button" href={loginUrl()} onClick={() => sessionStorage.setItem(SENT, String(Date.now()))}>
        Sign in
      </a>
    </span>
  );
}

function goToLogin(): void {
  sessionStorage.setItem(SENT, String(Date.now()));
  location.assign(loginUrl());
}

/** The address of the login, which is told where to return to. */
function loginUrl(): string {
  const url = new URL(options.login!, location.href);
  url.searchParams.set("next", url.origin === location.origin ? location.href.slice(location.origin.length) : location.href);
  return url.href;
}

/** Draw the button that opens the token dialog, and the dialog. A 401 opens it. */
function TokenBar() {
  const id = useId();
  const dialog = useRef<HTMLDialogElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const reason = needsToken.value;
  const open = () => {
    dialog.current!.showModal();
    input.current!.select(); // what is typed replaces a token that was refused
  };
  useEffect(() => {
    if (reason === "unauthenticated" && dialog.current?.open === false) open();
  }, [reason]);
  const isRefused = reason === "unauthenticated";
  return (
    <div class="token">
      {reason === "forbidden" && token.value !== null && <span class="is-bad">403: this token may not do that</span>}
      <button class="quiet" onClick={open}>
        {token.value === null ? "Token" : "Change token"}
      </button>
      <dialog ref={dialog} aria-labelledby={`${id}-title`}>
        <form
          method="dialog"
          onSubmit={() => {
            needsToken.value = null;
            token.value = input.current!.value.trim() || null;
          }}
        >
          <h2 id={`${id}-title`}>Token</h2>
          <p class={isRefused ? "is-bad" : "soft"}>
            {isRefused
              ? token.value === null
                ? "401: this server requires a bearer token."
                : "401: the server does not accept this token."
              : "The page sends it with every request. This tab keeps it until it is closed."}
          </p>
          <div class="field">
            <label for={id}>Bearer token</label>
            <input id={id} ref={input} type="password" autocomplete="off" />
          </div>
          <div class="row">
            <button class="primary" type="submit">
              Use token
            </button>
            {token.value !== null && (
              <button
                type="button"
                onClick={() => {
                  dialog.current?.close();
                  token.value = null;
                }}
              >
                Forget token
              </button>
            )}
            <button type="button" onClick={() => dialog.current?.close()}>
              Close
            </button>
          </div>
        </form>
      </dialog>
    </div>
  );
}
