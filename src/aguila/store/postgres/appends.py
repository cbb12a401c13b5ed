"""Append the events of all runs of this process: one call of ``append_events`` per flush.

The number before a batch is part of its append. If a connection is lost during a commit, the append is repeated. If the
thread still has that number, the batch is appended. If it has the number after the batch, the first attempt was
committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from aguila.store import refusals
from aguila.store.encoding import Row, hash_members, size_of_rows, to_milliseconds
from aguila.store.postgres.database.connections import FIRST_PAUSE, MAX_PAUSE, Database, convert, is_outage, unavailable
from aguila.store.postgres.database.lanes import Lane, Session
from aguila.store.postgres.projections import value_columns
from aguila.store.records import Batch, Lease, RunEnd, ThreadUpdate
from aguila.store.run_inputs import CutProjection

APPEND = """
SELECT n, code, detail, at_time FROM aguila.append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
  $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)
"""
POSITIONS = """
SELECT g.n, t.key, r.key, r.last, r.outcome, r.key IS NOT DISTINCT FROM t.running, t.last,
  coalesce(r.ended_at, t.updated_at)
FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::text[])
  WITH ORDINALITY AS g(scope, thread_id, run_id, epoch, owner, n)
JOIN aguila.threads t ON t.scope = g.scope AND t.thread_id = g.thread_id
JOIN aguila.runs r ON r.thread = t.key AND r.run_id = g.run_id AND r.epoch = g.epoch AND r.owner = g.owner
"""


@dataclass(slots=True)
class Position:
    """The state of a run that this process writes to."""

    thread: int
    run: int
    last: int | None
    """The newest sequence number of the thread; None if only the database knows it."""
    unresolved: tuple[int, Sequence[bytes]] | None = None
    """The number before an append whose outcome is not known, and its events."""


@dataclass(slots=True, eq=False)
class Append:
    """One call of ``Store.append``."""

    lease: Lease
    events: Sequence[bytes]
    rows: Sequence[Row]
    end: RunEnd | None
    projection: CutProjection | None
    future: asyncio.Future[Batch]
    size: int = 0


@dataclass(slots=True, eq=False)
class _Check:
    """One call of ``Appends.check``."""

    future: asyncio.Future[None]
    size: int = 0


@dataclass(slots=True)
class _Group:
    """The appends of one run in a flush. ``is_repeated``: an earlier attempt may have been committed."""

    lease: Lease
    position: Position
    items: list[Append] = field(default_factory=list[Append])
    is_repeated: bool = False

    @property
    def end(self) -> RunEnd | None:
        return self.items[-1].end

    @property
    def count(self) -> int:
        return sum(len(item.events) for item in self.items)

    @property
    def events(self) -> list[bytes]:
        return [event for item in self.items for event in item.events]


class Appends:
    """The lane of appends. ``publish`` is called with each append that is durable, in order."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] | None,
        publish: Callable[[Append, Batch], None],
        notify: Callable[[Sequence[tuple[str, str]]], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._publish = publish
        self._notify = notify
        self._session = Session(database)
        self._lane: Lane[Append | _Check] = Lane(self._flush)
        self._positions: dict[Lease, Position] = {}

    def append(
        self,
        lease: Lease,
        events: Sequence[bytes],
        rows: Sequence[Row],
        end: RunEnd | None,
        projection: CutProjection | None,
    ) -> asyncio.Future[Batch]:
        """Queue an append; return the future of its batch. ``projection`` is that of ``end``."""
        size = size_of_rows(rows) + (0 if end is None else end.size)
        future: asyncio.Future[Batch] = asyncio.get_running_loop().create_future()
        return self._lane.submit(Append(lease, events, rows, end, projection, future, size))

    async def check(self) -> None:
        """Append nothing, after the appends that wait: with their connection, and the locks on their tables.

        Raises ``StoreUnavailable``.
        """
        await self._lane.submit(_Check(asyncio.get_running_loop().create_future()))

    def own(self, lease: Lease, thread: int, run: int, last: int) -> None:
        """Record a lease that this process has just got."""
        self._positions[lease] = Position(thread, run, last)

    async def find(self, lease: Lease) -> Position:
        """Return the keys of a run whose lease this process holds. Raises ``StaleLease``."""
        position = self._positions.get(lease)
        if position is None:
            found = _states(await self._database.fetch(POSITIONS, *_columns_of([lease])), [lease]).get(lease)
            if found is None or not found.is_open:
                raise refusals.stale_lease(lease)
            position = self._positions[lease] = Position(found.thread, found.run, None)
        return position

    def disown(self, lease: Lease) -> None:
        """Forget a lease that is stale or whose run is closed."""
        self._positions.pop(lease, None)

    async def close(self) -> None:
        """Finish all appends and close the connection."""
        await self._lane.close()
        await self._session.close()

    # One flush

    async def _flush(self, items: list[Append | _Check]) -> None:
        for part in _split_after_ends([item for item in items if isinstance(item, Append)]):
            try:
                await self._write(part)
            except Exception as error:  # noqa: BLE001 - it becomes the outcome of the appends
                _fail(part, error)
        checks = [item for item in items if isinstance(item, _Check)]
        if checks:
            await self._answer(checks)

    async def _answer(self, checks: Sequence[_Check]) -> None:
        try:
            await self._session.fetch(self._database.sql(APPEND), *_arguments(None, []))
        except Exception as error:  # noqa: BLE001 - it becomes the outcome of the checks
            _fail(checks, unavailable(error) if is_outage(error) else convert(error, writes=True))
        for check in checks:
            if not check.future.done():
                check.future.set_result(None)

    async def _write(self, items: Sequence[Append]) -> None:
        deadline = time.monotonic() + self._database.patience
        pause = FIRST_PAUSE
        groups: list[_Group] | None = None
        while groups is None or groups:
            try:
                if groups is None:
                    groups = await self._group(items)
                groups = await self._try(groups)
                continue
            except Exception as error:  # noqa: BLE001 - classified here
                if not is_outage(error):
                    await self._isolate(groups, items, error)
                    return
                for group in groups or ():
                    group.is_repeated = True
                if time.monotonic() + pause > deadline:
                    self._give_up(groups, items, error)
                    return
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)

    async def _isolate(self, groups: list[_Group] | None, items: Sequence[Append], error: Exception) -> None:
        """After an error of a statement, write each run alone, so that only the run at fault fails."""
        if groups is None or len(groups) == 1:
            _fail([item for item in items if not item.future.done()], convert(error, writes=True))
            return
        for group in groups:
            await self._write(group.items)

    def _give_up(self, groups: list[_Group] | None, items: Sequence[Append], error: Exception) -> None:
        for group in groups or ():
            position = group.position
            if position.last is not None:
                position.unresolved = (position.last, group.events)
                position.last = None
        _fail([item for item in items if not item.future.done()], unavailable(error))

    async def _group(self, items: Sequence[Append]) -> list[_Group]:
        """Group the appends by run, and find the number before each. Stale appends are refused here."""
        leases = dict.fromkeys(item.lease for item in items)
        unknown = [one for one in leases if (at := self._positions.get(one)) is None or at.last is None]
        if unknown:
            await self._find_positions(unknown, items)
        groups: dict[Lease, _Group] = {}
        for item in items:
            if item.future.done():
                continue
            position = self._positions[item.lease]
            group = groups.get(item.lease)
            if group is None:
                group = groups[item.lease] = _Group(item.lease, position)
            group.items.append(item)
        for group in groups.values():
            if group.position.unresolved is not None:
                group.is_repeated = True
                group.position.unresolved = None
        return list(groups.values())

    async def _find_positions(self, leases: Sequence[Lease], items: Sequence[Append]) -> None:
        found = await self._read_positions(leases)
        for lease in leases:
            state = found.get(lease)
            mine = [item for item in items if item.lease == lease and not item.future.done()]
            known = self._positions.get(lease)
            unresolved = None if known is None else known.unresolved
            if unresolved is not None and unresolved[1] != [event for item in mine for event in item.events]:
                unresolved = None  # the caller has given those events up
            if state is None or (not state.is_open and unresolved is None):
                self._refuse_stale(mine)
            else:
                last = state.last if unresolved is None else unresolved[0]
                self._positions[lease] = Position(state.thread, state.run, last, unresolved)

    async def _try(self, groups: list[_Group]) -> list[_Group]:
        """Append the batches of some runs; return the runs that need another attempt."""
        now = None if self._clock is None else self._clock()
        rows = await self._session.fetch(self._database.sql(APPEND), *_arguments(now, groups))
        at: float = rows[0][3]
        refused: dict[int, tuple[str, str]] = {row[0] - 1: (row[1], row[2]) for row in rows[1:]}
        stale = [groups[n] for n, (code, _) in refused.items() if code == "stale"]
        again: list[_Group] = []
        committed = [(group, at) for n, group in enumerate(groups) if n not in refused]
        for n, (code, detail) in refused.items():
            if code == "unclaimed":
                self._refuse_unclaimed(groups[n], detail)
        if stale:
            states = await self._read_positions([group.lease for group in stale])
            for group in stale:
                state = states.get(group.lease)
                expected = group.position.last or 0
                if state is not None and group.is_repeated and state.has_committed(group, expected):
                    committed.append((group, state.at))
                elif state is not None and state.is_open and state.last != expected:
                    group.position.last = state.last
                    group.is_repeated = False
                    again.append(group)
                else:
                    self._refuse_stale(group.items)
        for group, appended_at in committed:
            self._deliver(group, to_milliseconds(appended_at))
        if committed:
            self._notify([(group.lease.scope, group.lease.thread_id) for group, _ in committed])
        return again

    def _deliver(self, group: _Group, at: int) -> None:
        last = group.position.last or 0
        for item in group.items:
            batch = Batch(last + 1, item.events, at, item.lease.token)
            last = batch.last
            self._publish(item, batch)
            if not item.future.done():
                item.future.set_result(batch)
        group.position.last = last
        if group.end is not None:
            self.disown(group.lease)

    def _refuse_stale(self, items: Sequence[Append]) -> None:
        for item in items:
            self.disown(item.lease)
            if not item.future.done():
                item.future.set_exception(refusals.stale_lease(item.lease))

    def _refuse_unclaimed(self, group: _Group, interrupt_id: str) -> None:
        """Refuse the end of a run. Events that were queued before it are appended by themselves."""
        *before, last = group.items
        if not last.future.done():
            last.future.set_exception(refusals.interrupt_not_claimed(interrupt_id, group.lease.run_id))
        for item in before:
            self._lane.submit(item)

    async def _read_positions(self, leases: Sequence[Lease]) -> dict[Lease, _State]:
        rows = await self._session.fetch(self._database.sql(POSITIONS), *_columns_of(leases))
        return _states(rows, leases)


@dataclass(slots=True)
class _State:
    """The stored state of a run whose epoch and owner are those of a lease."""

    thread: int
    run: int
    ended_at: int | None
    outcome: str | None
    is_open: bool
    last: int
    at: float

    def has_committed(self, group: _Group, expected: int) -> bool:
        """Return whether an append that expected this number before its batch is in the log."""
        after = expected + group.count
        if group.end is None:
            return self.is_open and self.last == after
        return self.outcome == group.end.outcome and self.ended_at == after


def _columns_of(leases: Sequence[Lease]) -> list[list[Any]]:
    """Return the arguments of ``POSITIONS``."""
    ids = [(one.scope, one.thread_id, one.run_id, one.epoch, one.owner) for one in leases]
    return _columns(ids, 5)


def _states(rows: Sequence[Any], leases: Sequence[Lease]) -> dict[Lease, _State]:
    """Return the rows of ``POSITIONS`` by their leases."""
    return {leases[row[0] - 1]: _State(*tuple(row)[1:]) for row in rows}


def _split_after_ends(items: Sequence[Append]) -> list[list[Append]]:
    """Cut a list of appends before each append to a run that an earlier one closes."""
    parts: list[list[Append]] = [[]] if items else []
    ended: set[Lease] = set()
    for item in items:
        if item.lease in ended:
            parts.append([])
            ended.clear()
        parts[-1].append(item)
        if item.end is not None:
            ended.add(item.lease)
    return parts


def _fail(items: Sequence[Append | _Check], error: Exception) -> None:
    for item in items:
        if not item.future.done():
            item.future.set_exception(error)


def _arguments(now: float | None, groups: Sequence[_Group]) -> tuple[Any, ...]:
    """Return the arguments of ``append_events``: columns of the runs, of their rows, and of the ends."""
    rows: list[tuple[int, int, int, bytes]] = []
    sessions: list[tuple[int, bytes]] = []
    settles: list[tuple[int, str]] = []
    interrupts: list[tuple[int, str, bytes]] = []
    updates: list[tuple[int, bool | None, str | None, bool | None, bool, bytes | None, str]] = []
    projections: list[tuple[int, int, bytes]] = []
    values: list[tuple[int, bytes, int, bytes | None, bytes]] = []
    runs: list[tuple[int, int, int, int, int, int, str | None]] = []
    for n, group in enumerate(groups, 1):
        position, end = group.position, group.end
        before = last = position.last or 0
        size = 0
        for item in group.items:
            for count, lines in item.rows:
                if count:
                    rows.append((n, last + 1, last + count, lines))
                    last += count
                    size += len(lines)
        runs.append(
            (position.thread, position.run, group.lease.epoch, before, last - before, size, end and end.outcome)
        )
        if end is not None:
            if end.session is not None:
                sessions.append((n, end.session))
            settles += [(n, one) for one in end.settles]
            raised: dict[str, bytes] = {}
            for interrupt_id, body in end.interrupts:
                raised.pop(interrupt_id, None)  # an interrupt that is raised again is the newest one
                raised[interrupt_id] = body
            interrupts += [(n, interrupt_id, body) for interrupt_id, body in raised.items()]
            if end.update is not None:
                updates.append((n, *update_values(group.lease.scope, end.update)))
        projection = group.items[-1].projection
        if projection is not None:
            projections.append((n, projection.format, projection.body))
            values += [(n, *row) for row in zip(*value_columns(projection), strict=True)]
    return (
        now,
        *_columns(runs, 7),
        *_columns(rows, 4),
        *_columns(sessions, 2),
        *_columns(settles, 2),
        *_columns(interrupts, 3),
        *_columns(updates, 7),
        *_columns(projections, 3),
        *_columns(values, 5),
    )


def update_values(
    scope: str, update: ThreadUpdate
) -> tuple[bool | None, str | None, bool | None, bool, bytes | None, str]:
    """Return the arguments of ``update_details``."""
    metadata = None if update.metadata is UNSET else update.metadata
    title = update.default_title if update.title is UNSET else update.title
    return (
        None if update.default_title is not UNSET else update.title is not UNSET,  # null: if the thread has none
        None if title is UNSET else title,
        None if update.archived is UNSET else update.archived,
        update.metadata is not UNSET,
        metadata,
        f"{{{','.join(map(str, hash_members(scope, metadata)))}}}",
    )


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
