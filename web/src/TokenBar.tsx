/** The bearer token: asked for when the server refuses a request, and kept in memory only. */

import { useEffect, useId, useRef } from "preact/hooks";
import { needsToken, token } from "./protocol/api";

/** Draw the button that opens the token dialog, and the dialog. A 401 opens it. */
export function TokenBar() {
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
              : "The page sends it with every request. It is kept in memory only."}
          </p>
          <div class="field">
            <label for={id}>Bearer token</label>
            <input id={id} ref={input} type="password" autocomplete="off" />
          </div>
          <div class="row">
            <button class="primary" type="submit">
              Use token
            </button>
            <button type="button" onClick={() => dialog.current?.close()}>
              Close
            </button>
          </div>
        </form>
      </dialog>
    </div>
  );
}
