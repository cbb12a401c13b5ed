/** Checks a value against a JSON Schema and says what is wrong in words. The server checks again: it has the last word. */

import type { Json } from "../protocol/types";
import { isObject } from "./format";

export type Schema = { [key: string]: Json };

/** What is wrong with a value, and where, as a JSON pointer. */
export type Problem = { path: string; text: string };

const MAX_DEPTH = 50; // a schema may refer to itself

const TYPES: { [type: string]: [string, (value: Json) => boolean] } = {
  string: ["text", (value) => typeof value === "string"],
  number: ["a number", (value) => typeof value === "number"],
  integer: ["a whole number", (value) => Number.isInteger(value)],
  boolean: ["true or false", (value) => typeof value === "boolean"],
  object: ["an object", isObject],
  array: ["a list", Array.isArray],
  null: ["null", (value) => value === null],
};

const FORMATS: { [format: string]: [string, RegExp] } = {
  email: ["an e-mail address", /^[^\s@]+@[^\s@]+$/],
  date: ["a date such as 2026-01-31", /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/],
  time: ["a time such as 12:30", /^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?$/i],
  "date-time": ["a date and time such as 2026-01-31T12:30:00Z", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i],
  uri: ["an address such as https://example.com", /^[a-z][a-z0-9+.-]*:\S+$/i],
  uuid: ["a UUID", /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i],
};

/** Return what is wrong with a value; an empty list if it can be sent. `label` names it in the texts. */
export function findProblems(schema: Json | undefined, value: Json | undefined, label: string, root: Schema, path = "", depth = 0): Problem[] {
  const wrong = (text: string): Problem[] => [{ path, text: `${label} ${text}.` }];
  if (value === undefined) return wrong("is required");
  if (schema === false) return wrong("is not allowed");
  if (!isObject(schema) || depth > MAX_DEPTH) return [];
  const check = (other: Json | undefined) => findProblems(other, value, label, root, path, depth + 1);
  const type = findTypeProblem(schema["type"], value);
  if (type !== null) return wrong(type);
  if (schema["const"] !== undefined && !isEqual(schema["const"], value)) return wrong(`must be ${textOf(schema["const"])}`);
  const choices = schema["enum"];
  if (Array.isArray(choices) && !choices.some((one) => isEqual(one, value))) return wrong(`must be one of ${choices.map(textOf).join(", ")}`);
  const own = findOwnProblem(schema, value);
  return [
    ...(own === null ? [] : wrong(own)),
    ...(isObject(value) ? findMemberProblems(schema, value, label, root, path, depth) : []),
    ...(Array.isArray(value) ? findItemProblems(schema, value, label, root, path, depth) : []),
    ...(typeof schema["$ref"] === "string" ? check(follow(schema["$ref"], root)) : []),
    ...listOf(schema["allOf"]).flatMap(check),
    ...findAlternativeProblems(schema, value, check, wrong),
  ];
}

/** Return the schema that a local reference names; undefined for any other. */
export function follow(ref: string, root: Schema): Json | undefined {
  if (ref === "#") return root;
  if (!ref.startsWith("#/")) return undefined;
  let at: Json | undefined = root;
  for (const name of ref.slice(2).split("/")) at = isObject(at) ? at[name.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
  return at;
}

/** Return the pointer of a member or an item. */
export function join(path: string, name: string | number): string {
  return `${path}/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** The name of a member: its title, or its key. */
export function titleOf(schema: Json | undefined, root: Schema, name: string): string {
  for (let depth = 0; isObject(schema) && depth < MAX_DEPTH; depth++) {
    if (typeof schema["title"] === "string") return schema["title"];
    schema = typeof schema["$ref"] === "string" ? follow(schema["$ref"], root) : undefined;
  }
  return name;
}

function findTypeProblem(type: Json | undefined, value: Json): string | null {
  const allowed = (Array.isArray(type) ? type : [type]).flatMap((name) => (typeof name === "string" && TYPES[name] !== undefined ? [TYPES[name]] : []));
  if (allowed.length === 0 || allowed.some(([, matches]) => matches(value))) return null;
  return `must be ${allowed.map(([words]) => words).join(" or ")}`;
}

/** What is wrong with a value in itself, without its members and items. */
function findOwnProblem(schema: Schema, value: Json): string | null {
  const limit = (name: string) => (typeof schema[name] === "number" ? schema[name] : null);
  const count = (size: number, least: string, most: string, what: string) => {
    const [from, to] = [limit(least), limit(most)];
    if (from !== null && size < from) return from === 1 && size === 0 ? "is required" : `needs at least ${plural(from, what)}`;
    return to !== null && size > to ? `has more than ${plural(to, what)}` : null;
  };
  if (typeof value === "number") {
    const [from, to, above, below, step] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"].map(limit);
    if (from != null && value < from) return `must be at least ${from}`;
    if (to != null && value > to) return `must be at most ${to}`;
    if (above != null && value <= above) return `must be more than ${above}`;
    if (below != null && value >= below) return `must be less than ${below}`;
    if (step != null && step > 0 && Math.abs(value / step - Math.round(value / step)) > 1e-9) return `must be a multiple of ${step}`;
  }
  if (typeof value === "string") {
    const length = count([...value].length, "minLength", "maxLength", "character");
    if (length !== null) return length;
    const format = FORMATS[String(schema["format"])];
    if (format !== undefined && !format[1].test(value)) return `must be ${format[0]}`;
    if (typeof schema["pattern"] === "string" && patternOf(schema["pattern"])?.test(value) === false) return `does not have the expected form (pattern ${schema["pattern"]})`;
  }
  if (Array.isArray(value)) {
    const length = count(value.length, "minItems", "maxItems", "entry");
    if (length !== null) return length;
    if (schema["uniqueItems"] === true && value.some((one, at) => value.slice(0, at).some((other) => isEqual(one, other)))) return "has an entry twice";
  }
  return isObject(value) ? count(Object.keys(value).length, "minProperties", "maxProperties", "member") : null;
}

function findMemberProblems(schema: Schema, value: { [name: string]: Json }, label: string, root: Schema, path: string, depth: number): Problem[] {
  const properties = isObject(schema["properties"]) ? schema["properties"] : {};
  const titled = (name: string) => titleOf(properties[name], root, name);
  const missing = listOf(schema["required"]).filter((name): name is string => typeof name === "string" && value[name] === undefined);
  const problems = missing.map((name) => ({ path: join(path, name), text: `${titled(name)} is required.` }));
  for (const [name, each] of Object.entries(value)) {
    if (properties[name] !== undefined) problems.push(...findProblems(properties[name], each, titled(name), root, join(path, name), depth + 1));
    else if (schema["additionalProperties"] === false && schema["patternProperties"] === undefined) problems.push({ path, text: `${label} has the unknown member ${name}.` });
    else if (isObject(schema["additionalProperties"])) problems.push(...findProblems(schema["additionalProperties"], each, name, root, join(path, name), depth + 1));
  }
  return problems;
}

function findItemProblems(schema: Schema, value: readonly Json[], label: string, root: Schema, path: string, depth: number): Problem[] {
  const first = listOf(schema["prefixItems"]);
  return value.flatMap((each, at) => findProblems(first[at] ?? schema["items"], each, `${label} ${at + 1}`, root, join(path, at), depth + 1));
}

function findAlternativeProblems(schema: Schema, value: Json, check: (other: Json | undefined) => Problem[], wrong: (text: string) => Problem[]): Problem[] {
  for (const word of ["anyOf", "oneOf"]) {
    const alternatives = listOf(schema[word]);
    if (alternatives.length === 0) continue;
    const found = alternatives.map(check);
    const matching = found.filter((each) => each.length === 0).length;
    if (matching === 1 || (matching > 1 && word === "anyOf")) continue;
    if (matching > 1) return wrong("matches more than one of its alternatives");
    const real = found.filter((_, at) => !isNull(alternatives[at]));
    return real.length === 1 ? real[0]! : wrong("matches none of its alternatives");
  }
  if (schema["not"] !== undefined && check(schema["not"]).length === 0) return wrong(`must not be ${textOf(value)}`);
  if (schema["if"] === undefined) return [];
  const then = check(schema["if"]).length === 0 ? schema["then"] : schema["else"];
  return then === undefined ? [] : check(then);
}

function isNull(schema: Json | undefined): boolean {
  return isObject(schema) && (schema["type"] === "null" || schema["const"] === null);
}

/** A pattern as JavaScript reads it; null if it does not: then the server checks it. */
function patternOf(text: string): RegExp | null {
  for (const flags of ["u", ""]) {
    try {
      return new RegExp(text, flags);
    } catch {
      // Without "u" more patterns are read.
    }
  }
  return null;
}

function isEqual(one: Json, other: Json): boolean {
  if (Array.isArray(one) && Array.isArray(other)) return one.length === other.length && one.every((each, at) => isEqual(each, other[at]!));
  if (!isObject(one) || !isObject(other)) return one === other;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => other[name] !== undefined && isEqual(one[name]!, other[name]));
}

function listOf(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? value : [];
}

function textOf(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function plural(count: number, what: string): string {
  return `${count} ${count === 1 ? what : what === "entry" ? "entries" : `${what}s`}`;
}
