"""Check a store: whether it can be written, what its events survive, how fast it writes, and what room is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

from aguila.cli.doctor.checks import Check
from aguila.cli.threads import CannotUse, opened
from aguila.errors import MissingExtra, StoreError
from aguila.store import SQLiteStore
from aguila.store.locations import MEMORY, describe_location, sqlite_path
from aguila.store.sql.schema import VERSION
from aguila.store.sql.store import SQLStore
from aguila.testing.plurals import counted

_WRITES: Final = 5
SLOW_WRITE: Final = 0.25
"""Seconds. Viewers see an event when it is written."""
LOW_SPACE: Final = 1 << 30
"""Bytes."""
FAR_BEHIND: Final = 10.0
"""Seconds of changes that a failover to a standby may lose."""

_POSTGRES: Final = """
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
  (SELECT count(*) FROM pg_stat_replication),
  (SELECT coalesce(max(extract(epoch FROM replay_lag)), 0)::float8 FROM pg_stat_replication)
"""


def check_store(location: str) -> list[Check]:
    """Check the store at a location. It is not created, and its threads are not read."""

    async def check() -> list[Check]:
        return [found async for found in _check(location)]

    return asyncio.run(check())


async def _check(location: str) -> AsyncIterator[Check]:
    path: Path | None = None
    if location == MEMORY:
        yield Check(name="store", text="threads in memory are lost when the server ends")
        return
    try:
        path = sqlite_path(location)
        if path is not None and path.parent.is_dir():
            yield check_space(path.parent, shutil.disk_usage(path.parent).free)
        if path is not None and not path.exists():
            yield _check_absent(path)
            return
        async with opened(location) as store:
            yield Check(name="store", text=f"{store.location}, schema {VERSION}")
            yield check_writes([await _time_write(store) for _ in range(_WRITES)])
            if isinstance(store, SQLiteStore):
                yield _describe_durability(store)
                return
            for found in check_settings(*await asyncio.to_thread(_read_settings, store)):
                yield found
    except (CannotUse, MissingExtra, StoreError, ValueError) as error:
        reason, _, advice = str(error).partition("; ")  # an error says what to do after its reason
        text = f"{describe_location(location)}: {reason}" if path is None else reason
        yield Check(name="store", text=text, fix=advice or _advise(path))


def _advise(path: Path | None) -> str:
    if path is None:
        return "start the database, and check the URL with psql"
    return f"name a store, let the user of the server write to {path} and its folder, and end programs that lock it"


def _check_absent(path: Path) -> Check:
    if path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK):
        return Check(name="store", text=f"there is no file {path} yet; aguila serve creates it")
    fix = f"mkdir -p {path.parent}, and let the user of the server write to it"
    return Check(name="store", text=f"{path} cannot be created: its folder is missing or not writable", fix=fix)


def check_space(folder: Path, free: int) -> Check:
    """Check that a disk has room for the store."""
    text = f"{free / (1 << 30):.1f} GiB are free in {folder.resolve()}"
    fix = "free space on this disk, let aguila serve --keep-seconds delete idle threads, or aguila store compact"
    return Check(name="space", text=text, fix=fix if free < LOW_SPACE else None)


async def _time_write(store: SQLStore) -> float:
    """Write as much as a small run does; return how long it took."""
    began = time.perf_counter()
    await store.check()
    return time.perf_counter() - began


def check_writes(seconds: list[float]) -> Check:
    """Check that writes are fast enough for viewers."""
    typical = median(seconds)
    fix = "use a faster disk or a nearer database: viewers see an event only when it is written"
    text = f"a write takes {typical * 1000:.1f} ms (median of {len(seconds)}, the longest {max(seconds) * 1000:.1f} ms)"
    return Check(name="lag", text=text, fix=fix if typical > SLOW_WRITE else None)


def _describe_durability(store: SQLiteStore) -> Check:
    if store.durability == "power":
        return Check(name="durability", text="events survive the loss of power")
    url = "sqlite:///path?durability=power"
    text = f"events survive the death of the server, not the loss of power; --store {url} waits for the disk"
    return Check(name="durability", text=text)


def _read_settings(store: SQLStore) -> Any:
    with store.database.snapshot() as tx:
        return tx.row(_POSTGRES)


def check_settings(version: str, fsync: str, commit: str, standbys: int, behind: float) -> Iterator[Check]:
    """Check what events survive on PostgreSQL, and how far its standbys are behind."""
    text = f"PostgreSQL {version}, fsync {fsync}, synchronous_commit {commit}"
    is_safe = fsync == "on" and commit != "off"
    fix = "set fsync and synchronous_commit to on: a crash of the database loses events that viewers have seen"
    yield Check(name="durability", text=text, fix=None if is_safe else fix)
    if standbys:
        text = f"{counted(standbys, 'standby')}, the slowest {behind:.1f} s behind"
        fix = "give the standby more speed, or make it synchronous: a failover loses what it has not replayed"
        yield Check(name="replication", text=text, fix=None if behind <= FAR_BEHIND else fix)
