"""Layer: server. Files: uploads in, safe downloads out, and references of messages resolved to bytes.

Below: the store, which keeps files by a hash of their content, per scope; python-multipart. Above: ``file_routes``,
and ``live`` for the agent that asks for a file. No address is ever fetched: a reference either names an upload of the
same scope or stays unresolved.

A file is whatever its uploader says it is, so nothing it says is trusted on the way out: a browser must neither guess
another type (``nosniff``) nor run it in our origin (``sandbox``), and what could be active is saved, not shown.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from aguila.codec.json.buffer import PresizedBuffer
from aguila.errors import NotFound
from aguila.offload import LARGE
from aguila.server.auth import Request
from aguila.server.errors import Rejected
from aguila.server.http.body_limits import Reservation
from aguila.server.http.responses import Receive, header_list
from aguila.server.limits import Limits
from aguila.store import Blob, Store

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_DEFAULT_TYPE: Final = "application/octet-stream"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}")
_NOT_IN_NAMES: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST_NAME: Final = 200
_FIELD_SIZE: Final = 4096
_FORM_OVERHEAD: Final = 64 * 1024  # what a form may have besides its file

_ONE_RANGE: Final = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})", re.ASCII | re.IGNORECASE)

_SHOWN: Final = re.compile(r"image/(png|jpeg|gif|webp|avif|bmp)|audio/[a-z0-9.+-]+|video/[a-z0-9.+-]+|text/plain")
"""What a browser may show in place: nothing that can hold a script."""


async def receive_upload(
    request: Request, receive: Receive, *, store: Store, scope: str, limits: Limits, reservation: Reservation
) -> Blob:
    """Store the file of a request: a form with one file (``multipart/form-data``), or the body itself.

    A body is of the type that its Content-Type names; its name is in the query as ``filename``, or in a
    Content-Disposition header. ``threadId``, in the query or the form, gives the file to a thread, with which it is
    deleted. Raises ``Rejected``: 413 ``too_large``, 415 ``unsupported_media_type``, 422 ``malformed_upload``.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    is_form = kind == b"multipart/form-data"
    allowed = limits.upload + (_FORM_OVERHEAD if is_form else 0)
    length = request.headers.get("content-length", "")
    size = int(length[:20]) if length.isascii() and length.isdigit() else None
    if size is not None and size > allowed:
        raise _too_large(limits)
    if size is None or size > LARGE:
        await reservation.reserve(allowed if size is None else size)
    form = _Form(limits, size)
    form.thread_id = request.query.get("threadId")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Rejected(415, "unsupported_encoding", "send the file as it is, not compressed")
    if is_form:
        boundary = options.get(b"boundary")
        if boundary is None:
            raise Rejected(422, "malformed_upload", "the form names no boundary")
        await form.parse(boundary, _pieces(receive, reservation))
    else:
        _, disposition = parse_options_header(request.headers.get("content-disposition", ""))
        name = request.query.get("filename")
        form.begin(kind.decode("latin-1"), _text(disposition.get(b"filename")) if name is None else name)
        async for piece in _pieces(receive, reservation):
            form.write(piece)
    if form.media_type is None:
        raise Rejected(422, "malformed_upload", "the form has no file")
    if form.thread_id == "":
        raise Rejected(422, "malformed_upload", "an id must not be empty", "/threadId")
    if form.thread_id is not None:
        limits.check_id(form.thread_id, "/threadId")
    data = form.data.getvalue()
    del form.data
    return await store.put_blob(
        scope, data, media_type=form.media_type, filename=form.filename, thread_id=form.thread_id
    )


def file_response(blob: Blob, data: bytes, request: Request) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of a download: all of it, one range of it, or word that the reader has it already.

    Raises ``Rejected`` (416) for a range that the file does not have. Several ranges at once are answered with all.
    """
    etag = f'"{blob.blob_id}"'
    # The id is a hash: what it names never changes. But it is for this reader only.
    headers = {"cache-control": "private, max-age=31536000, immutable", "etag": etag}
    if _has(request.headers.get("if-none-match"), etag):
        return 304, header_list(headers), b""
    is_shown = _SHOWN.fullmatch(blob.media_type) is not None
    # Text is shown as what it most likely is; without a word on it a browser would guess.
    media_type = "text/plain; charset=utf-8" if blob.media_type == "text/plain" else blob.media_type
    size = len(data)
    status = 200
    wanted = _range(request, etag, size)
    if wanted is not None:
        status, data = 206, data[wanted.start : wanted.stop]
        headers["content-range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{size}"
    headers |= {
        "content-type": media_type,
        "content-length": str(len(data)),
        "content-disposition": _disposition("inline" if is_shown else "attachment", blob.filename),
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
        "cross-origin-resource-policy": "same-site",
        "accept-ranges": "bytes",
    }
    return status, header_list(headers), data


def _has(names: str | None, etag: str) -> bool:
    """Whether an If-None-Match names this version of the file. A hash is never weak, so W/ makes no difference."""
    listed = [] if names is None else [name.strip().removeprefix("W/") for name in names.split(",")]
    return "*" in listed or etag in listed


def _range(request: Request, etag: str, size: int) -> range | None:
    """The one range that is asked for; None for the whole file."""
    found = _ONE_RANGE.fullmatch(request.headers.get("range", "").strip())
    if found is None or request.method != "GET" or request.headers.get("if-range", etag) != etag:
        return None
    first, last = found.groups()
    if first == "" and last == "":
        return None
    if first == "":  # the last so many bytes
        wanted = range(max(0, size - int(last)), size)
    else:
        end = size if last == "" else min(int(last) + 1, size)
        if last != "" and int(last) < int(first):
            return None
        wanted = range(int(first), end)
    if len(wanted) == 0:
        message = f"the file has {size} bytes"
        raise Rejected(416, "range_not_satisfiable", message, headers={"content-range": f"bytes */{size}"})
    return wanted


async def resolve_file(store: Store, scope: str, file_id: str) -> tuple[bytes, str, str | None] | None:
    """An upload of this scope as bytes, media type and file name; None if there is none. Whoever asked says so."""
    try:
        blob, data = await store.blob(scope, file_id)
    except (NotFound, UnicodeError):  # an id with half a surrogate pair names nothing
        return None
    return data, blob.media_type, blob.filename


class _Form:
    """What has arrived of an upload."""

    def __init__(self, limits: Limits, size: int | None) -> None:
        self.media_type: str | None = None
        self.filename: str | None = None
        self.thread_id: str | None = None
        self.data = PresizedBuffer(size)
        self._limits = limits
        self._size = 0
        self._headers: dict[bytes, bytes] = {}
        self._name = b""
        self._value = b""
        self._field: bytes | None = None  # the field that is arriving, None for the file
        self._text = bytearray()

    def begin(self, media_type: str, filename: str | None) -> None:
        """The file begins."""
        if self.media_type is not None:
            raise Rejected(422, "malformed_upload", "one file at a time")
        kind = media_type.strip().lower()
        if kind == "":
            kind = _DEFAULT_TYPE
        if _MEDIA_TYPE.fullmatch(kind) is None:
            raise Rejected(415, "unsupported_media_type", "that is not a media type")
        types = self._limits.upload_types
        if types is not None and not any(kind == one or _covers(one, kind) for one in types):
            raise Rejected(415, "unsupported_media_type", f"files of type {kind} are not taken here")
        self.media_type = kind
        self.filename = _safe_name(filename)

    def write(self, data: bytes) -> None:
        """More of the file."""
        self._size += len(data)
        if self._size > self._limits.upload:
            raise _too_large(self._limits)
        self.data.write(data)

    async def parse(self, boundary: bytes, pieces: AsyncIterator[bytes]) -> None:
        """Read a form."""
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._part_begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._part_data,
            "on_part_end": self._part_end,
        }
        is_complete = False

        def end() -> None:
            nonlocal is_complete
            is_complete = True

        callbacks["on_end"] = end
        size = 0
        try:
            parser = MultipartParser(boundary, callbacks)
            async for piece in pieces:
                size += len(piece)
                if size > self._limits.upload + _FORM_OVERHEAD:
                    raise _too_large(self._limits)
                parser.write(piece)
            parser.finalize()
        except FormParserError as error:
            raise Rejected(422, "malformed_upload", f"the form cannot be read: {error}") from None
        if not is_complete:
            raise Rejected(422, "malformed_upload", "the form ends before its last boundary")

    def _part_begin(self) -> None:
        self._headers = {}

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        filename = options.get(b"filename")
        name = options.get(b"name", b"")
        if filename is None and name != b"file":
            self._field = name
            self._text.clear()
            return
        self._field = None
        kind, _ = parse_options_header(self._headers.get(b"content-type", b""))
        self.begin(kind.decode("latin-1"), _text(filename))

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self.write(data[start:end])
            return
        self._text += data[start:end]
        if len(self._text) > _FIELD_SIZE:
            raise Rejected(422, "malformed_upload", "a field of the form is too long")

    def _part_end(self) -> None:
        if self._field == b"threadId":
            self.thread_id = _text(bytes(self._text))


async def _pieces(receive: Receive, reservation: Reservation) -> AsyncIterator[bytes]:
    while True:
        message: Any = await reservation.receive(receive)
        if message["type"] == "http.disconnect":
            raise Rejected(400, "disconnected", "the upload was broken off")
        if message.get("body", b""):
            yield message["body"]
        if not message.get("more_body", False):
            return


def _too_large(limits: Limits) -> Rejected:
    return Rejected(413, "too_large", f"a file may have {limits.upload} bytes")


def _covers(pattern: str, media_type: str) -> bool:
    return pattern == "*/*" or (pattern.endswith("/*") and media_type.startswith(pattern[:-1]))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _safe_name(name: str | None) -> str | None:
    """A file name without folders, control characters or tricks of direction; None if nothing is left of it."""
    if name is None:
        return None
    name = _NOT_IN_NAMES.sub("", re.split(r"[/\\]", name)[-1]).strip()
    if len(name) > _LONGEST_NAME:
        stem, dot, extension = name.rpartition(".")
        keeps_extension = dot != "" and len(extension) < 20
        name = f"{stem[: _LONGEST_NAME - 20]}.{extension}" if keeps_extension else name[:_LONGEST_NAME]
    return None if name in ("", ".", "..") else name


def _disposition(kind: str, filename: str | None) -> str:
    if filename is None:
        return kind
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", filename)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
