"""Which writes run inline, on the event loop, and which on the writer thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlite_support import BlockedWriter, database_of
from waiting import wait_until_async

from aguila.errors import StaleLease, StoreUnavailable, ThreadBusy
from aguila.store import Cancel, Lease, RunChange, RunEnd, RunKey, SQLiteStore
from aguila.store.records import Durability
from aguila.store.sql.store import SHORT
from aguila.store.sql.tx import Tx
from aguila.store.sql.writer import run_one
from aguila.store.sqlite import checkpoint
from aguila.testing.store_contract.support import DEADLINE, append, events_of, finish, lines, read, session_of, start

pytestmark = pytest.mark.anyio


class ThreadRecorder:
    """A clock that records whether each write ran on the event loop. The store reads it in each transaction.

    While ``may_write`` is cleared, the writer thread waits.
    """

    def __init__(self) -> None:
        self.was_inline: list[bool] = []
        self.may_write = threading.Event()
        self.may_write.set()

    def __call__(self) -> float:
        thread = threading.current_thread()
        is_inline = thread is threading.main_thread()
        if is_inline or thread.name == "aguila-store-writer":  # and no reader
            self.was_inline.append(is_inline)
        if thread.name == "aguila-store-writer":
            self.may_write.wait(DEADLINE)
        return time.time()


@pytest.fixture
def recorder() -> ThreadRecorder:
    return ThreadRecorder()


@pytest.fixture
async def make(tmp_path: Path, recorder: ThreadRecorder) -> AsyncIterator[Callable[..., SQLiteStore]]:
    made: list[SQLiteStore] = []

    def make(durability: Durability = "process") -> SQLiteStore:
        made.append(SQLiteStore(tmp_path / "threads.db", durability=durability, busy_seconds=0.05, clock=recorder))
        return made[-1]

    yield make
    for store in made:
        await store.close()


@pytest.fixture
async def store(make: Callable[..., SQLiteStore]) -> SQLiteStore:
    store = make()
    await store.open()
    await wait_until_idle(store)
    return store


async def next_iteration() -> None:
    await asyncio.sleep(0)


async def wait_until_idle(store: SQLiteStore) -> None:
    """Wait until the writer thread and the checkpoint thread are idle."""
    database = database_of(store)
    await next_iteration()
    await wait_until_async(
        lambda: not store._writer._queued and not is_busy(store) and not database.checkpointer.is_due
    )


def is_busy(store: SQLiteStore) -> bool:
    """Return whether the connection that writes is in use."""
    turn = database_of(store).turn
    is_free = turn.acquire(blocking=False)
    if is_free:
        turn.release()
    return not is_free


async def test_short_writes_of_a_single_run_are_inline(store: SQLiteStore, recorder: ThreadRecorder):
    lease = await start(store)
    await next_iteration()
    await append(store, lease, lines(1))
    await next_iteration()
    await finish(store, lease, session=b"{}")
    assert recorder.was_inline == [True] * 3
    assert events_of(await read(store)) == lines("started", 1, "finished")
    assert await session_of(store) == b"{}"


async def test_an_event_written_inline_reaches_a_tail(store: SQLiteStore):
    lease = await start(store)
    tail = store.tail("a", "t", 1)
    waiting = asyncio.ensure_future(anext(tail))
    await next_iteration()
    await append(store, lease, lines(1))
    assert list((await waiting).events) == lines(1)
    await tail.aclose()  # type: ignore[attr-defined]


async def test_an_inline_write_is_refused_like_any_other(store: SQLiteStore, recorder: ThreadRecorder):
    lease = await start(store)
    await next_iteration()
    with pytest.raises(ThreadBusy):
        await start(store, run_id="r2")
    await next_iteration()
    stale = Lease(scope="a", thread_id="t", run_id="r", epoch=7, owner="o")
    with pytest.raises(StaleLease):
        await append(store, stale, lines(1))
    assert recorder.was_inline == [True] * 3
    await next_iteration()
    assert (await append(store, lease, lines(1))).first == 2


async def test_one_write_per_iteration_of_the_event_loop_is_inline(store: SQLiteStore, recorder: ThreadRecorder):
    await asyncio.gather(*(start(store, f"t{index}") for index in range(10)))
    assert recorder.was_inline[0] is True
    assert not any(recorder.was_inline[1:])


async def test_after_concurrent_writes_the_thread_writes_until_one_comes_alone(
    store: SQLiteStore, recorder: ThreadRecorder
):
    recorder.may_write.clear()
    first = [asyncio.create_task(start(store, f"t{index}")) for index in range(10)]
    await wait_until_async(lambda: len(recorder.was_inline) == 2)
    recorder.may_write.set()  # one is written inline, one by the thread, and eight in its next transaction
    await asyncio.gather(*first)
    for index in range(3):
        await wait_until_idle(store)
        await start(store, f"u{index}")
    assert recorder.was_inline == [True, False, False, False, True, True]


@pytest.mark.parametrize("what", ["input", "events", "session", "interrupt"])
async def test_a_long_write_is_made_by_the_thread(store: SQLiteStore, recorder: ThreadRecorder, what: str):
    long = b'"%s"' % (b"x" * SHORT)
    if what == "input":
        await start(store, request=long)
    elif what == "events":
        await start(store, events=[long])
    else:
        lease = await start(store)
        await next_iteration()
        recorder.was_inline.clear()
        end = RunEnd(outcome="success", interrupts=[("i", long)] if what == "interrupt" else [])
        session = long if what == "session" else None
        await store.write(lease, RunChange(events=lines("finished"), session=session, end=end))
    assert recorder.was_inline == [False]


async def test_a_commit_that_waits_for_the_disk_is_made_by_the_thread(
    make: Callable[..., SQLiteStore], recorder: ThreadRecorder
):
    store = make("power")
    await store.open()
    lease = await start(store)
    await next_iteration()
    await finish(store, lease)
    assert recorder.was_inline == [False, False]


async def test_the_thread_waits_for_a_locked_file(store: SQLiteStore, recorder: ThreadRecorder, tmp_path: Path):
    lease = await start(store)
    await next_iteration()
    other = sqlite3.connect(tmp_path / "threads.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(append(store, lease, lines(1)))
    await next_iteration()
    assert not writing.done()
    with pytest.raises(StoreUnavailable, match="locked"):
        await writing
    later = asyncio.ensure_future(append(store, lease, lines(2)))
    await next_iteration()
    other.execute("ROLLBACK")
    other.close()
    assert (await later).first == 2
    await wait_until_idle(store)
    recorder.was_inline.clear()
    await append(store, lease, lines(3))
    assert recorder.was_inline == [True]


async def test_the_thread_writes_while_another_store_has_the_file_open(
    store: SQLiteStore, make: Callable[..., SQLiteStore], recorder: ThreadRecorder
):
    other = make()
    await other.open()
    lease = await start(store)  # finds the other store, and notifies it
    await wait_until_idle(store)
    recorder.was_inline.clear()
    tail = other.tail("a", "t", 1)
    waiting = asyncio.ensure_future(anext(tail))
    await append(store, lease, lines(1))
    async with asyncio.timeout(DEADLINE):
        assert list((await waiting).events) == lines(1)
    await tail.aclose()  # type: ignore[attr-defined]
    assert recorder.was_inline == [False]
    await other.close()
    await append(store, lease, lines(2))
    await wait_until_idle(store)
    recorder.was_inline.clear()
    await append(store, lease, lines(3))
    assert recorder.was_inline == [True]


async def test_the_commit_after_a_checkpoint_is_made_by_the_thread(
    store: SQLiteStore, recorder: ThreadRecorder, monkeypatch: pytest.MonkeyPatch
):
    lease = await start(store)
    await next_iteration()
    monkeypatch.setattr(checkpoint, "MAX_ROWS", 1)
    await append(store, lease, lines(1))
    await next_iteration()
    monkeypatch.undo()
    recorder.was_inline.clear()
    for index in range(2):
        await wait_until_idle(store)
        await append(store, lease, lines(index))
    assert recorder.was_inline == [False, True]


async def test_one_commit_during_a_checkpoint_is_made_by_the_thread(
    store: SQLiteStore, recorder: ThreadRecorder, monkeypatch: pytest.MonkeyPatch
):
    """A checkpoint does not move what is committed after it began, so the WAL does not start over."""
    lease = await start(store)
    await next_iteration()
    entered, gate = threading.Event(), threading.Event()

    def checkpoint_slowly(db: sqlite3.Connection) -> tuple[int, int]:
        entered.set()
        gate.wait(DEADLINE)
        return 10, 5

    monkeypatch.setattr(checkpoint, "run_checkpoint", checkpoint_slowly)
    monkeypatch.setattr(checkpoint, "MAX_ROWS", 1)
    await append(store, lease, lines(0))
    await asyncio.to_thread(entered.wait, DEADLINE)
    recorder.was_inline.clear()
    for index in range(3):
        await append(store, lease, lines(index))
        await next_iteration()
        await wait_until_async(lambda: not is_busy(store))
    assert recorder.was_inline == [False, True, True]
    monkeypatch.undo()
    gate.set()


async def test_a_disk_error_of_an_inline_write_is_an_outage(store: SQLiteStore):
    lease = await start(store)
    await next_iteration()
    threads: list[threading.Thread] = []

    def fails(tx: Tx) -> None:
        threads.append(threading.current_thread())
        if len(threads) < 1000:
            raise sqlite3.OperationalError("disk I/O error")

    used = database_of(store).connection
    with pytest.raises(StoreUnavailable, match="disk I/O"):
        await store.writer.submit(run_one(fails), is_short=True)
    assert threads[0] is threading.main_thread()
    await next_iteration()
    assert (await append(store, lease, lines(1))).first == 2
    assert database_of(store).connection is not used


async def test_no_write_overtakes_a_queued_one(store: SQLiteStore, recorder: ThreadRecorder):
    lease = await start(store)
    await next_iteration()
    async with BlockedWriter(store):
        recorder.was_inline.clear()
        second = asyncio.ensure_future(append(store, lease, lines(1)))
        await next_iteration()
        assert not second.done()
    await second
    assert recorder.was_inline == [False]


async def test_a_cancel_request_from_before_the_owner_waited_is_delivered(
    store: SQLiteStore, make: Callable[..., SQLiteStore]
):
    other = make()
    await other.open()
    lease = await start(store)
    await other.tell(RunKey("a", "t", "r"), Cancel())
    async with asyncio.timeout(DEADLINE):
        assert await store.wait_for_cancel(lease) == "always"
