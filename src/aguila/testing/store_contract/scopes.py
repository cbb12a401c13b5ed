"""The store contract: a scope sees nothing of another, and is listed and deleted as a whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest

from aguila.errors import InterruptTaken, NotFound, StaleLease, ThreadBusy
from aguila.store import (
    Cancel,
    FileRecord,
    RemovedThreads,
    Rest,
    RunKey,
    ScopeRecord,
    ScopeTarget,
    Store,
    ThreadTarget,
    ThreadUpdate,
    Usage,
)
from aguila.testing.store_contract.support import (
    Clock,
    StoreTest,
    append,
    collect,
    complete,
    delete,
    delete_file,
    events_of,
    finish,
    is_stored,
    last_of,
    lines,
    list_threads,
    lost_runs,
    read,
    record,
    run_of,
    session_of,
    start,
    statuses,
    summary_of,
    usage_of,
)

RUN = RunKey("b", "t", "r")

CALLS: Mapping[str, Callable[[Store], Awaitable[object]]] = {
    "thread": lambda store: store.thread("b", "t"),
    "run": lambda store: store.run(RUN),
    "request": lambda store: store.request(RUN),
    "read": lambda store: store.read("b", "t"),
    "tail": lambda store: collect(store.tail("b", "t"), 1),
    "amend": lambda store: store.amend("b", "t", ThreadUpdate(title="mine")),
    "delete": lambda store: store.delete("b", ThreadTarget("t")),
    "tell": lambda store: store.tell(RUN, Cancel()),
    "wait_for_answer": lambda store: store.wait_for_answer(RUN),
    "is_watched": lambda store: store.is_watched(RUN),
}
"""Calls of scope b for a thread of scope a."""


async def rest_of(store: Store, scope: str | None = None) -> list[Rest]:
    """Return what is not in a thread, of one scope or of all."""
    return [one async for one in store.rest(scope)]


class ScopesContract(StoreTest):
    @pytest.mark.parametrize("name", CALLS)
    async def test_another_scope_does_not_see_the_thread(self, store: Store, name: str):
        await start(store)
        with pytest.raises(NotFound):
            await CALLS[name](store)
        assert (await run_of(store)).cancel is None
        assert (await summary_of(store)).title is None
        assert await lost_runs(store, only=RUN) == []

    async def test_another_scope_lists_nothing_and_keeps_its_own(self, store: Store, clock: Clock):
        lease = await start(store)
        await record(store, lease, "r", "k", b"1")
        await finish(store, lease, "i1", session=b"mine")
        file = await store.put_file("a", b"1", media_type="text/plain", thread_id="t")
        for filters in ({}, {"interrupt_id": "i1"}, {"run_id": "r"}):
            assert await list_threads(store, "b", **filters) == []
        assert await usage_of(store, "b") == Usage()
        assert not await is_stored(store, file.file_id, "b")
        with pytest.raises(NotFound):
            await delete_file(store, file.file_id, "b")
        with pytest.raises(InterruptTaken):
            await start(store, run_id="r2", scope="b", claims=["i1"])
        other = await store.put_file("b", b"1", media_type="text/plain", thread_id="t")
        assert other.file_id != file.file_id
        taken = await start(store, scope="b")  # same ids in another scope: another thread and run
        assert await last_of(store, "t", "b") == 1
        with pytest.raises(StaleLease):
            await append(store, lease, lines("late"))
        await finish(store, taken, session=b"theirs")
        await delete(store, "t", "b")
        assert await session_of(store) == b"mine"
        assert await store.file("a", file.file_id) == (file, b"1")
        assert await statuses(store) == {"i1": "open"}
        assert events_of(await read(store)) == lines("started", "finished")

    # Whole scopes

    async def test_the_scopes_of_a_store_are_listed_with_what_they_hold(self, store: Store):
        await complete(store, "t", "r", scope="b")
        await store.put_file("c", b"123", media_type="text/plain")
        await store.put_file("a", b"45", media_type="text/plain")
        await start(store, scope="a")
        await complete(store, "t2", "r", scope="b")
        await append(store, await start(store, "t2", "r2", scope="b"), lines("x", "y"))
        await complete(store, "gone", "r", scope="d")
        await delete(store, "gone", "d")
        found = await rest_of(store)
        assert [type(one) for one in found] == 3 * [ScopeRecord] + 2 * [FileRecord] + [RemovedThreads]
        scopes = [one for one in found if isinstance(one, ScopeRecord)]
        assert [(one.scope, one.runs, one.events) for one in scopes] == [("a", 1, 1), ("b", 3, 7), ("c", 0, 0)]
        assert [one.usage for one in scopes] == [await usage_of(store, scope) for scope in "abc"]
        assert [one.scope for one in await rest_of(store, "b") if isinstance(one, ScopeRecord)] == ["b"]
        for nobody in ("nobody", "\0", "\ud800"):
            assert await rest_of(store, nobody) == []

    async def test_files_are_listed_with_the_threads_that_hold_them(self, store: Store):
        free = await store.put_file("a", b"free", media_type="text/plain")
        held = await store.put_file("a", b"held", media_type="text/plain", thread_id="t")
        await store.put_file("a", b"held", media_type="text/plain", thread_id="never ran")
        await complete(store, "t", "r")
        files = {one.file_id: one for one in await rest_of(store, "a") if isinstance(one, FileRecord)}
        assert files.keys() == {free.file_id, held.file_id}
        assert (files[free.file_id].is_kept, files[free.file_id].thread_ids) == (True, ())
        assert (files[held.file_id].is_kept, set(files[held.file_id].thread_ids)) == (False, {"t", "never ran"})
        assert not [one for one in await rest_of(store, "b") if isinstance(one, FileRecord)]

    async def test_a_whole_scope_is_deleted_and_the_others_stay(self, store: Store):
        for scope in "ab":
            for number in range(3):
                await complete(store, f"t{number}", "r", "i1", scope=scope)
            await delete(store, "t0", scope)
            for thread_id in ("t1", "never ran", None):
                await store.put_file(scope, f"for {thread_id}".encode(), media_type="text/plain", thread_id=thread_id)
        before = [await list_threads(store, "b"), await usage_of(store, "b"), await rest_of(store, "b")]
        await store.delete("a", ScopeTarget())
        assert (await list_threads(store), await usage_of(store), await rest_of(store, "a")) == ([], Usage(), [])
        assert [one.scope for one in await rest_of(store) if isinstance(one, ScopeRecord)] == ["b"]
        assert [await list_threads(store, "b"), await usage_of(store, "b"), await rest_of(store, "b")] == before
        await store.delete("a", ScopeTarget())  # a repeated call
        await complete(store, "t0", "r")

    async def test_a_scope_with_an_open_run_is_not_deleted(self, store: Store):
        await complete(store, "t1", "r")
        lease = await start(store, "t2")
        with pytest.raises(ThreadBusy) as error:
            await store.delete("a", ScopeTarget())
        assert error.value.run.thread_id == "t2"
        assert len(await list_threads(store)) == 2
        await finish(store, lease)
        await store.delete("a", ScopeTarget())
        assert await list_threads(store) == []
