"""``aguila scopes``: list and count the scopes of a store, and export or erase everything that one holds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from aguila.cli.output.transcript import escape_controls
from aguila.cli.threads import CannotUse, list_scopes, opened, run, snapshot_of, write_export
from aguila.store import Retention, ScopeRecord, ScopeTarget
from aguila.store.archives.export import export_scope
from aguila.store.contract import StoreReader
from aguila.testing.plurals import counted


def show_scopes(location: str, *, as_json: bool) -> None:
    """Print a line for each scope."""

    async def find() -> list[ScopeRecord]:
        async with opened(location) as store:
            return await list_scopes(store)

    for one in run(find()):
        usage = one.usage
        if as_json:
            fields = {"scope": one.scope, "threads": usage.threads, "files": usage.files, "bytes": usage.bytes}
            sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")
        else:
            counts = (counted(usage.threads, "thread"), counted(usage.files, "file"), counted(usage.bytes, "byte"))
            sys.stdout.write(escape_controls(f"{one.scope!r}  {'  '.join(counts)}") + "\n")


def show_usage(location: str, scope: str | None, *, as_json: bool) -> None:
    """Print a table of what each scope holds, the one with the most bytes first; or an object for each."""

    async def list_all() -> list[ScopeRecord]:
        async with opened(location) as store:
            return await list_scopes(store, scope)

    found = sorted(run(list_all()), key=lambda one: -one.usage.bytes)
    rows = [
        {
            "threads": one.usage.threads,
            "runs": one.runs,
            "events": one.events,
            "bytes": one.usage.bytes,
            "files": one.usage.files,
            "scope": one.scope,
        }
        for one in found
    ]
    if as_json:
        sys.stdout.writelines(msgspec.json.encode(row).decode() + "\n" for row in rows)
        return
    sys.stdout.write(f"{'threads':>12}{'runs':>12}{'events':>14}{'bytes':>18}{'files':>10}  scope\n")
    for row in rows:
        line = "{threads:>12,}{runs:>12,}{events:>14,}{bytes:>18,}{files:>10,}  {scope!r}".format(**row)
        sys.stdout.write(escape_controls(line) + "\n")


def export(location: str, scope: str, output: Path, *, force: bool) -> ScopeRecord:
    """Write the threads of a scope, and the files that belong to none of them; return the scope."""

    async def export_all(write: Callable[[bytes], object]) -> ScopeRecord:
        async with snapshot_of(location) as snapshot:
            found = await find(snapshot, scope)
            async for piece in export_scope(snapshot, scope):
                write(piece)
            return found

    return write_export(export_all, output, force=force)


def find_scope(location: str, scope: str) -> ScopeRecord:
    """Return a scope. Raise ``CannotUse`` if the store has nothing of it."""

    async def find_in_store() -> ScopeRecord:
        async with opened(location) as store:
            return await find(store, scope)

    return run(find_in_store())


async def find(reader: StoreReader, scope: str) -> ScopeRecord:
    """Return a scope. Raise ``CannotUse`` if the store has nothing of it."""
    found = await list_scopes(reader, scope)
    if not found:
        raise CannotUse(f"the store has nothing of scope {scope!r}; aguila scopes list shows all scopes")
    return found[0]


def delete(location: str, scope: str) -> None:
    """Delete everything that a scope holds."""

    async def delete_all() -> None:
        async with opened(location) as store:
            await store.delete(scope, ScopeTarget())
            await store.sweep(Retention())  # the rows of its threads, which readers do not see any more

    run(delete_all())
