/** What the app sets for its page (`App(page=Page(...))`). The server writes it into the page and has checked it. */

export type PageOptions = {
  readonly title?: string;
  readonly logo?: string;
  readonly accent?: string;
  readonly welcome?: string;
  readonly suggestions?: readonly string[];
  readonly login?: string;
  readonly traceUrl?: string;
};

export const options = JSON.parse(document.querySelector<HTMLMetaElement>('meta[name="aguila-page"]')?.content ?? "{}") as PageOptions;

/** The name of the page, in the header and in the title of the window. */
export const title = options.title ?? "Aguila";
