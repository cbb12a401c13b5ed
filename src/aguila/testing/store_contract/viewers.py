"""The store contract: viewers of runs in other processes."""

from __future__ import annotations

import pytest

from aguila.errors import NotFound
from aguila.store import RunKey, Store, Watch
from aguila.testing.store_contract.support import LEASE, Clock, StoreTest, delete, finish, lost_runs, start

RUN = RunKey("a", "t", "r")


async def watch(store: Store, viewer: str = "p", seconds: float = LEASE) -> None:
    """Tell that a process has viewers of the run; with 0 seconds, that it has none any more."""
    await store.tell(RUN, Watch(viewer, seconds))


class ViewersContract(StoreTest):
    async def test_a_run_is_watched_for_as_long_as_it_was_registered(self, store: Store, clock: Clock):
        await start(store)
        assert await store.is_watched(RUN) is False
        await watch(store)
        clock.now += LEASE - 1
        assert await store.is_watched(RUN) is True
        await watch(store)
        clock.now += LEASE - 1
        assert await store.is_watched(RUN) is True
        clock.now += 1  # the registration has expired
        assert await store.is_watched(RUN) is False

    async def test_a_run_is_watched_until_the_last_viewer_leaves(self, store: Store):
        await start(store)
        await watch(store, "p")
        await watch(store, "q")
        await watch(store, "q")
        await watch(store, "q", seconds=0)
        await watch(store, "never came", seconds=0)
        assert await store.is_watched(RUN) is True
        await watch(store, "p", seconds=0)
        assert await store.is_watched(RUN) is False
        await watch(store, "p")
        assert await store.is_watched(RUN) is True

    async def test_within_finds_viewers_that_have_left(self, store: Store, clock: Clock):
        await start(store)
        await watch(store)
        clock.now += 1
        await watch(store, "p", seconds=0)
        clock.now += 4
        await watch(store, "p", seconds=0)  # has no effect a second time
        assert await store.is_watched(RUN, within=5) is True
        assert await store.is_watched(RUN, within=4) is False
        await watch(store)
        clock.now += LEASE + 4
        assert await store.is_watched(RUN, within=5) is True
        assert await store.is_watched(RUN, within=4) is False

    @pytest.mark.parametrize("step", [1_000_000.0, -1_000_000.0])
    async def test_setting_the_clock_neither_removes_nor_extends_viewers(self, store: Store, clock: Clock, step: float):
        await start(store)
        await watch(store)
        clock.step(step)
        assert await lost_runs(store) == []
        assert await store.is_watched(RUN) is True
        clock.now += LEASE
        assert await store.is_watched(RUN) is False

    async def test_a_missing_run_has_no_viewers(self, store: Store):
        await start(store)
        for key in (RunKey("a", "t", "other"), RunKey("b", "t", "r"), RunKey("a", "other", "r")):
            for seconds in (LEASE, 0):
                with pytest.raises(NotFound):
                    await store.tell(key, Watch("p", seconds))
        assert await store.is_watched(RUN) is False
        await watch(store)
        assert await store.is_watched(RUN) is True
        assert await store.is_watched(RunKey("a", "t", "other")) is False

    async def test_the_viewers_of_a_run_are_removed_with_its_end(self, store: Store):
        first = await start(store)
        await watch(store)
        await finish(store, first)
        await watch(store)
        assert await store.is_watched(RUN) is False
        second = await start(store, run_id="second")
        assert await store.is_watched(RunKey("a", "t", "second")) is False
        await finish(store, second)
        await delete(store)
        await start(store)
        assert await store.is_watched(RUN) is False
