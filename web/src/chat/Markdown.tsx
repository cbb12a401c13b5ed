/** Markdown of the agent as sanitised HTML. */

import DOMPurify from "dompurify";
import { Marked, type Token } from "marked";
import { memo } from "preact/compat";
import { CopyButton } from "./CopyButton";
import { highlight } from "./highlight";

const marked = new Marked({
  gfm: true,
  renderer: {
    // Nothing is loaded from other hosts: an image is a link to it.
    image({ href, text }) {
      return `<a href="${escape(href)}">${escape(text || href)}</a>`;
    },
    // Shown as text. It must not reach the sanitiser either: parsing it reports violations of the policy.
    html({ text }) {
      return escape(text);
    },
    checkbox({ checked }) {
      return `<input type="checkbox" disabled${checked ? " checked" : ""} aria-label="${checked ? "done" : "open"}"> `;
    },
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
  if (node.tagName === "PRE" || node.tagName === "TABLE") node.setAttribute("tabindex", "0"); // they scroll
});

const ALLOWED = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input", "li", "ol", "p", "pre", "strong", "table", "tbody", "td",
    "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["href", "title", "start", "type", "checked", "disabled"], // the input of a task list
  ADD_URI_SAFE_ATTR: ["start", "type"], // the others have to be addresses
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
};

/** Draw Markdown, block by block: while a text grows, only its last block is drawn again. */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const tokens = tryTo(() => marked.lexer(text));
  if (tokens === null) return <PlainText text={text} />;
  return (
    <div class="markdown">
      {tokens.map((token, index) => token.type !== "space" && <Block key={index} token={token} raw={token.raw} />)}
    </div>
  );
});

const Block = memo(
  function Block({ token }: { token: Token; raw: string }) {
    if (token.type === "code") return <CodeBlock language={String(token["lang"] ?? "")} code={String(token["text"])} />;
    const html = tryTo(() => sanitise(marked.parser([token])));
    if (html === null) return <PlainText text={token.raw} />;
    return <div dangerouslySetInnerHTML={{ __html: html }} />;
  },
  (before, after) => before.raw === after.raw,
);

/** Call a function. Return null if the text nests too deep for it: marked and the sanitiser call themselves. */
function tryTo<T>(make: () => T): T | null {
  try {
    return make();
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

function PlainText({ text }: { text: string }) {
  return <div class="plain-text">{text}</div>;
}

function CodeBlock({ language, code }: { language: string; code: string }) {
  const [name = ""] = language.split(/[\s,{:]/); // ```python title="x"
  return (
    <div class="code-block">
      <div class="code-head soft">
        <span>{language}</span>
        <CopyButton text={() => code} />
      </div>
      <pre tabIndex={0} aria-label={language === "" ? "Code" : `Code, ${language}`}>
        <code>{highlight(code, name).map(({ kind, text }) => (kind === null ? text : <span class={`code-${kind}`}>{text}</span>))}</code>
      </pre>
    </div>
  );
}

/** Convert Markdown to HTML that executes and loads nothing. */
export function toHtml(text: string): string {
  return tryTo(() => sanitise(marked.parse(text, { async: false }))) ?? escape(text);
}

function sanitise(html: string): string {
  return DOMPurify.sanitize(html, ALLOWED);
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
