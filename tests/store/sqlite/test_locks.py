"""Dead owners and viewers are found by their locks."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from aguila.errors import StaleLease
from aguila.store import RunKey, SQLiteStore, Watch
from aguila.store.sqlite import locks
from aguila.testing.store_contract.support import Clock, append, finish, lines, lost_runs, start, take

pytestmark = pytest.mark.anyio

RUN = RunKey("a", "t", "r")


async def test_an_owner_is_dead_when_its_store_is_closed(store: SQLiteStore, path: Path):
    other = SQLiteStore(path)
    await other.open()
    lease = await start(other, owner="theirs")
    await start(store, "mine", owner="mine")
    assert await lost_runs(store, "mine") == await lost_runs(other, "theirs") == []
    assert await lost_runs(store, "mine", only=RUN) == []
    await other.close()
    await other.open()  # alive again, and not taken over: it may continue
    assert await lost_runs(store, "mine") == []
    await append(other, lease, lines(2))
    await other.close()
    taken = await take(store, "mine")
    assert (taken.run.key, taken.run.owner) == (RUN, "theirs")
    assert await lost_runs(store, "third") == []  # its new owner is alive
    await other.open()
    with pytest.raises(StaleLease):
        await append(other, lease, lines("late"))
    assert await lost_runs(other, "third") == []
    await other.close()
    await finish(store, taken.lease)


async def test_an_owner_with_two_stores_is_alive_until_both_are_closed(store: SQLiteStore, path: Path):
    stores = [SQLiteStore(path), SQLiteStore(path)]
    for number, each in enumerate(stores):
        await each.open()
        await start(each, f"t{number}", owner="theirs")
    await stores[0].close()
    assert await lost_runs(store) == []
    await stores[1].close()
    assert {taken.run.thread_id for taken in await store.take_over("x", 30)} == {"t0", "t1"}


async def test_a_closed_store_has_no_viewers_but_had_some(store: SQLiteStore, path: Path):
    await start(store)
    other = SQLiteStore(path)
    await other.open()
    await other.tell(RUN, Watch("p", 30))
    assert await store.is_watched(RUN)
    await other.close()
    assert not await store.is_watched(RUN)
    assert await store.is_watched(RUN, within=5)  # its viewers may be reconnecting to another process
    await store.tell(RUN, Watch("q", 30))
    assert await store.is_watched(RUN)


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
        assert await lost_runs(store) == await lost_runs(store, only=RUN) == []
        await store.close()
    clock.now += 30
    await store.open()
    assert await lost_runs(store) == ["r"]
    await store.close()


async def test_after_a_restart_of_the_machine_a_lease_lasts_no_longer_than_its_length(path: Path):
    before, after = Clock(), Clock(100.0)  # the monotonic clock begins again
    store = SQLiteStore(path, monotonic=before)
    await store.open()
    await start(store)
    await store.tell(RUN, Watch("p", 30))
    await store.close()
    path.with_name("threads.db-lock").rename(path.with_name("old-lock"))  # as if there were no locks
    store = SQLiteStore(path, monotonic=after)
    await store.open()
    assert await lost_runs(store) == []
    after.now += 30
    assert await lost_runs(store) == ["r"]
    await store.close()


async def test_a_deleted_lock_file_makes_no_owner_dead(store: SQLiteStore, path: Path):
    lease = await start(store)
    path.with_name("threads.db-lock").unlink()
    other = SQLiteStore(path)
    await other.open()
    assert await lost_runs(other) == await lost_runs(other, only=RUN) == []
    await other.close()
    await finish(store, lease)
