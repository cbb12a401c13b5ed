"""Receive uploads: forms with one file, or the file as the body."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from aguila.server.config.errors import Rejected
from aguila.server.config.limits import Limits, check_id
from aguila.server.http.request import Request
from aguila.store import FileRecord, Quotas, Store

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_DEFAULT_TYPE: Final = "application/octet-stream"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}")
_FORBIDDEN_IN_NAMES: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_MAX_NAME: Final = 200
_MAX_FIELD: Final = 4096
_MAX_HEADER: Final = 8192
_MAX_PARTS: Final = 100
_FORM_OVERHEAD: Final = 64 * 1024  # bytes that a form may have besides its file


async def receive_upload(
    request: Request,
    *,
    store: Store,
    scope: str,
    limits: Limits,
    quotas: Quotas | None = None,
    count: Callable[[int], None] = lambda _: None,
) -> FileRecord:
    """Store the file of a request: a form with one file (``multipart/form-data``), or the body itself.

    For a body, Content-Type is the media type, and ``filename`` in the query or Content-Disposition is the name.
    ``threadId``, in the query or the form, assigns the file to a thread, with which it is deleted. ``count`` is called
    with the size of each piece that arrives, and may raise. Raises ``Rejected``: 413 ``too_large``, 415
    ``unsupported_media_type``, 422 ``malformed_upload``. Raises ``QuotaExceeded``.
    """
    kind, options = _parse_options(request.headers.get("content-type", ""))
    is_form = kind == b"multipart/form-data"
    allowed = limits.upload + (_FORM_OVERHEAD if is_form else 0)
    length = request.headers.get("content-length", "")
    size = int(length[:20]) if length.isascii() and length.isdigit() else None
    if size is not None and size > allowed:
        raise _too_large(limits)
    form = _Form(limits)
    form.assign(request.query.get("threadId"))
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Rejected(415, "unsupported_encoding", "a compressed upload is not supported; send the file as it is")
    if is_form:
        boundary = options.get(b"boundary")
        if boundary is None:
            raise Rejected(422, "malformed_upload", "the Content-Type of the form has no boundary")
        await form.parse(boundary, _receive_pieces(request, count))
    else:
        _, disposition = _parse_options(request.headers.get("content-disposition", ""))
        name = request.query.get("filename")
        form.begin(kind.decode("latin-1"), _text(disposition.get(b"filename")) if name is None else name)
        async for piece in _receive_pieces(request, count):
            form.write(piece)
    if form.media_type is None:
        raise Rejected(422, "malformed_upload", "the form has no file; send one file in a part with a filename")
    data = form.data.getvalue()
    del form.data
    return await store.put_file(
        scope, data, media_type=form.media_type, filename=form.filename, thread_id=form.thread_id, quotas=quotas
    )


class _Form:
    """Collects the file and the fields of an upload while they arrive."""

    def __init__(self, limits: Limits) -> None:
        self.media_type: str | None = None
        self.filename: str | None = None
        self.thread_id: str | None = None
        self.data = BytesIO()
        self._limits = limits
        self._size = 0
        self._parts = 0
        self._headers: dict[bytes, bytes] = {}
        self._name = b""
        self._value = b""
        self._field: bytes | None = None  # the field that arrives now; None for the file
        self._text = bytearray()

    def begin(self, media_type: str, filename: str | None) -> None:
        """Start the file. Raises ``Rejected`` for a second file, or a media type that is not allowed."""
        if self.media_type is not None:
            raise Rejected(422, "malformed_upload", "the form has more than one file; send one file per request")
        kind = media_type.strip().lower() or _DEFAULT_TYPE
        if _MEDIA_TYPE.fullmatch(kind) is None:
            raise Rejected(415, "unsupported_media_type", f"{kind!r} is not a media type; use type/subtype")
        types = self._limits.upload_types
        if types is not None and not any(kind == one or _matches_type(one, kind) for one in types):
            raise Rejected(
                415, "unsupported_media_type", f"files of type {kind} are not accepted; allowed: {', '.join(types)}"
            )
        self.media_type = kind
        self.filename = _safe_name(filename)

    def assign(self, thread_id: str | None) -> None:
        """Assign the file to a thread. Raises ``Rejected`` for an id that a thread cannot have."""
        if thread_id == "":
            raise Rejected(422, "malformed_upload", "the id is empty", "/threadId")
        if thread_id is not None:
            check_id(thread_id, "/threadId")
        self.thread_id = thread_id

    def write(self, data: bytes) -> None:
        """Append bytes to the file. Raises ``Rejected`` (413) above the limit."""
        self._size += len(data)
        if self._size > self._limits.upload:
            raise _too_large(self._limits)
        self.data.write(data)

    async def parse(self, boundary: bytes, pieces: AsyncIterator[bytes]) -> None:
        """Read a multipart form. Raises ``Rejected``."""
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
            raise Rejected(422, "malformed_upload", f"the form is not valid multipart data: {error}") from None
        if not is_complete:
            raise Rejected(422, "malformed_upload", "the form ends before its closing boundary")

    def _part_begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise Rejected(422, "malformed_upload", f"the form has more than {_MAX_PARTS} parts")
        self._headers = {}

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _headers_finished(self) -> None:
        _, options = _parse_options(self._headers.get(b"content-disposition", b""))
        filename = options.get(b"filename")
        name = options.get(b"name", b"")
        if filename is None and name != b"file":
            self._field = name
            self._text.clear()
            return
        self._field = None
        kind, _ = _parse_options(self._headers.get(b"content-type", b""))
        self.begin(kind.decode("latin-1"), _text(filename))

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self.write(data[start:end])
            return
        self._text += data[start:end]
        if len(self._text) > _MAX_FIELD:
            raise Rejected(422, "malformed_upload", f"a field of the form has more than {_MAX_FIELD} bytes")

    def _part_end(self) -> None:
        if self._field == b"threadId":
            self.assign(_text(bytes(self._text)))


async def _receive_pieces(request: Request, count: Callable[[int], None]) -> AsyncIterator[bytes]:
    """Yield the pieces of a body."""
    while True:
        message: Any = await request.reservation.receive(request.receive)
        if message["type"] == "http.disconnect":
            raise Rejected(400, "disconnected", "the client disconnected before the upload was complete")
        if message.get("body", b""):
            count(len(message["body"]))
            await request.reservation.arrived(len(message["body"]))
            yield message["body"]
        if not message.get("more_body", False):
            return


def _parse_options(header: str | bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Parse a header with options. Raises ``Rejected`` for a long one, whose parsing takes long."""
    if len(header) > _MAX_HEADER:
        raise Rejected(422, "malformed_upload", f"a header of the upload has more than {_MAX_HEADER} bytes")
    return parse_options_header(header)


def _too_large(limits: Limits) -> Rejected:
    return Rejected(413, "too_large", f"the file has more than {limits.upload} bytes, the limit of Limits.upload")


def _matches_type(pattern: str, media_type: str) -> bool:
    return pattern == "*/*" or (pattern.endswith("/*") and media_type.startswith(pattern[:-1]))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _safe_name(name: str | None) -> str | None:
    """Remove folders, control characters and direction marks from a file name; return None if nothing is left."""
    if name is None:
        return None
    name = _FORBIDDEN_IN_NAMES.sub("", re.split(r"[/\\]", name)[-1]).strip()
    if len(name) > _MAX_NAME:
        stem, dot, extension = name.rpartition(".")
        keeps_extension = dot != "" and len(extension) < 20
        name = f"{stem[: _MAX_NAME - 20]}.{extension}" if keeps_extension else name[:_MAX_NAME]
    return None if name in ("", ".", "..") else name
