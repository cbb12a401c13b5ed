"""The store contract: interrupts, the session of a thread and recorded effects."""

from __future__ import annotations

import pytest

from aguila.errors import InterruptTaken, ThreadBusy
from aguila.store import RunChange, RunEnd, Store
from aguila.testing.store_contract.support import (
    LEASE,
    Clock,
    StoreTest,
    complete,
    count_refused,
    effects_of,
    finish,
    interrupts_of,
    last_of,
    record,
    run_of,
    session_of,
    settle,
    start,
    statuses,
    take,
)

SUCCESS = RunEnd(outcome="success")


class InterruptsContract(StoreTest):
    async def test_an_interrupt_goes_from_open_to_claimed_to_settled(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        records = await interrupts_of(store)
        assert [(r.interrupt_id, r.run_id, r.status, r.body, r.claimed_by) for r in records] == [
            ("i1", "r1", "open", b'{"id":"i1"}', None),
            ("i2", "r1", "open", b'{"id":"i2"}', None),
        ]
        lease = await start(store, run_id="r2", claims=["i1", "i2"])
        assert await statuses(store) == {"i1": "claimed", "i2": "claimed"}
        assert {record.claimed_by for record in await interrupts_of(store)} == {"r2"}
        await settle(store, lease, "i1")
        await settle(store, lease, "i1")
        assert await statuses(store) == {"i1": "settled", "i2": "claimed"}
        await finish(store, lease)
        assert await statuses(store) == {"i1": "settled", "i2": "open"}
        with pytest.raises(InterruptTaken) as error:
            await start(store, run_id="r3", claims=["i1"])
        assert error.value.interrupt_id == "i1"
        await start(store, run_id="r4", claims=["i2"])

    async def test_a_new_owner_keeps_the_claims_of_the_run_and_its_end_reopens_them(self, store: Store, clock: Clock):
        await complete(store, "t", "r1", "i1", "i2", "i3")
        lease = await start(store, run_id="r2", claims=["i1", "i2", "i3"])
        await settle(store, lease, "i2")
        clock.now += LEASE
        taken = await take(store)
        assert await statuses(store) == {"i1": "claimed", "i2": "settled", "i3": "claimed"}
        await settle(store, taken.lease, "i1")  # it continues with the same answers
        await finish(store, taken.lease)
        assert await statuses(store) == {"i1": "settled", "i2": "settled", "i3": "open"}

    async def test_a_run_settles_only_interrupts_that_it_has_claimed(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1"])
        for ids in (["i1", "i2"], ["i1", "never raised"]):
            with pytest.raises(InterruptTaken) as error:
                await settle(store, lease, *ids)
            assert error.value.interrupt_id == ids[1]
            assert await statuses(store) == {"i1": "claimed", "i2": "open"}

    async def test_the_end_of_a_run_settles_in_its_own_transaction(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1", "i2"])
        await store.write(lease, RunChange(events=[b"{}"], settles=["i1"], end=SUCCESS))
        assert await statuses(store) == {"i1": "settled", "i2": "open"}
        assert {r.interrupt_id: r.claimed_by for r in await interrupts_of(store)} == {"i1": "r2", "i2": None}

    async def test_an_end_that_settles_an_unclaimed_interrupt_is_refused(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1"])
        last = await last_of(store)
        with pytest.raises(InterruptTaken) as error:
            await store.write(lease, RunChange(events=[b"{}"], settles=["i1", "i2"], end=SUCCESS))
        assert error.value.interrupt_id == "i2"
        assert await statuses(store) == {"i1": "claimed", "i2": "open"}
        assert await last_of(store) == last
        assert (await run_of(store, "t", "r2")).is_running
        await store.write(lease, RunChange(events=[b"{}"], settles=["i1"], end=SUCCESS))

    async def test_an_interrupt_can_be_settled_and_raised_again_by_one_end(self, store: Store):
        await complete(store, "t", "r1", "i1")
        lease = await start(store, run_id="r2", claims=["i1"])
        end = RunEnd(outcome="interrupt", interrupts=[("i1", b"{}")])
        await store.write(lease, RunChange(events=[b"{}"], settles=["i1"], end=end))
        assert [(r.run_id, r.status) for r in await interrupts_of(store)] == [("r2", "open")]

    async def test_of_racing_answers_one_wins(self, store: Store):
        await complete(store, "t", "r", "i1")
        assert await count_refused([start(store, run_id=f"a{i}", claims=["i1"]) for i in range(6)], ThreadBusy) == 5
        assert await statuses(store) == {"i1": "claimed"}

    async def test_an_interrupt_that_is_raised_again_is_open_and_the_newest(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1"])
        await settle(store, lease, "i1")
        await finish(store, lease, "i1")
        records = await interrupts_of(store)
        assert [(r.interrupt_id, r.run_id, r.status, r.claimed_by) for r in records] == [
            ("i2", "r1", "open", None),
            ("i1", "r2", "open", None),
        ]

    async def test_the_session_is_that_of_the_last_closed_run(self, store: Store):
        lease = await start(store)
        assert await session_of(store) is None
        await finish(store, lease, session=b"one")
        assert await session_of(store) == b"one"
        await complete(store, "t", "r2")
        assert await session_of(store) == b"one"
        await finish(store, await start(store, run_id="r3"), session=b"")
        assert await session_of(store) == b""

    async def test_the_first_result_recorded_stays(self, store: Store):
        lease = await start(store)
        await record(store, lease, "root", "k", b"first")
        await record(store, lease, "root", "k", b"second")
        await record(store, lease, "root", "", b"")
        await record(store, lease, "other root", "k", b"third")
        await finish(store, lease)
        assert await effects_of(store, "root") == {"k": b"first", "": b""}
        assert await effects_of(store, "other root") == {"k": b"third"}
