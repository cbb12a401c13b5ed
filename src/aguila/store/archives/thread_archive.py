"""A thread as one value, with its sequence numbers: what export, import and copy read and write.

``Store.snapshot`` reads archives and ``Store.restore`` writes them. ``file_format`` is their file format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from aguila.codec import encode_event
from aguila.codec.json.bounded_floats import json_decoder
from aguila.protocol import RunErrorEvent
from aguila.store.encoding import size_of_details, to_milliseconds
from aguila.store.records import Batch, Blob, InterruptRecord, RunRecord, ThreadSummary
from aguila.store.run_inputs import CutInput, StoredJSON

RUN_LOST: Final = encode_event(
    RunErrorEvent(message="The server that ran this stopped before it was finished. Try again.", code="run_lost")
)
"""The terminal event of a run whose owner cannot end it."""


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with its content. ``is_kept`` if it was also stored without a thread."""

    blob: Blob
    data: bytes
    is_kept: bool


class ArchivedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its request. If ``digests`` is None, ``body`` is the whole request; see ``run_inputs``."""

    record: RunRecord
    body: StoredJSON
    digests: bytes | None


class ThreadArchive(msgspec.Struct, frozen=True, kw_only=True):
    """A thread. Its last run is open only if it was read with ``ends_run=False``."""

    scope: str
    thread_id: str
    agent: str
    created_at: float
    updated_at: float
    first: int
    """The sequence number of the first event."""
    title: str | None
    archived: bool
    metadata: bytes | None
    runs: Sequence[ArchivedRun]
    """In the order they began."""
    messages: dict[bytes, StoredJSON]
    """The messages of the requests, by their digests."""
    batches: Sequence[Batch]
    interrupts: Sequence[InterruptRecord]
    """In the order they were raised."""
    session: bytes | None
    effects: Mapping[str, Mapping[str, bytes]]
    """The recorded results by root run and key."""
    files: Sequence[ArchivedFile]
    """Ordered by their ids; inline files of requests included."""

    @property
    def last(self) -> int:
        """The sequence number of the newest event."""
        return self.batches[-1].last if self.batches else self.first - 1

    @property
    def size_of_values(self) -> int:
        """The bytes of interrupts, session, effects, title and metadata."""
        effects = sum(len(value) for results in self.effects.values() for value in results.values())
        interrupts = sum(len(interrupt.body) for interrupt in self.interrupts)
        return effects + interrupts + len(self.session or b"") + size_of_details(self.title, self.metadata)

    @property
    def size(self) -> int:
        """About how many bytes a store needs for the thread."""
        events = sum(len(event) for batch in self.batches for event in batch.events)
        requests = sum(run.body.size for run in self.runs) + sum(json.size for json in self.messages.values())
        return events + requests + self.size_of_values + sum(file.blob.size for file in self.files)

    def input_of(self, run: ArchivedRun) -> CutInput:
        """Return the request of a run, as a store writes it. Its inline files are in ``files``."""
        return CutInput(body=run.body, digests=run.digests, messages=self.messages)

    def find_compacted(self) -> dict[str, int]:
        """Return the runs that were compacted, each with the number of the first event that is left."""
        ends = {batch.last: batch.first for batch in self.batches}
        starts = {batch.first for batch in self.batches}
        return {
            run.record.run_id: ends[run.record.last]
            for run in self.runs
            if run.record.first not in starts and run.record.last in ends
        }

    def is_same(self, other: ThreadArchive) -> bool:
        """Return whether two threads have the same content. How events are grouped in batches does not count."""
        return _essence(self) == _essence(other)

    def check(self) -> None:
        """Raise ``ValueError`` unless the numbers are gapless and the log consists of closed runs.

        Before the events of a compacted run there is a gap.
        """
        number = self.first
        compacted = {run.record.last: run.record.first for run in self.runs}
        for batch in self.batches:
            is_compacted = batch.first > number and compacted.get(batch.last) == number and len(batch.events) > 1
            is_next = batch.first == number or is_compacted
            if not is_next or not batch.events:
                raise ValueError(f"thread {self.thread_id!r}: event {number} is missing")
            number = batch.last + 1
        expected = self.first
        for run in self.runs:
            record = run.record
            if record.is_running:
                raise ValueError(f"thread {self.thread_id!r}: run {record.run_id!r} has no outcome")
            if record.first != expected or not record.first <= record.last < number:
                raise ValueError(f"thread {self.thread_id!r}: events of run {record.run_id!r} are missing")
            expected = record.last + 1
        if expected != number:
            raise ValueError(f"thread {self.thread_id!r}: event {expected} belongs to no run")
        if len({run.record.run_id for run in self.runs}) < len(self.runs):
            raise ValueError(f"thread {self.thread_id!r}: two runs have the same id")
        for event in [event for batch in self.batches for event in batch.events]:
            try:
                _decode_type(event)
            except (msgspec.DecodeError, UnicodeError):
                raise ValueError(
                    f"thread {self.thread_id!r}: an event is not an object, or its type is not a text"
                ) from None


class _Typed(msgspec.Struct):
    type: str | None = None


_decode_type = json_decoder(_Typed).decode


class FileArchive(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was stored for a thread that never ran, or without a thread."""

    scope: str
    thread_id: str | None
    file: ArchivedFile


class RemovedThreads(msgspec.Struct, frozen=True):
    """The last sequence number of each removed thread, by its hash (``encoding.hash_thread``)."""

    last: Mapping[int, int]


Archive = ThreadArchive | FileArchive | RemovedThreads
"""A part of a store that ``Store.restore`` writes."""


class Snapshot(ABC):
    """One state of a store. Later writes do not change what it returns."""

    @abstractmethod
    async def threads(self) -> Sequence[tuple[str, str]]:
        """Return scope and id of every thread; in each scope, the one updated longest ago first."""

    @abstractmethod
    async def summaries(self, scope: str, *, before: int | None = None, limit: int = 500) -> Sequence[ThreadSummary]:
        """Return a page of the threads of a scope, the one updated last first. ``before`` is a position."""

    @abstractmethod
    async def thread(self, scope: str, thread_id: str, *, ends_run: bool = True) -> ThreadArchive:
        """Return a thread. Raises ``NotFound``.

        ``ends_run``: an open run is ended with ``run_lost``, so that the thread can be restored elsewhere.
        """

    @abstractmethod
    def rest(self) -> AsyncIterator[FileArchive | RemovedThreads]:
        """Iterate over the files and numbers that belong to no existing thread."""


def assemble_archive(
    summary: ThreadSummary,
    *,
    scope: str,
    first: int,
    runs: Sequence[ArchivedRun],
    messages: dict[bytes, StoredJSON],
    batches: Sequence[Batch],
    interrupts: Sequence[InterruptRecord],
    session: bytes | None,
    effects: Iterable[tuple[str, str, bytes]],
    files: Sequence[ArchivedFile],
) -> ThreadArchive:
    """Return the archive of a thread that a database has read. An effect is its root run, its key and its result."""
    results: dict[str, dict[str, bytes]] = {}
    for run_id, key, value in effects:
        results.setdefault(run_id, {})[key] = value
    return ThreadArchive(
        scope=scope,
        thread_id=summary.thread_id,
        agent=summary.agent,
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        first=first,
        title=summary.title,
        archived=summary.archived,
        metadata=summary.metadata,
        runs=runs,
        messages=messages,
        batches=batches,
        interrupts=interrupts,
        session=session,
        effects=results,
        files=files,
    )


def end_open_run(archive: ThreadArchive) -> ThreadArchive:
    """End the open run of a thread, if it has one, and reopen its claims.

    The run ends at the time of the newest event, so that two archives of the same state are equal. Its last event has
    no token: the store itself may have another event with this number.
    """
    if not archive.runs or not archive.runs[-1].record.is_running:
        return archive
    *before, lost = archive.runs
    number = archive.last + 1
    record = msgspec.structs.replace(lost.record, outcome="error", last=number, ended_at=archive.updated_at, token="")
    interrupts = [
        msgspec.structs.replace(interrupt, status="open", claimed_by=None)
        if interrupt.status == "claimed" and interrupt.claimed_by == record.run_id
        else interrupt
        for interrupt in archive.interrupts
    ]
    return msgspec.structs.replace(
        archive,
        runs=[*before, msgspec.structs.replace(lost, record=record)],
        batches=[*archive.batches, Batch(number, (RUN_LOST,), to_milliseconds(archive.updated_at))],
        interrupts=interrupts,
    )


def _essence(archive: ThreadArchive) -> tuple[object, ...]:
    events = [event for batch in archive.batches for event in batch.events]
    files = [file.blob.blob_id for file in archive.files]
    return events, files, msgspec.structs.replace(archive, batches=(), files=())
