"""The file formats of event streams, detected by the file's name or its first bytes."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final, Literal

Format = Literal["sse", "jsonl", "json", "protobuf"]

_SUFFIXES: Final[dict[str, Format]] = {
    ".sse": "sse",
    ".txt": "sse",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".pb": "protobuf",
    ".bin": "protobuf",
}
_BOM: Final = b"\xef\xbb\xbf"
_FIELDS: Final = frozenset({b"", b"data", b"id", b"event", b"retry"})  # the empty name is a comment


def format_from_name(name: str | PurePath) -> Format | None:
    """Return the format for the suffix of a file's name, or None."""
    return _SUFFIXES.get(PurePath(name).suffix.lower())


def detect_format(data: bytes, name: str | PurePath = "") -> Format:
    """Detect a format by the first bytes; if they are ambiguous, by the name; else SSE."""
    start = data.removeprefix(_BOM).lstrip(b" \t\r\n")
    if start[:1] == b"{":
        return "jsonl"
    if start[:1] == b"[":
        return "json"
    # A frame begins with its length in four bytes. No frame is so long that the first byte is not zero.
    if data[:1] == b"\0":
        return "protobuf"
    if start and start.partition(b"\n")[0].partition(b":")[0].strip() in _FIELDS:
        return "sse"
    return format_from_name(name) or "sse"
