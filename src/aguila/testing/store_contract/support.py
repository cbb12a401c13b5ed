"""Helpers of the store contract: a clock, an open store, and short calls for what the tests do all the time.

The thread is ``t`` of scope ``a`` and the run is ``r`` unless a test says otherwise.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from aguila.errors import NotFound, StoreError
from aguila.store import (
    Batch,
    Effect,
    FileTarget,
    InterruptRecord,
    Lease,
    NewRun,
    Retention,
    RunChange,
    RunEnd,
    RunKey,
    RunRecord,
    Store,
    Taken,
    ThreadFilter,
    ThreadSummary,
    ThreadTarget,
    Usage,
    Want,
)

LEASE = 30.0
"""How many seconds a lease lasts."""

DEADLINE = 120.0
"""Seconds until a test fails that waits for a condition. Only a store that hangs reaches it."""


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self._stepped = 0.0

    def __call__(self) -> float:
        """Return the time of the wall clock."""
        return self.now

    def monotonic(self) -> float:
        """Return the time of the monotonic clock, which is never set."""
        return self.now - self._stepped

    def step(self, seconds: float) -> None:
        """Set the wall clock, without time passing."""
        self.now += seconds
        self._stepped += seconds


class StoreTest:
    """A test class with an open ``store`` that uses ``clock``."""

    pytestmark = pytest.mark.anyio

    COMPACTS: ClassVar = True
    """Whether the store compacts old runs."""

    @pytest.fixture
    def compacts(self) -> None:
        """Skip a test of compaction if the store has none."""
        if not self.COMPACTS:
            pytest.skip("this store does not compact")

    @abstractmethod
    def make(self, clock: Clock, tmp_path: Path) -> Store:
        """Return a new, empty store: its times are ``clock()``, and its leases follow ``clock.monotonic()``."""

    def make_second(self, clock: Clock, tmp_path: Path) -> Store | None:
        """Return another store on the database of the last ``make``, as a second process has it.

        None skips the tests of two stores: for a store that lives in one process.
        """
        return None

    @pytest.fixture
    def anyio_backend(self) -> str:
        """Run the tests on asyncio."""
        return "asyncio"

    @pytest.fixture
    def clock(self) -> Clock:
        """The clock of the store."""
        return Clock()

    @pytest.fixture
    async def store(self, clock: Clock, tmp_path: Path) -> AsyncIterator[Store]:
        """The store, open."""
        store = self.make(clock, tmp_path)
        await store.open()
        yield store
        await store.close()


# Events


def lines(*names: object) -> list[bytes]:
    """Return an event for each name."""
    return [f'{{"n":"{name}"}}'.encode() for name in names]


def events_of(batches: Iterable[Batch]) -> list[bytes]:
    """Return the events of batches; assert that they are consecutive."""
    found: list[bytes] = []
    position = None
    for batch in batches:
        assert position is None or batch.first == position + 1
        assert batch.last - batch.first + 1 == len(batch.events) > 0
        position = batch.last
        found.extend(batch.events)
    return found


async def collect(tail: AsyncIterator[Batch], count: int) -> list[bytes]:
    """Return the first ``count`` events of a tail."""
    return events_of(await collect_batches(tail, count))


async def collect_batches(tail: AsyncIterator[Batch], count: int) -> list[Batch]:
    """Return the first batches of a tail, until they have ``count`` events."""
    found: list[Batch] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in tail:
            found.append(batch)
            if sum(len(batch.events) for batch in found) >= count:
                break
    return found


# Write


def new_run(thread_id: str = "t", run_id: str = "r", *, scope: str = "a", owner: str = "o", **options: Any) -> NewRun:
    """Return a run to begin, with one event. ``options`` are members of ``NewRun``."""
    defaults: dict[str, Any] = {
        "lease_seconds": LEASE,
        "request": b'{"in":1}',
        "fingerprint": "f",
        "events": lines("started"),
    }
    return NewRun(scope=scope, thread_id=thread_id, run_id=run_id, owner=owner, **{**defaults, **options})


async def start(store: Store, thread_id: str = "t", run_id: str = "r", **options: Any) -> Lease:
    """Begin a run; return its lease. ``options`` as for ``new_run``."""
    return (await store.begin(new_run(thread_id, run_id, **options))).lease


async def append(store: Store, lease: Lease, events: Sequence[bytes], *, end: RunEnd | None = None) -> Batch:
    """Append events, and close the run with ``end``."""
    return (await store.write(lease, RunChange(events=events, end=end))).batch


async def finish(store: Store, lease: Lease, *interrupts: str, session: bytes | None = None) -> None:
    """Append a last event and close the run. It raises these interrupts."""
    end = RunEnd(
        outcome="interrupt" if interrupts else "success",
        interrupts=[(name, b'{"id":"%s"}' % name.encode()) for name in interrupts],
    )
    await store.write(lease, RunChange(events=lines("finished"), session=session, end=end))


async def complete(store: Store, thread_id: str, run_id: str, *interrupts: str, scope: str = "a") -> None:
    """Begin a run and close it. It raises these interrupts."""
    await finish(store, await start(store, thread_id, run_id, scope=scope), *interrupts)


async def renew(store: Store, lease: Lease, seconds: float = LEASE) -> None:
    """Renew a lease."""
    await store.write(lease, RunChange(lease_seconds=seconds))


async def settle(store: Store, lease: Lease, *interrupt_ids: str) -> None:
    """Settle interrupts that the run has claimed."""
    await store.write(lease, RunChange(settles=interrupt_ids))


async def record(store: Store, lease: Lease, root_run_id: str, name: str, value: bytes | None) -> None:
    """Record the beginning or the result of an effect."""
    await store.write(lease, RunChange(effects=[Effect(root_run_id=root_run_id, name=name, value=value)]))


async def take(store: Store, owner: str = "x", *, only: RunKey | None = None) -> Taken:
    """Take over the only lost run."""
    (taken,) = await store.take_over(owner, LEASE, only=only)
    return taken


async def lost_runs(store: Store, owner: str = "finder", *, only: RunKey | None = None) -> list[str]:
    """Take over all lost runs; return their ids."""
    return [taken.run.run_id for taken in await store.take_over(owner, LEASE, only=only)]


async def delete(store: Store, thread_id: str = "t", scope: str = "a") -> None:
    """Remove a thread."""
    await store.delete(scope, ThreadTarget(thread_id))


async def delete_file(store: Store, file_id: str, scope: str = "a") -> None:
    """Remove a file."""
    await store.delete(scope, FileTarget(file_id))


async def sweep(store: Store, **limits: Any) -> int:
    """Remove what exceeds a retention; return how many threads were removed."""
    return (await store.sweep(Retention(**limits))).removed


# Read


async def summary_of(store: Store, thread_id: str = "t", scope: str = "a") -> ThreadSummary:
    """Return the summary of a thread. Raises ``NotFound``."""
    return (await store.thread(scope, thread_id)).summary


async def last_of(store: Store, thread_id: str = "t", scope: str = "a") -> int:
    """Return the number of the newest event of a thread. Raises ``NotFound``."""
    return (await summary_of(store, thread_id, scope)).last


async def runs_of(store: Store, thread_id: str = "t", scope: str = "a") -> Sequence[RunRecord]:
    """Return the runs of a thread. Raises ``NotFound``."""
    return (await store.thread(scope, thread_id, Want(runs=True))).runs


async def run_of(store: Store, thread_id: str = "t", run_id: str = "r", scope: str = "a") -> RunRecord:
    """Return a run. Raises ``NotFound``."""
    return await store.run(RunKey(scope, thread_id, run_id))


async def interrupts_of(store: Store, thread_id: str = "t", scope: str = "a") -> Sequence[InterruptRecord]:
    """Return the interrupts of a thread. Raises ``NotFound``."""
    return (await store.thread(scope, thread_id, Want(interrupts=True))).interrupts


async def statuses(store: Store, thread_id: str = "t") -> dict[str, str]:
    """Return the status of each interrupt of a thread."""
    return {record.interrupt_id: record.status for record in await interrupts_of(store, thread_id)}


async def session_of(store: Store, thread_id: str = "t", scope: str = "a") -> bytes | None:
    """Return the session of a thread. Raises ``NotFound``."""
    return (await store.thread(scope, thread_id, Want(session=True))).session


async def effects_of(store: Store, root_run_id: str = "r", thread_id: str = "t", scope: str = "a") -> dict[str, bytes]:
    """Return the results of the effects under a root run. Raises ``NotFound``."""
    return (await store.thread(scope, thread_id, Want(root_run_id=root_run_id))).results(root_run_id)


async def read(store: Store, thread_id: str = "t", after: int = 0, *, scope: str = "a", **options: Any) -> list[Batch]:
    """Return the batches after a cursor. Raises ``NotFound`` and ``CursorExpired``."""
    return list((await store.read(scope, thread_id, after, **options)).batches)


async def token_of(store: Store, number: int, thread_id: str = "t", scope: str = "a") -> str:
    """Return the token of an event. Raises ``NotFound`` and ``CursorExpired``."""
    return (await store.read(scope, thread_id, number, limit=0)).token


async def list_threads(store: Store, scope: str = "a", **options: Any) -> list[ThreadSummary]:
    """Return the threads of a scope. ``options`` are members of ``ThreadFilter``."""
    return list((await store.threads(scope, ThreadFilter(**options))).threads)


async def usage_of(store: Store, scope: str = "a") -> Usage:
    """Return the usage of a scope."""
    return (await store.threads(scope, ThreadFilter(limit=0, usage=True))).usage


async def total_usage(store: Store) -> Usage:
    """Return the usage of the store."""
    return (await store.threads("a", ThreadFilter(limit=0, usage=True))).total


async def is_stored(store: Store, file_id: str, scope: str = "a") -> bool:
    """Return whether a scope has a file."""
    try:
        await store.file(scope, file_id, 0, 0)
    except NotFound:
        return False
    return True


async def count_refused(outcomes: Iterable[Awaitable[object]], kind: type[StoreError]) -> int:
    """Return how many calls raised this error. Raises any other error."""
    results = await asyncio.gather(*outcomes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, kind):
            raise result
    return sum(isinstance(result, kind) for result in results)
