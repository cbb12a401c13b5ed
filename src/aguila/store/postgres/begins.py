"""Begin runs: one call of ``begin_runs`` for all runs that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aguila.errors import StoreUnavailable
from aguila.store import refusals
from aguila.store.cursors import token_to_int
from aguila.store.encoding import Row, hash_thread, size_of_rows
from aguila.store.postgres import queries
from aguila.store.postgres.database.connections import Database, convert
from aguila.store.postgres.database.lanes import Lane, Session
from aguila.store.postgres.inputs import StoredInput, store_input
from aguila.store.postgres.projections import put_inline_files
from aguila.store.records import NewRun, Quotas
from aguila.store.run_inputs import CutInput

BEGIN = """
SELECT code, thread, run, before, at_time, detail FROM aguila.begin_runs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
  $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34,
  $35, $36, $37, $38)
"""

_NO_QUOTAS = Quotas()


@dataclass(slots=True, eq=False)
class Beginning:
    """A run to begin, its first events as rows of the log, and its request."""

    new: NewRun
    rows: Sequence[Row]
    input: CutInput
    future: asyncio.Future[Begun] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    stored: StoredInput = field(default_factory=StoredInput)

    @property
    def size(self) -> int:
        """The bytes of the events and the request."""
        return size_of_rows(self.rows) + self.input.size


@dataclass(slots=True)
class Begun:
    """The keys of a run and its thread, the number before its first event, and the time."""

    thread: int
    run: int
    before: int
    at: float


class Begins:
    """The lane of runs that begin."""

    def __init__(self, database: Database, clock: Callable[[], float] | None) -> None:
        self._database = database
        self._clock = clock
        self._session = Session(database)
        self._lane: Lane[Beginning] = Lane(self._flush)

    async def begin(self, item: Beginning) -> Begun:
        """Begin a run. Raises as ``Store.begin`` does."""
        while True:
            item.stored = await store_input(self._database, item.new.lease, item.input)
            if item.input.files:
                begun = await self._begin_with_files(item)
            else:
                begun = await self._lane.submit(item)
            if begun is not None:
                return begun
            item.future = asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Finish all runs that wait, and close the connection."""
        await self._lane.close()
        await self._session.close()

    async def _flush(self, items: list[Beginning]) -> None:
        items.sort(
            key=lambda item: (item.new.lease.scope, item.new.lease.thread_id)
        )  # two processes lock in the same order
        try:
            sql = self._database.sql(BEGIN)
            rows = await self._database.retry(lambda: self._session.fetch(sql, *self._arguments(items)))
        except StoreUnavailable as error:
            for item in items:
                _fail(item, error)
            return
        except Exception as error:  # noqa: BLE001 - it becomes the outcome of the run at fault
            if len(items) == 1:
                _fail(items[0], convert(error, writes=True))
            for item in items if len(items) > 1 else ():
                await self._flush([item])
            return
        for item, row in zip(items, rows, strict=True):
            try:
                outcome = await self._outcome(item, row)
            except Exception as error:  # noqa: BLE001 - it becomes the outcome of the run
                _fail(item, error)
            else:
                if not item.future.done():
                    item.future.set_result(outcome)

    async def _begin_with_files(self, item: Beginning) -> Begun | None:
        """Begin a run whose request has inline files, in a transaction of its own."""
        now = self._now()

        async def begin(db: Any) -> Any:
            lease = item.new.lease
            await put_inline_files(self._database, db, now, lease.scope, lease.thread_id, item.input.files)
            row = await db.fetchrow(self._database.sql(BEGIN), *self._arguments([item]))
            if row[0] not in (None, "repeated"):
                raise _Refused(row)
            return row

        try:
            row = await self._database.transact(begin, item.size)
        except _Refused as error:
            row = error.row
        return await self._outcome(item, row)

    async def _outcome(self, item: Beginning, row: Any) -> Any:
        """Return the keys of a begun run; None to try again. Raises the refusal."""
        code, thread, run, before, at, detail = row
        lease = item.new.lease
        match code:
            case None | "repeated":
                return Begun(thread, run, before, at)
            case "agent":
                raise refusals.agent_mismatch(lease.thread_id, detail)
            case "exists" | "busy":
                found = (await queries.read_runs_by_keys(self._database, [run])).get(run)
                if found is None:
                    return None  # removed meanwhile
                raise refusals.run_exists(found) if code == "exists" else refusals.thread_busy(found)
            case "many":
                raise refusals.too_many_runs(run)
            case "quota":
                raise refusals.quota_exceeded(detail)
            case "continued":
                raise refusals.thread_continued(lease.thread_id)
            case "moved":
                raise refusals.thread_moved(detail)
            case "taken":
                raise refusals.interrupt_not_open(detail)
            case _:
                return None  # the thread was removed since its requests were read

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _arguments(self, items: Sequence[Beginning]) -> tuple[Any, ...]:
        leases = [item.new.lease for item in items]
        stored = [item.stored for item in items]
        quotas = [item.new.quotas or _NO_QUOTAS for item in items]
        waiting = [(n, one) for n, item in enumerate(items, 1) for one in item.new.waiting or ()]
        claims = [(n, one) for n, item in enumerate(items, 1) for one in item.new.claims]
        rows = [(n, count, lines) for n, item in enumerate(items, 1) for count, lines in item.rows]
        messages = [(n, *one) for n, each in enumerate(stored, 1) for one in each.messages]
        return (
            self._now(),
            self._database.lock,
            [lease.scope for lease in leases],
            [lease.thread_id for lease in leases],
            [lease.run_id for lease in leases],
            [lease.owner for lease in leases],
            [item.new.lease_seconds for item in items],
            [item.new.fingerprint for item in items],
            [item.new.parent_run_id for item in items],
            [item.new.agent for item in items],
            [item.new.sent_run_id for item in items],
            [token_to_int(item.new.token) for item in items],
            [item.new.max_running for item in items],
            [hash_thread(lease.scope, lease.thread_id) for lease in leases],
            [size_of_rows(item.rows) + item.stored.size for item in items],
            [each.body for each in stored],
            [each.files for each in stored],
            [each.digests for each in stored],
            [each.base for each in stored],
            [each.depth for each in stored],
            [item.new.waiting is not None for item in items],
            [n for n, _ in waiting],
            [one for _, one in waiting],
            [n for n, _ in claims],
            [one for _, one in claims],
            [row[0] for row in rows],
            [row[1] for row in rows],
            [row[2] for row in rows],
            [message[0] for message in messages],
            [message[1] for message in messages],
            [message[2] for message in messages],
            [message[3] for message in messages],
            [message[4] for message in messages],
            [item.new.after for item in items],
            [quota.threads_per_scope for quota in quotas],
            [quota.bytes_per_scope for quota in quotas],
            [quota.threads for quota in quotas],
            [quota.bytes for quota in quotas],
        )


class _Refused(Exception):
    """Rolls back a transaction in which a run was refused."""

    def __init__(self, row: Any) -> None:
        super().__init__(row[0])
        self.row = row


def _fail(item: Beginning, error: Exception) -> None:
    if not item.future.done():
        item.future.set_exception(error)
