/** Which run of a thread continues which. */

import type { RunRecord } from "../protocol/types";

export type RunNode = { runId: string; parent: string | null; status: string };

/** The runs of a thread, in the order in which they began. */
export class RunTree {
  #nodes: RunNode[] = [];
  #byId = new Map<string, RunNode>();
  #children = new Map<string | null, RunNode[]>();

  constructor(records: readonly RunRecord[] = []) {
    for (const record of records) this.add(record.runId, record.parentRunId, record.status);
  }

  get(runId: string | null): RunNode | undefined {
    return runId === null ? undefined : this.#byId.get(runId);
  }

  /** The run that began last. */
  get latest(): RunNode | undefined {
    return this.#nodes.at(-1);
  }

  /** Add a run. Without a named parent it continues the run before it; a run that names itself continues none. */
  add(runId: string, parentRunId: string | null | undefined, status: string): RunNode {
    const parent = parentRunId === runId ? null : (parentRunId ?? this.latest?.runId ?? null);
    const node = { runId, parent, status };
    this.#nodes.push(node);
    this.#byId.set(runId, node);
    this.#children.set(parent, [...(this.#children.get(parent) ?? []), node]);
    return node;
  }

  /** Remove a run that was not accepted. */
  remove(runId: string): void {
    const removed = this.#byId.get(runId);
    if (removed === undefined) return;
    this.#nodes = this.#nodes.filter((node) => node !== removed);
    this.#children.set(removed.parent, this.siblings(runId).filter((node) => node !== removed));
    this.#byId.delete(runId);
  }

  /** The runs that continue the same run as this one, itself included. */
  siblings(runId: string): RunNode[] {
    const node = this.get(runId);
    return node === undefined ? [] : (this.#children.get(node.parent) ?? []);
  }

  /** The runs from the first to this one. */
  path(runId: string | null): RunNode[] {
    const path = new Set<RunNode>(); // ids may be used twice, so the parents may form a ring
    for (let node = this.get(runId); node !== undefined && !path.has(node); node = this.get(node.parent)) path.add(node);
    return [...path].reverse();
  }

  /** The end of the branch that continues a run, by the latest run at each fork. */
  leaf(runId: string): string {
    for (;;) {
      const next = this.#children.get(runId)?.at(-1);
      if (next === undefined) return runId;
      runId = next.runId;
    }
  }
}
