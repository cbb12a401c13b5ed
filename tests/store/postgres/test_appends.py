"""Group commit, fencing, and commits whose outcome is unknown."""

from __future__ import annotations

import asyncio

import pytest
from contract.support import collect, complete, events_of, finish, lines, start, statuses
from postgres_support import CutCommits, engine_of, fetch

from aguila.errors import InterruptTaken, StaleLease, StoreUnavailable
from aguila.store import PostgresStore, RunEnd

pytestmark = pytest.mark.anyio


async def test_appends_of_many_runs_share_one_call(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    leases = [await start(store, f"t{i}") for i in range(50)]
    calls = CutCommits(monkeypatch, "append_events", after=False, count=0)
    await asyncio.gather(*(store.append(lease, lines(1, 2)) for lease in leases for _ in range(3)))
    assert calls.calls == 1
    assert [await store.last("a", f"t{i}") for i in range(50)] == [7] * 50


async def test_runs_that_begin_together_share_one_call(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    calls = CutCommits(monkeypatch, "begin_runs", after=False, count=0)
    await asyncio.gather(*(start(store, f"t{i}", max_running=100) for i in range(50)))
    assert calls.calls == 1


async def test_a_refused_append_affects_no_other(store: PostgresStore):
    good, bad, unclaimed = [await start(store, name) for name in ("good", "bad", "unclaimed")]
    await finish(store, bad)
    results = await asyncio.gather(
        store.append(good, lines(1)),
        store.append(bad, lines(1)),
        store.append(unclaimed, lines(1)),
        store.append(unclaimed, lines(2), end=RunEnd(outcome="success", settles=["missing"])),
        store.append(good, lines(2)),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == [
        "Batch", "StaleLease", "Batch", "InterruptTaken", "Batch",
    ]  # fmt: skip
    assert events_of(await store.read("a", "good")) == lines("started", 1, 2)
    assert events_of(await store.read("a", "unclaimed")) == lines("started", 1)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("ends", [False, True])
async def test_a_cut_commit_neither_loses_nor_doubles_a_batch(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, after: bool, ends: bool
):
    lease = await start(store)
    cut = CutCommits(monkeypatch, "append_events", after=after)
    end = RunEnd(outcome="interrupt", interrupts=[("i", b"{}")], session=b"mine") if ends else None
    batch = await store.append(lease, lines(1, 2), end=end)
    assert cut.cuts == 1
    assert (batch.first, batch.last) == (2, 3)
    assert batch.at > 0
    assert events_of(await store.read("a", "t")) == lines("started", 1, 2)
    if ends:
        assert await statuses(store) == {"i": "open"}
        with pytest.raises(StaleLease):
            await store.append(lease, lines(3))
    else:
        assert (await store.append(lease, lines(3))).first == 4


@pytest.mark.parametrize("after", [False, True])
async def test_a_begin_whose_commit_was_cut_finds_its_own_run(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, after: bool
):
    CutCommits(monkeypatch, "begin_runs", after=after)
    lease = await start(store)
    assert (await store.append(lease, lines(1))).first == 2
    assert [run.run_id for run in await store.runs("a", "t")] == ["r"]


async def test_an_append_that_is_repeated_by_its_caller_is_not_doubled(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    lease = await start(store)
    await complete(store, "other", "r")
    with monkeypatch.context() as patch:
        patch.setattr(engine_of(store).database, "patience", 0.0)
        CutCommits(patch, "append_events", after=True, count=100)
        with pytest.raises(StoreUnavailable):
            await store.append(lease, lines(1), end=RunEnd(outcome="success"))
    batch = await store.append(lease, lines(1), end=RunEnd(outcome="success"))
    assert batch.first == 2
    assert events_of(await store.read("a", "t")) == lines("started", 1)


async def test_a_caller_that_gives_up_an_unknown_append_continues_after_it(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    lease = await start(store)
    with monkeypatch.context() as patch:
        patch.setattr(engine_of(store).database, "patience", 0.0)
        CutCommits(patch, "append_events", after=True, count=100)
        with pytest.raises(StoreUnavailable):
            await store.append(lease, lines(1))
    await store.append(lease, lines("given up"), end=RunEnd(outcome="error"))
    assert events_of(await store.read("a", "t")) == lines("started", 1, "given up")


async def test_a_late_copy_of_an_append_changes_nothing(store: PostgresStore, other: PostgresStore):
    """A request that was held up in the network may arrive after its repetition."""
    lease = await start(store)
    position = engine_of(store).appends
    await store.append(lease, lines(1))
    found = await position.find(lease)
    late = await fetch(
        other,
        "SELECT n, code FROM aguila.append_events(NULL, $1, $2, '{1}', '{1}', '{1}', '{3}', '{NULL}', '{1}', '{2}',"
        " '{2}', ARRAY['late'::bytea], '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',"
        " '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
        [found.thread],
        [found.run],
    )
    assert [tuple(row) for row in late] == [(0, None), (1, "stale")]
    assert events_of(await store.read("a", "t")) == lines("started", 1)


async def test_another_process_appends_with_the_same_lease_in_order(store: PostgresStore, other: PostgresStore):
    lease = await start(store)
    for number, one in enumerate([other, store, other, store]):
        await one.append(lease, lines(number))
    assert await collect(other.tail("a", "t"), 5) == lines("started", 0, 1, 2, 3)


async def test_a_value_that_postgres_cannot_store_fails_alone(store: PostgresStore):
    good, bad = await start(store, "good"), await start(store, "bad")
    end = RunEnd(outcome="interrupt", interrupts=[("nul \0", b"{}")])
    results = await asyncio.gather(
        store.append(good, lines(1)), store.append(bad, lines(1), end=end), return_exceptions=True
    )
    assert not isinstance(results[0], BaseException)
    assert isinstance(results[1], ValueError)
    assert not isinstance(results[1], InterruptTaken)
    await store.append(bad, lines(1))
