"""Encode and check the values that every store keeps: rows of the log, ids, cursors and hashes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from operator import methodcaller
from typing import Any, Final, TypeGuard

from aguila.codec.json.bounded_floats import decode_json
from aguila.errors import CursorExpired
from aguila.store.large_strings import HUGE

SMALL_RUN: Final = 64 * 1024
"""The bytes that a small run writes. A health check requires room for them."""

ROW_BYTES: Final = 64 * 1024
"""The most bytes of a row of the log with several events: a reader that is stalled holds at least one, decoded."""

MAX_TITLE: Final = 500
"""Characters of a thread's title."""

Row = tuple[int, bytes]
"""A row of the log: the number of events, and the events as lines."""


def encode_rows(events: Sequence[bytes]) -> list[Row]:
    """Join events to rows of the log, of at most ``ROW_BYTES`` unless an event is larger: that one is not copied.

    Raises ``ValueError`` for an event that holds a line break.
    """
    if len(events) == 1:
        return [(1, _check_line(events[0]))]
    if sum(map(len, events)) <= ROW_BYTES:
        return [(len(events), join_events(events))]
    rows: list[Row] = []
    start = size = 0
    for index, event in enumerate(events):
        if start < index and size + len(event) > ROW_BYTES:
            rows.append(_join_row(events[start:index]))
            start, size = index, 0
        size += len(event)
    rows.append(_join_row(events[start:]))
    return rows


def _join_row(events: Sequence[bytes]) -> Row:
    return (1, _check_line(events[0])) if len(events) == 1 else (len(events), join_events(events))


def decode_row(body: bytes) -> list[bytes]:
    """Split the lines of a row into events."""
    return body.split(b"\n")


def size_of_rows(rows: Sequence[Row]) -> int:
    """Return the bytes of some rows."""
    return len(rows[0][1]) if len(rows) == 1 else sum([len(lines) for _, lines in rows])


def size_of_events(events: Sequence[bytes]) -> int:
    """Return the bytes of some events. Raises ``ValueError`` for an event that holds a line break."""
    if len(events) == 1:
        return len(_check_line(events[0]))
    size = sum(map(len, events))
    # One search in small events that are joined takes a tenth of the time of a search in each.
    if b"\n" in b"".join(events) if size <= HUGE else any(map(_HAS_LINE_BREAK, events)):
        raise ValueError(_LINE_BREAK)
    return size


def to_milliseconds(seconds: float) -> int:
    """Return a time in milliseconds, as the log keeps it."""
    return int(seconds * 1000)


def size_of_details(title: str | None, metadata: bytes | None) -> int:
    """Return the bytes that a thread's title and metadata take, with the index of the metadata."""
    return len((title or "").encode()) + _COPIES * len(metadata or b"")


_COPIES: Final = 3
"""The metadata, and its index, which takes about twice as much: 6.4 MB became 18 MB."""


def hash_members(scope: str, metadata: bytes | None) -> list[int]:
    """Return a hash of each name in a metadata object, and of each name with its value: see ``hash_member``."""
    members: dict[str, Any] = {} if metadata is None else decode_json(metadata)
    return sorted(
        {hash_member(scope, name, one) for name, value in members.items() for one in (None, index_value(value))}
    )


def hash_member(scope: str, name: str, value: str | None) -> int:
    """Return the hash of a name in metadata, or of the name and the indexed value, in this scope.

    Characters that UTF-8 cannot encode are replaced, so a thread that is found by a hash is compared with
    ``MetadataFilter.matches``.
    """
    name = encodable(name)
    parts = (scope, name) if value is None else (scope, name, value)
    digest = sha256(b"".join(b"%d:%b" % (len(part), part) for part in map(str.encode, parts))).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def index_value(value: Any) -> str:
    """Return the indexed value of a member of metadata: "s" and the text of a string, or "" for another value."""
    return "s" + encodable(value) if isinstance(value, str) else ""


def encodable(text: str) -> str:
    """Replace the characters of a text that UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


def is_title(value: Any) -> TypeGuard[str]:
    """Return whether a value may be the title of a thread: a short string without NUL that UTF-8 can encode."""
    return isinstance(value, str) and len(value) <= MAX_TITLE and UNSTORABLE.search(value) is None


UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that not every store can keep."""


def join_events(events: Sequence[bytes]) -> bytes:
    """Join events to one row of the log. Raises ``ValueError`` for an event that holds a line break."""
    body = b"\n".join(events)
    if body.count(b"\n") != max(0, len(events) - 1):
        raise ValueError(_LINE_BREAK)
    return body


def _check_line(event: bytes) -> bytes:
    if b"\n" in event:
        raise ValueError(_LINE_BREAK)
    return event


_HAS_LINE_BREAK = methodcaller("__contains__", b"\n")
_LINE_BREAK = "an event holds a line break; encode each event as one line of JSON"


def check_ids(*ids: str) -> None:
    """Raise ``ValueError`` for an id that UTF-8 cannot encode (it has half a surrogate pair), and for one with NUL."""
    if b"\0" in "".join(ids).encode():
        raise ValueError("an id holds NUL, which not every store can keep")


def check_cursor(after: int, first: int, last: int) -> int:
    """Return the number before the first event to read of events ``first`` to ``last``. Raises ``CursorExpired``."""
    if after == 0:
        return first - 1
    if not first - 1 <= after <= last:
        raise CursorExpired(f"cursor {after} is not in the log, which has events {first} to {last}; read it from 0")
    return after


def inside_compacted(after: int) -> CursorExpired:
    """Return the error for a cursor inside the range of a compacted run."""
    return CursorExpired(f"cursor {after} is in a run that was compacted; read the thread again, or the log from 0")


def hash_thread(scope: str, thread_id: str) -> int:
    """Return the hash by which a removed thread is remembered.

    If two threads share a hash, the numbers of the second one start higher than they must.
    """
    name = scope.encode()
    digest = sha256(b"%d:%b%b" % (len(name), name, thread_id.encode())).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def hash_blob(scope: str, data: bytes, media_type: str, filename: str | None) -> str:
    """Return the id of a file.

    It covers the scope, so that an id does not reveal that another scope has the same file. It covers the type and the
    name, so that the same bytes under another type are another file.
    """
    digest = sha256()
    for part in (scope, media_type, "" if filename is None else "/" + filename):
        text = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(text))
        digest.update(text)
    digest.update(data)
    return digest.hexdigest()
