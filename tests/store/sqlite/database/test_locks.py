"""Dead owners and viewers are found by their locks."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from contract.support import Clock, finish, lines, start

from aguila.errors import StaleLease
from aguila.store import SQLiteStore
from aguila.store.sqlite.database import locks

pytestmark = pytest.mark.anyio


async def test_an_owner_is_dead_when_its_store_is_closed(store: SQLiteStore, path: Path):
    other = SQLiteStore(path)
    await other.open()
    lease = await start(other, owner="theirs")
    await start(store, "mine", owner="mine")
    run = await store.run("a", "t", "r")
    assert list(await store.expired()) == list(await other.expired()) == []
    assert await store.take_over(run, owner="mine", lease_seconds=30) is None
    await other.close()
    assert await store.expired() == [run]
    await other.open()  # alive again, and not taken over: it may continue
    assert list(await store.expired()) == []
    assert await store.take_over(run, owner="mine", lease_seconds=30) is None
    await other.append(lease, lines(2))
    await other.close()
    taken = await store.take_over(run, owner="mine", lease_seconds=30)
    assert taken is not None
    assert list(await store.expired()) == []  # its new owner is alive
    await other.open()
    with pytest.raises(StaleLease):
        await other.append(lease, lines("late"))
    assert list(await other.expired()) == []
    await other.close()
    await finish(store, taken)


async def test_an_owner_with_two_stores_is_alive_until_both_are_closed(store: SQLiteStore, path: Path):
    stores = [SQLiteStore(path), SQLiteStore(path)]
    for number, each in enumerate(stores):
        await each.open()
        await start(each, f"t{number}", owner="theirs")
    await stores[0].close()
    assert list(await store.expired()) == []
    await stores[1].close()
    assert {run.thread_id for run in await store.expired()} == {"t0", "t1"}


async def test_a_closed_store_has_no_viewers_but_had_some(store: SQLiteStore, path: Path):
    lease = await start(store)
    other = SQLiteStore(path)
    await other.open()
    await other.watch("a", "t", "r", viewer="p", seconds=30)
    assert await store.watched(lease)
    await other.close()
    assert not await store.watched(lease)
    assert await store.watched(lease, within=5)  # its viewers may be reconnecting to another process
    await store.watch("a", "t", "r", viewer="q", seconds=30)
    assert await store.watched(lease)


@pytest.mark.parametrize("refused", ["_lock_shared", "_is_locked"])
async def test_without_locks_only_the_lease_decides(path: Path, monkeypatch: pytest.MonkeyPatch, refused: str):
    def refuse(file: int, at: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    clock = Clock()
    with monkeypatch.context() as patch:
        patch.setattr(locks, refused, refuse)
        gone = SQLiteStore(path, monotonic=clock.monotonic)
        await gone.open()
        await start(gone)
        await gone.close()
    for store in (SQLiteStore(path, monotonic=clock.monotonic), SQLiteStore(path, monotonic=clock.monotonic)):
        await store.open()
        run = await store.run("a", "t", "r")
        assert list(await store.expired()) == []
        assert await store.take_over(run, owner="x", lease_seconds=30) is None
        await store.close()
    clock.now += 30
    await store.open()
    assert [run.run_id for run in await store.expired()] == ["r"]
    await store.close()


async def test_after_a_restart_of_the_machine_a_lease_lasts_no_longer_than_its_length(path: Path):
    before, after = Clock(), Clock(100.0)  # the monotonic clock begins again
    store = SQLiteStore(path, monotonic=before)
    await store.open()
    await start(store)
    await store.watch("a", "t", "r", viewer="p", seconds=30)
    await store.close()
    path.with_name("threads.db-lock").rename(path.with_name("old-lock"))  # as if there were no locks
    store = SQLiteStore(path, monotonic=after)
    await store.open()
    assert list(await store.expired()) == []
    after.now += 30
    assert [run.run_id for run in await store.expired()] == ["r"]
    await store.close()


async def test_a_deleted_lock_file_makes_no_owner_dead(store: SQLiteStore, path: Path):
    lease = await start(store)
    path.with_name("threads.db-lock").unlink()
    other = SQLiteStore(path)
    await other.open()
    assert list(await other.expired()) == []
    assert await other.take_over(await other.run("a", "t", "r"), owner="x", lease_seconds=30) is None
    await other.close()
    await finish(store, lease)
