"""The parts of an open PostgreSQL store: its connections, its lanes of writes, its live feed and its wake-ups.

All of it belongs to the event loop on which it was opened.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aguila.errors import StaleLease, StoreUnavailable
from aguila.store import refusals
from aguila.store.columns import CANCEL
from aguila.store.encoding import size_of_rows
from aguila.store.feed import Feed, ThreadKey
from aguila.store.polling import Poller
from aguila.store.postgres import queries, thread_writes
from aguila.store.postgres.appends import Append, Appends
from aguila.store.postgres.begins import Begins
from aguila.store.postgres.database.connections import Database
from aguila.store.postgres.database.lanes import Lane
from aguila.store.postgres.database.wakeups import Wakeups
from aguila.store.records import Batch, Lease, RunRecord

_log = logging.getLogger("aguila.store")

GONE_SECONDS = 1.0
"""Seconds without any session after which a process counts as dead: until then it may be reconnecting."""

_RENEW = """
UPDATE aguila.runs r SET lease_until = aguila.time_of($1) + g.seconds, lease_seconds = g.seconds, lock = $2,
  incarnation = CASE WHEN $2::bigint IS NOT NULL THEN pg_postmaster_start_time() END
FROM unnest($3::text[], $4::text[], $5::text[], $6::integer[], $7::text[], $8::float8[])
  WITH ORDINALITY AS g(scope, thread_id, run_id, epoch, owner, seconds, n)
JOIN aguila.threads t ON t.scope = g.scope AND t.thread_id = g.thread_id
WHERE r.key = t.running AND r.run_id = g.run_id AND r.epoch = g.epoch AND r.owner = g.owner AND r.outcome IS NULL
RETURNING g.n, r.cancel_requested
"""


@dataclass(slots=True, eq=False)
class _Renewal:
    """One call of ``Store.renew``."""

    lease: Lease
    seconds: float
    future: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    size: int = 0


class Engine:
    """An open store."""

    def __init__(self, database: Database, clock: Callable[[], float] | None, poll_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.database = database
        self._clock = clock
        self._poller: Poller
        self.feed = Feed(before_wait=lambda: self._poller.start())
        self._poller = Poller(self.feed, poll_seconds, lambda keys: queries.read_stamps(database, keys))
        self.wakeups = None if database.is_pooled else Wakeups(database, self._invalidate)
        self.appends = Appends(database, clock, self._publish, self.notify)
        self.begins = Begins(database, clock)
        self._renewals: Lane[_Renewal] = Lane(self._renew)
        self._gone: dict[int, float] = {}
        self._cleaning: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, create or upgrade the schema, and listen. Raises ``StoreUnavailable``."""
        try:
            await self.database.open()
            if self.wakeups is not None:
                self.wakeups.open()
        except BaseException:
            await self.close()
            raise

    @property
    def is_orphaned(self) -> bool:
        """Whether the event loop of this engine is closed."""
        return self._loop.is_closed()

    def abandon(self) -> None:
        """Forget the connections after the event loop was closed."""
        self.database.abandon()

    async def close(self) -> None:
        """Finish the queued writes, end the tails, and close the connections."""
        try:
            await self.begins.close()
            await self.appends.close()
            await self._renewals.close()
        finally:
            self.feed.close()
            self._poller.stop()
            if self._cleaning is not None:
                self._cleaning.cancel()
            try:
                if self.wakeups is not None:
                    await self.wakeups.close()
            finally:
                await self.database.close()

    @property
    def now(self) -> float | None:
        """The time of a test's clock; None for the database's clock."""
        return None if self._clock is None else self._clock()

    def notify(self, keys: Iterable[ThreadKey], *, delay: float = 0.0) -> None:
        """Wake the readers of these threads in other processes, after ``delay`` seconds at the latest."""
        if self.wakeups is not None:
            self.wakeups.notify(keys, delay=delay)

    def renew(self, lease: Lease, seconds: float) -> asyncio.Future[bool]:
        """Queue the renewal of a lease."""
        return self._renewals.submit(_Renewal(lease, seconds))

    def disown(self, lease: Lease) -> None:
        """Record that a lease of this process is stale."""
        self.appends.disown(lease)
        self.feed.disown(lease)

    async def find_expired(self) -> Sequence[RunRecord]:
        """Return the runs whose lease has expired, and those whose owner has been gone for ``GONE_SECONDS``."""
        rows = await self.database.fetch(queries.EXPIRED, self.now)
        found: list[RunRecord] = []
        gone: dict[int, float] = {}
        at = time.monotonic()
        for row in rows:
            has_expired, is_too_long, lock, *record = row
            if not has_expired and not is_too_long:
                gone[lock] = self._gone.get(lock, at)
            if has_expired or (not is_too_long and at - gone[lock] >= GONE_SECONDS):
                found.append(queries.run_record(record))
        self._gone = gone
        if any(row[1] for row in rows):  # the clock was set back
            await self.database.fetch(queries.SHORTEN_LEASES, self.now)
        if (await self.database.fetchrow(queries.SHORTEN_VIEWERS, self.now))[0]:
            self.clean()
        return found

    def clean(self) -> None:
        """Delete the rows of removed threads in the background."""
        if self._cleaning is None or self._cleaning.done():
            self._cleaning = self._loop.create_task(self._empty_trash(), name="aguila-store-clean")

    async def _empty_trash(self) -> None:
        try:
            await thread_writes.empty_trash(self.database)
        except StoreUnavailable as error:
            _log.debug("cannot delete the rows of removed threads yet: %s", error)  # find_expired tries again

    def _publish(self, item: Append, batch: Batch) -> None:
        self.feed.publish(item.lease, batch, size_of_rows(item.rows), ended=item.end is not None)

    def _invalidate(self, keys: Sequence[ThreadKey]) -> None:
        """Invalidate some threads; without keys, all of them."""
        for key in keys or list(self.feed.channels):
            self.feed.invalidate(key)

    async def _renew(self, items: list[_Renewal]) -> None:
        leases = [item.lease for item in items]
        columns: list[list[Any]] = [
            [lease.scope for lease in leases],
            [lease.thread_id for lease in leases],
            [lease.run_id for lease in leases],
            [lease.epoch for lease in leases],
            [lease.owner for lease in leases],
            [item.seconds for item in items],
        ]
        try:
            rows = await self.database.fetch(_RENEW, self.now, self.database.lock, *columns)
        except Exception as error:  # noqa: BLE001 - it becomes the outcome of the renewals
            outcomes: dict[int, Any] = dict.fromkeys(range(1, len(items) + 1), error)
        else:
            outcomes = {row[0]: row[1] == CANCEL["always"] for row in rows}
        for n, item in enumerate(items, 1):
            outcome = outcomes.get(n, refusals.stale_lease(item.lease))
            if isinstance(outcome, StaleLease):
                self.disown(item.lease)
            if not item.future.done():
                if isinstance(outcome, Exception):
                    item.future.set_exception(outcome)
                else:
                    item.future.set_result(outcome)
