/** Colours for code: comments, strings, numbers, keywords and names of functions. No grammar, so that it stays small. */

export type Kind = "comment" | "string" | "number" | "keyword" | "name" | "added" | "removed";
export type Piece = { kind: Kind | null; text: string };

type Language = { rule: RegExp; keywords: ReadonlySet<string> };

const MAX_LENGTH = 50_000; // a longer text is shown without colours

const C_COMMENTS = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const HASH_COMMENTS = String.raw`(?<![\w$&])#[^\n]*`;
// A backslash may be the last character: what begins as a string must match, or each quote reads on to the end of the text.
const QUOTED = String.raw`"(?:\\[\s\S]?|[^"\\\n])*(?:"|(?=\n)|$)|'(?:\\[\s\S]?|[^'\\\n])*(?:'|(?=\n)|$)`;
const TEMPLATE = "`(?:\\\\[\\s\\S]?|[^`\\\\])*(?:`|$)";
const LONG_STRINGS = String.raw`[rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$))`;
const NUMBERS = String.raw`(?<![\w.])(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;
const WORDS = String.raw`[A-Za-z_$][\w$]*`;

const JS = "abstract as async await break case catch class const continue declare default delete do else enum export extends false finally for from function get if implements import in instanceof interface is keyof let namespace new null of private protected public readonly return satisfies set static super switch this throw true try type typeof undefined var void while with yield";
const PYTHON = "False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try type while with yield";
const C_LIKE = "abstract alignas async auto await base bool boolean break byte case catch chan char class const constexpr continue crate data default defer delete do double else enum explicit export extends extern false final finally float fn for foreach friend fun func go goto guard if impl implements import in inline int interface internal is let long loop match mod move mut namespace new nil null nullptr object open operator out override package pub private protected public range record ref return sealed select self short signed sizeof static string struct super switch template this throw throws trait true try type typedef typename union unsafe unsigned use using val var virtual void volatile when where while with yield";
const SHELL = "case cd do done echo elif else esac exit export fi for function if in local return set source sudo then unset until while";
const SQL = "add all alter and as asc begin between by case check commit constraint create cross default delete desc distinct drop else end exists false foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right rollback select set table then true union unique update using values view when where with";
const DATA = "false null true yes no on off";

const LANGUAGES: { [names: string]: Language } = {
  "js jsx javascript ts tsx typescript mjs": language(C_COMMENTS, `${QUOTED}|${TEMPLATE}`, JS),
  "py python py3 python3 pycon": language(HASH_COMMENTS, `${LONG_STRINGS}|${QUOTED}`, PYTHON),
  "c h cpp c++ cc cs csharp java kotlin kt swift go golang rust rs dart scala php": language(C_COMMENTS, `${QUOTED}|${TEMPLATE}`, C_LIKE),
  "sh bash shell zsh console dockerfile make makefile": language(HASH_COMMENTS, QUOTED, SHELL),
  "sql postgresql sqlite mysql": language(String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, QUOTED, SQL),
  "json jsonc json5": language(C_COMMENTS, QUOTED, DATA),
  "yaml yml toml ini env properties": language(HASH_COMMENTS, QUOTED, DATA),
  "css scss less": language(C_COMMENTS, QUOTED, "", String.raw`@[\w-]+|(?<![\w-])[\w-]+(?=\s*:)`),
  "html xml svg vue": language(String.raw`<!--[\s\S]*?(?:-->|$)`, QUOTED, "", String.raw`<\/?[\w:-]+|\/?>`),
  "rb ruby": language(HASH_COMMENTS, QUOTED, "alias and begin break case class def do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield"),
  "diff patch": { rule: /(?<comment>^@@.*|^(?:---|\+\+\+|diff|index) .*)|(?<added>^\+.*)|(?<removed>^-.*)/gm, keywords: new Set() },
};

const BY_NAME = new Map(Object.entries(LANGUAGES).flatMap(([names, found]) => names.split(" ").map((name) => [name, found] as const)));

/** Make the rule of a language. `marks` is a pattern for what is drawn as a keyword besides its words. */
function language(comments: string, strings: string, words: string, marks = "(?!)"): Language {
  const kinds = { comment: comments, string: strings, keyword: marks, number: NUMBERS, word: WORDS };
  const rule = Object.entries(kinds).map(([kind, pattern]) => `(?<${kind}>${pattern})`);
  return { rule: new RegExp(rule.join("|"), "g"), keywords: new Set(words.split(" ")) };
}

/** Cut code into pieces with their kinds. Code of an unknown language is one piece. */
export function highlight(code: string, name: string): Piece[] {
  const found = BY_NAME.get(name.toLowerCase());
  if (found === undefined || code.length > MAX_LENGTH) return [{ kind: null, text: code }];
  const pieces: Piece[] = [];
  let end = 0;
  for (const match of code.matchAll(found.rule)) {
    const kind = kindOf(match, found, code);
    if (kind === null) continue;
    if (match.index > end) pieces.push({ kind: null, text: code.slice(end, match.index) });
    pieces.push({ kind, text: match[0] });
    end = match.index + match[0].length;
  }
  if (end < code.length) pieces.push({ kind: null, text: code.slice(end) });
  return pieces;
}

function kindOf(match: RegExpExecArray, { keywords }: Language, code: string): Kind | null {
  const [kind, text] = Object.entries(match.groups ?? {}).find(([, each]) => each !== undefined) ?? ["", ""];
  if (kind !== "word") return kind as Kind;
  if (keywords.has(text) || keywords.has(text.toLowerCase())) return "keyword";
  return code[match.index + text.length] === "(" ? "name" : null;
}
