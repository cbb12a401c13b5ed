/** Where the user writes: text, attachments by button, drop and paste, Send and Stop. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Icon } from "../Icon";
import { ApiError, uploadFile } from "../protocol/api";
import type { MediaPart, Part, Source } from "../protocol/types";
import { Media } from "./Media";
import type { ThreadSession } from "./session";
import type { Attachment } from "./unsent";

/** Upload files and list them as attachments. A server without uploads receives them inline. */
export function attach(session: ThreadSession, files: Iterable<File>): void {
  const { attachments } = session;
  const change = (key: string, changes: Partial<Attachment>) => {
    attachments.value = attachments.value.map((each) => (each.key === key ? { ...each, ...changes } : each));
  };
  for (const file of files) {
    const key = crypto.randomUUID();
    const abort = new AbortController();
    const type = file.type || "application/octet-stream";
    attachments.value = [...attachments.value, { key, file, name: file.name, type, share: 0, source: null, error: null, abort }];
    uploadFile(file, { thread: session.id, signal: abort.signal, onProgress: (share) => change(key, { share }) })
      .then((stored) => stored.source)
      .catch((error: unknown) => {
        if (error instanceof ApiError && error.code === "anonymous_not_allowed") return inlineSource(file, type);
        throw error;
      })
      .then(
        (source) => change(key, { share: 1, source }),
        (error: Error) => change(key, { error: error.message }),
      );
  }
}

export function Composer({ session, isBlocked }: { session: ThreadSession; isBlocked: boolean }) {
  session.version.value; // the session changes without new props
  const { draft: text, attachments } = session;
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const isRunning = session.isRunning;
  const files = attachments.value;
  const isUploading = files.some((file) => file.source === null && file.error === null);
  const canSend = !isBlocked && !isUploading && (text.value.trim() !== "" || files.some((file) => file.source !== null));
  useEffect(() => {
    const element = area.current!;
    element.style.height = "auto";
    element.style.height = `${Math.min(240, element.scrollHeight + 2)}px`;
  }, [text.value]);
  useEffect(() => area.current?.focus(), [session]);
  useEffect(() => {
    // A form that was answered, or a button that has gone, leaves the focus nowhere. A touch screen would open its keyboard.
    if (!isBlocked && hasNoFocus() && matchMedia("(pointer: fine)").matches) area.current?.focus();
  }, [isBlocked, isRunning]);
  const send = async () => {
    if (!canSend) return;
    const content = contentOf(text.value, files);
    const before = text.value;
    text.value = "";
    attachments.value = [];
    if (!(await session.send(content))) {
      text.value = before;
      attachments.value = files;
    }
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {files.length > 0 && (
        <ul class="plain attachments" aria-label="Attachments">
          {files.map((file) => (
            <li key={file.key} class={file.error === null ? "" : "is-bad"}>
              <Thumbnail attachment={file} />
              <span class="file-name">{file.name}</span>
              {file.error !== null ? <span>{file.error}</span> : file.source === null ? <progress value={file.share} aria-label={`Upload of ${file.name}`} /> : <span class="soft">ready</span>}
              <button
                type="button"
                class="quiet icon-button"
                aria-label={`Remove ${file.name}`}
                onClick={() => {
                  file.abort.abort();
                  attachments.value = attachments.value.filter((each) => each.key !== file.key);
                }}
              >
                <Icon name="cross" size={14} />
              </button>
            </li>
          ))}
        </ul>
      )}
      <div class="composer-row">
        <input
          ref={picker}
          type="file"
          class="hidden"
          multiple
          tabIndex={-1}
          aria-hidden="true"
          onChange={(event) => {
            attach(session, event.currentTarget.files ?? []);
            event.currentTarget.value = "";
          }}
        />
        <button type="button" class="quiet icon-button" aria-label="Attach files" title="Attach files" onClick={() => picker.current?.click()}>
          <Icon name="clip" size={18} />
        </button>
        <textarea
          ref={area}
          rows={1}
          aria-label="Message"
          placeholder={isBlocked ? "Answer above first" : "Write a message"}
          value={text.value}
          onInput={(event) => (text.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            void send();
          }}
          onPaste={(event) => {
            const pasted = [...(event.clipboardData?.files ?? [])];
            if (pasted.length === 0) return;
            event.preventDefault();
            attach(session, pasted);
          }}
        />
        {isRunning && (
          <button type="button" class="stop" onClick={() => void session.stop()}>
            <span class="stop-mark" aria-hidden="true" /> Stop
          </button>
        )}
        {(!isRunning || canSend) && (
          <button
            type="submit"
            class="primary icon-button"
            aria-label={isRunning ? "Send when the run ends" : "Send"}
            title={isRunning ? "Send when the run ends (Enter)" : "Send (Enter)"}
            disabled={!canSend}
          >
            <Icon name={isRunning ? "clock" : "send"} size={18} />
          </button>
        )}
      </div>
    </form>
  );
}

/** A small picture of an image; an icon for any other file, and for an image that the browser cannot read. */
function Thumbnail({ attachment: { file, type, source } }: { attachment: Attachment }) {
  const [url, setUrl] = useState<string | null>(null);
  useEffect(() => {
    if (file === null || !type.startsWith("image/")) return;
    const made = URL.createObjectURL(file);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [file]);
  if (file === null && source !== null && type.startsWith("image/")) return <Media part={{ type: "image", source }} />; // uploaded earlier
  return url === null ? <Icon name="file" /> : <img class="thumbnail" src={url} alt="" onError={() => setUrl(null)} />;
}

function hasNoFocus(): boolean {
  return document.activeElement === null || document.activeElement === document.body;
}

function contentOf(text: string, files: readonly Attachment[]): string | Part[] {
  const media = files.flatMap((file): MediaPart[] => (file.source === null ? [] : [{ type: kindOf(file.type), source: file.source, metadata: { filename: file.name } }]));
  if (media.length === 0) return text;
  return text.trim() === "" ? media : [{ type: "text", text }, ...media];
}

function kindOf(type: string): MediaPart["type"] {
  const [kind] = type.split("/");
  return kind === "image" || kind === "audio" || kind === "video" ? kind : "document";
}

async function inlineSource(file: File, mimeType: string): Promise<Source> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return { type: "data", value: btoa(binary), mimeType };
}
