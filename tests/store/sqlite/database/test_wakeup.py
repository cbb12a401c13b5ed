"""Wake-ups between processes, and polling without them."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from pathlib import Path

import pytest
from contract.support import DEADLINE, Clock, collect, complete, finish, lines, start
from sqlite_support import BlockedWriter, engine_of
from waiting import wait_until_async

from aguila.store import SQLiteStore
from aguila.store.sqlite.database import locks
from aguila.store.sqlite.database.wakeup import Listener, Sender

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
    cancel = asyncio.create_task(store.cancel_requested(lease))
    await wait_until_async(lambda: bool(engine_of(other).feed.waiting and engine_of(store).feed.waiting))
    await other.request_cancel("a", "t", "r")
    async with asyncio.timeout(DEADLINE):
        await cancel
    await store.append(lease, lines(1))
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
            asked = asyncio.create_task(store.cancel_requested(lease))
            await wait_until_async(lambda: bool(engine_of(store).feed.waiting))
            await other.request_cancel("a", "t", "r", unwatched=True)
            answer = asyncio.create_task(other.cancel_settled("a", "t", "r"))
            assert await asked == "unwatched"
            await wait_until_async(lambda: bool(engine_of(other).feed.waiting))
            await store.settle_cancel("a", "t", "r", granted=not is_declined)
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
    store.listen_for_cancel(lease, lambda: heard.append(None))
    store.listen_for_cancel(bystander, lambda: pytest.fail("no request is for this run"))
    key = ("a", "bystander")
    if is_lost:
        await wait_until_async(lambda: engine_of(store).feed.channels[key].stamp is not None)  # it was polled
    assert heard == []
    await other.request_cancel("a", "t", "r")
    await wait_until_async(lambda: heard)
    assert await store.cancel_requested(lease) == "always"
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
    store.listen_for_cancel(lease, lambda: heard.append(None))
    assert heard == [None]
    assert await store.cancel_requested(lease) == "always"


def port_of(path: Path) -> int:
    """Return the wake-up port of the only store that has the file open."""
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
    # asyncio.run closes its loop, as this test needs.
    asyncio.run(store.open())  # not closed, as when an application is stopped
    port = port_of(path)
    asyncio.run(store.close())
    assert_free(port)


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
    assert_free(port)
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
    assert_free(ports[0])


async def test_without_a_socket_the_store_polls(path: Path, monkeypatch: pytest.MonkeyPatch):
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


async def test_without_waiting_readers_there_is_no_polling(store: SQLiteStore):
    lease = await start(store)
    waiter = asyncio.create_task(store.cancel_requested(lease))
    await wait_until_async(lambda: engine_of(store).is_polling)
    waiter.cancel()
    await wait_until_async(lambda: not engine_of(store).is_polling)


async def test_a_dead_viewer_counts_from_when_its_death_was_found(path: Path):
    clock = Clock()
    store, other = SQLiteStore(path, monotonic=clock.monotonic), SQLiteStore(path, monotonic=clock.monotonic)
    await store.open()
    await other.open()
    lease = await start(store)
    await other.watch("a", "t", "r", viewer="p", seconds=1000)
    await other.close()
    assert await store.watched(lease, within=5) is True  # the time of its death is not known
    clock.now += 5
    assert await store.watched(lease, within=5) is False
    await store.close()


async def test_a_dead_peer_is_removed(store: SQLiteStore):
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
    await wait_until_async(lambda: bool(engine_of(other).feed.waiting))
    async with BlockedWriter(store):
        calls = [asyncio.create_task(start(store, name, "r2")) for name in names]
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    assert len(await tail) == 3
    await other.close()
