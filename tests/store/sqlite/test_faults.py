"""Locked files, full disks and failing jobs."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import threading
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from contract.support import DEADLINE, complete, events_of, finish, lines, start
from sqlite_support import BlockedWriter, engine_of

from aguila.errors import StaleLease, StoreUnavailable
from aguila.store import SQLiteStore
from aguila.store.sqlite.database import large_values, writer

pytestmark = pytest.mark.anyio


async def test_a_locked_file_is_unavailable_and_then_works_again(store: SQLiteStore, path: Path):
    lease = await start(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    calls = [store.append(lease, lines(i)) for i in range(5)]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, StoreUnavailable)
        assert "locked" in str(outcome)
    with pytest.raises(StoreUnavailable):
        await store.check()
    assert events_of(await store.read("a", "t")) == lines("started")  # reads still work
    other.execute("ROLLBACK")
    other.close()
    await store.check()
    assert (await store.append(lease, lines("again"))).first == 2


class FakeTime:
    """A clock of the writer that advances when the writer sleeps, and pauses after 0.25 s until it may continue."""

    def __init__(self) -> None:
        self.now = self.began = float(int(monotonic()) + 1)
        self.is_paused = threading.Event()
        self.may_continue = threading.Event()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.began + 0.25:
            self.is_paused.set()
            assert self.may_continue.wait(DEADLINE)


async def test_each_job_waits_for_a_locked_file_for_its_own_time(path: Path, monkeypatch: pytest.MonkeyPatch):
    store = SQLiteStore(path, busy_seconds=0.5)
    await store.open()
    time = FakeTime()
    monkeypatch.setattr(writer, "time", time)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    first = asyncio.create_task(store.check())
    assert await asyncio.to_thread(time.is_paused.wait, DEADLINE)
    second = asyncio.create_task(store.check())
    await asyncio.sleep(0)
    time.may_continue.set()
    for one in (first, second):
        with pytest.raises(StoreUnavailable, match="locked"):
            await one
    assert 0.75 <= time.now - time.began < 0.8  # not twice busy_seconds
    other.execute("ROLLBACK")
    other.close()
    await store.check()
    await store.close()


async def test_waiting_for_our_own_jobs_does_not_count_as_waiting_for_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = SQLiteStore(path, busy_seconds=0.5)
    await store.open()
    time = FakeTime()
    left: list[float] = []
    lock_file = writer.Writer.lock_file

    def locked(self: writer.Writer, db: sqlite3.Connection, deadline: float) -> None:
        left.append(deadline - time.now)
        lock_file(self, db, deadline)

    monkeypatch.setattr(writer, "time", time)
    monkeypatch.setattr(writer.Writer, "lock_file", locked)
    async with BlockedWriter(store):
        queued = asyncio.create_task(store.check())
        await asyncio.sleep(0)
        time.now += 10
    await queued
    assert left == [0.5, 0.5]
    await store.close()


async def test_wrote_at_advances_during_a_large_write(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch):
    opened_at = store.wrote_at
    assert opened_at > 0
    seen: list[float] = []

    def clock() -> float:
        seen.append(store.wrote_at)
        return opened_at + len(seen)

    monkeypatch.setattr(large_values, "monotonic", clock)
    await store.put_blob("a", b"x" * (2 << 20), media_type="text/plain")
    assert len(seen) == 8
    assert seen == sorted(set(seen))


async def test_large_jobs_are_split_over_transactions(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch):
    counts: list[int] = []
    run_jobs = writer.Writer.run_jobs

    def counted(self: writer.Writer, jobs: list[Any]) -> None:
        counts.append(len(jobs))
        run_jobs(self, jobs)

    monkeypatch.setattr(writer.Writer, "run_jobs", counted)
    full = writer.MAX_TRANSACTION
    async with BlockedWriter(store):
        jobs = [engine_of(store).write(lambda db: None, size=size) for size in (0, full, 0, full // 2, full // 2, 0, 0)]
    await asyncio.gather(*jobs)
    assert counts == [1, 2, 3, 2]


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
    await store.put_blob("a", b"x" * 500_000, media_type="text/plain", thread_id="old")
    lease = await start(store)
    event = b'"' + b"x" * 10_000 + b'"'
    for _ in range(10):
        await store.append(lease, [event])
    last = 11
    with pytest.raises(StoreUnavailable, match="full"):
        await store.append(lease, [event] * 100)
    assert await store.last("a", "t") == last  # the refused append left nothing
    await store.delete_thread("a", "old")
    assert (await store.append(lease, [event] * 40)).first == last + 1
    await finish(store, lease)
    await store.close()


async def test_a_check_fails_if_no_run_fits_within_max_bytes(path: Path):
    store = SQLiteStore(path, max_bytes=1_000_000)
    await store.open()
    lease = await start(store)
    await store.check()

    async def fill() -> None:
        while True:
            await store.append(lease, [b'"' + b"x" * 4000 + b'"'])

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
    await store.append(lease, lines("again"))
    await store.close()


async def test_only_the_write_that_does_not_fit_fails(path: Path):
    store = SQLiteStore(path, max_bytes=1_000_000)
    await store.open()
    lease = await start(store)
    async with BlockedWriter(store):
        big = store.put_blob("a", b"x" * 2_000_000, media_type="text/plain")
        small = [store.append(lease, lines(i)) for i in range(5)]
        calls = [asyncio.create_task(call) for call in (*small, big, store.append(lease, lines(5)))]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(outcomes.pop(5), StoreUnavailable)
    assert [outcome.first for outcome in outcomes] == list(range(2, 8))  # type: ignore[union-attr]
    assert events_of(await store.read("a", "t", 1)) == lines(*range(6))
    await store.close()


async def test_a_failing_job_does_not_affect_others(store: SQLiteStore):
    lease = await start(store)

    def breaks(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO checks (key, at) VALUES (1, 1)")
        raise ZeroDivisionError

    def refuses_too_late(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO checks (key, at) VALUES (1, 1)")
        raise StaleLease("too late")

    def violates(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO checks (key, at) VALUES (2, 1)")

    async with BlockedWriter(store):
        broken = [engine_of(store).write(job) for job in (breaks, refuses_too_late, violates)]
        good = asyncio.create_task(store.append(lease, lines(1)))
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*broken, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError, RuntimeError, sqlite3.IntegrityError]
    assert (await good).first == 2
    assert await engine_of(store).read(lambda db: db.execute("SELECT count(*) FROM checks").fetchone()[0]) == 0


async def test_after_a_disk_error_the_store_connects_again(store: SQLiteStore):
    lease = await start(store)

    def fails(db: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    used = engine_of(store).writer.connection
    with pytest.raises(StoreUnavailable, match="disk I/O"):
        await engine_of(store).write(fails)
    assert (await store.append(lease, lines(1))).first == 2
    assert engine_of(store).writer.connection is not used
    with pytest.raises(StoreUnavailable, match="disk I/O"):
        await engine_of(store).read(fails)
    assert await store.last("a", "t") == 2
