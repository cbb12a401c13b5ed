"""Which writes are done on the event loop, and which are left to the thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from contract.support import DEADLINE, events_of, finish, lines, start
from sqlite_support import engine_of

from aguila.errors import StaleLease, StoreUnavailable, ThreadBusy
from aguila.store import Lease, RunEnd, SQLiteStore
from aguila.store.sqlite import checkpoint
from aguila.store.sqlite.connection import Synchronous
from aguila.store.sqlite.store import SHORT

pytestmark = pytest.mark.anyio


class Where:
    """A clock that notes whether each write was made on the event loop: it is asked within the transaction."""

    def __init__(self) -> None:
        self.was_here: list[bool] = []

    def __call__(self) -> float:
        self.was_here.append(threading.current_thread() is threading.main_thread())
        return time.time()


@pytest.fixture
def where() -> Where:
    return Where()


@pytest.fixture
async def make(tmp_path: Path, where: Where) -> AsyncIterator[Callable[..., SQLiteStore]]:
    made: list[SQLiteStore] = []

    def make(synchronous: Synchronous = "NORMAL") -> SQLiteStore:
        made.append(SQLiteStore(tmp_path / "threads.db", synchronous=synchronous, busy_seconds=0.05, clock=where))
        return made[-1]

    yield make
    for store in made:
        await store.close()


@pytest.fixture
async def store(make: Callable[..., SQLiteStore]) -> SQLiteStore:
    store = make()
    await store.open()
    await at_rest(store)
    return store


async def come_round() -> None:
    await asyncio.sleep(0)


async def at_rest(store: SQLiteStore) -> None:
    """Return when the thread has done what it does after a commit, checkpoints too."""
    writer = engine_of(store).writer
    async with asyncio.timeout(DEADLINE):
        while True:
            await asyncio.sleep(0.001)
            if not writer.is_busy and not writer.checkpointer.is_due:
                return


async def test_the_short_writes_of_a_lone_run_are_done_at_once(store: SQLiteStore, where: Where):
    lease = await start(store)
    await come_round()
    await store.append(lease, lines(1))
    await come_round()
    await finish(store, lease, session=b"{}")
    assert where.was_here == [True] * 3
    assert events_of(await store.read("a", "t")) == lines("started", 1, "finished")
    assert await store.session("a", "t") == b"{}"


async def test_an_event_that_was_written_at_once_reaches_who_follows(store: SQLiteStore):
    lease = await start(store)
    tail = store.tail("a", "t", 1)
    waiting = asyncio.ensure_future(anext(tail))
    await come_round()
    await store.append(lease, lines(1))
    assert list((await waiting).events) == lines(1)
    await tail.aclose()  # type: ignore[attr-defined]


async def test_what_is_refused_at_once_is_refused_alike(store: SQLiteStore, where: Where):
    lease = await start(store)
    await come_round()
    with pytest.raises(ThreadBusy):
        await start(store, run_id="r2")
    await come_round()
    stale = Lease(scope="a", thread_id="t", run_id="r", epoch=7, owner="o")
    with pytest.raises(StaleLease):
        await store.append(stale, lines(1))
    assert where.was_here == [True] * 3
    await come_round()
    assert (await store.append(lease, lines(1))).first == 2


async def test_the_event_loop_is_held_up_once_at_a_time(store: SQLiteStore, where: Where):
    await asyncio.gather(*(start(store, f"t{index}") for index in range(10)))
    assert where.was_here == [True] + [False] * 9


async def test_after_several_came_together_the_thread_goes_on_until_one_comes_alone(store: SQLiteStore, where: Where):
    await asyncio.gather(*(start(store, f"t{index}") for index in range(10)))
    for index in range(3):
        await at_rest(store)
        await start(store, f"u{index}")
    assert where.was_here[10:] == [False, True, True]


@pytest.mark.parametrize("what", ["input", "events", "session", "interrupt"])
async def test_what_is_long_is_left_to_the_thread(store: SQLiteStore, where: Where, what: str):
    long = b'"%s"' % (b"x" * SHORT)
    if what == "input":
        await store.begin(
            "a", "t", "r", owner="o", lease_seconds=30, input=long, fingerprint="f", events=lines("started")
        )
    elif what == "events":
        await start(store, events=[long])
    else:
        lease = await start(store)
        await come_round()
        where.was_here.clear()
        interrupts = [("i", long)] if what == "interrupt" else []
        end = RunEnd(outcome="success", session=long if what == "session" else None, interrupts=interrupts)
        await store.append(lease, lines("finished"), end=end)
    assert where.was_here == [False]


async def test_who_waits_for_the_disk_does_not_do_so_on_the_event_loop(make: Callable[..., SQLiteStore], where: Where):
    store = make("FULL")
    await store.open()
    lease = await start(store)
    await come_round()
    await finish(store, lease)
    assert where.was_here == [False, False]


async def test_a_locked_file_is_waited_for_by_the_thread(store: SQLiteStore, where: Where, tmp_path: Path):
    lease = await start(store)
    await come_round()
    other = sqlite3.connect(tmp_path / "threads.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(store.append(lease, lines(1)))
    await come_round()
    assert not writing.done()
    with pytest.raises(StoreUnavailable, match="locked"):
        await writing
    later = asyncio.ensure_future(store.append(lease, lines(2)))
    await come_round()
    other.execute("ROLLBACK")
    other.close()
    assert (await later).first == 2
    await at_rest(store)
    where.was_here.clear()
    await store.append(lease, lines(3))
    assert where.was_here == [True]


async def test_where_there_are_other_processes_the_thread_writes(
    store: SQLiteStore, make: Callable[..., SQLiteStore], where: Where
):
    other = make()
    await other.open()
    lease = await start(store)  # which is when it notices, and tells the other
    await at_rest(store)
    where.was_here.clear()
    tail = other.tail("a", "t", 1)
    waiting = asyncio.ensure_future(anext(tail))
    await store.append(lease, lines(1))
    async with asyncio.timeout(DEADLINE):
        assert list((await waiting).events) == lines(1)
    await tail.aclose()  # type: ignore[attr-defined]
    assert where.was_here == [False]
    await other.close()
    await store.append(lease, lines(2))
    await at_rest(store)
    where.was_here.clear()
    await store.append(lease, lines(3))
    assert where.was_here == [True]


async def test_the_commit_after_a_checkpoint_is_made_by_the_thread(
    store: SQLiteStore, where: Where, monkeypatch: pytest.MonkeyPatch
):
    lease = await start(store)
    await come_round()
    monkeypatch.setattr(checkpoint, "MAX_ROWS", 1)
    await store.append(lease, lines(1))
    await come_round()
    monkeypatch.undo()
    where.was_here.clear()
    for index in range(2):
        await at_rest(store)
        await store.append(lease, lines(index))
    assert where.was_here == [False, True]


async def test_while_a_checkpoint_is_on_one_commit_is_made_by_the_thread(
    store: SQLiteStore, where: Where, monkeypatch: pytest.MonkeyPatch
):
    """What is committed after it began cannot be moved by it, so the log goes on."""
    lease = await start(store)
    await come_round()
    entered, gate = threading.Event(), threading.Event()

    def checkpoint_slowly(db: sqlite3.Connection) -> tuple[int, int]:
        entered.set()
        gate.wait(DEADLINE)
        return 10, 5

    monkeypatch.setattr(checkpoint, "run_checkpoint", checkpoint_slowly)
    monkeypatch.setattr(checkpoint, "MAX_ROWS", 1)
    await store.append(lease, lines(0))
    await asyncio.to_thread(entered.wait, DEADLINE)
    where.was_here.clear()
    writer = engine_of(store).writer
    for index in range(3):
        await store.append(lease, lines(index))
        async with asyncio.timeout(DEADLINE):
            while True:
                await asyncio.sleep(0.001)
                if not writer.is_busy:
                    break
    assert where.was_here == [False, True, True]
    monkeypatch.undo()
    gate.set()


async def test_an_error_of_the_disk_at_once_is_an_outage_like_any_other(store: SQLiteStore):
    lease = await start(store)
    await come_round()
    threads: list[threading.Thread] = []

    def fails(db: sqlite3.Connection) -> None:
        threads.append(threading.current_thread())
        raise sqlite3.OperationalError("disk I/O error")

    engine = engine_of(store)
    used = engine.writer.connection
    with pytest.raises(StoreUnavailable, match="disk I/O"):
        await engine.write(fails, is_short=True)
    assert threads == [threading.main_thread()]
    await come_round()
    assert (await store.append(lease, lines(1))).first == 2
    assert engine.writer.connection is not used


async def test_nothing_overtakes_what_is_queued(store: SQLiteStore, where: Where):
    lease = await start(store)
    await come_round()
    entered, gate = threading.Event(), threading.Event()
    engine = engine_of(store)
    first = engine.write(lambda _: (entered.set(), gate.wait(DEADLINE)))
    await asyncio.to_thread(entered.wait, DEADLINE)
    second = asyncio.ensure_future(store.append(lease, lines(1)))
    await come_round()
    assert not second.done()
    gate.set()
    await asyncio.gather(first, second)
    assert where.was_here == [True, False]


async def test_a_cancel_that_came_before_its_owner_listened_is_heard(
    store: SQLiteStore, make: Callable[..., SQLiteStore]
):
    other = make()
    await other.open()
    lease = await start(store)
    await other.request_cancel("a", "t", "r")
    async with asyncio.timeout(DEADLINE):
        assert await store.cancel_requested(lease) == "always"
