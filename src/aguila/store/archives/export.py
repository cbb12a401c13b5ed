"""Export threads, or everything that a scope holds, in the format of ``file_format``.

A piece of a few events or contents is in memory at a time, so that a thread of any size can be sent to a slow reader.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterable, Iterator

import msgspec
from msgspec import Raw

from aguila.codec.json.bounded_floats import json_decoder
from aguila.offload import LARGE, offload
from aguila.store.archives.archive import end_open_run, list_threads
from aguila.store.archives.copying import outside_threads
from aguila.store.archives.file_format import (
    FORMAT,
    AnyLine,
    EffectLine,
    EndLine,
    EventsLine,
    FileLine,
    InterruptLine,
    MetadataLine,
    RunLine,
    SessionLine,
    ThreadLine,
    ValueLine,
    Wrapped,
)
from aguila.store.contents import compare_lists, request_digests, split_head
from aguila.store.contract import StoreReader
from aguila.store.records import Batch, FileRecord, RunRecord, ThreadArchive, ThreadRecord, Want

_ROWS = Want(runs=True, interrupts=True, session=True, effects=True, files=True)
_VALUES_AT_ONCE = 8
_EVENTS_AT_ONCE = 256
_PART = 3 << 16
"""Bytes of a file that are read at a time: whole groups of base64."""

_encode = msgspec.json.Encoder().encode
_decode_any = json_decoder().decode


async def export_scope(reader: StoreReader, scope: str) -> AsyncGenerator[bytes]:
    """Export everything that a scope holds: the files that its threads do not hold, then its threads."""
    keys = await list_threads(reader, scope)
    threads = set(keys)
    async for one in reader.rest(scope):
        if isinstance(one, FileRecord) and (file := outside_threads(one, threads)) is not None:
            async for piece in _export_file(reader, file, is_outside=True):
                yield piece
    for _, thread_id in keys:
        await asyncio.sleep(0)  # a store in memory never waits: other tasks run between two threads
        async for piece in export_thread(reader, scope, thread_id):
            yield piece


async def export_thread(reader: StoreReader, scope: str, thread_id: str) -> AsyncGenerator[bytes]:
    """Export a thread. An open run ends with ``run_lost``, so that the thread can be restored elsewhere.

    A reader that changes meanwhile may be exported: the end is that of the first read. Raises ``NotFound`` if the
    thread does not exist, or is removed meanwhile.
    """
    rows = await reader.thread(scope, thread_id, _ROWS)
    ended = end_open_run(ThreadArchive(thread=rows, values={}, batches=(), files=()))
    yield await _encode_lines(_head_lines(ended.thread), 0)
    for file in rows.files:
        async for piece in _export_file(reader, file):
            yield piece
    known: set[bytes] = set()
    before = b""
    for run in ended.thread.runs:
        found = await reader.thread(scope, thread_id, Want(run_id=run.run_id, requests=True))
        stored = found.run(run.run_id)
        digests = [digest for digest in dict.fromkeys(request_digests(stored)) if digest not in known]
        known.update(digests)
        for at in range(0, len(digests), _VALUES_AT_ONCE):
            values = await reader.values(scope, thread_id, digests[at : at + _VALUES_AT_ONCE])
            lines = (ValueLine(digest=digest.hex(), value=_wrap(value)) for digest, value in values.items())
            yield await _encode_lines(lines, sum(map(len, values.values())))
        yield await _encode_lines([_run_line(run, stored, before)], len(stored.request or b""))
        before = stored.messages or b""
    after, last = 0, rows.summary.last
    while after < last:
        part = await reader.read(scope, thread_id, after, until=last, limit=_EVENTS_AT_ONCE)
        yield await _encode_lines(map(_events_line, part.batches), sum(map(_size_of, part.batches)))
        after = part.batches[-1].last
    yield await _encode_lines([*map(_events_line, ended.batches), *_tail_lines(ended.thread)], len(rows.session or b""))


async def _encode_lines(lines: Iterable[AnyLine], size: int) -> bytes:
    """Encode lines, each with its line break; on a thread if they have many bytes."""

    def encode() -> bytes:
        return b"".join([_encode(line) + b"\n" for line in lines])

    return await offload(encode) if size > LARGE else encode()


def _head_lines(thread: ThreadRecord) -> Iterator[AnyLine]:
    summary = thread.summary
    yield ThreadLine(
        format=FORMAT,
        scope=thread.scope,
        thread_id=summary.thread_id,
        agent=summary.agent,
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        first=thread.first,
        title=summary.title,
        archived=summary.archived,
    )
    if summary.metadata is not None:
        yield MetadataLine(value=_wrap(summary.metadata))


def _tail_lines(thread: ThreadRecord) -> Iterator[AnyLine]:
    for interrupt in thread.interrupts:
        yield InterruptLine(
            id=interrupt.interrupt_id,
            run=interrupt.run_id,
            status=interrupt.status,
            claimed_by=interrupt.claimed_by,
            value=_wrap(interrupt.body),
        )
    if thread.session is not None:
        yield SessionLine(value=_wrap(thread.session))
    for effect in thread.effects:
        value = msgspec.UNSET if effect.value is None else _wrap(effect.value)
        yield EffectLine(run=effect.root_run_id, key=effect.name, epoch=effect.epoch, value=value)
    yield EndLine(thread_id=thread.summary.thread_id, last=thread.summary.last)


def _events_line(batch: Batch) -> EventsLine:
    return EventsLine(first=batch.first, at=batch.at, token=batch.token, events=[_wrap(one) for one in batch.events])


def _size_of(batch: Batch) -> int:
    return sum(map(len, batch.events))


def _run_line(run: RunRecord, stored: RunRecord, before: bytes) -> RunLine:
    """Return the line of a closed run. ``stored`` has its request; ``before`` are the messages of the run before."""
    assert run.outcome is not None and stored.request is not None  # noqa: S101, PT018 - as the caller has asked
    digests = stored.messages
    members, large = (stored.request, dict[str, bytes]()) if digests is None else split_head(stored.request)
    parts = () if digests is None else compare_lists(before, digests).parts
    return RunLine(
        id=run.run_id,
        parent=run.parent_run_id,
        sent_id=run.sent_run_id,
        fingerprint=run.fingerprint,
        first=run.first,
        last=run.last,
        outcome=run.outcome,
        owner=run.owner,
        epoch=run.epoch,
        lease_until=run.lease_until,
        cancel=run.cancel,
        started_at=run.started_at,
        ended_at=run.ended_at,
        compacted=run.compacted,
        input=_wrap(members),
        large={name: digest.hex() for name, digest in large.items()},
        messages=None if digests is None else [one.hex() if isinstance(one, bytes) else one for one in parts],
    )


async def _export_file(reader: StoreReader, file: FileRecord, *, is_outside: bool = False) -> AsyncGenerator[bytes]:
    """Export a file part by part."""
    line = FileLine(
        id=file.file_id,
        media_type=file.media_type,
        filename=file.filename,
        created_at=file.created_at,
        kept=file.is_kept,
        data=b"",
        scope=file.scope if is_outside else None,
        thread_ids=list(file.thread_ids) if is_outside else [],
    )
    head, mark, tail = _encode(line).partition(b'"data":"')  # within a string, its quotes would be escaped
    yield head + mark
    for start in range(0, file.size, _PART):
        _, part = await reader.file(file.scope, file.file_id, start, _PART)
        yield b64encode(part)
    yield tail + b"\n"


def _wrap(data: bytes) -> Raw:
    """Return stored bytes as JSON in one line."""
    if b"\n" not in data and data == data.strip() and not data.startswith(b'{"$base64"'):
        try:
            _decode_any(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass  # not JSON: written as base64
        else:
            return Raw(data)
    return Raw(_encode(Wrapped(base64=b64encode(data).decode())))
