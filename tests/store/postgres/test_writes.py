"""Group commit, commits whose outcome is unknown, and processes that are suspended while they hold locks."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from postgres_support import SQL, CutCommits, database_of

from aguila.errors import InterruptTaken, StaleLease, StoreUnavailable
from aguila.store import PostgresStore, RunChange, RunEnd
from aguila.store.sql.tx import Outage
from aguila.testing.store_contract.support import (
    append,
    collect,
    complete,
    events_of,
    finish,
    last_of,
    lines,
    read,
    runs_of,
    start,
    statuses,
)

pytestmark = pytest.mark.anyio


async def test_writes_that_wait_for_a_commit_share_the_next_one(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    leases = [await start(store, f"t{i}") for i in range(50)]
    calls = CutCommits(monkeypatch, store, after=False, count=0)
    await asyncio.gather(*(append(store, lease, lines(1, 2)) for lease in leases for _ in range(3)))
    assert calls.calls <= 3
    assert [await last_of(store, f"t{i}") for i in range(50)] == [7] * 50


async def test_runs_that_begin_together_share_a_commit(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    calls = CutCommits(monkeypatch, store, after=False, count=0)
    await asyncio.gather(*(start(store, f"t{i}", max_running=100) for i in range(50)))
    assert calls.calls <= 3


async def test_a_refused_write_affects_no_other(store: PostgresStore):
    good, bad, unclaimed = [await start(store, name) for name in ("good", "bad", "unclaimed")]
    await finish(store, bad)
    results = await asyncio.gather(
        append(store, good, lines(1)),
        append(store, bad, lines(1)),
        append(store, unclaimed, lines(1)),
        store.write(unclaimed, RunChange(events=lines(2), settles=["missing"], end=RunEnd(outcome="success"))),
        append(store, good, lines(2)),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == [
        "Batch", "StaleLease", "Batch", "InterruptTaken", "Batch",
    ]  # fmt: skip
    assert events_of(await read(store, "good")) == lines("started", 1, 2)
    assert events_of(await read(store, "unclaimed")) == lines("started", 1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ends"])
async def test_a_cut_commit_neither_loses_nor_doubles_a_batch(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, after: bool, ends: bool
):
    lease = await start(store)
    cut = CutCommits(monkeypatch, store, after=after)
    end = RunEnd(outcome="interrupt", interrupts=[("i", b"{}")]) if ends else None
    change = RunChange(events=lines(1, 2), after=1, session=b"mine" if ends else None, end=end)
    batch = (await store.write(lease, change)).batch
    assert cut.cuts == 1
    assert (batch.first, batch.last) == (2, 3)
    assert batch.at > 0
    assert events_of(await read(store)) == lines("started", 1, 2)
    if ends:
        assert await statuses(store) == {"i": "open"}
        with pytest.raises(StaleLease):
            await append(store, lease, lines(3))
    else:
        assert (await append(store, lease, lines(3))).first == 4


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_begin_whose_commit_was_cut_finds_its_own_run(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, after: bool
):
    CutCommits(monkeypatch, store, after=after)
    lease = await start(store)
    assert (await append(store, lease, lines(1))).first == 2
    assert [run.run_id for run in await runs_of(store)] == ["r"]


async def test_a_write_that_is_repeated_by_its_caller_is_not_doubled(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    lease = await start(store)
    await complete(store, "other", "r")
    change = RunChange(events=lines(1), after=1, end=RunEnd(outcome="success"))
    with monkeypatch.context() as patch:
        patch.setattr(database_of(store), "patience", 0.0)
        CutCommits(patch, store, after=True, count=100)
        with pytest.raises(StoreUnavailable):
            await store.write(lease, change)
    assert (await store.write(lease, change)).batch.first == 2
    assert events_of(await read(store)) == lines("started", 1)


async def test_a_caller_that_gives_up_an_unknown_write_continues_after_it(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    lease = await start(store)
    with monkeypatch.context() as patch:
        patch.setattr(database_of(store), "patience", 0.0)
        CutCommits(patch, store, after=True, count=100)
        with pytest.raises(StoreUnavailable):
            await store.write(lease, RunChange(events=lines(1), after=1))
    await store.write(lease, RunChange(events=lines("given up"), after=1, end=RunEnd(outcome="error")))
    assert events_of(await read(store)) == lines("started", 1, "given up")


async def test_another_process_writes_with_the_same_lease_in_order(store: PostgresStore, other: PostgresStore):
    lease = await start(store)
    for number, one in enumerate([other, store, other, store]):
        await append(one, lease, lines(number))
    assert await collect(other.tail("a", "t"), 5) == lines("started", 0, 1, 2, 3)


async def test_processes_that_begin_a_new_thread_together_begin_one_run_each(
    store: PostgresStore, other: PostgresStore
):
    """The row of a new thread cannot be locked before it exists: its unique index repeats one of them."""
    for number in range(20):
        results = await asyncio.gather(
            *(start(one, f"t{number}", f"r{i}") for i, one in enumerate([store, other])), return_exceptions=True
        )
        assert sorted(type(result).__name__ for result in results) == ["Lease", "ThreadBusy"]


async def test_a_value_that_postgres_cannot_store_fails_alone(store: PostgresStore):
    good, bad = await start(store, "good"), await start(store, "bad")
    end = RunEnd(outcome="interrupt", interrupts=[("nul \0", b"{}")])
    results = await asyncio.gather(
        append(store, good, lines(1)), append(store, bad, lines(1), end=end), return_exceptions=True
    )
    assert not isinstance(results[0], BaseException)
    assert isinstance(results[1], ValueError)
    assert not isinstance(results[1], InterruptTaken)
    await append(store, bad, lines(1))


@pytest.mark.parametrize("sends", ["each", "row"])
async def test_a_process_that_is_suspended_with_locks_blocks_others_for_seconds(
    store: PostgresStore, other: PostgresStore, sends: str
):
    """The server does not see that a transaction is idle while its client may send more of a pipeline."""
    lease = await start(store)
    locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        with database_of(other).transaction() as tx:
            if sends == "each":
                tx.each("SELECT key FROM aguila.threads WHERE thread_id = $1 FOR UPDATE", [("t",)])
            else:
                tx.row("SELECT key FROM aguila.threads WHERE thread_id = $1 FOR UPDATE", "t")
            locked.set()
            release.wait()

    holder = asyncio.create_task(asyncio.to_thread(hold))
    await asyncio.to_thread(locked.wait)
    began = time.monotonic()
    await append(store, lease, lines(1))
    assert time.monotonic() - began < 20
    release.set()
    with pytest.raises(Outage):
        await holder


async def test_a_write_leaves_nothing_behind_if_one_of_its_queued_statements_fails(store: PostgresStore, sql: SQL):
    database = database_of(store)

    def write() -> None:
        with database.transaction() as tx:
            tx.do("INSERT INTO aguila.removed VALUES ($1, $2)", 1, 1)
            tx.do("INSERT INTO aguila.removed VALUES ($1, 1 / $2::int)", 2, 0)
            tx.do("INSERT INTO aguila.removed VALUES ($1, $2)", 3, 1)

    with pytest.raises(Exception, match="division by zero"):
        await asyncio.to_thread(write)
    assert sql("SELECT * FROM aguila.removed") == []
    await complete(store, "t", "r")


async def test_no_message_follows_the_end_of_a_transaction_behind_a_pooler(
    postgres: str, postgres_schema: str, other: PostgresStore, tmp_path: Path
):
    """A late Flush would occupy a session of PgBouncer for ever."""
    async with PostgresStore(postgres, schema=postgres_schema, wakeups="poll") as store:
        leases = [await start(store, f"t{i}", max_running=20) for i in range(10)]
        connection = database_of(store).writer
        assert connection is not None
        with (tmp_path / "trace").open("w") as trace:
            connection.pgconn.trace(trace.fileno())
            await asyncio.gather(*(append(store, lease, lines(1, 2)) for lease in leases))
            await asyncio.gather(*(finish(store, lease, "question") for lease in leases))
            connection.pgconn.untrace()
        messages = [
            line.split("\t")[3] for line in (tmp_path / "trace").read_text().splitlines() if line.count("\t") > 2
        ]
        assert {"Execute", "Sync", "ReadyForQuery"} <= {*messages}
        assert "Flush" not in messages
        assert events_of(await read(other, "t3")) == lines("started", 1, 2, "finished")
