"""The store contract: list, select and find threads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aguila.store import Cancel, Lease, MetadataFilter, RunKey, Store, ThreadFilter, ThreadKey, ThreadUpdate
from aguila.testing.store_contract.support import (
    DEADLINE,
    Clock,
    StoreTest,
    append,
    complete,
    delete,
    finish,
    lines,
    list_threads,
    settle,
    start,
)


async def stamp_of(store: Store) -> str | None:
    """Return the stamp of the list of threads."""
    return (await store.threads("a", ThreadFilter(limit=0))).stamp


async def found_by(store: Store, scope: str = "a", **ids: str) -> str | None:
    """Return the first thread that has this run or interrupt."""
    found = await list_threads(store, scope, limit=1, **ids)
    return found[0].thread_id if found else None


class ListsContract(StoreTest):
    async def test_the_open_runs_of_all_scopes_come_in_the_order_they_began(self, store: Store, clock: Clock):
        assert await store.open_runs() == []
        leases: dict[ThreadKey, Lease] = {}
        for thread_id, scope in (("t2", "b"), ("t1", "a"), ("t1", "b"), ("ended", "a")):
            leases[scope, thread_id] = await start(store, thread_id, "r", scope=scope)
            clock.now += 10
        await finish(store, leases["a", "ended"])
        await append(store, leases["b", "t2"], lines("x"))
        await store.tell(RunKey("a", "t1", "r"), Cancel())
        keys = [RunKey("b", "t2", "r"), RunKey("a", "t1", "r"), RunKey("b", "t1", "r")]
        assert list(await store.open_runs()) == [await store.run(key) for key in keys]
        assert [run.key for run in await store.open_runs("b")] == [keys[0], keys[2]]
        for nobody in ("nobody", "\0", "\ud800"):
            assert await store.open_runs(nobody) == []
        assert [run.cancel_requested for run in await store.open_runs()] == [False, True, False]
        for key in keys:
            await finish(store, leases[key.scope, key.thread_id])
        assert await store.open_runs() == []

    async def test_threads_come_last_updated_first_in_pages(self, store: Store, clock: Clock):
        leases = {name: await start(store, name) for name in "abcdefg"}
        clock.now -= 100  # setting the clock back does not change the order
        await finish(store, leases["c"])
        await finish(store, leases["a"])
        order = list("acgfedb")
        assert [summary.thread_id for summary in await list_threads(store)] == order
        pages: list[str] = []
        before = None
        while page := await list_threads(store, limit=3, before=before):
            assert len(page) <= 3
            pages += [summary.thread_id for summary in page]
            before = page[-1].position
        assert pages == order

    @pytest.mark.parametrize("change", ["deleted", "updated"])
    async def test_the_next_page_is_correct_although_the_last_thread_was(self, store: Store, change: str):
        for name in "abcdef":
            await complete(store, name, "r")
        first = await list_threads(store, limit=2)
        assert [summary.thread_id for summary in first] == ["f", "e"]
        if change == "deleted":
            await delete(store, "e")
            await delete(store, "f")
        else:
            await complete(store, "e", "again")
        rest = await list_threads(store, before=first[-1].position)
        assert [summary.thread_id for summary in rest] == ["d", "c", "b", "a"]

    async def test_a_thread_updated_between_two_pages_is_never_returned_twice(self, store: Store):
        for name in "abcd":
            await complete(store, name, "r")
        first = await list_threads(store, limit=2)
        await complete(store, "a", "again")
        rest = await list_threads(store, before=first[-1].position)
        assert [summary.thread_id for summary in rest] == ["b"]
        assert (await list_threads(store, limit=1))[0].thread_id == "a"

    async def test_threads_are_selected_by_agent_and_archived_flag(self, store: Store):
        for name in "abcdef":
            await finish(store, await start(store, name, agent="x" if name in "abc" else "y"))
        for name in "be":
            await store.amend("a", name, ThreadUpdate(archived=True))

        async def listed(**options: Any) -> str:
            found = await list_threads(store, **options)
            return "".join(one.thread_id for one in found)

        assert await listed() == "fedcba"
        assert await listed(agent="x") == "cba"
        assert await listed(agent="nobody") == ""
        assert await listed(archived=True) == "eb"
        assert await listed(archived=False) == "fdca"
        assert await listed(agent="y", archived=False) == "fd"
        assert await listed(agent="x", limit=2) == "cb"  # the limit counts selected threads
        position = (await list_threads(store, agent="x", limit=1))[0].position
        assert await listed(agent="x", archived=False, before=position) == "a"

    async def test_threads_are_selected_by_a_member_of_their_metadata(self, store: Store):
        values = {"a": b'{"p":"x"}', "b": b'{"p":null}', "c": None, "d": b'{"p":["x"],"q.r":"x"}', "e": b'{"p":"x"}'}
        for name, metadata in values.items():
            await complete(store, name, "r")
            await store.amend("a", name, ThreadUpdate(metadata=metadata, archived=name == "e"))

        async def listed(key: str, value: str | None = None, **options: Any) -> str:
            found = await list_threads(store, metadata=MetadataFilter(key, value), **options)
            return "".join(one.thread_id for one in found)

        assert await listed("p") == "edba"
        assert await listed("p", "x") == "ea"
        assert await listed("q.r", "x") == "d"
        assert await listed("none") == await listed("p", "y") == await listed("p", agent="nobody") == ""
        assert await listed("p", archived=False) == "dba"
        assert await listed("p", limit=2) == "ed"  # the limit counts selected threads
        position = (await list_threads(store, limit=2))[-1].position
        assert await listed("p", limit=2, before=position) == "ba"

    async def test_the_stamp_of_a_list_changes_with_everything_that_the_list_shows(self, store: Store):
        await complete(store, "t", "r1")
        lease = await start(store, "t2", "r1")
        await store.amend("a", "t", ThreadUpdate(title="One"))
        changes = {
            "append": lambda: append(store, lease, lines("more")),
            "end": lambda: finish(store, lease),
            "begin": lambda: start(store, "t3", "r1"),
            "title": lambda: store.amend("a", "t", ThreadUpdate(title="Two")),
            "archived": lambda: store.amend("a", "t", ThreadUpdate(archived=True)),
            "metadata": lambda: store.amend("a", "t", ThreadUpdate(metadata=b"{}")),
            "delete": lambda: delete(store),
        }
        seen = {await stamp_of(store)}
        for name, change in changes.items():
            before = await list_threads(store)
            await change()
            assert await list_threads(store) != before
            stamp = await stamp_of(store)
            assert stamp is None or stamp not in seen, name  # a store need not have stamps
            seen.add(stamp)

    async def test_the_stamp_of_a_list_stays_while_nothing_is_written(self, store: Store):
        await complete(store, "t", "r1")
        async with asyncio.timeout(DEADLINE):  # other tests may write to the same database
            while True:
                before = await stamp_of(store)
                await list_threads(store)
                if before == await stamp_of(store):
                    break

    # Find

    async def test_the_thread_of_a_run_is_the_last_updated_that_has_it(self, store: Store):
        await complete(store, "t1", "r1")
        await complete(store, "t2", "r1")
        await complete(store, "t1", "r2")
        await complete(store, "elsewhere", "r3", scope="b")
        assert await found_by(store, run_id="r1") == "t1"
        assert await found_by(store, run_id="r2") == "t1"
        assert await found_by(store, scope="b", run_id="r3") == "elsewhere"
        for unknown in ("r3", "", "half \ud800"):
            assert await found_by(store, run_id=unknown) is None
        lease = await start(store, "t3", "r4")
        assert await found_by(store, run_id="r4") == "t3"  # while the run is open
        await finish(store, lease)
        await delete(store, "t1")
        assert await found_by(store, run_id="r1") == "t2"
        assert await found_by(store, run_id="r2") is None

    async def test_the_thread_of_an_interrupt_is_the_last_that_raised_it(self, store: Store):
        await complete(store, "t1", "r", "i1", "i2")
        await complete(store, "t2", "r", "i1")
        await complete(store, "elsewhere", "r", "i1", "i3", scope="b")
        assert await found_by(store, interrupt_id="i1") == "t2"
        assert await found_by(store, interrupt_id="i2") == "t1"
        assert await found_by(store, scope="b", interrupt_id="i1") == "elsewhere"
        for unknown in ("i3", "", "half \ud800"):
            assert await found_by(store, interrupt_id=unknown) is None
        lease = await start(store, "t1", "r2", claims=["i1"])
        await settle(store, lease, "i1")
        await finish(store, lease)
        assert await found_by(store, interrupt_id="i1") == "t2"  # settling is not raising
        await complete(store, "t1", "r3", "i1")
        assert await found_by(store, interrupt_id="i1") == "t1"
        await delete(store, "t1")
        assert await found_by(store, interrupt_id="i1") == "t2"
        assert await found_by(store, interrupt_id="i2") is None
        await delete(store, "t2")
        assert await found_by(store, interrupt_id="i1") is None
