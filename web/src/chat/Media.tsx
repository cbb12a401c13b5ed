/** Images, audio, video and documents in messages. They are fetched with the token and shown from blob: URLs. */

import { useEffect, useState } from "preact/hooks";
import { Icon } from "../Icon";
import { fileUrl } from "../protocol/api";
import type { MediaPart, Part, Source } from "../protocol/types";

const OWN_PROVIDER = "aguila";

/** Draw the parts of a message. Text parts are drawn by `text`. */
export function Parts({ parts, text }: { parts: readonly Part[]; text: (text: string) => preact.ComponentChild }) {
  return (
    <>
      {parts.map((part, index) => (
        <div class="part" key={part.id ?? index}>
          {part.type === "text" ? text(part.text) : <Media part={part} />}
        </div>
      ))}
    </>
  );
}

/** Draw one media part. */
export function Media({ part }: { part: MediaPart }) {
  const { url, error } = useSource(part.source);
  const name = nameOf(part);
  if (part.source.type === "url" && url === null) {
    return isHttp(part.source.value) ? (
      <a class="file" href={part.source.value} target="_blank" rel="noopener noreferrer">
        {name}
      </a>
    ) : (
      <span class="file">{part.source.value}</span>
    );
  }
  if (error !== null) return <span class="file is-bad">{`${name}: ${error}`}</span>;
  if (url === null) return <span class="file">{name}</span>;
  const mime = part.source.mimeType ?? "";
  if (part.type === "image") return <img class="media" src={url} alt={name} />;
  if (part.type === "audio") return <audio class="media" src={url} controls aria-label={name} />;
  if (part.type === "video") return <video class="media" src={url} controls aria-label={name} />;
  return (
    <a class="file" href={url} download={name}>
      <Icon name="file" /> {name} {mime !== "" && <span class="soft">{mime}</span>}
    </a>
  );
}

/** Resolve a source to a blob: URL; null while it loads, and for addresses elsewhere. */
function useSource(source: Source): { url: string | null; error: string | null } {
  const [found, setFound] = useState<{ url: string | null; error: string | null }>({ url: null, error: null });
  const key = `${source.type}:${source.value}`;
  useEffect(() => {
    let isCurrent = true;
    let made: string | null = null;
    const finish = (url: string | null, error: string | null) => isCurrent && setFound({ url, error });
    if (source.type === "data") {
      try {
        const bytes = Uint8Array.from(atob(source.value), (char) => char.charCodeAt(0));
        made = URL.createObjectURL(new Blob([bytes], { type: safeType(source.mimeType) }));
        finish(made, null);
      } catch {
        finish(null, "the data is not base64");
      }
    } else if (source.type === "file" && (source.provider ?? OWN_PROVIDER) === OWN_PROVIDER) {
      fileUrl(source.value).then(
        (url) => finish(url, null),
        (error: Error) => finish(null, error.message),
      );
    } else if (source.type === "file") {
      finish(null, `a file of ${source.provider}`);
    }
    return () => {
      isCurrent = false;
      if (made !== null) URL.revokeObjectURL(made);
    };
  }, [key]);
  return found;
}

/** A blob: URL has the origin of the page: what a browser could execute is given as plain bytes. */
function safeType(type: string): string {
  return /^(image\/(?!svg)|audio\/|video\/|text\/plain|application\/pdf)/i.test(type) ? type : "application/octet-stream";
}

function nameOf(part: MediaPart): string {
  const metadata = part.metadata;
  const given = typeof metadata === "object" && metadata !== null && !Array.isArray(metadata) ? metadata["filename"] : undefined;
  return typeof given === "string" && given !== "" ? given : { image: "Image", audio: "Audio", video: "Video", document: "Document" }[part.type];
}

function isHttp(address: string): boolean {
  return /^https?:\/\//i.test(address);
}
