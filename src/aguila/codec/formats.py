"""Layer: codec. The forms in which a stream is kept in a file, told by the file's name or by its first bytes.

Below: nothing. Above: recordings of the client, ``aguila.testing.recordings``, and commands that read and write files.
Bytes are passed in; what they mean is for the framings.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final, Literal, get_args

Format = Literal["sse", "jsonl", "json", "protobuf"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

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
_FIELDS: Final = frozenset({b"", b"data", b"id", b"event", b"retry"})  # nothing before the colon is a comment


def format_from_name(name: str | PurePath) -> Format | None:
    """The format that a file's name says; None if it says none."""
    return _SUFFIXES.get(PurePath(name).suffix.lower())


def detect_format(data: bytes, name: str | PurePath = "") -> Format:
    """The format of bytes: by how they begin; where that says nothing, by the name."""
    start = data.removeprefix(_BOM).lstrip(b" \t\r\n")
    if start[:1] == b"{":
        return "jsonl"
    if start[:1] == b"[":
        return "json"
    # The length of a frame is four bytes, and no frame is so long that the first is not zero.
    if data[:1] == b"\0":
        return "protobuf"
    if start and start.partition(b"\n")[0].partition(b":")[0].strip() in _FIELDS:
        return "sse"
    return format_from_name(name) or "sse"
