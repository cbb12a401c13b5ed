"""Layer: store. What every store asks of the bytes it is given."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256


def join_events(events: Sequence[bytes]) -> bytes:
    """The events as lines. Raises ``ValueError`` for an event that is not a single line: it is not compact JSON."""
    body = b"\n".join(events)
    if body.count(b"\n") != max(0, len(events) - 1):
        raise ValueError("an event holds a line break: events are stored as single lines of JSON")
    return body


def check_ids(*ids: str) -> None:
    """Raise ``ValueError`` for an id that a file cannot hold: one with half a surrogate pair in it."""
    for each in ids:
        each.encode()


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
