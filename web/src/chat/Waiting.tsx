/** The messages that wait to be sent. */

import { Icon } from "../Icon";
import type { MediaPart, Part } from "../protocol/types";
import { isObject } from "./format";
import type { ThreadSession } from "./session";
import { attachmentOf, type WaitingMessage } from "./unsent";

/** List the messages that wait. One that is taken back is in the composer again. */
export function Waiting({ session, isBlocked }: { session: ThreadSession; isBlocked: boolean }) {
  const waiting = session.waiting.value;
  if (waiting.length === 0) return null;
  const isHeld = session.isHeld.value && !session.isRunning;
  const takeBack = (message: WaitingMessage) => {
    session.takeBack(message);
    const { text, media } = splitContent(message.content);
    session.draft.value = [text, session.draft.value].filter((each) => each !== "").join("\n");
    const files = media.map((part) => attachmentOf({ name: nameOf(part), type: part.source.mimeType ?? "application/octet-stream", source: part.source }));
    session.attachments.value = [...files, ...session.attachments.value];
  };
  return (
    <section class="waiting" aria-label="Waiting messages">
      <p class="soft" role="status">
        <Icon name="clock" size={14} />
        {isHeld ? "Not sent." : isBlocked ? "Sent after your answer." : waiting.length === 1 ? "Sent when the run ends." : "Sent one after the other when the run ends."}
        {isHeld && (
          <button type="button" class="quiet" onClick={() => session.sendWaiting()}>
            Send now
          </button>
        )}
      </p>
      <ul class="plain">
        {waiting.map((message) => {
          const { text, media } = splitContent(message.content);
          return (
            <li key={message.runId}>
              <span class="waiting-text">{[text, ...media.map((part) => nameOf(part))].filter((each) => each !== "").join(" · ")}</span>
              <button type="button" class="quiet" onClick={() => takeBack(message)}>
                Take back
              </button>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function splitContent(content: string | Part[]): { text: string; media: MediaPart[] } {
  if (typeof content === "string") return { text: content, media: [] };
  const text = content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
  return { text, media: content.filter((part): part is MediaPart => part.type !== "text") };
}

function nameOf(part: MediaPart): string {
  const name = isObject(part.metadata) ? part.metadata["filename"] : null;
  return typeof name === "string" ? name : part.type;
}
