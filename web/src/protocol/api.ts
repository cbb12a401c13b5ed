/** Calls the server. The interface is in web/README.md; this is a placeholder. */

import { signal } from "@preact/signals";

/** The address of the server, with a trailing slash: below a mount path the server writes it into the page. */
export const base = new URL(document.querySelector<HTMLMetaElement>('meta[name="aguila-base"]')?.content ?? "./", location.href).href;

/** The bearer token. It is kept in memory only. */
export const token = signal<string | null>(null);
