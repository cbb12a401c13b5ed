"""Layer: store. What every store asks of the bytes it is given."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from aguila.codec.large import LARGE
from aguila.errors import CursorExpired

ROOM: Final = 64 * 1024
"""Bytes that a store must be able to take for it to count as working: about what a small run writes."""


def rows_of(events: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """The events as rows of a log: how many each row has, and these as lines. A large event is a row, as it is.

    Raises ``ValueError`` for an event that is not a single line: it is not compact JSON.
    """
    if len(events) == 1:
        return [(1, _line(events[0]))]
    if max(map(len, events), default=0) <= LARGE:
        return [(len(events), _joined(events))]
    rows: list[tuple[int, bytes]] = []
    start = 0
    for at, event in enumerate(events):
        if len(event) > LARGE:
            if start < at:
                rows.append((at - start, _joined(events[start:at])))
            rows.append((1, _line(event)))
            start = at + 1
    if start < len(events):
        rows.append((len(events) - start, _joined(events[start:])))
    return rows


def size_of(rows: Sequence[tuple[int, bytes]]) -> int:
    """How many bytes the lines have."""
    return len(rows[0][1]) if len(rows) == 1 else sum([len(lines) for _, lines in rows])


def _joined(events: Sequence[bytes]) -> bytes:
    body = b"\n".join(events)
    if body.count(b"\n") != max(0, len(events) - 1):
        raise ValueError(_BROKEN)
    return body


def _line(event: bytes) -> bytes:
    if b"\n" in event:
        raise ValueError(_BROKEN)
    return event


_BROKEN = "an event holds a line break: events are stored as single lines of JSON"


def check_ids(*ids: str) -> None:
    """Raise ``ValueError`` for an id that a file cannot hold: one with half a surrogate pair in it."""
    "".join(ids).encode()


def check_cursor(after: int, first: int, last: int) -> int:
    """The number before the first event to read, in a log from ``first`` to ``last``. Raises ``CursorExpired``."""
    if after == 0:
        return first - 1
    if not first - 1 <= after <= last:
        raise CursorExpired(f"the log goes from {first} to {last}: nothing is known of what came after {after}")
    return after


def thread_hash(scope: str, thread_id: str) -> int:
    """What is kept of the ids of a removed thread. If two threads share one, the second numbers higher than it must."""
    name = scope.encode()
    digest = sha256(b"%d:%b%b" % (len(name), name, thread_id.encode())).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def split_events(body: bytes) -> list[bytes]:
    """The events of one or more lines."""
    return body.split(b"\n")


def blob_id_of(scope: str, data: bytes, media_type: str, filename: str | None) -> str:
    """The id of a file.

    It covers the scope, so that nobody learns from an id that another scope has the same file, and the type and name,
    so that the same bytes under another type are another file and not a wrongly typed one.
    """
    digest = sha256()
    for part in (scope, media_type, "" if filename is None else "/" + filename):
        text = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(text))
        digest.update(text)
    digest.update(data)
    return digest.hexdigest()
