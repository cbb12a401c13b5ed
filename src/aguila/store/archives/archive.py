"""Read a thread as one value from any store, compare such values, and check them before they are restored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from aguila.codec import encode_event
from aguila.codec.json.bounded_floats import json_decoder
from aguila.protocol import RunErrorEvent
from aguila.store.contents import hash_content, request_digests
from aguila.store.contract import StoreReader
from aguila.store.encoding import to_milliseconds
from aguila.store.records import (
    ArchivedFile,
    Batch,
    FileRecord,
    RunRecord,
    ThreadArchive,
    ThreadFilter,
    ThreadKey,
    ThreadRecord,
    Want,
)

RUN_LOST: Final = encode_event(
    RunErrorEvent(message="The server that ran this stopped before it was finished. Try again.", code="run_lost")
)
"""The terminal event of a run whose owner cannot end it."""

EVERYTHING: Final = Want(runs=True, requests=True, interrupts=True, session=True, effects=True, files=True)
"""The rows of a thread that an archive has. Turns are computed again."""

_READ_AT_ONCE: Final = 128
"""Values that are read at a time."""

_PART: Final = 1 << 20
"""Bytes of a file that are read at a time."""

_PAGE: Final = 500


async def list_threads(reader: StoreReader, scope: str) -> list[ThreadKey]:
    """Return the keys of the threads of a scope, the one updated longest ago first."""
    found: list[ThreadKey] = []
    before: int | None = None
    while page := (await reader.threads(scope, ThreadFilter(limit=_PAGE, before=before))).threads:
        found += [(scope, one.thread_id) for one in page]
        before = page[-1].position
    return found[::-1]


async def read_archive(reader: StoreReader, scope: str, thread_id: str, *, ends_run: bool = True) -> ThreadArchive:
    """Return a thread as one value. Raises ``NotFound``.

    ``ends_run``: an open run is ended with ``run_lost``, so that the thread can be restored elsewhere.
    """
    thread = await reader.thread(scope, thread_id, EVERYTHING)
    batches: list[Batch] = []
    last = thread.first - 1
    while last < thread.summary.last:
        # The first call is at 0: the number before the first event is no cursor of a thread that was compacted.
        part = await reader.read(scope, thread_id, last if batches else 0, until=thread.summary.last)
        batches += part.batches
        last = batches[-1].last
    digests = list(dict.fromkeys(digest for run in thread.runs for digest in request_digests(run)))
    values: dict[bytes, bytes] = {}
    for at in range(0, len(digests), _READ_AT_ONCE):
        values |= await reader.values(scope, thread_id, digests[at : at + _READ_AT_ONCE])
    files = [await read_file(reader, record) for record in thread.files]
    archive = ThreadArchive(thread=thread, values=values, batches=batches, files=files)
    return end_open_run(archive) if ends_run else archive


async def read_file(reader: StoreReader, record: FileRecord) -> ArchivedFile:
    """Return a file with its content. Raises ``NotFound``."""
    parts: list[bytes] = []
    for start in range(0, record.size, _PART):
        parts.append((await reader.file(record.scope, record.file_id, start, _PART))[1])
    return ArchivedFile(record=record, data=b"".join(parts))


def end_open_run(archive: ThreadArchive) -> ThreadArchive:
    """End the open run of a thread, if it has one, and reopen its claims.

    The run ends at the time of the newest event, so that two archives of the same state are equal. Its last event has
    no token: the store itself may have another event with this number.
    """
    thread = archive.thread
    if not thread.runs or not thread.runs[-1].is_running:
        return archive
    *before, lost = thread.runs
    number, at = thread.summary.last + 1, thread.summary.updated_at
    interrupts = [
        replace(interrupt, status="open", claimed_by=None)
        if interrupt.status == "claimed" and interrupt.claimed_by == lost.run_id
        else interrupt
        for interrupt in thread.interrupts
    ]
    ended = replace(
        thread,
        summary=replace(thread.summary, last=number, running=None, token=""),
        runs=[*before, replace(lost, outcome="error", last=number, ended_at=at, token="")],
        interrupts=interrupts,
    )
    batches = [*archive.batches, Batch(number, (RUN_LOST,), to_milliseconds(at))]
    return replace(archive, thread=ended, batches=batches)


# Compare


def is_same(one: ThreadArchive, other: ThreadArchive) -> bool:
    """Return whether two threads have the same content.

    How events are grouped in batches, the position in the list of threads and leases do not count.
    """
    return _essence(one) == _essence(other)


def _essence(archive: ThreadArchive) -> tuple[object, ...]:
    events = [(event, batch.at, batch.token) for batch in archive.batches for event in batch.events]
    files = [file.record.file_id for file in archive.files]
    thread = archive.thread
    rows: ThreadRecord = replace(
        thread,
        summary=replace(thread.summary, position=0),
        runs=[replace(run, lease_until=0.0, compacted=False, turn=None) for run in thread.runs],
        interrupts=list(thread.interrupts),
        effects=list(thread.effects),
        viewers=(),
        files=(),
    )
    return events, files, rows, archive.values


# Check


def check_archive(archive: ThreadArchive) -> None:
    """Raise ``ValueError`` unless a thread can be restored: closed runs, no gap, and every content of its requests.

    Before the events of a compacted run there is a gap.
    """
    for fault in _find_faults(archive):
        raise ValueError(f"thread {archive.thread.summary.thread_id!r}: {fault}")


def _find_faults(archive: ThreadArchive) -> Iterator[str]:
    thread = archive.thread
    number = thread.first
    compacted = {run.last: run.first for run in thread.runs}
    for batch in archive.batches:
        is_compacted = batch.first > number and compacted.get(batch.last) == number
        if not (batch.first == number or is_compacted) or not batch.events:
            yield f"event {number} is missing"
        number = batch.last + 1
    yield from _find_run_faults(thread.runs, thread.first, number)
    if thread.summary.last != number - 1:
        yield f"its last event is {number - 1}, and its summary says {thread.summary.last}"
    for digest, text in archive.values.items():
        if hash_content(text) != digest:
            yield f"value {digest.hex()} does not match its digest"
    for run in thread.runs:
        if any(digest not in archive.values for digest in request_digests(run)):
            yield f"a part of the request of run {run.run_id!r} is missing"
    for event in [event for batch in archive.batches for event in batch.events]:
        try:
            _decode_type(event)
        except (msgspec.DecodeError, UnicodeError):
            yield "an event is not an object, or its type is not a text"


def _find_run_faults(runs: Sequence[RunRecord], first: int, stop: int) -> Iterator[str]:
    expected = first
    for run in runs:
        if run.is_running:
            yield f"run {run.run_id!r} has no outcome"
        if run.first != expected or not run.first <= run.last < stop:
            yield f"events of run {run.run_id!r} are missing"
        expected = run.last + 1
    if expected != stop:
        yield f"event {expected} belongs to no run"
    if len({run.run_id for run in runs}) < len(runs):
        yield "two runs have the same id"


class _Typed(msgspec.Struct):
    type: str | None = None


_decode_type = json_decoder(_Typed).decode
