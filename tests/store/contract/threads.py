"""The store contract: threads, interrupts, sessions, effects and files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aguila.errors import (
    AgentMismatch,
    CursorExpired,
    InterruptTaken,
    NotFound,
    ThreadBusy,
)
from aguila.store import MetadataFilter, NewRun, Retention, RunEnd, Store, ThreadUpdate
from contract.support import (
    DEADLINE,
    LEASE,
    Clock,
    StoreTest,
    collect,
    complete,
    count_refused,
    events_of,
    finish,
    lines,
    start,
    statuses,
)


class ThreadsContract(StoreTest):
    # Threads

    async def test_a_thread_has_a_summary(self, store: Store, clock: Clock):
        created = clock.now
        await complete(store, "t", "r1")
        clock.now += 10
        lease = await start(store, "t", "r2")
        summary = await store.thread("a", "t")
        assert (summary.thread_id, summary.created_at, summary.updated_at) == ("t", created, clock.now)
        assert (summary.last, summary.runs, summary.is_running) == (3, 2, True)
        clock.now += 10
        await finish(store, lease)
        assert await store.threads("a") == [await store.thread("a", "t")]
        summary = await store.thread("a", "t")
        assert (summary.updated_at, summary.last, summary.is_running) == (clock.now, 4, False)

    async def test_a_summary_names_the_open_run(self, store: Store):
        lease = await start(store, "t", "r1")
        assert (await store.thread("a", "t")).running == "r1"
        await finish(store, lease)
        assert (await store.thread("a", "t")).running is None

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
        assert [run.agent for run in await store.runs("a", "t")] == ["research", "research"]
        assert (await store.run("a", "t", "r2")).agent == (await store.thread("a", "t")).agent == "research"
        await finish(store, await start(store, "t", "r1", scope="b", agent="writer"))  # another thread: another scope
        await store.delete_thread("a", "t")
        await finish(store, await start(store, "t", "r1", agent="writer"))
        assert (await store.thread("a", "t")).agent == "writer"

    async def test_title_archived_flag_and_metadata_change_independently(self, store: Store, clock: Clock):
        for name in "tu":
            await complete(store, name, "r")
        before = await store.thread("a", "t")
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
            changed = await store.update_thread("a", "t", update)
            assert (changed.title, changed.archived, changed.metadata) == expected
            assert changed == await store.thread("a", "t")
            assert (changed.updated_at, changed.position, changed.last) == (before.updated_at, before.position, 2)
        assert [one.thread_id for one in await store.threads("a")] == ["u", "t"]
        for scope, thread_id in (("a", "none"), ("b", "t")):
            with pytest.raises(NotFound):
                await store.update_thread(scope, thread_id, ThreadUpdate(title="mine"))

    async def test_a_running_thread_can_be_updated(self, store: Store):
        lease = await start(store)
        await store.update_thread("a", "t", ThreadUpdate(title="Eagles", archived=True, metadata=b"{}"))
        await store.append(lease, lines(1))
        await finish(store, lease)
        found = await store.thread("a", "t")
        assert (found.title, found.archived, found.metadata) == ("Eagles", True, b"{}")

    async def test_the_stamp_of_a_list_changes_with_everything_that_the_list_shows(self, store: Store):
        await complete(store, "t", "r1")
        lease = await start(store, "t2", "r1")
        await store.update_thread("a", "t", ThreadUpdate(title="One"))
        changes = {
            "append": lambda: store.append(lease, lines("more")),
            "end": lambda: finish(store, lease),
            "begin": lambda: start(store, "t3", "r1"),
            "title": lambda: store.update_thread("a", "t", ThreadUpdate(title="Two")),
            "archived": lambda: store.update_thread("a", "t", ThreadUpdate(archived=True)),
            "metadata": lambda: store.update_thread("a", "t", ThreadUpdate(metadata=b"{}")),
            "delete": lambda: store.delete_thread("a", "t"),
        }
        seen = {await store.threads_stamp("a")}
        for name, change in changes.items():
            before = await store.threads("a")
            await change()
            assert await store.threads("a") != before
            stamp = await store.threads_stamp("a")
            assert stamp is not None
            assert stamp not in seen, name
            seen.add(stamp)

    async def test_the_stamp_of_a_list_stays_while_nothing_is_written(self, store: Store):
        await complete(store, "t", "r1")
        async with asyncio.timeout(DEADLINE):  # other tests may write to the same database
            while True:
                before = await store.threads_stamp("a")
                await store.threads("a")
                if before == await store.threads_stamp("a"):
                    break

    async def test_a_title_does_not_outlive_its_thread(self, store: Store):
        await complete(store, "t", "r")
        await store.update_thread("a", "t", ThreadUpdate(title="Eagles", archived=True, metadata=b"{}"))
        await store.delete_thread("a", "t")
        await complete(store, "t", "r")
        found = await store.thread("a", "t")
        assert (found.title, found.archived, found.metadata) == (None, False, None)

    async def test_threads_are_selected_by_agent_and_archived_flag(self, store: Store):
        for name in "abcdef":
            await finish(store, await start(store, name, agent="x" if name in "abc" else "y"))
        for name in "be":
            await store.update_thread("a", name, ThreadUpdate(archived=True))

        async def listed(**options: object) -> str:
            found = await store.threads("a", **options)  # pyright: ignore[reportArgumentType]
            return "".join(one.thread_id for one in found)

        assert await listed() == "fedcba"
        assert await listed(agent="x") == "cba"
        assert await listed(agent="nobody") == ""
        assert await listed(archived=True) == "eb"
        assert await listed(archived=False) == "fdca"
        assert await listed(agent="y", archived=False) == "fd"
        assert await listed(agent="x", limit=2) == "cb"  # the limit counts selected threads
        position = (await store.threads("a", agent="x", limit=1))[0].position
        assert await listed(agent="x", archived=False, before=position) == "a"

    async def test_threads_are_selected_by_a_member_of_their_metadata(self, store: Store):
        values = {"a": b'{"p":"x"}', "b": b'{"p":null}', "c": None, "d": b'{"p":["x"],"q.r":"x"}', "e": b'{"p":"x"}'}
        for name, metadata in values.items():
            await complete(store, name, "r")
            await store.update_thread("a", name, ThreadUpdate(metadata=metadata, archived=name == "e"))

        async def listed(key: str, value: str | None = None, **options: Any) -> str:
            found = await store.threads("a", metadata=MetadataFilter(key, value), **options)
            return "".join(one.thread_id for one in found)

        assert await listed("p") == "edba"
        assert await listed("p", "x") == "ea"
        assert await listed("q.r", "x") == "d"
        assert await listed("none") == await listed("p", "y") == await listed("p", agent="nobody") == ""
        assert await listed("p", archived=False) == "dba"
        assert await listed("p", limit=2) == "ed"  # the limit counts selected threads
        position = (await store.threads("a", limit=2))[-1].position
        assert await listed("p", limit=2, before=position) == "ba"

    async def test_the_end_of_a_run_changes_its_thread(self, store: Store):
        lease = await start(store)
        await store.update_thread("a", "t", ThreadUpdate(title="Hawks", metadata=b"{}"))
        end = RunEnd(outcome="success", update=ThreadUpdate(title="Eagles"))
        await store.append(lease, lines(1), end=end)
        found = await store.thread("a", "t")
        assert (found.title, found.metadata, found.running) == ("Eagles", b"{}", None)

    async def test_threads_come_last_updated_first_in_pages(self, store: Store, clock: Clock):
        leases = {name: await start(store, name) for name in "abcdefg"}
        clock.now -= 100  # setting the clock back does not change the order
        await finish(store, leases["c"])
        await finish(store, leases["a"])
        order = list("acgfedb")
        assert [summary.thread_id for summary in await store.threads("a")] == order
        pages: list[str] = []
        before = None
        while page := await store.threads("a", limit=3, before=before):
            assert len(page) <= 3
            pages += [summary.thread_id for summary in page]
            before = page[-1].position
        assert pages == order

    @pytest.mark.parametrize("change", ["deleted", "updated"])
    async def test_the_next_page_is_correct_although_the_last_thread_was(self, store: Store, change: str):
        for name in "abcdef":
            await complete(store, name, "r")
        first = await store.threads("a", limit=2)
        assert [summary.thread_id for summary in first] == ["f", "e"]
        if change == "deleted":
            await store.delete_thread("a", "e")
            await store.delete_thread("a", "f")
        else:
            await complete(store, "e", "again")
        rest = await store.threads("a", before=first[-1].position)
        assert [summary.thread_id for summary in rest] == ["d", "c", "b", "a"]

    async def test_a_thread_updated_between_two_pages_is_never_returned_twice(self, store: Store):
        for name in "abcd":
            await complete(store, name, "r")
        first = await store.threads("a", limit=2)
        await complete(store, "a", "again")
        rest = await store.threads("a", before=first[-1].position)
        assert [summary.thread_id for summary in rest] == ["b"]
        assert (await store.threads("a", limit=1))[0].thread_id == "a"

    async def test_deleting_a_thread_removes_all_of_it(self, store: Store):
        lease = await start(store)
        await store.record(lease, "r", "k", b"1")
        with pytest.raises(ThreadBusy) as error:
            await store.delete_thread("a", "t")
        assert error.value.run.run_id == "r"
        await finish(store, lease, "i1", session=b"{}")
        await complete(store, "other", "r", "i1")
        await store.delete_thread("a", "t")
        assert [summary.thread_id for summary in await store.threads("a")] == ["other"]
        assert await store.session("a", "t") is None
        assert await store.recorded("a", "t", "r") == {}
        assert list(await store.interrupts("a", "t")) == list(await store.runs("a", "t")) == []
        await complete(store, "t", "r")
        assert [(run.run_id, run.first, run.last) for run in await store.runs("a", "t")] == [("r", 4, 5)]
        assert await statuses(store, "other") == {"i1": "open"}

    @pytest.mark.parametrize("is_pruned", [False, True])
    async def test_a_cursor_of_a_removed_thread_is_not_valid_for_its_successor(self, store: Store, is_pruned: bool):
        async def remove() -> None:
            if is_pruned:
                assert await store.prune(Retention(max_threads=0)) == 1
            else:
                await store.delete_thread("a", "t")

        last = 0
        for life in range(3):
            lease, batch = await store.begin(
                NewRun(
                    "a", "t", "r", owner="o", lease_seconds=LEASE, input=b"{}", fingerprint="f", events=lines(1, 2, 3)
                )
            )
            first = 1 if life == 0 else last + 2
            assert (batch.first, (await store.run("a", "t", "r")).first) == (first, first)
            await store.append(lease, lines(*range(4, 20)))  # longer than the removed thread
            for after in (0, first - 1):
                assert events_of(await store.read("a", "t", after)) == lines(*range(1, 20))
                assert await collect(store.tail("a", "t", after), 19) == lines(*range(1, 20))
            for after in range(1, first - 1):
                with pytest.raises(CursorExpired):
                    await store.read("a", "t", after)
                with pytest.raises(CursorExpired):
                    await collect(store.tail("a", "t", after), 1)
            assert events_of(await store.read("a", "t", first)) == lines(*range(2, 20))
            await finish(store, lease)
            last = await store.last("a", "t")
            assert last == first + 19
            await remove()
        await complete(store, "u", "r")
        await complete(store, "t", "r", scope="b")  # other threads and scopes are not affected
        assert await store.last("a", "u") == await store.last("b", "t") == 2

    async def test_a_tail_of_a_removed_thread_does_not_continue_with_its_successor(self, store: Store):
        await complete(store, "t", "r")
        tail = store.tail("a", "t")
        assert await collect(tail, 2) == lines("started", "finished")
        waiting = asyncio.create_task(collect(store.tail("a", "t", 2), 1))
        await store.thread("a", "t")
        await store.delete_thread("a", "t")
        await finish(store, await start(store, events=lines(*range(10))))
        with pytest.raises((NotFound, CursorExpired)):
            await waiting

    async def test_prune_keeps_everything_by_default(self, store: Store, clock: Clock):
        await complete(store, "t", "r")
        clock.now += 1e9
        assert await store.prune(Retention()) == 0
        assert await store.last("a", "t") == 2

    async def test_prune_by_age(self, store: Store, clock: Clock):
        await complete(store, "old", "r")
        await start(store, "running")
        clock.now += 100
        await complete(store, "young", "r", scope="b")
        assert await store.prune(Retention(max_age=100)) == 0
        clock.now += 1
        assert await store.prune(Retention(max_age=100)) == 1
        assert [summary.thread_id for summary in await store.threads("a")] == ["running"]
        assert await store.last("b", "young") == 2

    async def test_prune_by_count_removes_the_oldest_of_each_scope_but_no_running_one(self, store: Store, clock: Clock):
        await start(store, "running")
        for i in range(6):
            clock.now += 1
            await complete(store, f"t{i}", "r", scope="ab"[i % 2])
        assert await store.prune(Retention(max_threads=2)) == 3
        assert [summary.thread_id for summary in await store.threads("a")] == ["t4", "running"]
        assert [summary.thread_id for summary in await store.threads("b")] == ["t5", "t3"]
        assert await store.prune(Retention(max_threads=0)) == 3
        assert [summary.thread_id for summary in await store.threads("a")] == ["running"]

    async def test_prune_by_bytes_counts_events_and_files(self, store: Store, clock: Clock):
        for name in ("t1", "t2", "t3"):
            clock.now += 1
            lease = await start(store, name)
            await store.append(lease, [b"1" * 1000])
            await finish(store, lease)
        blob = await store.put_blob("a", b"x" * 5000, media_type="text/plain", thread_id="t1")
        assert await store.prune(Retention(max_bytes=20_000)) == 0
        assert await store.prune(Retention(max_bytes=6_000)) == 1
        with pytest.raises(NotFound):
            await store.blob("a", blob.blob_id)
        assert await store.prune(Retention(max_bytes=1500)) == 1
        assert [summary.thread_id for summary in await store.threads("a")] == ["t3"]

    async def test_prune_removes_files_without_a_thread(self, store: Store, clock: Clock):
        async def put(data: bytes, thread_id: str | None) -> str:
            clock.now += 1
            return (await store.put_blob("a", data, media_type="text/plain", thread_id=thread_id)).blob_id

        old = await put(b"1" * 3000, None)
        never_ran = await put(b"2" * 3000, "none")
        held = await put(b"3" * 3000, "t")
        await complete(store, "t", "r")
        new = await put(b"4" * 3000, None)
        assert await store.prune(Retention(max_bytes=20_000, max_threads=1)) == 0
        await store.blob("a", old)
        assert await store.prune(Retention(max_bytes=10_000)) == 0
        with pytest.raises(NotFound):
            await store.blob("a", old)
        clock.now += 100
        await complete(store, "t", "r2")
        assert await store.prune(Retention(max_age=50)) == 0
        for gone in (never_ran, new):
            with pytest.raises(NotFound):
                await store.blob("a", gone)
        await store.blob("a", held)

    # Interrupts

    async def test_an_interrupt_goes_from_open_to_claimed_to_settled(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        records = await store.interrupts("a", "t")
        assert [(r.interrupt_id, r.run_id, r.status, r.body, r.claimed_by) for r in records] == [
            ("i1", "r1", "open", b'{"id":"i1"}', None),
            ("i2", "r1", "open", b'{"id":"i2"}', None),
        ]
        lease = await start(store, run_id="r2", claims=["i1", "i2"])
        assert await statuses(store) == {"i1": "claimed", "i2": "claimed"}
        assert {record.claimed_by for record in await store.interrupts("a", "t")} == {"r2"}
        await store.settle(lease, ["i1"])
        await store.settle(lease, ["i1"])
        assert await statuses(store) == {"i1": "settled", "i2": "claimed"}
        await finish(store, lease)
        assert await statuses(store) == {"i1": "settled", "i2": "open"}
        with pytest.raises(InterruptTaken) as error:
            await start(store, run_id="r3", claims=["i1"])
        assert error.value.interrupt_id == "i1"
        await start(store, run_id="r4", claims=["i2"])

    async def test_a_take_over_reopens_claims_that_are_not_settled(self, store: Store, clock: Clock):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1", "i2"])
        await store.settle(lease, ["i2"])
        clock.now += LEASE
        taken = await store.take_over((await store.expired())[0], owner="x", lease_seconds=LEASE)
        assert taken is not None
        assert await statuses(store) == {"i1": "open", "i2": "settled"}

    async def test_a_run_settles_only_interrupts_that_it_has_claimed(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1"])
        for ids in (["i1", "i2"], ["i1", "never raised"]):
            with pytest.raises(InterruptTaken) as error:
                await store.settle(lease, ids)
            assert error.value.interrupt_id == ids[1]
            assert await statuses(store) == {"i1": "claimed", "i2": "open"}

    async def test_the_end_of_a_run_settles_in_its_own_transaction(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1", "i2"])
        await store.append(lease, [b"{}"], end=RunEnd(outcome="success", settles=["i1"]))
        assert await statuses(store) == {"i1": "settled", "i2": "open"}
        assert {r.interrupt_id: r.claimed_by for r in await store.interrupts("a", "t")} == {"i1": "r2", "i2": None}

    async def test_an_end_that_settles_an_unclaimed_interrupt_is_refused(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1"])
        last = await store.last("a", "t")
        with pytest.raises(InterruptTaken) as error:
            await store.append(lease, [b"{}"], end=RunEnd(outcome="success", settles=["i1", "i2"]))
        assert error.value.interrupt_id == "i2"
        assert await statuses(store) == {"i1": "claimed", "i2": "open"}
        assert await store.last("a", "t") == last
        assert (await store.run("a", "t", "r2")).is_running
        await store.append(lease, [b"{}"], end=RunEnd(outcome="success", settles=["i1"]))

    async def test_an_interrupt_can_be_settled_and_raised_again_by_one_end(self, store: Store):
        await complete(store, "t", "r1", "i1")
        lease = await start(store, run_id="r2", claims=["i1"])
        end = RunEnd(outcome="interrupt", interrupts=[("i1", b"{}")], settles=["i1"])
        await store.append(lease, [b"{}"], end=end)
        assert [(r.run_id, r.status) for r in await store.interrupts("a", "t")] == [("r2", "open")]

    async def test_of_racing_answers_one_wins(self, store: Store):
        await complete(store, "t", "r", "i1")
        assert await count_refused([start(store, run_id=f"a{i}", claims=["i1"]) for i in range(6)], ThreadBusy) == 5
        assert await statuses(store) == {"i1": "claimed"}

    async def test_an_interrupt_that_is_raised_again_is_open_and_the_newest(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1"])
        await store.settle(lease, ["i1"])
        await finish(store, lease, "i1")
        records = await store.interrupts("a", "t")
        assert [(r.interrupt_id, r.run_id, r.status, r.claimed_by) for r in records] == [
            ("i2", "r1", "open", None),
            ("i1", "r2", "open", None),
        ]

    async def test_the_thread_of_a_run_is_the_last_updated_that_has_it(self, store: Store):
        await complete(store, "t1", "r1")
        await complete(store, "t2", "r1")
        await complete(store, "t1", "r2")
        await complete(store, "elsewhere", "r3", scope="b")
        assert await store.run_thread("a", "r1") == "t1"
        assert await store.run_thread("a", "r2") == "t1"
        assert await store.run_thread("b", "r3") == "elsewhere"
        for unknown in ("r3", "", "half \ud800"):
            assert await store.run_thread("a", unknown) is None
        lease = await start(store, "t3", "r4")
        assert await store.run_thread("a", "r4") == "t3"  # while the run is open
        await finish(store, lease)
        await store.delete_thread("a", "t1")
        assert await store.run_thread("a", "r1") == "t2"
        assert await store.run_thread("a", "r2") is None

    async def test_the_thread_of_an_interrupt_is_the_last_that_raised_it(self, store: Store):
        await complete(store, "t1", "r", "i1", "i2")
        await complete(store, "t2", "r", "i1")
        await complete(store, "elsewhere", "r", "i1", "i3", scope="b")
        assert await store.interrupt_thread("a", "i1") == "t2"
        assert await store.interrupt_thread("a", "i2") == "t1"
        assert await store.interrupt_thread("b", "i1") == "elsewhere"
        for unknown in ("i3", "", "half \ud800"):
            assert await store.interrupt_thread("a", unknown) is None
        lease = await start(store, "t1", "r2", claims=["i1"])
        await store.settle(lease, ["i1"])
        await finish(store, lease)
        assert await store.interrupt_thread("a", "i1") == "t2"  # settling is not raising
        await complete(store, "t1", "r3", "i1")
        assert await store.interrupt_thread("a", "i1") == "t1"
        await store.delete_thread("a", "t1")
        assert await store.interrupt_thread("a", "i1") == "t2"
        assert await store.interrupt_thread("a", "i2") is None
        await store.delete_thread("a", "t2")
        assert await store.interrupt_thread("a", "i1") is None

    # Session and effects

    async def test_the_session_is_that_of_the_last_closed_run(self, store: Store):
        lease = await start(store)
        assert await store.session("a", "t") is None
        await finish(store, lease, session=b"one")
        assert await store.session("a", "t") == b"one"
        await complete(store, "t", "r2")
        assert await store.session("a", "t") == b"one"
        await finish(store, await start(store, run_id="r3"), session=b"")
        assert await store.session("a", "t") == b""

    async def test_the_first_result_recorded_stays(self, store: Store):
        lease = await start(store)
        await store.record(lease, "root", "k", b"first")
        await store.record(lease, "root", "k", b"second")
        await store.record(lease, "root", "", b"")
        await store.record(lease, "other root", "k", b"third")
        await finish(store, lease)
        assert await store.recorded("a", "t", "root") == {"k": b"first", "": b""}
        assert await store.recorded("a", "t", "other root") == {"k": b"third"}

    # Files

    async def test_a_file_is_stored_once_under_an_id_made_from_its_content(self, store: Store, clock: Clock):
        blob = await store.put_blob("a", b"\x00data", media_type="image/png", filename="p.png")
        assert (blob.media_type, blob.filename, blob.size, blob.created_at) == ("image/png", "p.png", 5, clock.now)
        clock.now += 1
        assert await store.put_blob("a", b"\x00data", media_type="image/png", filename="p.png") == blob
        assert await store.blob("a", blob.blob_id) == (blob, b"\x00data")
        other = await store.put_blob("a", b"\x00data", media_type="text/html", filename="p.png")
        assert other.blob_id != blob.blob_id
        assert other.media_type == "text/html"
        await store.delete_blob("a", blob.blob_id)
        with pytest.raises(NotFound):
            await store.blob("a", blob.blob_id)
        assert (await store.blob("a", other.blob_id))[1] == b"\x00data"

    async def test_a_file_is_removed_with_the_last_thread_that_holds_it(self, store: Store):
        ids: dict[str, str] = {}
        for name, threads in {"one": ["t1"], "both": ["t1", "t2"], "kept": ["t1", None], "free": [None]}.items():
            for thread_id in threads:
                blob = await store.put_blob("a", name.encode(), media_type="text/plain", thread_id=thread_id)
                ids[name] = blob.blob_id

        async def stored() -> set[str]:
            found: set[str] = set()
            for name, blob_id in ids.items():
                try:
                    await store.blob("a", blob_id)
                except NotFound:
                    continue
                found.add(name)
            return found

        await complete(store, "t1", "r")  # a file may be stored before its thread has a run
        await complete(store, "t2", "r")
        await store.delete_thread("a", "t1")
        assert await stored() == {"both", "kept", "free"}
        await store.delete_thread("a", "t2")
        assert await stored() == {"kept", "free"}

    async def test_files_of_a_thread_that_never_ran_can_be_deleted_with_it(self, store: Store):
        blob = await store.put_blob("a", b"1", media_type="text/plain", thread_id="t")
        with pytest.raises(NotFound):
            await store.delete_thread("b", "t")
        await store.delete_thread("a", "t")
        with pytest.raises(NotFound):
            await store.blob("a", blob.blob_id)
        with pytest.raises(NotFound):
            await store.delete_thread("a", "t")

    async def test_deleting_a_file_leaves_its_thread(self, store: Store):
        blob = await store.put_blob("a", b"1", media_type="text/plain", thread_id="t")
        await complete(store, "t", "r")
        await store.delete_blob("a", blob.blob_id)
        assert await store.last("a", "t") == 2
        await store.delete_thread("a", "t")
