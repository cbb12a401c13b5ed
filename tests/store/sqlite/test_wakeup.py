"""Wake-ups between processes, and polling without them."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from pathlib import Path

import pytest
from sqlite_support import BlockedWriter, run_sql
from waiting import wait_until_async

from aguila.store import AnswerCancel, Cancel, RunKey, SQLiteStore, Watch
from aguila.store.sqlite import locks
from aguila.store.sqlite.wakeup import Listener, Sender
from aguila.testing.store_contract.support import DEADLINE, Clock, append, collect, complete, finish, lines, start

pytestmark = pytest.mark.anyio


async def test_lost_wake_ups_are_made_up_for_by_polling(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
):
    def lose(*_: object) -> None: ...

    monkeypatch.setattr(Sender, "send", lose)
    other = SQLiteStore(path)
    await other.open()
    lease = await start(store)
    tail = asyncio.create_task(collect(other.tail("a", "t"), 3))
    cancel = asyncio.create_task(store.wait_for_cancel(lease))
    await wait_until_async(lambda: bool(other.live.waiting and store.live.waiting))
    await other.tell(RunKey("a", "t", "r"), Cancel())
    async with asyncio.timeout(DEADLINE):
        await cancel
    await append(store, lease, lines(1))
    await finish(store, lease)
    assert await tail == lines("started", 1, "finished")
    await other.close()


@pytest.mark.parametrize("is_lost", [False, True], ids=["by datagram", "by polling"])
async def test_two_stores_agree_on_an_unwatched_cancel_request(
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
            asked = asyncio.create_task(store.wait_for_cancel(lease))
            await wait_until_async(lambda: bool(store.live.waiting))
            await other.tell(RunKey("a", "t", "r"), Cancel(unwatched=True))
            answer = asyncio.create_task(other.wait_for_answer(RunKey("a", "t", "r")))
            assert await asked == "unwatched"
            await wait_until_async(lambda: bool(other.live.waiting))
            await store.tell(RunKey("a", "t", "r"), AnswerCancel(granted=not is_declined))
            assert (await answer).cancel_requested is not is_declined
    await other.close()


@pytest.mark.parametrize("is_lost", [False, True], ids=["by datagram", "by polling"])
async def test_a_run_hears_of_a_cancel_request_without_a_task_that_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
):
    def lose(*_: object) -> None: ...

    if is_lost:
        monkeypatch.setattr(Sender, "send", lose)
    store, other = (SQLiteStore(path, poll_seconds=0.05 if is_lost else 3600) for _ in range(2))
    await store.open()
    await other.open()
    heard: list[None] = []
    lease, bystander = await start(store), await start(store, "bystander")
    store.on_change(lease, lambda: heard.append(None))
    store.on_change(bystander, lambda: pytest.fail("no request is for this run"))
    key = ("a", "bystander")
    if is_lost:
        await wait_until_async(lambda: store.live.channels[key].stamp is not None)  # it was polled
    assert heard == []
    await other.tell(RunKey("a", "t", "r"), Cancel())
    await wait_until_async(lambda: heard)
    assert await store.wait_for_cancel(lease) == "always"
    await finish(store, lease)
    count = len(heard)
    await finish(store, bystander)
    assert len(heard) == count  # the end of a run is no request
    await other.close()
    await store.close()


async def test_a_run_that_lost_its_lease_is_called_at_once(store: SQLiteStore):
    lease = await start(store)
    await finish(store, lease)
    heard: list[None] = []
    store.on_change(lease, lambda: heard.append(None))
    assert heard == [None]
    assert await store.wait_for_cancel(lease) == "always"


def port_of(path: Path) -> int:
    """Return the wake-up port of the only store that has the file open."""
    db = sqlite3.connect(path)
    try:
        ((port,),) = db.execute("SELECT port FROM peers").fetchall()
        return port
    finally:
        db.close()


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def test_the_socket_for_wake_ups_is_closed_when_the_event_loop_was_closed_before_the_store(path: Path):
    store = SQLiteStore(path)
    # asyncio.run closes its loop, as this test needs.
    asyncio.run(store.open())  # not closed, as when an application is stopped
    port = port_of(path)
    asyncio.run(store.close())
    assert is_free(port)


async def test_the_socket_for_wake_ups_is_closed_when_closing_is_cancelled(path: Path):
    store = SQLiteStore(path, busy_seconds=0.05)
    await store.open()
    port = port_of(path)
    blocker = sqlite3.connect(path)
    blocker.execute("BEGIN IMMEDIATE")
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)  # let it wait for the writer, which waits for the lock
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await wait_until_async(lambda: is_free(port))
    blocker.rollback()
    blocker.close()


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
    assert is_free(ports[0])


async def test_without_a_socket_the_store_polls(path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse, raising=False)
    stores = [SQLiteStore(path), SQLiteStore(path)]
    for each in stores:
        await each.open()
    lease = await start(stores[0])
    cancel = asyncio.create_task(stores[0].wait_for_cancel(lease))
    await stores[1].tell(RunKey("a", "t", "r"), Cancel())
    async with asyncio.timeout(DEADLINE):
        await cancel
    for each in stores:
        await each.close()


async def test_without_waiting_readers_there_is_no_polling(store: SQLiteStore):
    lease = await start(store)
    waiter = asyncio.create_task(store.wait_for_cancel(lease))
    await wait_until_async(lambda: store.live.is_polling)
    waiter.cancel()
    await wait_until_async(lambda: not store.live.is_polling)


async def test_a_dead_viewer_counts_from_when_its_death_was_found(path: Path):
    clock = Clock()
    store, other = SQLiteStore(path, monotonic=clock.monotonic), SQLiteStore(path, monotonic=clock.monotonic)
    await store.open()
    await other.open()
    await start(store)
    await other.tell(RunKey("a", "t", "r"), Watch("p", 1000))
    await other.close()
    assert await store.is_watched(RunKey("a", "t", "r"), within=5) is True  # the time of its death is not known
    clock.now += 5
    assert await store.is_watched(RunKey("a", "t", "r"), within=5) is False
    await store.close()


async def test_a_dead_peer_is_removed(store: SQLiteStore):
    gone = Listener(lambda _: None)
    gone.open()
    gone.close()
    port = gone.port
    await store.transact(lambda tx: tx.do("INSERT INTO peers VALUES ('gone', $1)", port))
    lease = await start(store)
    async with asyncio.timeout(DEADLINE):
        while True:
            await append(store, lease, lines(1))
            peers = await run_sql(store, "SELECT token FROM peers")
            if ("gone",) not in peers:
                break
    assert len(peers) == 1  # this store


async def test_datagrams_without_our_token_are_ignored(store: SQLiteStore):
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


async def test_a_change_of_more_threads_than_fit_a_datagram_wakes_all(store: SQLiteStore, path: Path):
    other = SQLiteStore(path, poll_seconds=1000)  # no polling: only a wake-up reaches it
    await other.open()
    names = [f"a thread with a rather long name {i}" for i in range(300)]
    for name in names:
        await complete(store, name, "r")
    tail = asyncio.create_task(collect(other.tail("a", names[7]), 3))
    await wait_until_async(lambda: bool(other.live.waiting))
    async with BlockedWriter(store):
        calls = [asyncio.create_task(start(store, name, "r2")) for name in names]
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    assert len(await tail) == 3
    await other.close()
