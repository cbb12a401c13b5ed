/** A2UI surfaces. The renderer is large, so it is loaded when the first surface appears. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Json } from "../protocol/types";
import { isObject } from "./format";
import type { ThreadSession } from "./session";

type Renderer = typeof import("./a2uiRenderer");
let loading: Promise<Renderer> | null = null;

/** Draw the surfaces that a list of A2UI operations makes. Actions of the user are sent as messages. */
export function A2ui({ session, operations }: { session: ThreadSession; operations: Json[] }) {
  const host = useRef<HTMLDivElement>(null);
  const [error, setError] = useState<string | null>(null);
  const key = JSON.stringify(operations);
  useEffect(() => {
    let isCurrent = true;
    loading ??= import("./a2uiRenderer");
    loading
      .then((renderer) => {
        if (!isCurrent || host.current === null) return;
        const onAction = (action: { name: string; context: unknown }) => {
          const hasContext = isObject(action.context) && Object.keys(action.context).length > 0;
          void session.send(hasContext ? `${action.name} ${JSON.stringify(action.context)}` : action.name);
        };
        renderer.renderSurfaces(host.current, operations.map(makeSafe), onAction);
        setError(null);
      })
      .catch((reason: unknown) => isCurrent && setError(reason instanceof Error ? reason.message : String(reason)));
    return () => {
      isCurrent = false;
    };
  }, [key]);
  return (
    <>
      <div class="a2ui" ref={host} />
      {error !== null && <p class="is-bad">The surface cannot be drawn: {error}</p>}
    </>
  );
}

const LOADING_COMPONENTS = new Set(["Image", "Video", "AudioPlayer"]);

/** Replace what would execute script or load something from another host. */
function makeSafe(value: Json): Json {
  if (typeof value === "string") return isScript(value) ? "" : value;
  if (Array.isArray(value)) return value.map(makeSafe);
  if (!isObject(value)) return value;
  if (typeof value["component"] === "string" && LOADING_COMPONENTS.has(value["component"])) {
    return { id: value["id"] ?? "", component: "Text", text: makeSafe(value["url"] ?? "") };
  }
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, makeSafe(each)]));
}

/** Whether a browser would read a text as the address of a script. It ignores control characters and spaces. */
function isScript(text: string): boolean {
  // eslint-disable-next-line no-control-regex
  return /^(javascript|vbscript|data):/i.test(text.slice(0, 64).replace(/[\u0000-\u0020]/g, ""));
}
