/**
 * Applies JSON Patches (RFC 6902) without changing the document: changed paths are copied, the rest is shared.
 * A patch that fails changes nothing (SNAP-9).
 */

import type { Json, PatchOperation } from "./types";

type Container = Json[] | { [key: string]: Json };
/** The containers that this call has made: only these are written to. */
type Owned = Set<Container>;

/** Says why a patch does not apply. */
export class PatchError extends Error {}

/** Apply the operations in order and return the new document. Throws PatchError. */
export function applyPatch(document: Json, patch: readonly PatchOperation[]): Json {
  let root = document;
  const owned: Owned = new Set();
  for (const operation of patch) {
    const path = parsePointer(operation.path);
    switch (operation.op) {
      case "add":
        root = insertAt(root, path, valueOf(operation), owned);
        break;
      case "remove":
        root = removeAt(root, path, owned)[0];
        break;
      case "replace":
        root = replaceAt(root, path, valueOf(operation), owned);
        break;
      case "move":
        root = move(root, parsePointer(operation.from), path, owned);
        break;
      case "copy": {
        const value = resolve(root, parsePointer(operation.from));
        disown(value, owned);
        root = insertAt(root, path, value, owned);
        break;
      }
      case "test":
        if (!jsonEqual(resolve(root, path), valueOf(operation))) throw new PatchError(`the test of ${operation.path} failed`);
        break;
      default:
        throw new PatchError(`there is no operation ${String(operation.op)}`);
    }
  }
  return root;
}

/** Return the unescaped tokens of a JSON Pointer. Throws PatchError. */
export function parsePointer(pointer: unknown): string[] {
  if (typeof pointer !== "string") throw new PatchError("a path must be a string");
  if (pointer === "") return [];
  if (pointer[0] !== "/" || /~(?![01])/.test(pointer)) throw new PatchError(`${pointer} is not a JSON Pointer`);
  const tokens = pointer.slice(1).split("/");
  const steps = pointer.includes("~") ? tokens.map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~")) : tokens;
  if (steps.includes("__proto__") || steps.some((step, at) => step === "constructor" && steps[at + 1] === "prototype")) {
    throw new PatchError(`${pointer} names a prototype`);
  }
  return steps;
}

/** Return whether two JSON values are equal. The order of members does not count. */
export function jsonEqual(a: Json, b: Json): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((one, at) => jsonEqual(one, b[at]!));
  }
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && jsonEqual(a[key]!, b[key]!));
}

function valueOf(operation: PatchOperation): Json {
  if (operation.value === undefined) throw new PatchError(`${operation.op} needs a value`);
  return operation.value;
}

function isContainer(node: Json | undefined): node is Container {
  return typeof node === "object" && node !== null;
}

/** Return the array index that a step names, below a limit. */
function indexOf(step: string, limit: number): number {
  const index = /^(0|[1-9]\d{0,15})$/.test(step) ? Number(step) : Infinity;
  if (index >= limit) throw new PatchError(`${step} is not an index below ${limit}`);
  return index;
}

function childOf(node: Json, step: string): Json {
  if (Array.isArray(node)) return node[indexOf(step, node.length)]!;
  if (!isContainer(node) || !Object.hasOwn(node, step)) throw new PatchError(`there is no member ${step}`);
  return node[step]!;
}

function resolve(root: Json, path: string[]): Json {
  return path.reduce(childOf, root);
}

function copyOf(node: Json, owned: Owned): Container {
  if (!isContainer(node)) throw new PatchError("the path leads into a value without members");
  if (owned.has(node)) return node;
  const copy = Array.isArray(node) ? [...node] : { ...node };
  owned.add(copy);
  return copy;
}

/** Return the root and the container of the path's last step, both owned, as all between them. */
function copyParents(root: Json, path: string[], owned: Owned): [Container, Container] {
  const top = copyOf(root, owned);
  let node = top;
  for (const step of path.slice(0, -1)) {
    const child = copyOf(childOf(node, step), owned);
    if (Array.isArray(node)) node[indexOf(step, node.length)] = child;
    else node[step] = child;
    node = child;
  }
  return [top, node];
}

function insertAt(root: Json, path: string[], value: Json, owned: Owned): Json {
  if (path.length === 0) return value;
  const [top, parent] = copyParents(root, path, owned);
  const step = path.at(-1)!;
  if (!Array.isArray(parent)) parent[step] = value;
  else if (step === "-") parent.push(value);
  else parent.splice(indexOf(step, parent.length + 1), 0, value);
  return top;
}

function removeAt(root: Json, path: string[], owned: Owned): [Json, Json] {
  if (path.length === 0) return [null, root];
  const [top, parent] = copyParents(root, path, owned);
  const step = path.at(-1)!;
  const value = childOf(parent, step);
  if (Array.isArray(parent)) parent.splice(Number(step), 1);
  else delete parent[step];
  return [top, value];
}

function replaceAt(root: Json, path: string[], value: Json, owned: Owned): Json {
  if (path.length === 0) return value;
  const [top, parent] = copyParents(root, path, owned);
  const step = path.at(-1)!;
  childOf(parent, step);
  if (Array.isArray(parent)) parent[Number(step)] = value;
  else parent[step] = value;
  return top;
}

function move(root: Json, from: string[], to: string[], owned: Owned): Json {
  if (from.length === to.length && from.every((step, at) => step === to[at])) {
    resolve(root, to);
    return root;
  }
  if (from.every((step, at) => step === to[at])) throw new PatchError("a value cannot move into its own child");
  const [top, value] = removeAt(root, from, owned);
  return insertAt(top, to, value, owned);
}

/** Give up the owned containers of a value that is about to be in two places. */
function disown(value: Json, owned: Owned): void {
  if (isContainer(value) && owned.delete(value)) Object.values(value).forEach((child) => disown(child, owned));
}
