"""The store contract: begin runs."""

from __future__ import annotations

import pytest

from aguila.errors import InterruptTaken, NotFound, RunExists, ThreadBusy, ThreadMoved, TooManyRuns
from aguila.store import RunKey, Store
from aguila.testing.store_contract.support import (
    LEASE,
    Clock,
    StoreTest,
    append,
    complete,
    count_refused,
    delete,
    finish,
    last_of,
    lines,
    list_threads,
    new_run,
    read,
    run_of,
    runs_of,
    start,
    statuses,
    summary_of,
    take,
)


class BeginContract(StoreTest):
    async def test_begin_claims_the_run_and_appends_its_first_events(self, store: Store, clock: Clock):
        begun = await store.begin(new_run(request=b'{ "as": "sent" }', events=lines(1, 2), parent_run_id="p"))
        lease, batch = begun.lease, begun.batch
        assert (lease.scope, lease.thread_id, lease.run_id, lease.owner) == ("a", "t", "r", "o")
        assert (batch.first, batch.last, list(batch.events)) == (1, 2, lines(1, 2))
        run = await run_of(store)
        assert (run.scope, run.thread_id, run.run_id, run.parent_run_id) == ("a", "t", "r", "p")
        assert (run.fingerprint, run.first, run.last) == ("f", 1, 2)
        assert await store.request(run.key) == b'{ "as": "sent" }'
        assert (run.number, run.outcome, run.is_running, run.cancel, run.ended_at) == (1, None, True, None, None)
        assert (run.owner, run.epoch, run.lease_until) == ("o", lease.epoch, clock.now + LEASE)
        assert run.started_at == clock.now
        assert list(await runs_of(store)) == [run]

    async def test_a_run_id_is_claimed_once_per_thread(self, store: Store):
        lease = await start(store)
        with pytest.raises(RunExists) as running:
            await start(store)
        assert running.value.run == await run_of(store)
        await finish(store, lease)
        with pytest.raises(RunExists) as closed:
            await start(store)
        assert closed.value.run.outcome == "success"
        assert await last_of(store) == 2
        await start(store, "other")

    async def test_a_thread_has_one_run_at_a_time(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE * 2  # also with an expired lease
        with pytest.raises(ThreadBusy) as error:
            await start(store, run_id="second")
        assert error.value.run == await run_of(store)
        await finish(store, lease)
        await start(store, run_id="second")
        assert [(run.run_id, run.first, run.last) for run in await runs_of(store)] == [
            ("r", 1, 2),
            ("second", 3, 3),
        ]

    async def test_of_racing_begins_one_wins(self, store: Store):
        for kind, ids in ((RunExists, ["r"] * 8), (ThreadBusy, [f"r{i}" for i in range(8)])):
            thread = kind.__name__
            assert await count_refused([start(store, thread, run_id) for run_id in ids], kind) == 7
            assert await last_of(store, thread) == 1

    async def test_a_refused_begin_leaves_nothing(self, store: Store):
        with pytest.raises(InterruptTaken) as error:
            await start(store, claims=["never raised"])
        assert error.value.interrupt_id == "never raised"
        with pytest.raises(NotFound):
            await summary_of(store)
        await complete(store, "t", "r", "i1")
        with pytest.raises(InterruptTaken):
            await start(store, run_id="r2", claims=["i1", "never raised"])
        assert await statuses(store) == {"i1": "open"}
        await start(store, run_id="r2", claims=["i1"])

    async def test_an_interrupt_raised_after_the_run_was_planned_refuses_it_int_15(self, store: Store):
        await complete(store, "t", "r", "i1")
        with pytest.raises(ThreadMoved):
            await start(store, run_id="r2", waiting=frozenset())
        assert [run.run_id for run in await runs_of(store)] == ["r"]
        await start(store, run_id="r2", waiting=frozenset({"i1", "settled elsewhere"}))

    async def test_events_appended_after_the_run_was_planned_refuse_it(self, store: Store):
        with pytest.raises(ThreadMoved):
            await start(store, after=1)
        await start(store, after=0)
        with pytest.raises(ThreadBusy):  # comes first
            await start(store, run_id="r2", after=0)
        await complete(store, "t2", "r")
        last = await last_of(store, "t2")
        for after in (0, last - 1, last + 1):
            with pytest.raises(ThreadMoved):
                await start(store, "t2", "r2", after=after)
        await start(store, "t2", "r2", after=last)
        await complete(store, "t3", "r")
        await delete(store, "t3")
        await start(store, "t3", after=0)  # the thread does not exist, whatever its numbers were

    async def test_a_scope_has_at_most_max_running_runs(self, store: Store, clock: Clock):
        leases = [await start(store, f"t{i}", max_running=3) for i in range(3)]
        await complete(store, "another scope's", "r", scope="b")
        with pytest.raises(TooManyRuns):
            await start(store, "t3", max_running=3)
        with pytest.raises(NotFound):
            await summary_of(store, "t3")
        await start(store, "t3", scope="b", max_running=1)
        # RunExists and ThreadBusy come first.
        with pytest.raises(RunExists):
            await start(store, "t0", max_running=3)
        with pytest.raises(ThreadBusy):
            await start(store, "t0", "second", max_running=3)
        with pytest.raises(TooManyRuns):  # checked before the claims
            await start(store, "t3", claims=["never raised"], max_running=3)
        await finish(store, leases[0])
        await start(store, "t3", max_running=3)
        with pytest.raises(TooManyRuns):
            await start(store, "t0", "second", max_running=3)
        clock.now += LEASE
        taken = await take(store, only=RunKey("a", "t1", "r"))
        with pytest.raises(TooManyRuns):  # a run that was taken over is still open
            await start(store, "t0", "second", max_running=3)
        await finish(store, taken.lease)
        await start(store, "t0", "second", max_running=3)
        await start(store, "t9", max_running=5)  # the limit is that of the call
        await start(store, "t10")

    async def test_of_racing_begins_in_a_scope_max_running_win(self, store: Store):
        assert await count_refused([start(store, f"t{i}", max_running=3) for i in range(8)], TooManyRuns) == 5
        assert len(await list_threads(store)) == 3

    async def test_an_event_is_a_single_line(self, store: Store):
        with pytest.raises(ValueError, match="line"):
            await start(store, events=[b"{\n}"])
        lease = await start(store)
        with pytest.raises(ValueError, match="line"):
            await append(store, lease, [b"{}", b"\n"])
        assert await last_of(store) == 1

    async def test_an_id_is_text_that_utf8_can_encode(self, store: Store):
        with pytest.raises(ValueError, match="surrogate"):
            await start(store, "half \ud800")
        with pytest.raises(NotFound):
            await read(store, "half \ud800")
        with pytest.raises(ValueError, match="NUL"):
            await start(store, "nul \0")
        with pytest.raises(NotFound):
            await read(store, "nul \0")
        await start(store, "clef \U0001d11e")
        assert await last_of(store, "clef \U0001d11e") == 1

    async def test_the_ids_of_a_request_and_its_run_may_differ(self, store: Store):
        await start(store, sent_run_id="sent")
        assert (await run_of(store)).sent_run_id == "sent"
