"""``aguila store``: check, count, copy, compact and migrate a store."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aguila.cli.output.transcript import escape_controls
from aguila.cli.threads import CannotUse, Outcome, check_exists, opened, run
from aguila.errors import StoreUnavailable
from aguila.store import PostgresStore, Retention, SQLiteStore, Store
from aguila.store.archives.copying import Restored, copy_all
from aguila.store.check import Damage
from aguila.store.contract import StoreReader
from aguila.store.locations import describe_location, make_store, sqlite_path
from aguila.store.records import ThreadArchive
from aguila.store.sql.check import count_content, find_damage, recount
from aguila.store.sql.schema import VERSION
from aguila.store.sql.store import SQLStore
from aguila.store.sql.tx import Tx
from aguila.store.sqlite.legacy import is_legacy, open_legacy

T = TypeVar("T")

_BUSY_SECONDS = 5.0


def check(location: str, *, as_json: bool, repairs_usage: bool) -> int:
    """Print every fault that breaks the contract of a store; return how many there are.

    ``repairs_usage``: first count the usage of each scope again.
    """

    async def find_all() -> list[Damage]:
        async with opened(location) as store:
            if repairs_usage:
                slot = store.database.slot
                await store.transact(lambda tx: recount(tx, slot))
            return await _read(store, lambda tx: [*_check_pages(store, tx), *find_damage(tx)])

    found = run(find_all())
    for damage in found:
        if as_json:
            sys.stdout.write(msgspec.json.encode(damage).decode() + "\n")
        else:
            where = f"thread {damage.thread_id} (scope {damage.scope!r}): " if damage.thread_id else ""
            sys.stdout.write(escape_controls(where + damage.message) + "\n")
    return len(found)


async def _read(store: SQLStore, function: Callable[[Tx], T]) -> T:
    """Call a function with one state of a store, on a thread."""

    def read() -> T:
        with store.database.snapshot() as tx:
            return function(tx)

    return await asyncio.to_thread(read)


def _check_pages(store: Store, tx: Tx) -> list[Damage]:
    """Return the faults in the structure of an SQLite file."""
    if not isinstance(store, SQLiteStore):
        return []
    lines = [row[0] for row in tx.rows("PRAGMA integrity_check(20)")]
    return [Damage("", "", f"SQLite: {line}") for line in lines if line != "ok"]


def stats(location: str, *, as_json: bool) -> None:
    """Print the sizes and counts of a store."""

    async def count() -> dict[str, int]:
        async with opened(location) as store:
            return await _read(store, lambda tx: _count_space(location, tx) | count_content(tx))

    found = run(count())
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return
    for name, value in found.items():
        sys.stdout.write(f"{name.replace('_', ' '):22}{value:>16,}\n")


def _count_space(location: str, tx: Tx) -> dict[str, int]:
    """Return how many bytes a store occupies."""
    path = sqlite_path(location)
    if path is None:
        sizes = tx.row(
            "SELECT CAST(sum(pg_total_relation_size(oid)) AS bigint) FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'aguila.threads'::regclass)"
        )
        return {"table_bytes": 0 if sizes is None else sizes[0]}
    wal = path.with_name(path.name + "-wal")
    pages, size = tx.row("PRAGMA freelist_count"), tx.row("PRAGMA page_size")
    return {
        "database_bytes": path.stat().st_size,
        "wal_bytes": wal.stat().st_size if wal.exists() else 0,
        "free_bytes": 0 if pages is None or size is None else pages[0] * size[0],
    }


def copy(source: str, target: str, *, replace: bool) -> Outcome:
    """Copy a store to another one, with a progress bar on standard error."""
    outcome = Outcome()
    columns = (TextColumn("threads"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("threads", total=None)

        def count_thread(archive: ThreadArchive, restored: Restored) -> None:
            outcome.add(archive, restored)
            progress.advance(task)

        async def copy_snapshot() -> None:
            async with _snapshot_of(source) as (snapshot, where), opened(target, create=True) as other:
                if where == other.location:
                    raise CannotUse(f"{where} is the store to copy from; name another one to copy to")
                await copy_all(
                    snapshot,
                    other,
                    replace=replace,
                    on_count=lambda count: progress.update(task, total=count),
                    on_thread=count_thread,
                )

        run(copy_snapshot())
    return outcome


@asynccontextmanager
async def _snapshot_of(location: str) -> AsyncGenerator[tuple[StoreReader, str | None]]:
    """Open one state of a store, or of a file of the schema before; also return its location."""
    try:
        path = sqlite_path(location)
    except ValueError as error:
        raise CannotUse(str(error)) from None
    if path is not None and path.is_file() and is_legacy(path):
        with open_legacy(path) as reader:
            yield reader, str(path)
        return
    async with opened(location) as store, store.snapshot() as snapshot:
        yield snapshot, store.location


def migrate(location: str) -> tuple[int, int]:
    """Bring the schema of a store up to date; return its version before and after."""

    async def migrate_store() -> tuple[int, int]:
        try:
            path, store = sqlite_path(location), make_store(location)
        except ValueError as error:
            raise CannotUse(str(error)) from None
        if isinstance(store, PostgresStore):
            return await store.migrate()
        assert path is not None  # noqa: S101 - there is no third kind of location
        check_exists(path)
        async with opened(location):
            return VERSION, VERSION

    return run(migrate_store())


def compact(location: str) -> tuple[int, int]:
    """Compact a store; return its bytes before and after."""
    try:
        path = sqlite_path(location)
    except ValueError as error:
        raise CannotUse(str(error)) from None
    if path is None:
        raise CannotUse(
            f"{describe_location(location)}: PostgreSQL reuses free space by itself (autovacuum); to return it to the "
            "file system, stop the servers and run VACUUM FULL in the database"
        )

    async def remove_deleted() -> None:
        async with opened(location) as store:
            await store.sweep(Retention())

    run(remove_deleted())
    before = path.stat().st_size
    _vacuum(path)
    return before, path.stat().st_size


def _vacuum(path: Path) -> None:
    """Rewrite a file without free pages, and empty its write-ahead log. A server can read it, and its writes wait."""
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise StoreUnavailable(f"SQLite: {error}") from error
