"""``aguila store``: check, count, copy, compact and migrate a store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aguila.cli.output.transcript import escape_controls
from aguila.cli.threads import CannotUse, Outcome, check_exists, opened, run
from aguila.store import PostgresStore, Store
from aguila.store.archives.copying import Restored, copy_store
from aguila.store.archives.thread_archive import ThreadArchive
from aguila.store.checking import Damage
from aguila.store.locations import describe_location, make_store, sqlite_path
from aguila.store.postgres import check as postgres_check
from aguila.store.sqlite.check import check_file, compact_file, count_content, rebuild_usage
from aguila.store.sqlite.database.migrations import read_schema


def check(location: str, *, as_json: bool, repairs_usage: bool) -> int:
    """Print every fault that breaks the contract of a store; return how many there are.

    ``repairs_usage``: first count the usage of each scope again.
    """
    count = 0
    for damage in _find_damage(location, repairs_usage):
        count += 1
        if as_json:
            sys.stdout.write(msgspec.json.encode(damage).decode() + "\n")
        else:
            where = f"thread {damage.thread_id} (scope {damage.scope!r}): " if damage.thread_id else ""
            sys.stdout.write(escape_controls(where + damage.message) + "\n")
    return count


def _find_damage(location: str, repairs_usage: bool) -> Iterator[Damage]:
    store = _postgres_store(location)
    if store is None:
        path = _existing_file(location)
        if repairs_usage:
            rebuild_usage(path)
        yield from check_file(path)
        return
    database = store.make_database()
    if repairs_usage:
        run(postgres_check.rebuild_usage(database))
    with asyncio.Runner() as runner:
        found = postgres_check.check_database(database)
        while (damage := runner.run(anext(found, None))) is not None:
            yield damage


def stats(location: str, *, as_json: bool) -> None:
    """Print the sizes and counts of a store."""
    store = _postgres_store(location)
    if store is None:
        found = count_content(_existing_file(location))
    else:
        found = run(postgres_check.count_database(store.make_database()))
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return
    for name, value in found.items():
        sys.stdout.write(f"{name.replace('_', ' '):22}{value:>16,}\n")


def copy(source: str, target: str, *, replace: bool) -> Outcome:
    """Copy a store to another one, with a progress bar on standard error."""
    outcome = Outcome()
    columns = (TextColumn("threads"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("threads", total=None)

        def count_thread(archive: ThreadArchive, restored: Restored) -> None:
            outcome.add(archive, restored)
            progress.advance(task)

        async def copy_all() -> None:
            async with opened(source) as one, opened(target, create=True) as other:
                if one.location == other.location:
                    raise CannotUse(f"{one.location} is the store to copy from; name another one to copy to")
                await copy_store(
                    one,
                    other,
                    replace=replace,
                    on_count=lambda count: progress.update(task, total=count),
                    on_thread=count_thread,
                )

        run(copy_all())
    return outcome


def migrate(location: str) -> tuple[int, int]:
    """Bring the schema of a store up to date; return its version before and after."""
    try:
        path = sqlite_path(location)
        store = make_store(location)
    except ValueError as error:
        raise CannotUse(str(error)) from None
    if isinstance(store, PostgresStore):
        return run(store.migrate())
    assert path is not None  # noqa: S101 - there is no third kind of location
    check_exists(path)
    before = read_schema(path)
    run(_open_and_close(store))
    return before, read_schema(path)


async def _open_and_close(store: Store) -> None:
    await store.open()
    await store.close()


def compact(location: str) -> tuple[int, int]:
    """Compact a store; return its bytes before and after."""
    if _postgres_store(location) is not None:
        raise CannotUse(
            f"{describe_location(location)}: PostgreSQL reuses free space by itself (autovacuum); to return it to the "
            "file system, stop the servers and run VACUUM FULL in the database"
        )
    path = _existing_file(location)
    before = path.stat().st_size
    compact_file(path)
    return before, path.stat().st_size


def _postgres_store(location: str) -> PostgresStore | None:
    """Return the store at a location if it is of PostgreSQL. Raise ``CannotUse`` if no store has such a location."""
    try:
        if sqlite_path(location) is not None:
            return None
        store = make_store(location, migrate=False)
    except ValueError as error:
        raise CannotUse(str(error)) from None
    assert isinstance(store, PostgresStore)  # noqa: S101 - there is no third kind of location
    return store


def _existing_file(location: str) -> Path:
    """Return the path of an SQLite store. Raise ``CannotUse`` if the file does not exist."""
    path = sqlite_path(location)
    assert path is not None  # noqa: S101 - see _postgres_store
    check_exists(path)
    return path
