"""The store contract: tokens, which distinguish an event from another one with its number."""

from __future__ import annotations

import re

import pytest

from aguila.errors import CursorExpired, NotFound
from aguila.store import Batch, RunEnd, Store
from aguila.store.archives.archive import read_archive
from aguila.testing.store_contract.compaction import compact, compactable
from aguila.testing.store_contract.support import (
    LEASE,
    Clock,
    StoreTest,
    append,
    collect_batches,
    complete,
    delete,
    finish,
    last_of,
    lines,
    read,
    run_of,
    runs_of,
    start,
    summary_of,
    take,
    token_of,
)


async def tokens_of(store: Store) -> list[str]:
    """Return the token of each event of the thread; assert that every way to ask for it agrees."""
    batches = await read(store, "t", limit=1_000)
    found = [batch.token for batch in batches for _ in batch.events]
    first = batches[0].first
    assert [await token_of(store, number) for number in range(first, first + len(found))] == found
    assert [run.token for run in await runs_of(store)] == [found[run.last - first] for run in await runs_of(store)]
    assert (await summary_of(store)).token == found[-1]
    return found


class CursorsContract(StoreTest):
    async def test_each_run_has_a_token_of_its_own(self, store: Store):
        lease = await start(store, events=lines(1, 2))
        assert re.fullmatch("[A-Za-z0-9_-]{8}", lease.token)
        assert (await append(store, lease, lines(3))).token == lease.token
        await finish(store, lease)
        second = await start(store, run_id="second")
        assert second.token != lease.token
        assert await tokens_of(store) == [lease.token] * 4 + [second.token]
        cut: list[Batch] = await collect_batches(store.tail("a", "t", 1), 4)
        assert [batch.token for batch in cut for _ in batch.events] == [lease.token] * 3 + [second.token]

    async def test_a_take_over_begins_a_new_token(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE
        again = (await take(store, "x")).lease
        assert await tokens_of(store) == [lease.token]  # it has written nothing yet
        clock.now += LEASE
        taken = (await take(store, "y")).lease
        assert len({lease.token, again.token, taken.token}) == 3
        await append(store, taken, lines(2, 3), end=RunEnd(outcome="error"))
        second = await start(store, run_id="second")
        assert await tokens_of(store) == [lease.token, taken.token, taken.token, second.token]

    async def test_the_token_of_a_missing_event_is_refused(self, store: Store):
        lease = await start(store)
        assert await token_of(store, 0) == ""
        for number in (2, 2**62):
            with pytest.raises(CursorExpired):
                await token_of(store, number)
        with pytest.raises(NotFound):
            await token_of(store, 1, scope="b")
        await finish(store, lease)
        await delete(store)
        await start(store)
        assert await token_of(store, 3) == ""  # the number before the first event
        for number in (1, 2):
            with pytest.raises(CursorExpired):
                await token_of(store, number)

    @pytest.mark.usefixtures("compacts")
    async def test_a_compacted_run_keeps_the_token_of_its_last_event(self, store: Store, clock: Clock):
        await complete(store, "t", "before")
        lease = await start(store, events=lines(1, 2, 3))
        clock.now += LEASE
        taken = (await take(store, "x")).lease
        await append(store, taken, lines("end"), end=RunEnd(outcome="error"))
        last = await last_of(store)
        assert await token_of(store, last - 1) == lease.token
        clock.now += 100
        for run in await compactable(store, 100):
            if run.run_id == "r":
                await compact(store, run, lines("one", "two"))
        assert await token_of(store, last) == taken.token
        assert (await run_of(store)).token == taken.token
        with pytest.raises(CursorExpired):
            await token_of(store, last - 1)

    async def test_an_archive_keeps_the_tokens_and_what_follows_it_has_others(self, store: Store, clock: Clock):
        lease = await start(store, events=lines(1, 2))
        clock.now += LEASE
        taken = (await take(store, "x")).lease
        await finish(store, taken)
        kept = await tokens_of(store)
        async with store.snapshot() as snapshot:
            older = await read_archive(snapshot, "a", "t")
        lost = await start(store, run_id="lost", events=lines(4, 5))
        await finish(store, lost)
        await store.restore(older, replace=True)
        assert await tokens_of(store) == kept == [lease.token, lease.token, taken.token]
        other = await start(store, run_id="other", events=lines(4, 5))
        assert await tokens_of(store) == [*kept, other.token, other.token]
        assert other.token != lost.token

    async def test_the_end_that_an_archive_adds_to_an_open_run_has_no_token(self, store: Store):
        lease = await start(store)
        async with store.snapshot() as snapshot:
            archive = await read_archive(snapshot, "a", "t")
        await append(store, lease, lines("seen by a reader"), end=RunEnd(outcome="success"))
        await store.restore(archive, replace=True)
        assert await tokens_of(store) == [lease.token, ""]
