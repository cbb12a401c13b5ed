"""The store contract: the summary of a thread, and the details that users change."""

from __future__ import annotations

import pytest

from aguila.errors import AgentMismatch, NotFound
from aguila.store import RunEnd, Store, ThreadUpdate
from aguila.testing.store_contract.support import (
    Clock,
    StoreTest,
    append,
    complete,
    delete,
    finish,
    lines,
    list_threads,
    run_of,
    runs_of,
    start,
    summary_of,
)


class ThreadsContract(StoreTest):
    async def test_a_thread_has_a_summary(self, store: Store, clock: Clock):
        created = clock.now
        await complete(store, "t", "r1")
        clock.now += 10
        lease = await start(store, "t", "r2")
        summary = await summary_of(store)
        assert (summary.thread_id, summary.created_at, summary.updated_at) == ("t", created, clock.now)
        assert (summary.last, summary.runs, summary.is_running) == (3, 2, True)
        clock.now += 10
        await finish(store, lease)
        assert await list_threads(store) == [await summary_of(store)]
        summary = await summary_of(store)
        assert (summary.updated_at, summary.last, summary.is_running) == (clock.now, 4, False)

    async def test_a_summary_names_the_open_run(self, store: Store):
        lease = await start(store, "t", "r1")
        assert (await summary_of(store)).running == "r1"
        await finish(store, lease)
        assert (await summary_of(store)).running is None

    async def test_a_thread_belongs_to_the_agent_of_its_first_run(self, store: Store):
        lease = await start(store, "t", "r1", agent="research")
        for run_id in ("r1", "r2"):  # refused before any other check
            with pytest.raises(AgentMismatch) as refusal:
                await start(store, "t", run_id, agent="writer")
            assert refusal.value.agent == "research"
        await finish(store, lease)
        await finish(store, await start(store, "t", "r2", agent="research"))
        with pytest.raises(AgentMismatch):
            await start(store, "t", "r3")
        assert [run.agent for run in await runs_of(store)] == ["research", "research"]
        assert (await run_of(store, "t", "r2")).agent == (await summary_of(store)).agent == "research"
        await finish(store, await start(store, "t", "r1", scope="b", agent="writer"))  # another thread: another scope
        await delete(store)
        await finish(store, await start(store, "t", "r1", agent="writer"))
        assert (await summary_of(store)).agent == "writer"

    async def test_title_archived_flag_and_metadata_change_independently(self, store: Store, clock: Clock):
        for name in "tu":
            await complete(store, name, "r")
        before = await summary_of(store)
        assert (before.title, before.archived, before.metadata) == (None, False, None)
        clock.now += 10
        updates: list[tuple[ThreadUpdate, tuple[str | None, bool, bytes | None]]] = [
            (ThreadUpdate(default_title="Hawks"), ("Hawks", False, None)),
            (ThreadUpdate(title="Eagles"), ("Eagles", False, None)),
            (ThreadUpdate(default_title="Owls"), ("Eagles", False, None)),
            (ThreadUpdate(archived=True), ("Eagles", True, None)),
            (ThreadUpdate(metadata=b'{"a":1}'), ("Eagles", True, b'{"a":1}')),
            (ThreadUpdate(), ("Eagles", True, b'{"a":1}')),
            (ThreadUpdate(title=None, archived=False), (None, False, b'{"a":1}')),
            (ThreadUpdate(title="", metadata=None), ("", False, None)),
        ]
        for update, expected in updates:
            changed = await store.amend("a", "t", update)
            assert (changed.title, changed.archived, changed.metadata) == expected
            assert changed == await summary_of(store)
            assert (changed.updated_at, changed.position, changed.last) == (before.updated_at, before.position, 2)
        assert [one.thread_id for one in await list_threads(store)] == ["u", "t"]
        for scope, thread_id in (("a", "none"), ("b", "t")):
            with pytest.raises(NotFound):
                await store.amend(scope, thread_id, ThreadUpdate(title="mine"))

    async def test_a_running_thread_can_be_updated(self, store: Store):
        lease = await start(store)
        await store.amend("a", "t", ThreadUpdate(title="Eagles", archived=True, metadata=b"{}"))
        await append(store, lease, lines(1))
        await finish(store, lease)
        found = await summary_of(store)
        assert (found.title, found.archived, found.metadata) == ("Eagles", True, b"{}")

    async def test_a_title_does_not_outlive_its_thread(self, store: Store):
        await complete(store, "t", "r")
        await store.amend("a", "t", ThreadUpdate(title="Eagles", archived=True, metadata=b"{}"))
        await delete(store)
        await complete(store, "t", "r")
        found = await summary_of(store)
        assert (found.title, found.archived, found.metadata) == (None, False, None)

    async def test_the_end_of_a_run_changes_its_thread(self, store: Store):
        lease = await start(store)
        await store.amend("a", "t", ThreadUpdate(title="Hawks", metadata=b"{}"))
        end = RunEnd(outcome="success", update=ThreadUpdate(title="Eagles"))
        await append(store, lease, lines(1), end=end)
        found = await summary_of(store)
        assert (found.title, found.metadata, found.running) == ("Eagles", b"{}", None)
