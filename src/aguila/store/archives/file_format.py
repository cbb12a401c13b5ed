"""The file format of archived threads: JSON lines. A thread is the records from a ``thread`` to an ``end``.

Stored JSON is written unchanged. Bytes that are not JSON in one line are written as ``{"$base64": "..."}``.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from aguila.codec.json.bounded_floats import json_decoder
from aguila.store.archives.thread_archive import ArchivedFile, ArchivedRun, ThreadArchive
from aguila.store.cursors import PATTERN
from aguila.store.records import Batch, Blob, InterruptRecord, InterruptStatus, Outcome, RunRecord
from aguila.store.run_inputs import ListDelta, StoredJSON, compare_lists

FORMAT: Final = 1
"""The version of the format."""

_MAX_EXPANDED: Final = 1 << 28
"""Bytes of the lists of messages of all runs of a thread: 16 for each message of each run."""

_Files: TypeAlias = "list[tuple[int, str]]"
"""Place and digest of each inline file in a JSON text."""


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="record", rename="camel"):
    pass


class _ThreadLine(_Line, kw_only=True, tag="thread"):
    format: int
    scope: str
    thread_id: str
    agent: str
    created_at: float
    updated_at: float
    first: int
    title: str | None = None
    archived: bool = False


class _ValueLine(_Line, kw_only=True, tag="metadata"):
    value: Raw


class _SessionLine(_ValueLine, kw_only=True, tag="session"):
    pass


class _FileLine(_Line, kw_only=True, tag="file"):
    id: str
    media_type: str
    filename: str | None = None
    created_at: float
    kept: bool = False
    data: bytes


class _MessageLine(_Line, kw_only=True, tag="message"):
    digest: str
    value: Raw
    files: _Files = []


class _RunLine(_Line, kw_only=True, tag="run"):
    id: str
    parent: str | None = None
    sent_id: str | None = None
    fingerprint: str
    first: int
    last: int
    outcome: Outcome
    owner: str
    epoch: int
    lease_until: float
    cancel_requested: bool = False
    started_at: float
    ended_at: float | None
    input: Raw
    files: _Files = []
    messages: list[str | tuple[int, int]] | None = None
    """The message digests, or ranges (in bytes) of the list of the run before."""


class _EventsLine(_Line, kw_only=True, tag="events"):
    first: int
    at: int = 0
    token: Annotated[str, msgspec.Meta(pattern=PATTERN)] = ""
    events: list[Raw]


class _InterruptLine(_Line, kw_only=True, tag="interrupt"):
    id: str
    run: str
    status: InterruptStatus
    claimed_by: str | None = None
    value: Raw


class _EffectLine(_Line, kw_only=True, tag="effect"):
    run: str
    key: str
    value: Raw


class _EndLine(_Line, kw_only=True, tag="end"):
    thread_id: str
    last: int


_AnyLine = (
    _ThreadLine | _ValueLine | _SessionLine | _FileLine | _MessageLine | _RunLine | _EventsLine | _InterruptLine
    | _EffectLine | _EndLine
)  # fmt: skip


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    base64: str = msgspec.field(name="$base64")


_encode = msgspec.json.Encoder().encode
_decode = json_decoder(_AnyLine).decode
_decode_any = json_decoder().decode
_decode_wrapped = json_decoder(_Wrapped).decode


def encode_archive(archive: ThreadArchive) -> Iterator[bytes]:
    """Encode a thread as lines, each with its line break."""
    for line in _lines(archive):
        yield _encode(line) + b"\n"


def decode_archives(lines: Iterable[bytes]) -> Iterator[ThreadArchive]:
    """Decode threads. Raise ``ValueError`` with its number for a line that is not valid."""
    reader: _Reader | None = None
    number = 0
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = _decode(text)
            if isinstance(line, _ThreadLine):
                if reader is not None:
                    raise ValueError(f"thread {reader.head.thread_id!r} has no end")
                if line.format != FORMAT:
                    raise ValueError(
                        f"format {line.format}, expected {FORMAT}; use the version of Aguila that wrote the file"
                    )
                reader = _Reader(line)
            elif reader is None:
                raise ValueError("expected the record of a thread")
            elif isinstance(line, _EndLine):
                archive = reader.finish(line)
                reader = None
                yield archive
            else:
                reader.add(line)
        except (msgspec.DecodeError, ValueError) as error:
            raise ValueError(f"line {number}: {error}") from error
    if reader is not None:
        raise ValueError(f"line {number}: thread {reader.head.thread_id!r} has no end; the file was cut off")


def _lines(archive: ThreadArchive) -> Iterator[_AnyLine]:
    yield _ThreadLine(
        format=FORMAT,
        scope=archive.scope,
        thread_id=archive.thread_id,
        agent=archive.agent,
        created_at=archive.created_at,
        updated_at=archive.updated_at,
        first=archive.first,
        title=archive.title,
        archived=archive.archived,
    )
    if archive.metadata is not None:
        yield _ValueLine(value=_wrap(archive.metadata))
    for file in archive.files:
        yield _FileLine(
            id=file.blob.blob_id,
            media_type=file.blob.media_type,
            filename=file.blob.filename,
            created_at=file.blob.created_at,
            kept=file.is_kept,
            data=file.data,
        )
    for digest, message in archive.messages.items():
        yield _MessageLine(digest=digest.hex(), value=_wrap(message.text), files=_encode_files(message))
    before = b""
    for run in archive.runs:
        yield _run_line(run, before)
        before = run.digests or b""
    for batch in archive.batches:
        events = [_wrap(event) for event in batch.events]
        yield _EventsLine(first=batch.first, at=batch.at, token=batch.token, events=events)
    for interrupt in archive.interrupts:
        yield _InterruptLine(
            id=interrupt.interrupt_id,
            run=interrupt.run_id,
            status=interrupt.status,
            claimed_by=interrupt.claimed_by,
            value=_wrap(interrupt.body),
        )
    if archive.session is not None:
        yield _SessionLine(value=_wrap(archive.session))
    for run_id, results in archive.effects.items():
        for key, value in results.items():
            yield _EffectLine(run=run_id, key=key, value=_wrap(value))
    yield _EndLine(thread_id=archive.thread_id, last=archive.last)


def _run_line(run: ArchivedRun, before: bytes) -> _RunLine:
    record = run.record
    if record.outcome is None:
        raise ValueError(f"run {record.run_id!r} is open; an archive holds closed runs")
    return _RunLine(
        id=record.run_id,
        parent=record.parent_run_id,
        sent_id=record.sent_run_id,
        fingerprint=record.fingerprint,
        first=record.first,
        last=record.last,
        outcome=record.outcome,
        owner=record.owner,
        epoch=record.epoch,
        lease_until=record.lease_until,
        cancel_requested=record.cancel_requested,
        started_at=record.started_at,
        ended_at=record.ended_at,
        input=_wrap(run.body.text),
        files=_encode_files(run.body),
        messages=None
        if run.digests is None
        else [part.hex() if isinstance(part, bytes) else part for part in compare_lists(before, run.digests).parts],
    )


class _Reader:
    """The lines of one thread."""

    def __init__(self, head: _ThreadLine) -> None:
        self.head = head
        self._metadata: bytes | None = None
        self._session: bytes | None = None
        self._files: list[ArchivedFile] = []
        self._messages: dict[bytes, StoredJSON] = {}
        self._runs: list[ArchivedRun] = []
        self._batches: list[Batch] = []
        self._interrupts: list[InterruptRecord] = []
        self._effects: dict[str, dict[str, bytes]] = {}
        self._digests = b""
        self._expanded = 0  # bytes of all lists

    def add(self, line: _AnyLine) -> None:
        """Add a line."""
        match line:
            case _SessionLine():
                self._session = _unwrap(line.value)
            case _ValueLine():
                self._metadata = _unwrap(line.value)
            case _FileLine():
                self._add_file(line)
            case _MessageLine():
                self._messages[bytes.fromhex(line.digest)] = _stored_json(line.value, line.files)
            case _RunLine():
                self._add_run(line)
            case _EventsLine():
                events = tuple([_unwrap(event) for event in line.events])
                self._batches.append(Batch(line.first, events, line.at, line.token))
            case _InterruptLine():
                self._interrupts.append(
                    InterruptRecord(
                        interrupt_id=line.id,
                        run_id=line.run,
                        status=line.status,
                        body=_unwrap(line.value),
                        claimed_by=line.claimed_by,
                    )
                )
            case _EffectLine():
                self._effects.setdefault(line.run, {})[line.key] = _unwrap(line.value)
            case _:
                raise ValueError("a record of a thread is out of place")

    def _add_file(self, line: _FileLine) -> None:
        blob = Blob(
            blob_id=line.id,
            media_type=line.media_type,
            filename=line.filename,
            size=len(line.data),
            created_at=line.created_at,
        )
        self._files.append(ArchivedFile(blob=blob, data=line.data, is_kept=line.kept))

    def _add_run(self, line: _RunLine) -> None:
        digests = None
        if line.messages is not None:
            parts = tuple([bytes.fromhex(part) if isinstance(part, str) else part for part in line.messages])
            digests = self._expand(parts)
        self._digests = digests or b""
        record = RunRecord(
            scope=self.head.scope,
            thread_id=self.head.thread_id,
            run_id=line.id,
            parent_run_id=line.parent,
            fingerprint=line.fingerprint,
            first=line.first,
            last=line.last,
            outcome=line.outcome,
            owner=line.owner,
            epoch=line.epoch,
            lease_until=line.lease_until,
            cancel_requested=line.cancel_requested,
            started_at=line.started_at,
            ended_at=line.ended_at,
            agent=self.head.agent,
            sent_run_id=line.sent_id,
        )
        self._runs.append(ArchivedRun(record=record, body=_stored_json(line.input, line.files), digests=digests))

    def _expand(self, parts: tuple[bytes | tuple[int, int], ...]) -> bytes:
        """Return the list of a run. Raise ``ValueError`` if a few bytes would expand to many."""
        base = len(self._digests)
        for part in parts:
            if not isinstance(part, bytes) and not 0 <= part[0] <= part[1] <= base:
                raise ValueError("a list of messages takes more than the list before it has")
            self._expanded += len(part) if isinstance(part, bytes) else part[1] - part[0]
        if self._expanded > _MAX_EXPANDED:
            raise ValueError(f"the lists of messages of the thread have more than {_MAX_EXPANDED} bytes")
        return ListDelta(parts).apply(self._digests)

    def finish(self, end: _EndLine) -> ThreadArchive:
        """Return the thread. Raise ``ValueError`` if lines are missing."""
        head = self.head
        tokens = {batch.last: batch.token for batch in self._batches}
        archive = ThreadArchive(
            scope=head.scope,
            thread_id=head.thread_id,
            agent=head.agent,
            created_at=head.created_at,
            updated_at=head.updated_at,
            first=head.first,
            title=head.title,
            archived=head.archived,
            metadata=self._metadata,
            runs=[
                replace(run, record=replace(run.record, token=tokens.get(run.record.last, ""))) for run in self._runs
            ],
            messages=self._messages,
            batches=self._batches,
            interrupts=self._interrupts,
            session=self._session,
            effects=self._effects,
            files=self._files,
        )
        archive.check()
        if (end.thread_id, end.last) != (head.thread_id, archive.last):
            raise ValueError(f"thread {head.thread_id!r} ends with event {archive.last}, expected {end.last}")
        return archive


def _wrap(data: bytes) -> Raw:
    """Return stored bytes as JSON in one line."""
    if b"\n" not in data and data == data.strip() and not data.startswith(b'{"$base64"'):
        try:
            _decode_any(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass  # not JSON: written as base64
        else:
            return Raw(data)
    return Raw(_encode(_Wrapped(base64=b64encode(data).decode())))


def _unwrap(value: Raw) -> bytes:
    """Return the bytes that ``_wrap`` was given."""
    data = bytes(value)
    return b64decode(_decode_wrapped(data).base64, validate=True) if data.startswith(b'{"$base64"') else data


def _encode_files(json: StoredJSON) -> _Files:
    return [(place, digest.hex()) for place, digest in json.files]


def _stored_json(value: Raw, files: _Files) -> StoredJSON:
    return StoredJSON(_unwrap(value), tuple([(place, bytes.fromhex(digest)) for place, digest in files]))
