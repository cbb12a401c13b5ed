/** The part of the page that needs @a2ui/lit: a chunk of its own. */

import { A2uiSurface, basicCatalog, Context } from "@a2ui/lit/v0_9";
import { MessageProcessor } from "@a2ui/web_core/v0_9";
import { ContextProvider } from "@lit/context";
import type { Json } from "../protocol/types";
import { isObject } from "./format";
import { toHtml } from "./Markdown";

/** Name the catalog that the page has: the specification has given its basic catalog several addresses. */
function useBasicCatalog(operation: Json): Json {
  const create = isObject(operation) ? operation["createSurface"] : undefined;
  if (!isObject(operation) || !isObject(create)) return operation;
  const isBasic = typeof create["catalogId"] === "string" && create["catalogId"].startsWith("https://a2ui.org/specification/v0_9/");
  return isBasic ? { ...operation, createSurface: { ...create, catalogId: basicCatalog.id } } : operation;
}

/** Draw the surfaces of A2UI operations into an element. Throws if an operation is invalid. */
export function renderSurfaces(host: HTMLElement, operations: Json[], onAction: (action: { name: string; context: unknown }) => void): void {
  const surfaces: HTMLElement[] = [];
  const processor = new MessageProcessor([basicCatalog] as never, onAction as never);
  processor.onSurfaceCreated((surface) => {
    const element = new A2uiSurface();
    element.surface = surface as never;
    surfaces.push(element);
  });
  processor.processMessages(operations.map(useBasicCatalog) as never);
  new ContextProvider(host, { context: Context.markdown as never, initialValue: ((text: string) => Promise.resolve(toHtml(text))) as never });
  host.replaceChildren(...surfaces);
}
