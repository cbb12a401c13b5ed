from __future__ import annotations

import asyncio
import errno
import resource
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from contract import StoreContract
from contract.support import DEADLINE, Clock, collect, events_of, finish, lines, start, statuses, whole
from sqlite_support import BlockedWriter, engine_of

from aguila.errors import StaleLease, StoreUnavailable
from aguila.store import Retention, SQLiteStore, Store
from aguila.store.sqlite import checkpoint, large_values, locks, queries, writer
from aguila.store.sqlite.connection import Synchronous
from aguila.store.sqlite.wakeup import Listener, Sender

anyio = pytest.mark.anyio


class TestSQLiteStore(StoreContract):
    def make(self, clock: Clock, tmp_path: Path) -> Store:
        return SQLiteStore(tmp_path / "threads.db", clock=clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, busy_seconds=0.05)
    await store.open()
    yield store
    await store.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)


# The file


@anyio
async def test_everything_is_there_after_closing_and_opening_again(path: Path):
    store = SQLiteStore(path)
    await store.open()
    lease = await start(store)
    await store.record(lease, "r", "k", b"1")
    unfinished = [asyncio.create_task(store.append(lease, lines(i))) for i in range(20)]
    await asyncio.sleep(0)
    await store.close()  # finishes what was accepted
    await asyncio.gather(*unfinished)
    await store.open()
    await finish(store, lease, "i1", session=b"mine")
    blob = await store.put_blob("a", b"data", media_type="text/plain", thread_id="t")
    await store.close()
    store = SQLiteStore(path)
    await store.open()
    assert events_of(await store.read("a", "t")) == lines("started", *range(20), "finished")
    assert await statuses(store) == {"i1": "open"}
    assert await store.session("a", "t") == b"mine"
    assert await store.recorded("a", "t", "r") == {"k": b"1"}
    assert await store.blob("a", blob.blob_id) == (blob, b"data")
    await store.close()
    beside = {file.name: file.stat().st_size for file in path.parent.iterdir() if file != path}
    assert beside == {"threads.db-lock": 0}  # nothing else is left


def test_what_is_not_a_database_is_refused_and_left_alone(path: Path):
    path.write_bytes(b"something else entirely, longer than a header\n" * 50)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a database"):
        asyncio.run(SQLiteStore(path).open())
    assert path.read_bytes() == before


@pytest.mark.parametrize("made", ["a folder", "no database", "in no folder"])
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    tmp_path: Path, made: str, caplog: pytest.LogCaptureFixture
):
    path, reason = {
        "a folder": (tmp_path, "it is a folder"),
        "no database": (tmp_path / "x", "SQLite: file is not a database (SQLITE_NOTADB)"),
        "in no folder": (tmp_path / "no" / "x", f"there is no folder {tmp_path / 'no'}"),
    }[made]
    (tmp_path / "x").write_text("something else entirely" * 99)
    with pytest.raises(StoreUnavailable) as error:
        asyncio.run(SQLiteStore(path).open())
    assert str(error.value) == f"{path} cannot be used as a store: {reason}"
    assert caplog.records == []


@anyio
async def test_a_folder_that_is_missing_is_unavailable_until_it_is_there(tmp_path: Path):
    store = SQLiteStore(tmp_path / "missing" / "threads.db")
    with pytest.raises(StoreUnavailable):
        await store.open()
    (tmp_path / "missing").mkdir()
    await store.open()
    await store.check()
    await store.close()


def test_settings_are_checked_at_once(path: Path):
    with pytest.raises(ValueError, match="MemoryStore"):
        SQLiteStore(":memory:")
    with pytest.raises(ValueError, match="synchronous"):
        SQLiteStore(path, synchronous="OFF")  # type: ignore[arg-type]


@anyio
@pytest.mark.parametrize(("setting", "value"), [("NORMAL", 1), ("FULL", 2)])
async def test_synchronous_is_what_was_asked_for(path: Path, setting: Synchronous, value: int):
    store = SQLiteStore(path, synchronous=setting)
    await store.open()
    found = await engine_of(store).write(lambda db: db.execute("PRAGMA synchronous").fetchone()[0])
    assert found == value
    await store.close()


@anyio
async def test_a_deleted_thread_leaves_no_id_behind(path: Path):
    store = SQLiteStore(path)
    await store.open()
    await whole(store, "a-thread-nobody-must-know", "a-run-nobody-must-know", "a-question", scope="a-secret-scope")
    await store.delete_thread("a-secret-scope", "a-thread-nobody-must-know")
    kept = await engine_of(store).read(
        lambda db: [row for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
                    for row in db.execute(f"SELECT * FROM {name}").fetchall()]
    )  # fmt: skip
    assert not any("nobody" in str(row) or "secret" in str(row) or "question" in str(row) for row in kept)
    await whole(store, "a-thread-nobody-must-know", "r", scope="a-secret-scope")
    assert await engine_of(store).read(lambda db: db.execute("SELECT count(*) FROM removed").fetchone()) == (0,)
    assert await store.last("a-secret-scope", "a-thread-nobody-must-know") == 5
    await store.close()


@anyio
async def test_space_is_given_back(store: SQLiteStore, path: Path):
    await store.put_blob("a", b"x" * 8_000_000, media_type="text/plain", thread_id="t")
    await whole(store, "t", "r")
    await engine_of(store).write(lambda db: None)
    await store.delete_thread("a", "t")
    await until(lambda: path.stat().st_size < 500_000)
    await whole(store, "t", "r")
    assert await store.prune(Retention(max_threads=0)) == 1


@anyio
async def test_the_write_ahead_log_starts_over_under_load(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(checkpoint, "MAX_ROWS", 10)
    monkeypatch.setattr(checkpoint, "LONG_WAL", 50)

    def salt() -> bytes:
        """What changes in the header of the log when it starts over."""
        with path.with_name(path.name + "-wal").open("rb") as wal:
            return wal.read(32)[16:24]

    leases = [await start(store, f"t{i}") for i in range(4)]
    before = await asyncio.to_thread(salt)
    async with asyncio.timeout(DEADLINE):
        while True:
            await asyncio.gather(*(store.append(lease, [b"1" * 4000]) for lease in leases))
            if await asyncio.to_thread(salt) != before:
                break
    last = await store.last("a", "t0")
    assert await collect(store.tail("a", "t0", 1), last - 1) == [b"1" * 4000] * (last - 1)


# Faults


@anyio
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
    assert events_of(await store.read("a", "t")) == lines("started")  # readers do not mind
    other.execute("ROLLBACK")
    other.close()
    await store.check()
    assert (await store.append(lease, lines("again"))).first == 2


class Time:
    """The time as the writer has it: it passes when the writer waits, and stands still at 0.25 until it may go on."""

    def __init__(self) -> None:
        self.now = self.began = float(int(monotonic()) + 1)
        self.is_halfway = threading.Event()
        self.goes_on = threading.Event()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.began + 0.25:
            self.is_halfway.set()
            assert self.goes_on.wait(DEADLINE)


@anyio
async def test_each_waits_for_a_locked_file_by_itself(path: Path, monkeypatch: pytest.MonkeyPatch):
    store = SQLiteStore(path, busy_seconds=0.5)
    await store.open()
    time = Time()
    monkeypatch.setattr(writer, "time", time)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    first = asyncio.create_task(store.check())
    assert await asyncio.to_thread(time.is_halfway.wait, DEADLINE)
    second = asyncio.create_task(store.check())
    await asyncio.sleep(0)
    time.goes_on.set()
    for one in (first, second):
        with pytest.raises(StoreUnavailable, match="locked"):
            await one
    assert 0.75 <= time.now - time.began < 0.8  # and not twice as long as it may take
    other.execute("ROLLBACK")
    other.close()
    await store.check()
    await store.close()


@anyio
async def test_what_waited_behind_our_own_writing_has_not_waited_for_a_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = SQLiteStore(path, busy_seconds=0.5)
    await store.open()
    time = Time()
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


@anyio
async def test_a_store_that_writes_something_large_gets_on_all_the_time(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
):
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


@anyio
async def test_jobs_that_write_much_are_not_one_transaction(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch):
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


@anyio
async def test_a_file_that_is_locked_while_it_is_opened(path: Path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    store = SQLiteStore(path, busy_seconds=0.05)
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.open()
    other.execute("ROLLBACK")
    other.close()
    await store.open()
    await whole(store, "t", "r")
    await store.close()


@anyio
async def test_a_full_disk_is_unavailable_and_then_works_again(path: Path):
    store = SQLiteStore(path, max_bytes=1_000_000)
    await store.open()
    await whole(store, "old", "r")
    await store.put_blob("a", b"x" * 500_000, media_type="text/plain", thread_id="old")
    lease = await start(store)
    event = b'"' + b"x" * 10_000 + b'"'
    for _ in range(10):
        await store.append(lease, [event])
    last = 11
    with pytest.raises(StoreUnavailable, match="full"):
        await store.append(lease, [event] * 100)
    assert await store.last("a", "t") == last  # nothing of the refused one
    await store.delete_thread("a", "old")
    assert (await store.append(lease, [event] * 40)).first == last + 1
    await finish(store, lease)
    await store.close()


@anyio
async def test_a_check_fails_where_no_run_fits(path: Path):
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


@anyio
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


@anyio
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


@anyio
async def test_a_job_that_breaks_harms_no_other(store: SQLiteStore):
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


@anyio
async def test_after_a_disk_error_the_file_is_opened_anew(store: SQLiteStore):
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


# Owners


@anyio
async def test_an_owner_is_gone_when_the_store_it_began_with_is_closed(store: SQLiteStore, path: Path):
    other = SQLiteStore(path)
    await other.open()
    lease = await start(other, owner="theirs")
    await start(store, "mine", owner="mine")
    run = await store.run("a", "t", "r")
    assert list(await store.expired()) == list(await other.expired()) == []
    assert await store.take_over(run, owner="mine", lease_seconds=30) is None
    await other.close()
    assert await store.expired() == [run]
    await other.open()  # and there again: it may go on, since nobody has taken over
    assert list(await store.expired()) == []
    assert await store.take_over(run, owner="mine", lease_seconds=30) is None
    await other.append(lease, lines(2))
    await other.close()
    taken = await store.take_over(run, owner="mine", lease_seconds=30)
    assert taken is not None
    assert list(await store.expired()) == []  # it has an owner that is there
    await other.open()
    with pytest.raises(StaleLease):
        await other.append(lease, lines("late"))
    assert list(await other.expired()) == []
    await other.close()
    await finish(store, taken)


@anyio
async def test_an_owner_with_two_stores_is_there_until_both_are_closed(store: SQLiteStore, path: Path):
    stores = [SQLiteStore(path), SQLiteStore(path)]
    for number, each in enumerate(stores):
        await each.open()
        await start(each, f"t{number}", owner="theirs")
    await stores[0].close()
    assert list(await store.expired()) == []
    await stores[1].close()
    assert {run.thread_id for run in await store.expired()} == {"t0", "t1"}


@anyio
async def test_the_viewers_of_a_store_that_was_closed_do_not_watch_but_did(store: SQLiteStore, path: Path):
    lease = await start(store)
    other = SQLiteStore(path)
    await other.open()
    await other.watch("a", "t", "r", viewer="p", seconds=30)
    assert await store.watched(lease)
    await other.close()
    assert not await store.watched(lease)
    assert await store.watched(lease, within=5)  # who watched there may be on the way to another one
    await store.watch("a", "t", "r", viewer="q", seconds=30)
    assert await store.watched(lease)


@anyio
@pytest.mark.parametrize("refused", ["_lock_shared", "_is_locked"])
async def test_where_there_are_no_locks_the_lease_alone_decides(
    path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
):
    def refuse(file: int, at: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    clock = Clock()
    with monkeypatch.context() as patch:
        patch.setattr(locks, refused, refuse)
        gone = SQLiteStore(path, clock=clock)
        await gone.open()
        await start(gone)
        await gone.close()
    for store in (SQLiteStore(path, clock=clock), SQLiteStore(path, clock=clock)):
        await store.open()
        run = await store.run("a", "t", "r")
        assert list(await store.expired()) == []
        assert await store.take_over(run, owner="x", lease_seconds=30) is None
        await store.close()
    clock.now += 30
    await store.open()
    assert [run.run_id for run in await store.expired()] == ["r"]
    await store.close()


@anyio
async def test_a_lock_file_that_was_deleted_makes_nobody_gone(store: SQLiteStore, path: Path):
    lease = await start(store)
    path.with_name("threads.db-lock").unlink()
    other = SQLiteStore(path)
    await other.open()
    assert list(await other.expired()) == []
    assert await other.take_over(await other.run("a", "t", "r"), owner="x", lease_seconds=30) is None
    await other.close()
    await finish(store, lease)


# Group commit and the live feed


@anyio
async def test_what_gathers_during_a_commit_is_the_next_transaction(store: SQLiteStore):
    leases = [await start(store, f"t{i}") for i in range(20)]
    statements: list[str] = []
    await engine_of(store).write(lambda db: db.set_trace_callback(statements.append))
    statements.clear()
    async with BlockedWriter(store):
        calls = [asyncio.create_task(store.append(lease, lines(i))) for i, lease in enumerate(leases)]
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    assert [statement for statement in statements if statement.startswith("BEGIN")] == ["BEGIN IMMEDIATE"] * 2


@anyio
async def test_following_a_run_of_this_process_does_not_read_the_file(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise AssertionError("the file was read")

    lease = await start(store)
    monkeypatch.setattr(queries, "read_log", fail)
    tails = [asyncio.create_task(collect(store.tail("a", "t"), 102)) for _ in range(5)]
    for i in range(100):
        await store.append(lease, lines(i))
    await finish(store, lease)
    assert await asyncio.gather(*tails) == [lines("started", *range(100), "finished")] * 5


@anyio
async def test_the_ring_is_bounded_and_let_go_of(store: SQLiteStore):
    feed = engine_of(store).feed
    lease = await start(store)
    slow = store.tail("a", "t")
    await anext(slow)
    for _ in range(100):
        await store.append(lease, [b"1" * 10_000])
    assert feed.channels["a", "t"].ring_bytes <= 256 * 1024
    assert len(await collect(slow, 100)) == 100
    await slow.aclose()  # type: ignore[attr-defined]
    await finish(store, lease)
    assert feed.channels == {}


# Wake-ups


@anyio
async def test_lost_wake_ups_are_made_up_for_by_polling(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
):
    def lose(*_: object) -> None: ...

    monkeypatch.setattr(Sender, "send", lose)
    other = SQLiteStore(path)
    await other.open()
    lease = await start(store)
    tail = asyncio.create_task(collect(other.tail("a", "t"), 3))
    cancel = asyncio.create_task(store.cancel_requested(lease))
    await until(lambda: bool(engine_of(other).feed.waiting and engine_of(store).feed.waiting))
    await other.request_cancel("a", "t", "r")
    async with asyncio.timeout(DEADLINE):
        await cancel
    await store.append(lease, lines(1))
    await finish(store, lease)
    assert await tail == lines("started", 1, "finished")
    await other.close()


@anyio
@pytest.mark.parametrize("is_lost", [False, True], ids=["by datagram", "by polling"])
async def test_two_stores_settle_whether_a_run_is_cancelled(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
):
    def lose(*_: object) -> None: ...

    if is_lost:
        monkeypatch.setattr(Sender, "send", lose)
    other = SQLiteStore(path, poll_seconds=0.15 if is_lost else 3600)
    await other.open()
    lease = await start(store)
    async with asyncio.timeout(DEADLINE):
        for is_declined in (True, False):
            asked = asyncio.create_task(store.cancel_requested(lease))
            await until(lambda: bool(engine_of(store).feed.waiting))
            await other.request_cancel("a", "t", "r", unwatched=True)
            answer = asyncio.create_task(other.cancel_settled("a", "t", "r"))
            assert await asked == "unwatched"
            await until(lambda: bool(engine_of(other).feed.waiting))
            await store.settle_cancel("a", "t", "r", granted=not is_declined)
            assert (await answer).cancel_requested is not is_declined
    await other.close()


def port_of(path: Path) -> int:
    """The port on which the one process that has the file open listens for wake-ups."""
    db = sqlite3.connect(path)
    try:
        ((port,),) = db.execute("SELECT port FROM peers").fetchall()
        return port
    finally:
        db.close()


def assert_free(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", port))


def test_the_socket_for_wake_ups_is_closed_when_the_event_loop_was_closed_before_the_store(path: Path):
    store = SQLiteStore(path)
    asyncio.run(store.open())  # and not closed: an application that was stopped between the two
    port = port_of(path)
    asyncio.run(store.close())
    assert_free(port)


@anyio
async def test_the_socket_for_wake_ups_is_closed_when_closing_is_cancelled(path: Path):
    store = SQLiteStore(path, busy_seconds=0.05)
    await store.open()
    port = port_of(path)
    blocker = sqlite3.connect(path)
    blocker.execute("BEGIN IMMEDIATE")
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)  # it waits for the writer, which waits for the file
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert_free(port)
    blocker.rollback()
    blocker.close()


@anyio
async def test_the_socket_for_wake_ups_is_closed_when_the_store_cannot_be_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    ports: list[int] = []

    def refuse(self: locks.OwnerLocks) -> None:
        ports.append(port_of(path))
        raise PermissionError("no locks here")

    monkeypatch.setattr(locks.OwnerLocks, "open", refuse)
    with pytest.raises(PermissionError, match="no locks here"):
        await SQLiteStore(path).open()
    assert_free(ports[0])


@anyio
async def test_without_a_socket_there_is_polling(path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse, raising=False)
    stores = [SQLiteStore(path), SQLiteStore(path)]
    for each in stores:
        await each.open()
    lease = await start(stores[0])
    cancel = asyncio.create_task(stores[0].cancel_requested(lease))
    await stores[1].request_cancel("a", "t", "r")
    async with asyncio.timeout(DEADLINE):
        await cancel
    for each in stores:
        await each.close()


@anyio
async def test_nobody_waiting_means_no_polling(store: SQLiteStore):
    lease = await start(store)
    waiter = asyncio.create_task(store.cancel_requested(lease))
    await until(lambda: engine_of(store).is_polling)
    waiter.cancel()
    await until(lambda: not engine_of(store).is_polling)


@anyio
async def test_a_viewer_that_is_gone_counts_once_more_and_not_for_its_whole_lease(path: Path):
    clock = Clock()
    store, other = SQLiteStore(path, clock=clock), SQLiteStore(path, clock=clock)
    await store.open()
    await other.open()
    lease = await start(store)
    await other.watch("a", "t", "r", viewer="p", seconds=1000)
    await other.close()
    assert await store.watched(lease, within=5) is True  # when it left is not known
    clock.now += 5
    assert await store.watched(lease, within=5) is False
    await store.close()


@anyio
async def test_a_process_that_is_gone_is_forgotten(store: SQLiteStore):
    gone = Listener(lambda _: None)
    gone.open()
    gone.close()
    port = gone.port
    await engine_of(store).write(lambda db: db.execute("INSERT INTO peers VALUES ('gone', ?)", (port,)).rowcount)
    lease = await start(store)
    async with asyncio.timeout(DEADLINE):
        while True:
            await store.append(lease, lines(1))
            peers = await engine_of(store).read(lambda db: db.execute("SELECT token FROM peers").fetchall())
            if ("gone",) not in peers:
                break
    assert len(peers) == 1  # ourselves


@anyio
async def test_datagrams_of_strangers_are_ignored(store: SQLiteStore):
    looked: list[object] = []
    listener = Listener(looked.append)
    for data in (
        b"",
        b"\xff",
        b"[]",
        b'["wrong token", []]',
        b'["wrong", [["a", "t"]]]',
        b'{"token": 1}',
        b'["\xff", []]',
    ):
        listener.handle(data)
    assert looked == []
    listener.handle(b'["%s", [["a", "t"]]]' % listener.token.encode())
    assert looked == [[("a", "t")]]


@anyio
async def test_more_threads_than_fit_a_datagram(store: SQLiteStore, path: Path):
    other = SQLiteStore(path, poll_seconds=1000)  # only a wake-up can do it
    await other.open()
    names = [f"a thread with a rather long name {i}" for i in range(300)]
    for name in names:
        await whole(store, name, "r")
    tail = asyncio.create_task(collect(other.tail("a", names[7]), 3))
    await until(lambda: bool(engine_of(other).feed.waiting))
    async with BlockedWriter(store):
        calls = [asyncio.create_task(start(store, name, "r2")) for name in names]
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    assert len(await tail) == 3
    await other.close()
