"""One thread of the memory store: its log, its runs and its interrupts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from aguila.store import refusals
from aguila.store.archives.thread_archive import ArchivedFile, ArchivedRun, ThreadArchive
from aguila.store.encoding import (
    check_cursor,
    inside_compacted,
    size_of_details,
    size_of_events,
    to_milliseconds,
)
from aguila.store.feed import ThreadKey, cut
from aguila.store.memory.inputs import Inputs
from aguila.store.records import (
    Batch,
    CancelRequest,
    InterruptRecord,
    RunRecord,
    StoredProjection,
    ThreadSummary,
    ThreadUpdate,
)
from aguila.store.run_inputs import CutProjection, StoredJSON

_replace = msgspec.structs.replace


class Thread(msgspec.Struct, eq=False):
    """A thread. ``runs`` is in the order they began; ``viewers`` and ``cancel`` belong to the open run."""

    key: ThreadKey
    agent: str
    created_at: float
    updated_at: float
    first: int
    last: int
    size: int = 0
    position: int = -1
    title: str | None = None
    archived: bool = False
    metadata: bytes | None = None
    batches: list[Batch] = []
    firsts: list[int] = []
    compacted: dict[str, int] = {}  # run -> the number of its first event that is left
    runs: dict[str, RunRecord] = {}
    inputs: Inputs = msgspec.field(default_factory=Inputs)
    projections: dict[str, tuple[int, bytes]] = {}  # run -> format and body
    values: dict[bytes, StoredJSON] = {}
    running: str | None = None
    lease_seconds: float = 0.0
    cancel: CancelRequest | None = None
    viewers: dict[str, float] = {}  # process -> expiry
    interrupts: dict[str, InterruptRecord] = {}
    session: bytes | None = None
    effects: dict[str, dict[str, bytes]] = {}

    def record_of(self, run_id: str) -> RunRecord:
        """Return the record of an existing run."""
        run = self.runs[run_id]
        if run_id != self.running:
            return run
        return _replace(run, last=self.last, cancel_requested=self.cancel == "always", token=self.last_token)

    def summary(self) -> ThreadSummary:
        """Return the entry in the list of threads."""
        return ThreadSummary(
            thread_id=self.key[1],
            created_at=self.created_at,
            updated_at=self.updated_at,
            last=self.last,
            runs=len(self.runs),
            running=self.running,
            position=self.position,
            agent=self.agent,
            title=self.title,
            archived=self.archived,
            metadata=self.metadata,
            token=self.last_token,
        )

    def update(self, update: ThreadUpdate) -> int:
        """Change the title, the archived flag or the metadata; return by how many bytes the thread grew."""
        before = size_of_details(self.title, self.metadata)
        if update.title is not msgspec.UNSET:
            self.title = update.title
        if update.default_title is not msgspec.UNSET and self.title is None:
            self.title = update.default_title
        if update.archived is not msgspec.UNSET:
            self.archived = update.archived
        if update.metadata is not msgspec.UNSET:
            self.metadata = update.metadata
        return size_of_details(self.title, self.metadata) - before

    # The log

    def write(self, events: Sequence[bytes], now: float, token: str = "") -> Batch:
        """Append events to the log."""
        first = self.last + 1
        batch = Batch(first, tuple(events), to_milliseconds(now), token)
        if events:
            self.batches.append(batch)
            self.firsts.append(first)
            self.last += len(events)
        self.updated_at = now
        return batch

    def read(self, after: int, until: int | None, limit: int) -> tuple[Sequence[Batch], int]:
        """Return batches after a cursor, and the newest sequence number. Raises ``CursorExpired``."""
        after = check_cursor(after, self.first, self.last)
        stop = self.last if until is None else min(until, self.last)
        found: list[Batch] = []
        count = 0
        index = max(0, bisect_right(self.firsts, after + 1) - 1)
        if index < len(self.batches) and self.batches[index].last <= after:
            index += 1  # the next batch is that of a compacted run, which does not begin with its first number
        if index < len(self.batches) and self.is_inside_compacted(after, self.batches[index]):
            raise inside_compacted(after)
        while after < stop and count < limit and self.batches[index].first <= stop:
            batch = cut(self.batches[index], after, stop)
            found.append(batch)
            count += len(batch.events)
            after = batch.last
            index += 1
        return found, self.last

    @property
    def last_token(self) -> str:
        """The token of the newest event."""
        return self.batches[-1].token if self.batches else ""

    def token(self, number: int) -> str:
        """Return the token of an event. Raises ``CursorExpired``."""
        number = check_cursor(number, self.first, self.last)
        if number < self.first:
            return ""
        self.read(number, number, 1)
        return self.batches[bisect_right(self.firsts, number) - 1].token

    # Compaction

    def is_inside_compacted(self, after: int, batch: Batch) -> bool:
        """Return whether a cursor is inside the range of the compacted run that this batch has."""
        return any(
            left == batch.first and self.runs[run_id].first <= after < self.runs[run_id].last
            for run_id, left in self.compacted.items()
        )

    def is_compactable(self, run: RunRecord, before: float) -> bool:
        """Return whether a run that ended before this time can be compacted."""
        if run.ended_at is None or run.ended_at > before or run.run_id in self.compacted:
            return False
        for interrupt in self.interrupts.values():
            if run.run_id in (interrupt.run_id, interrupt.claimed_by):
                settled_by = self.runs.get(interrupt.claimed_by or "")
                is_used = settled_by is not None and settled_by.outcome in ("success", "interrupt")
                if interrupt.status != "settled" or not is_used:
                    return False
        return True

    def compact(self, run: RunRecord, events: Sequence[bytes]) -> int:
        """Replace the events of a run; return by how many bytes the thread grew."""
        self.compacted[run.run_id] = run.first
        if len(events) > run.last - run.first:
            return 0
        start = bisect_left(self.firsts, run.first)
        stop = bisect_right(self.firsts, run.last)
        old = self.batches[start:stop]
        batch = Batch(run.last - len(events) + 1, tuple(events), old[-1].at, old[-1].token)
        self.compacted[run.run_id] = batch.first
        self.batches[start:stop] = [batch]
        self.firsts[start:stop] = [batch.first]
        return size_of_events(batch.events) - sum(size_of_events(one.events) for one in old)

    # Projections

    def save_projection(self, run_id: str, new: CutProjection) -> int:
        """Store the projection of a run; return by how many bytes the thread grew, without inline files."""
        size = len(new.body) - len(self.projections.get(run_id, (0, b""))[1])
        self.projections[run_id] = (new.format, new.body)
        for digest, value in new.values.items():
            if digest not in self.values:
                self.values[digest] = value
                size += value.size
        return size

    def list_projections(self, after: int) -> list[StoredProjection]:
        """Return the projections of the runs that began after an event."""
        return [
            StoredProjection(run_id=run.run_id, first=run.first, last=run.last, format=found[0], body=found[1])
            for run in self.runs.values()
            if run.first > after and (found := self.projections.get(run.run_id)) is not None
        ]

    # Interrupts

    def claim(self, run_id: str, interrupt_ids: Sequence[str]) -> None:
        """Claim interrupts for a run."""
        for interrupt_id in interrupt_ids:
            self.interrupts[interrupt_id] = _replace(self.interrupts[interrupt_id], status="claimed", claimed_by=run_id)

    def settle(self, run_id: str, interrupt_ids: Sequence[str]) -> None:
        """Settle interrupts of a run. Raises ``InterruptTaken``, and settles none, if the run has not claimed one."""
        for interrupt_id in interrupt_ids:
            interrupt = self.interrupts.get(interrupt_id)
            if interrupt is None or interrupt.claimed_by != run_id:
                raise refusals.interrupt_not_claimed(interrupt_id, run_id)
        for interrupt_id in interrupt_ids:
            self.interrupts[interrupt_id] = _replace(self.interrupts[interrupt_id], status="settled")

    def reopen_claims(self, run_id: str) -> None:
        """Reopen the interrupts that a run has claimed and not settled."""
        for interrupt in list(self.interrupts.values()):
            if interrupt.status == "claimed" and interrupt.claimed_by == run_id:
                self.interrupts[interrupt.interrupt_id] = _replace(interrupt, status="open", claimed_by=None)

    # Archives

    def archive(self, files: Sequence[ArchivedFile]) -> ThreadArchive:
        """Return the thread with its files as one value."""
        return ThreadArchive(
            scope=self.key[0],
            thread_id=self.key[1],
            agent=self.agent,
            created_at=self.created_at,
            updated_at=self.updated_at,
            first=self.first,
            title=self.title,
            archived=self.archived,
            metadata=self.metadata,
            runs=[
                ArchivedRun(record=self.record_of(run_id), body=body, digests=digests)
                for run_id, body, digests in self.inputs.all()
            ],
            messages=self.inputs.messages,
            batches=list(self.batches),
            interrupts=list(self.interrupts.values()),
            session=self.session,
            effects={run_id: dict(results) for run_id, results in self.effects.items()},
            files=files,
        )

    def restore(self, archive: ThreadArchive) -> int:
        """Fill an empty thread from an archive; return its bytes, without files."""
        self.title, self.archived, self.metadata = archive.title, archive.archived, archive.metadata
        self.batches = list(archive.batches)
        self.firsts = [batch.first for batch in archive.batches]
        self.last = archive.last
        self.interrupts = {interrupt.interrupt_id: interrupt for interrupt in archive.interrupts}
        self.session = archive.session
        self.effects = {run_id: dict(results) for run_id, results in archive.effects.items()}
        size = sum(size_of_events(batch.events) for batch in archive.batches)
        self.compacted = archive.find_compacted()
        for run in archive.runs:
            self.runs[run.record.run_id] = run.record
            size += self.inputs.add(run.record.run_id, archive.input_of(run))
        return size + archive.size_of_values
