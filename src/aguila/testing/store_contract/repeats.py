"""The store contract: every write may be repeated after an unknown outcome, and is stored once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace

from aguila.errors import NotFound, RunExists, StaleLease, ThreadExists
from aguila.store import (
    UNOWNED,
    AnswerCancel,
    Cancel,
    Compaction,
    Effect,
    FileTarget,
    NewTurns,
    Quotas,
    RunChange,
    RunEnd,
    RunKey,
    Store,
    ThreadTarget,
    ThreadUpdate,
    Turn,
    Want,
    Watch,
)
from aguila.store.archives.archive import read_archive
from aguila.store.contents import hash_content
from aguila.testing.store_contract.support import (
    LEASE,
    Clock,
    StoreTest,
    append,
    complete,
    delete,
    events_of,
    finish,
    lines,
    new_run,
    read,
    run_of,
    runs_of,
    session_of,
    start,
    take,
    total_usage,
    usage_of,
)

ALL = RunChange(
    events=lines(1, 2),
    after=1,
    lease_seconds=LEASE,
    settles=["i1"],
    effects=[Effect(root_run_id="r", name="k", value=b"1")],
    session=b"mine",
)
"""A write of everything but the end of a run."""

END = RunEnd(
    outcome="interrupt",
    interrupts=[("i2", b"{}")],
    update=ThreadUpdate(default_title="Eagles"),
    turn=Turn(format=1, body=b"turn", values={hash_content(b"[1]"): b"[1]"}),
)


async def all_of(store: Store, thread_id: str = "t") -> list[object]:
    """Return all that is stored of a thread."""
    found = await store.thread("a", thread_id, Want(runs=True, turns=True, interrupts=True, session=True, effects=True))
    return [found, await read(store, thread_id), await usage_of(store), await total_usage(store)]


class RepeatsContract(StoreTest):
    async def test_a_repeated_begin_returns_the_run_that_began(self, store: Store):
        await complete(store, "t", "asks", "i1")
        new = new_run(
            events=lines(1, 2), claims=["i1"], waiting=frozenset({"i1"}), after=2, max_running=1,
            quotas=Quotas(threads_per_scope=1),
        )  # fmt: skip
        begun = await store.begin(new)
        before = await all_of(store)
        for _ in range(3):
            assert await store.begin(new) == begun
        assert await all_of(store) == before
        await append(store, begun.lease, lines(3))
        assert await store.begin(new) == begun  # also after it was continued
        assert (await append(store, begun.lease, lines(4))).first == 6

    async def test_begins_that_are_repeated_at_once_begin_one_run(self, store: Store):
        new = new_run()
        first, *others = await asyncio.gather(*(store.begin(new) for _ in range(6)))
        assert others == [first] * 5
        assert [run.run_id for run in await runs_of(store)] == ["r"]
        assert events_of(await read(store)) == lines("started")

    async def test_another_attempt_to_begin_the_run_is_refused(self, store: Store):
        await start(store)
        with pytest.raises(RunExists):
            await start(store)  # it has a token of its own

    async def test_a_repeated_begin_of_a_run_without_an_owner_returns_it(self, store: Store):
        new = new_run(owner=UNOWNED, lease_seconds=0, launch=b"x")
        assert await store.begin(new) == await store.begin(new)
        assert (await take(store, only=RunKey("a", "t", "r"))).launch == b"x"

    @pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ends"])
    async def test_a_repeated_write_returns_the_first_outcome_and_changes_nothing(self, store: Store, ends: bool):
        await complete(store, "t", "asks", "i1")
        lease = await start(store, claims=["i1"])
        change = replace(ALL, after=3, end=END if ends else None)
        written = await store.write(lease, change)
        before = await all_of(store)
        for _ in range(3):
            assert (await store.write(lease, change)).batch == written.batch
        assert await all_of(store) == before
        assert (written.batch.first, list(written.batch.events)) == (4, lines(1, 2))

    async def test_writes_that_are_repeated_at_once_are_stored_once(self, store: Store):
        lease = await start(store)
        change = RunChange(events=lines(1, 2), after=1, end=RunEnd(outcome="success"))
        first, *others = await asyncio.gather(*(store.write(lease, change) for _ in range(6)))
        assert [one.batch for one in others] == [first.batch] * 5
        assert events_of(await read(store)) == lines("started", 1, 2)

    async def test_no_late_copy_is_applied_after_its_repetition(self, store: Store):
        """A request that was held up in the network may arrive after its repetition, and after what followed."""
        lease = await start(store)
        change = RunChange(events=lines(1), after=1, session=b"one")
        written = await store.write(lease, change)
        await store.write(lease, RunChange(events=lines(2), after=2, session=b"two"))
        assert (await store.write(lease, change)).batch == written.batch
        assert (await session_of(store), events_of(await read(store))) == (b"two", lines("started", 1, 2))
        await store.write(lease, RunChange(events=lines(3), after=3, end=RunEnd(outcome="success")))
        await complete(store, "t", "next")
        before = await all_of(store)
        assert (await store.write(lease, change)).batch == written.batch  # the thread has gone on
        assert await all_of(store) == before

    async def test_a_repeated_end_is_found_after_the_thread_has_gone_on(self, store: Store):
        lease = await start(store)
        change = RunChange(events=lines(1), after=1, end=END)
        written = await store.write(lease, change)
        await complete(store, "t", "next")
        before = await all_of(store)
        assert (await store.write(lease, change)).batch == written.batch
        assert await all_of(store) == before

    async def test_a_repeated_end_without_events_is_found(self, store: Store):
        lease = await start(store)
        change = RunChange(after=1, end=END)
        await store.write(lease, change)
        before = await all_of(store)
        assert list((await store.write(lease, change)).batch.events) == []
        assert await all_of(store) == before
        with pytest.raises(StaleLease):
            await store.write(lease, replace(change, end=RunEnd(outcome="success")))

    async def test_a_large_write_is_recognised(self, store: Store):
        lease = await start(store)
        events = [b'"%d%s"' % (number, b"x" * 1_100_000) for number in range(3)]
        change = RunChange(events=events, after=1)
        written = await store.write(lease, change)
        assert (await store.write(lease, change)).batch.last == written.batch.last
        assert (await append(store, lease, lines("next"))).first == 5

    async def test_a_write_that_was_cut_off_is_appended_by_its_repetition(self, store: Store):
        """The caller cannot know that the first call changed nothing."""
        lease = await start(store)
        change = RunChange(events=lines(1), after=1)
        assert (await store.write(lease, change)).batch.first == 2

    async def test_a_caller_that_gives_up_a_write_continues_after_it(self, store: Store):
        lease = await start(store)
        await store.write(lease, RunChange(events=lines(1), after=1))
        other = RunChange(events=lines("given up"), after=1, end=RunEnd(outcome="error"))
        assert (await store.write(lease, other)).batch.first == 3
        assert events_of(await read(store)) == lines("started", 1, "given up")

    async def test_the_same_events_of_another_owner_are_no_repetition(self, store: Store, clock: Clock):
        lease = await start(store)
        change = RunChange(events=lines(1), after=1)
        await store.write(lease, change)
        clock.now += LEASE
        taken = await take(store)
        with suppress(StaleLease):  # the former owner learns that it was stored, or that the run is lost
            assert (await store.write(lease, change)).batch.first == 2
        assert (await store.write(taken.lease, change)).batch.first == 3
        with pytest.raises(StaleLease):
            await store.write(lease, replace(change, after=3))
        with pytest.raises(StaleLease):
            await store.write(lease, RunChange(events=lines(2), after=2))

    async def test_an_end_with_another_outcome_is_no_repetition(self, store: Store):
        lease = await start(store)
        await store.write(lease, RunChange(events=lines(1), after=1, end=RunEnd(outcome="success")))
        with pytest.raises(StaleLease):
            await store.write(lease, RunChange(events=lines(1), after=1, end=RunEnd(outcome="error")))
        assert (await run_of(store)).outcome == "success"

    async def test_without_a_number_a_write_is_never_a_repetition(self, store: Store):
        lease = await start(store)
        for first in (2, 3):
            assert (await store.write(lease, RunChange(events=lines(1)))).batch.first == first

    async def test_a_write_without_events_is_repeated_by_its_nature(self, store: Store):
        await complete(store, "t", "asks", "i1")
        lease = await start(store, claims=["i1"])
        change = replace(ALL, events=(), after=3)
        await store.write(lease, change)
        before = await all_of(store)
        await store.write(lease, change)
        assert await all_of(store) == before

    async def test_messages_changes_and_files_may_be_repeated(self, store: Store, clock: Clock):
        lease = await start(store)
        key = RunKey("a", "t", "r")
        for message in (Cancel(unwatched=True), AnswerCancel(granted=True), Cancel(), Watch("p", LEASE), Watch("p", 0)):
            assert await store.tell(key, message) == await store.tell(key, message)
        await finish(store, lease)
        for change in (ThreadUpdate(title="Eagles"), NewTurns({"r": Turn(format=1, body=b"{}")})):
            assert await store.amend("a", "t", change) == await store.amend("a", "t", change)
        first = await store.put_file("a", b"x", media_type="text/plain", thread_id="t")
        assert await store.put_file("a", b"x", media_type="text/plain", thread_id="t") == first

    @pytest.mark.usefixtures("compacts")
    async def test_a_compaction_may_be_repeated(self, store: Store):
        lease = await start(store, events=lines(1, 2, 3))
        await finish(store, lease)
        change = Compaction(run_id="r", first=1, last=4, events=lines("short"))
        assert await store.amend("a", "t", change) == await store.amend("a", "t", change)
        assert events_of(await read(store)) == lines("short")

    async def test_a_repeated_removal_finds_nothing(self, store: Store):
        await complete(store, "t", "r")
        file = await store.put_file("a", b"x", media_type="text/plain")
        for target in (ThreadTarget("t"), FileTarget(file.file_id)):
            await store.delete("a", target)
            with pytest.raises(NotFound):
                await store.delete("a", target)

    async def test_a_repeated_restore_changes_nothing(self, store: Store):
        await complete(store, "t", "r")
        async with store.snapshot() as snapshot:
            archive = await read_archive(snapshot, "a", "t")
        await delete(store)
        await store.restore(archive)
        with pytest.raises(ThreadExists):
            await store.restore(archive)
        before = await usage_of(store)
        await store.restore(archive, replace=True)
        assert await usage_of(store) == before
        assert events_of(await read(store)) == lines("started", "finished")
