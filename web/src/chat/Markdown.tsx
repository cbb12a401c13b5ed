/** Markdown of the agent as sanitised HTML. */

import DOMPurify from "dompurify";
import { Marked, type Token, Tokenizer, type Tokens } from "marked";
import { memo } from "preact/compat";
import { CopyButton } from "./CopyButton";
import { highlight } from "./highlight";

/** An ASCII word from 500 characters on, in time that is linear in it: marked tries each part of a word as an email address. Links may be longer. */
const LONG_WORD = /^(?:(?![*_~("']*(?:[[<!`]|https?:\/\/))[!-~]{500}|[!-~]{4096})[!-~]*/;

/** Characters that the searches for the ends of emphasis may read in one text. marked reads to the end of the paragraph for each beginning. */
const EMPHASIS_BUDGET = 2_000_000;

/** Finds emphasis as marked does, until the budget is spent. The rest is text. */
class BoundedTokenizer extends Tokenizer {
  private budget = 0;

  reset(): void {
    this.budget = EMPHASIS_BUDGET;
  }

  override emStrong(src: string, masked: string, previous = ""): Tokens.Em | Tokens.Strong | undefined {
    return this.charge(src, () => super.emStrong(src, masked, previous));
  }

  override del(src: string, masked: string, previous = ""): Tokens.Del | undefined {
    return this.charge(src, () => super.del(src, masked, previous));
  }

  private charge<T extends Token>(src: string, find: () => T | undefined): T | undefined {
    if (!/^[*_~]/.test(src) || this.budget <= 0) return undefined;
    const token = find();
    this.budget -= token?.raw.length ?? src.length;
    return token;
  }
}

const tokenizer = new BoundedTokenizer();
const marked = new Marked({
  gfm: true,
  extensions: [
    {
      name: "longWord",
      level: "inline",
      tokenizer(src) {
        const raw = LONG_WORD.exec(src)?.[0];
        return raw === undefined ? undefined : { type: "text", raw, text: raw, escaped: false };
      },
    },
  ],
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

marked.setOptions({ tokenizer });

function lex(text: string): Token[] {
  tokenizer.reset();
  return marked.lexer(text);
}

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
  const tokens = tryTo(() => lex(text));
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
  return tryTo(() => sanitise(marked.parser(lex(text)))) ?? escape(text);
}

function sanitise(html: string): string {
  return DOMPurify.sanitize(html, ALLOWED);
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
