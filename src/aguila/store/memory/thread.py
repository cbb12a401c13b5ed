"""Layer: store. One thread of the store in memory: its log, its runs, and what they asked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from aguila.errors import InterruptTaken
from aguila.store.base import Batch, CancelRequest, InterruptRecord, RunRecord, ThreadSummary, ThreadUpdate
from aguila.store.encoding import check_cursor
from aguila.store.feed import Key, cut

_replace = msgspec.structs.replace


class Thread:
    """All of one thread. ``runs`` is in the order they began; ``viewers`` and ``cancel`` are of the one that is on."""

    __slots__ = (
        "agent", "archived", "batches", "bytes", "cancel", "created_at", "effects", "first", "firsts", "interrupts",
        "key", "last", "lease_seconds", "metadata", "position", "running", "runs", "session", "title", "updated_at",
        "viewers",
    )  # fmt: skip

    def __init__(self, key: Key, now: float, first: int, agent: str) -> None:
        self.key = key
        self.agent = agent
        self.title: str | None = None
        self.archived = False
        self.metadata: bytes | None = None
        self.created_at = self.updated_at = now
        self.first = first
        self.last = first - 1
        self.bytes = 0
        self.position = 0
        self.batches: list[Batch] = []
        self.firsts: list[int] = []
        self.runs: dict[str, RunRecord] = {}
        self.running: str | None = None
        self.lease_seconds = 0.0
        self.cancel: CancelRequest | None = None
        self.viewers: dict[str, tuple[float, float]] = {}  # until when it counts, and for how long it was noted
        self.interrupts: dict[str, InterruptRecord] = {}
        self.session: bytes | None = None
        self.effects: dict[str, dict[str, bytes]] = {}

    def record_of(self, run_id: str) -> RunRecord:
        """What is known of a run that is there."""
        run = self.runs[run_id]
        if run_id != self.running:
            return run
        return _replace(run, last=self.last, cancel_requested=self.cancel == "always")

    def summary(self) -> ThreadSummary:
        """What a list of threads shows of it."""
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
        )

    def update(self, update: ThreadUpdate) -> int:
        """Change the title, the archived flag or the metadata; gives by how many bytes the thread grew."""
        before = self._described()
        if update.title is not msgspec.UNSET:
            self.title = update.title
        if update.archived is not msgspec.UNSET:
            self.archived = update.archived
        if update.metadata is not msgspec.UNSET:
            self.metadata = update.metadata
        return self._described() - before

    def _described(self) -> int:
        return len((self.title or "").encode()) + len(self.metadata or b"")

    # The log

    def write(self, events: Sequence[bytes], now: float) -> Batch:
        """Append events."""
        first = self.last + 1
        batch = Batch(first, tuple(events))
        if events:
            self.batches.append(batch)
            self.firsts.append(first)
            self.last += len(events)
        self.updated_at = now
        return batch

    def read(self, after: int, until: int | None, limit: int) -> tuple[Sequence[Batch], int]:
        """Batches after a sequence number, and the last one of the log. Raises ``CursorExpired``."""
        after = check_cursor(after, self.first, self.last)
        stop = self.last if until is None else min(until, self.last)
        found: list[Batch] = []
        count = 0
        index = max(0, bisect_right(self.firsts, after + 1) - 1)
        while after < stop and count < limit:
            batch = cut(self.batches[index], after, stop)
            found.append(batch)
            count += len(batch.events)
            after = batch.last
            index += 1
        return found, self.last

    # Interrupts

    def claim(self, run_id: str, interrupt_ids: Sequence[str]) -> None:
        """A run answers these."""
        for interrupt_id in interrupt_ids:
            self.interrupts[interrupt_id] = _replace(self.interrupts[interrupt_id], status="claimed", claimed_by=run_id)

    def settle(self, run_id: str, interrupt_ids: Sequence[str]) -> None:
        """A run has used these answers. Raises ``InterruptTaken``, and settles none, if it has not claimed one."""
        for interrupt_id in interrupt_ids:
            interrupt = self.interrupts.get(interrupt_id)
            if interrupt is None or interrupt.claimed_by != run_id:
                raise InterruptTaken(f"interrupt {interrupt_id!r} is not claimed", interrupt_id=interrupt_id)
        for interrupt_id in interrupt_ids:
            self.interrupts[interrupt_id] = _replace(self.interrupts[interrupt_id], status="settled")

    def reopen_claims(self, run_id: str) -> None:
        """A run will not use the answers that it has not used yet."""
        for interrupt in list(self.interrupts.values()):
            if interrupt.status == "claimed" and interrupt.claimed_by == run_id:
                self.interrupts[interrupt.interrupt_id] = _replace(interrupt, status="open", claimed_by=None)
