"""Helpers of the store contract: an open store, a clock, and functions that begin and finish runs."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path

import pytest
from waiting import DEADLINE

from aguila.errors import (
    StoreError,
)
from aguila.store import DEFAULT_AGENT, Batch, Lease, NewRun, Quotas, RunEnd, Store

LEASE = 30.0
"""Seconds that a test waits for a condition."""


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self._stepped = 0.0

    def __call__(self) -> float:
        return self.now

    def monotonic(self) -> float:
        """Return the time of the monotonic clock, which is never set."""
        return self.now - self._stepped

    def step(self, seconds: float) -> None:
        """Set the clock, without time passing."""
        self.now += seconds
        self._stepped += seconds


def lines(*names: object) -> list[bytes]:
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


async def start(
    store: Store,
    thread_id: str = "t",
    run_id: str = "r",
    *,
    scope: str = "a",
    owner: str = "o",
    events: list[bytes] | None = None,
    claims: Iterable[str] = (),
    waiting: frozenset[str] | None = None,
    after: int | None = None,
    max_running: int | None = None,
    agent: str = DEFAULT_AGENT,
    quotas: Quotas | None = None,
) -> Lease:
    lease, _ = await store.begin(
        NewRun(
            scope,
            thread_id,
            run_id,
            owner=owner,
            lease_seconds=LEASE,
            input=b'{"in":1}',
            fingerprint="f",
            events=lines("started") if events is None else events,
            claims=list(claims),
            waiting=waiting,
            after=after,
            max_running=max_running,
            agent=agent,
            quotas=quotas,
        )
    )
    return lease


async def finish(store: Store, lease: Lease, *interrupts: str, session: bytes | None = None) -> None:
    end = RunEnd(
        outcome="interrupt" if interrupts else "success",
        interrupts=[(name, b'{"id":"%s"}' % name.encode()) for name in interrupts],
        session=session,
    )
    await store.append(lease, lines("finished"), end=end)


async def complete(store: Store, thread_id: str, run_id: str, *interrupts: str, scope: str = "a") -> None:
    await finish(store, await start(store, thread_id, run_id, scope=scope), *interrupts)


async def statuses(store: Store, thread_id: str = "t") -> dict[str, str]:
    return {record.interrupt_id: record.status for record in await store.interrupts("a", thread_id)}


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


async def count_refused(outcomes: Iterable[Awaitable[object]], kind: type[StoreError]) -> int:
    """Return how many calls raised this error. Raises any other error."""
    results = await asyncio.gather(*outcomes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, kind):
            raise result
    return sum(isinstance(result, kind) for result in results)


class StoreTest:
    """A test class with an open ``store`` that uses ``clock``."""

    pytestmark = pytest.mark.anyio

    @abstractmethod
    def make(self, clock: Clock, tmp_path: Path) -> Store: ...

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    async def store(self, clock: Clock, tmp_path: Path) -> AsyncIterator[Store]:
        store = self.make(clock, tmp_path)
        await store.open()
        yield store
        await store.close()
