"""The file format of archives, and its reader: JSON lines. A thread is the lines from a ``thread`` to an ``end``.

Outside of a thread, a ``file`` belongs to no thread, or to threads that never ran. Stored JSON is written unchanged.
Bytes that are not JSON in one line are written as ``{"$base64": "..."}``.

Format 1 is read, too. Its requests and messages name the places of their inline files, and each of these is a ``file``.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from aguila.codec.json.bounded_floats import json_decoder
from aguila.store.archives.archive import check_archive
from aguila.store.contents import (
    DIGEST,
    ListDelta,
    hash_content,
    join_files,
    join_head,
    make_head,
    split_digests,
)
from aguila.store.cursors import PATTERN
from aguila.store.encoding import hash_blob
from aguila.store.records import (
    ArchivedFile,
    Batch,
    CancelRequest,
    Effect,
    FileArchive,
    FileRecord,
    InterruptRecord,
    InterruptStatus,
    Outcome,
    RunRecord,
    ThreadArchive,
    ThreadRecord,
    ThreadSummary,
)

FORMAT: Final = 2
"""The version of the format that is written. All from 1 on are read."""

_MAX_EXPANDED: Final = 1 << 28
"""Bytes of the lists of messages of all runs of a thread: 16 for each message of each run."""

_INLINE: Final = "inline-"
"""The beginning of the id of an inline file in format 1; its digest follows."""

_Places: TypeAlias = "list[tuple[int, str]]"
"""Place and digest of each inline file in a JSON text of format 1."""


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="record", rename="camel"):
    pass


class ThreadLine(_Line, kw_only=True, tag="thread"):
    """The first line of a thread."""

    format: int
    scope: str
    thread_id: str
    agent: str
    created_at: float
    updated_at: float
    first: int
    title: str | None = None
    archived: bool = False


class MetadataLine(_Line, kw_only=True, tag="metadata"):
    """The metadata of a thread."""

    value: Raw


class SessionLine(_Line, kw_only=True, tag="session"):
    """The session of a thread."""

    value: Raw


class FileLine(_Line, kw_only=True, tag="file"):
    """A file with its content."""

    id: str
    media_type: str
    filename: str | None = None
    created_at: float
    kept: bool = False
    data: bytes
    scope: str | None = None
    """The scope, and the threads that hold the file: only of a file outside of a thread."""
    thread_ids: list[str] = []


class ValueLine(_Line, kw_only=True, tag="value"):
    """A content of requests."""

    digest: str
    value: Raw


class MessageLine(ValueLine, kw_only=True, tag="message"):
    """A value in format 1."""

    files: _Places = []


class RunLine(_Line, kw_only=True, tag="run"):
    """A run with its request."""

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
    cancel: CancelRequest | None = None
    cancel_requested: bool = False
    """``cancel`` in format 1."""
    started_at: float
    ended_at: float | None
    compacted: bool = False
    input: Raw
    """The request, or its small members."""
    large: dict[str, str] = {}
    """The digests of its large members."""
    files: _Places = []
    """The inline files in ``input``, in format 1."""
    messages: list[str | tuple[int, int]] | None = None
    """The message digests, or ranges (in bytes) of the list of the run before. None if ``input`` has the messages."""


class EventsLine(_Line, kw_only=True, tag="events"):
    """A batch of events."""

    first: int
    at: int = 0
    token: Annotated[str, msgspec.Meta(pattern=PATTERN)] = ""
    events: list[Raw]


class InterruptLine(_Line, kw_only=True, tag="interrupt"):
    """An interrupt."""

    id: str
    run: str
    status: InterruptStatus
    claimed_by: str | None = None
    value: Raw


class EffectLine(_Line, kw_only=True, tag="effect"):
    """An effect."""

    run: str
    key: str
    epoch: int = 0
    value: Raw | msgspec.UnsetType = msgspec.UNSET
    """Unset if it has begun and has no result."""


class EndLine(_Line, kw_only=True, tag="end"):
    """The last line of a thread."""

    thread_id: str
    last: int


AnyLine = (
    ThreadLine | MetadataLine | SessionLine | FileLine | ValueLine | MessageLine | RunLine | EventsLine
    | InterruptLine | EffectLine | EndLine
)  # fmt: skip


class Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes that are not JSON in one line."""

    base64: str = msgspec.field(name="$base64")


_decode = json_decoder(AnyLine).decode
_decode_wrapped = json_decoder(Wrapped).decode


def decode_archives(lines: Iterable[bytes]) -> Iterator[ThreadArchive | FileArchive]:
    """Decode threads and files. Raise ``ValueError`` with its number for a line that is not valid."""
    reader: _Reader | None = None
    number = 0
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = _decode(text)
            if isinstance(line, ThreadLine):
                if reader is not None:
                    raise ValueError(f"thread {reader.head.thread_id!r} has no end")
                if not 1 <= line.format <= FORMAT:
                    raise ValueError(
                        f"format {line.format}, expected 1 to {FORMAT}; use the version of Aguila that wrote the file"
                    )
                reader = _Reader(line)
            elif reader is None:
                if not isinstance(line, FileLine) or line.scope is None:
                    raise ValueError("expected the record of a thread, or of a file with its scope")
                yield FileArchive(file=_checked_file(line, line.scope))
            elif isinstance(line, EndLine):
                archive = reader.finish(line)
                reader = None
                yield archive
            else:
                reader.add(line)
        except (msgspec.DecodeError, ValueError) as error:
            raise ValueError(f"line {number}: {error}") from error
    if reader is not None:
        raise ValueError(f"line {number}: thread {reader.head.thread_id!r} has no end; the file was cut off")


class _Reader:
    """The lines of one thread."""

    def __init__(self, head: ThreadLine) -> None:
        self.head = head
        self._metadata: bytes | None = None
        self._session: bytes | None = None
        self._files: list[ArchivedFile] = []
        self._inline: dict[bytes, bytes] = {}  # of format 1, by their digests
        self._renamed: dict[bytes, bytes] = {}  # digests of format 1, and those of the same values now
        self._values: dict[bytes, bytes] = {}
        self._runs: list[RunRecord] = []
        self._batches: list[Batch] = []
        self._interrupts: list[InterruptRecord] = []
        self._effects: list[Effect] = []
        self._digests = b""
        self._expanded = 0  # bytes of all lists

    def add(self, line: AnyLine) -> None:
        """Add a line."""
        match line:
            case SessionLine():
                self._session = _unwrap(line.value)
            case MetadataLine():
                self._metadata = _unwrap(line.value)
            case FileLine() if self.head.format == 1 and line.id.startswith(_INLINE):
                self._inline[bytes.fromhex(line.id.removeprefix(_INLINE))] = line.data
            case FileLine():
                self._files.append(_checked_file(line, self.head.scope))
            case MessageLine():
                text = self._join(line.value, line.files)
                digest = self._renamed[bytes.fromhex(line.digest)] = hash_content(text)
                self._values[digest] = text
            case ValueLine():
                self._values[bytes.fromhex(line.digest)] = _unwrap(line.value)
            case RunLine():
                self._add_run(line)
            case EventsLine():
                events = tuple([_unwrap(event) for event in line.events])
                self._batches.append(Batch(line.first, events, line.at, line.token))
            case InterruptLine():
                self._interrupts.append(
                    InterruptRecord(
                        interrupt_id=line.id,
                        run_id=line.run,
                        status=line.status,
                        body=_unwrap(line.value),
                        claimed_by=line.claimed_by,
                    )
                )
            case EffectLine():
                value = None if line.value is msgspec.UNSET else _unwrap(line.value)
                self._effects.append(Effect(root_run_id=line.run, name=line.key, value=value, epoch=line.epoch))
            case _:
                raise ValueError("a record of a thread is out of place")

    def _join(self, value: Raw, places: _Places) -> bytes:
        """Return a JSON text of format 1 with its inline files."""
        try:
            files = [(place, bytes.fromhex(digest)) for place, digest in places]
            return join_files(_unwrap(value), files, self._inline.__getitem__)
        except KeyError:
            raise ValueError("an inline file is missing") from None

    def _add_run(self, line: RunLine) -> None:
        request, digests = self._join(line.input, line.files), None
        if line.messages is not None:
            digests = self._expand(line.messages)
            if self.head.format == 1:
                request, values = make_head(request)
                self._values |= values
            else:
                request = join_head(request, {name: bytes.fromhex(digest) for name, digest in line.large.items()})
        self._digests = digests or b""
        self._runs.append(
            RunRecord(
                scope=self.head.scope,
                thread_id=self.head.thread_id,
                run_id=line.id,
                number=len(self._runs) + 1,
                parent_run_id=line.parent,
                sent_run_id=line.sent_id,
                agent=self.head.agent,
                fingerprint=line.fingerprint,
                first=line.first,
                last=line.last,
                outcome=line.outcome,
                owner=line.owner,
                epoch=line.epoch,
                lease_until=line.lease_until,
                cancel="always" if line.cancel_requested else line.cancel,
                started_at=line.started_at,
                ended_at=line.ended_at,
                compacted=line.compacted,
                request=request,
                messages=digests,
            )
        )

    def _expand(self, messages: Sequence[str | tuple[int, int]]) -> bytes:
        """Return the list of a run. Raise ``ValueError`` if a few bytes would expand to many."""
        base = len(self._digests)
        parts: list[bytes | tuple[int, int]] = []
        for part in messages:
            if isinstance(part, str):
                parts.append(self._rename(bytes.fromhex(part)) if self.head.format == 1 else bytes.fromhex(part))
                self._expanded += len(part) // 2
            elif not 0 <= part[0] <= part[1] <= base or part[0] % DIGEST or part[1] % DIGEST:
                raise ValueError("a list of messages takes more than the list before it has")
            else:
                parts.append(part)
                self._expanded += part[1] - part[0]
        if self._expanded > _MAX_EXPANDED:
            raise ValueError(f"the lists of messages of the thread have more than {_MAX_EXPANDED} bytes")
        return ListDelta(tuple(parts)).apply(self._digests)

    def _rename(self, digests: bytes) -> bytes:
        # A message that is missing keeps its digest: ``check_archive`` finds that it is not among the values.
        return b"".join([self._renamed.get(digest, digest) for digest in split_digests(digests)])

    def finish(self, end: EndLine) -> ThreadArchive:
        """Return the thread. Raise ``ValueError`` if lines are missing."""
        head = self.head
        tokens = {batch.last: batch.token for batch in self._batches}
        starts = {batch.first for batch in self._batches}
        last = self._batches[-1].last if self._batches else head.first - 1
        archive = ThreadArchive(
            thread=ThreadRecord(
                scope=head.scope,
                summary=ThreadSummary(
                    thread_id=head.thread_id,
                    created_at=head.created_at,
                    updated_at=head.updated_at,
                    last=last,
                    runs=len(self._runs),
                    running=None,
                    position=0,
                    agent=head.agent,
                    title=head.title,
                    archived=head.archived,
                    metadata=self._metadata,
                    token=tokens.get(last, ""),
                ),
                first=head.first,
                runs=[
                    replace(
                        run,
                        token=tokens.get(run.last, ""),
                        # In format 1, a run was compacted if its first events are missing.
                        compacted=run.compacted or (run.first not in starts and run.last in tokens),
                    )
                    for run in self._runs
                ],
                interrupts=self._interrupts,
                session=self._session,
                effects=self._effects,
                files=[file.record for file in self._files],
            ),
            values=self._values,
            batches=self._batches,
            files=self._files,
        )
        check_archive(archive)
        if (end.thread_id, end.last) != (head.thread_id, last):
            raise ValueError(f"thread {head.thread_id!r} ends with event {last}, expected {end.last}")
        return archive


def _checked_file(line: FileLine, scope: str) -> ArchivedFile:
    """Return a file. Raise ``ValueError`` if its id is not that of its content."""
    if hash_blob(scope, line.data, line.media_type, line.filename) != line.id:
        raise ValueError(f"file {line.id} does not match its id")
    record = FileRecord(
        scope=scope,
        file_id=line.id,
        media_type=line.media_type,
        filename=line.filename,
        size=len(line.data),
        created_at=line.created_at,
        is_kept=line.kept,
        thread_ids=tuple(line.thread_ids),
    )
    return ArchivedFile(record=record, data=line.data)


def _unwrap(value: Raw) -> bytes:
    """Return the bytes that ``_wrap`` was given."""
    data = bytes(value)
    return b64decode(_decode_wrapped(data).base64, validate=True) if data.startswith(b'{"$base64"') else data
