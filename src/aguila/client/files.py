"""Files as message parts: from a path or bytes, inline or uploaded, with their MIME type detected."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Final

from aguila.codec.json.values import is_object
from aguila.protocol import (
    AudioPart,
    DataSource,
    DocumentPart,
    FileSource,
    ImagePart,
    VideoPart,
)
from aguila.protocol.parts import MediaPart, PartSource

FileLike = bytes | bytearray | memoryview | str | PathLike[str]
"""A path, or the bytes themselves."""

_KINDS: Final[dict[str, Callable[..., MediaPart]]] = {"image": ImagePart, "audio": AudioPart, "video": VideoPart}

# The offset and the bytes that identify a type. A file name is checked first: an office document begins like a zip
# archive.
_MAGIC: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
)


def part(
    source: FileLike,
    *,
    mime_type: str | None = None,
    filename: str | None = None,
    id: str | None = None,  # noqa: A002 - the name of the field
) -> MediaPart:
    """Return a part with a file inline, from its path or its bytes.

    The MIME type is detected from the file name, else from the first bytes, and decides the kind of part. The name goes
    into the part's metadata. Raise OSError if the file cannot be read.
    """
    data, filename = read_file(source, filename)
    mime_type = mime_type or mime_type_of(data, filename)
    return part_for(DataSource(value=base64.b64encode(data).decode(), mime_type=mime_type), mime_type, filename, id)


def part_for(
    source: PartSource, mime_type: str | None, filename: str | None = None, part_id: str | None = None
) -> MediaPart:
    """Return a part of the kind for a MIME type."""
    metadata: Any = None if filename is None else {"filename": filename}
    kind = _KINDS.get((mime_type or "").partition("/")[0], DocumentPart)
    return kind(source=source, id=part_id, metadata=metadata)


def read_file(source: FileLike, filename: str | None) -> tuple[bytes, str | None]:
    """Return the bytes and the name of a file."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), filename
    path = Path(source)
    return path.read_bytes(), path.name if filename is None else filename


def mime_type_of(data: bytes, filename: str | None = None) -> str:
    """Detect the MIME type from the name, else from the first bytes; else ``application/octet-stream``."""
    if filename is not None:
        guessed, encoding = mimetypes.guess_type(filename)
        if guessed is not None and encoding is None:
            return guessed
    for offset, magic, mime_type in _MAGIC:
        if data.startswith(magic, offset):
            return mime_type
    try:
        text = data[:4096].decode("utf-8", "strict") if len(data) <= 4096 else data[:4096].decode("utf-8", "ignore")
    except UnicodeDecodeError:
        return "application/octet-stream"
    is_text = bool(text) and "\0" not in text and len(text.encode()) >= min(len(data), 4096) - 3
    return "text/plain" if is_text else "application/octet-stream"


def uploaded_part(answer: Any, mime_type: str, filename: str | None) -> MediaPart:
    """Return the part for an uploaded file from the server's response. Raise ValueError if the response is invalid."""
    if not is_object(answer):
        raise ValueError(f"expected an object, got {type(answer).__name__}")
    source = answer.get("source")
    found: Any = source if isinstance(source, dict) else {}  # type: ignore[reportUnknownVariableType]
    value, provider, known = found.get("value", answer.get("id")), found.get("provider"), found.get("mimeType")
    if not isinstance(value, str):
        raise ValueError("the response has no file id")
    mime_type = known if isinstance(known, str) else mime_type
    file = FileSource(value=value, provider=provider if isinstance(provider, str) else None, mime_type=mime_type)
    return part_for(file, mime_type, filename)
