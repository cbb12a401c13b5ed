"""Locked files, full disks and failing jobs."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlite_support import BlockedWriter, database_of, run_sql
from waiting import wait_until_async

from aguila.errors import StoreUnavailable
from aguila.store import RunChange, RunEnd, SQLiteStore
from aguila.store.sql import writer
from aguila.store.sql.store import SHORT
from aguila.store.sql.tx import Tx
from aguila.store.sql.writer import run_one
from aguila.testing.store_contract.support import (
    append,
    complete,
    delete,
    events_of,
    finish,
    last_of,
    lines,
    new_run,
    read,
    runs_of,
    session_of,
    start,
)

pytestmark = pytest.mark.anyio


async def test_a_locked_file_is_unavailable_and_then_works_again(store: SQLiteStore, path: Path):
    lease = await start(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    calls = [append(store, lease, lines(i)) for i in range(5)]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, StoreUnavailable)
        assert "locked" in str(outcome)
    with pytest.raises(StoreUnavailable):
        await store.check()
    assert events_of(await read(store)) == lines("started")  # reads still work
    other.execute("ROLLBACK")
    other.close()
    await store.check()
    assert (await append(store, lease, lines("again"))).first == 2


async def test_each_job_waits_for_a_locked_file_for_its_own_time(path: Path):
    store = SQLiteStore(path, busy_seconds=0.5)
    await store.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    first = asyncio.create_task(store.check())
    await wait_until_async(lambda: time.monotonic() > began + 0.25)  # half of the time that it waits
    second = asyncio.create_task(store.check())
    with pytest.raises(StoreUnavailable, match="locked"):
        await first
    assert not second.done()
    with pytest.raises(StoreUnavailable, match="locked"):
        await second
    assert time.monotonic() - began >= 0.74
    other.execute("ROLLBACK")
    other.close()
    await store.check()
    await store.close()


async def test_waiting_for_our_own_jobs_does_not_count_as_waiting_for_the_lock(path: Path):
    store = SQLiteStore(path, busy_seconds=0.5)
    await store.open()
    other = sqlite3.connect(path, isolation_level=None)
    began = time.monotonic()
    async with BlockedWriter(store):
        queued = asyncio.create_task(store.check())
        await wait_until_async(lambda: time.monotonic() > began + 0.6)  # longer than it waits for a lock
    other.execute("BEGIN EXCLUSIVE")
    again = asyncio.create_task(store.check())
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    other.close()
    await asyncio.gather(queued, again)
    await store.close()


async def test_large_jobs_are_split_over_transactions(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch):
    begun: list[str] = []
    full = writer.MAX_TRANSACTION
    connection = database_of(store).connection
    assert connection is not None
    async with BlockedWriter(store):
        connection.set_trace_callback(lambda sql: begun.append(sql) if sql.startswith("BEGIN") else None)
        sizes = (SHORT + 1, full, SHORT + 1, full // 2, full // 2, SHORT + 1, SHORT + 1)
        jobs = [store.writer.submit(run_one(lambda tx: None), size=size) for size in sizes]
    await asyncio.gather(*jobs)
    assert len(begun) == 3


async def test_a_file_that_is_locked_while_it_is_opened(path: Path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    store = SQLiteStore(path, busy_seconds=0.05)
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.open()
    other.execute("ROLLBACK")
    other.close()
    await store.open()
    await complete(store, "t", "r")
    await store.close()


async def test_a_full_disk_is_unavailable_and_then_works_again(path: Path):
    store = SQLiteStore(path, max_bytes=1_000_000)
    await store.open()
    await complete(store, "old", "r")
    await store.put_file("a", b"x" * 500_000, media_type="text/plain", thread_id="old")
    lease = await start(store)
    event = b'"' + b"x" * 10_000 + b'"'
    for _ in range(10):
        await append(store, lease, [event])
    last = 11
    with pytest.raises(StoreUnavailable, match="full"):
        await append(store, lease, [event] * 100)
    assert await last_of(store) == last  # the refused append left nothing
    await delete(store, "old")
    assert (await append(store, lease, [event] * 40)).first == last + 1
    await finish(store, lease)
    await store.close()


async def test_a_check_fails_if_no_run_fits_within_max_bytes(path: Path):
    store = SQLiteStore(path, max_bytes=1_000_000)
    await store.open()
    lease = await start(store)
    await store.check()

    async def fill() -> None:
        while True:
            await append(store, lease, [b'"' + b"x" * 4000 + b'"'])

    with pytest.raises(StoreUnavailable, match="full"):
        await fill()
    with pytest.raises(StoreUnavailable, match="large"):
        await store.check()
    await store.close()


async def test_a_check_fails_on_a_full_disk(path: Path):
    store = SQLiteStore(path)
    await store.open()
    lease = await start(store)
    await store.check()
    wal = path.with_name(path.name + "-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # A few pages are left, enough for a row and not for a run.
        resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + 4 * 4120, hard))
        with pytest.raises(StoreUnavailable):
            await store.check()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await store.check()
    await append(store, lease, lines("again"))
    await store.close()


async def test_only_the_write_that_does_not_fit_fails(path: Path):
    store = SQLiteStore(path, max_bytes=1_000_000)
    await store.open()
    lease = await start(store)
    async with BlockedWriter(store):
        big = store.put_file("a", b"x" * 2_000_000, media_type="text/plain")
        small = [append(store, lease, lines(i)) for i in range(5)]
        calls = [asyncio.create_task(call) for call in (*small, big, append(store, lease, lines(5)))]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(outcomes.pop(5), StoreUnavailable)
    assert [outcome.first for outcome in outcomes] == list(range(2, 8))  # type: ignore[union-attr]
    assert events_of(await read(store, "t", 1)) == lines(*range(6))
    await store.close()


async def test_a_failing_job_does_not_affect_others(store: SQLiteStore):
    lease = await start(store)

    def breaks(tx: Tx) -> None:
        tx.do("INSERT INTO peers VALUES ('broken', 7)")
        raise ZeroDivisionError

    def violates(tx: Tx) -> None:
        for _ in range(2):
            tx.do("INSERT INTO peers VALUES ('twice', 8)")

    async with BlockedWriter(store):
        broken = [asyncio.create_task(store.transact(job)) for job in (breaks, violates)]
        good = asyncio.create_task(append(store, lease, lines(1)))
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*broken, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError, sqlite3.IntegrityError]
    assert (await good).first == 2
    assert await run_sql(store, "SELECT count(*) FROM peers WHERE port IN (7, 8)") == [(0,)]


async def test_after_a_disk_error_the_store_connects_again(path: Path):
    store = SQLiteStore(path, busy_seconds=0.05)
    await store.open()
    lease = await start(store)

    def fails(tx: Tx) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    used = database_of(store).connection
    with pytest.raises(StoreUnavailable, match="disk I/O"):
        await store.transact(fails)
    assert (await append(store, lease, lines(1))).first == 2
    assert database_of(store).connection is not used
    with pytest.raises(StoreUnavailable, match="disk I/O"):
        await store._read(fails)
    assert await last_of(store) == 2
    await store.close()


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ends"])
async def test_a_write_whose_commit_failed_may_be_repeated(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, after: bool, ends: bool
):
    lease = await start(store)
    end = RunEnd(outcome="interrupt", interrupts=[("i", b"{}")]) if ends else None
    change = RunChange(events=lines(1, 2), after=1, session=b"mine", end=end)
    with cut_commits(store, monkeypatch, after=after), pytest.raises(StoreUnavailable, match="disk I/O"):
        await store.write(lease, change)
    written = await store.write(lease, change)
    assert (written.batch.first, written.batch.last) == (2, 3)
    assert events_of(await read(store)) == lines("started", 1, 2)
    assert await session_of(store) == b"mine"


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_a_begin_whose_commit_failed_may_be_repeated(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, after: bool
):
    new = new_run()
    with cut_commits(store, monkeypatch, after=after), pytest.raises(StoreUnavailable, match="disk I/O"):
        await store.begin(new)
    lease = (await store.begin(new)).lease
    assert (await append(store, lease, lines(1))).first == 2
    assert [run.run_id for run in await runs_of(store)] == ["r"]


@contextmanager
def cut_commits(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> Iterator[None]:
    """Let commits fail, before or after they are made."""
    database = database_of(store)
    real = database.commit

    def commit(*args: Any, **options: Any) -> None:
        if after:
            real(*args, **options)
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(database, "commit", commit)
        yield
