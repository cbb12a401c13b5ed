"""Layer: client. Requests and their answers: sent with fresh credentials, redirected, refused, failed, in words.

Below: ``effects`` (what is asked of the twins), ``transport``. Above: ``exchange`` (streams) and everything that is not
one. Nothing here waits or connects by itself. An address in a message has neither query nor credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from aguila.client.drivers.effects import Authorize, Close, Head, Open, Program, Read
from aguila.client.transports.base import Request, Timeouts
from aguila.codec.values import is_array, is_object
from aguila.errors import EncodeError, HTTPRejected, TransportFailed

if TYPE_CHECKING:
    from aguila.client.base import Settings

_MAX_BODY = 1 << 20  # of an answer that is no stream
_MAX_REDIRECTS = 5
_MAX_WORDS = 500  # characters of a refusal that are told

Limit = Literal["first_event", "idle", "answer"]
_WAITED: Final[dict[Limit, str]] = {
    "first_event": "no event within",
    "idle": "nothing came for",
    "answer": "no answer within",
}


def open_answer(settings: Settings, request: Request, limit: Limit) -> Program[Head]:
    """Send a request with fresh credentials; follows redirects that keep method and body, to the same origin.

    Raises ``TransportFailed``, which says what was asked of whom, and which of the time limits was hit.
    """
    timeout: float | None = getattr(settings.timeouts, limit)
    for _ in range(_MAX_REDIRECTS):
        extra = yield Authorize()
        headers = merge_headers(request.headers, extra)
        try:
            _check_headers(headers)
            head: Head = yield Open(msgspec.structs.replace(request, headers=headers), timeout)
        except TransportFailed as error:
            raise told(error, limit, settings.timeouts, request) from error
        location = head.headers.get("location")
        if not 300 <= head.status < 400 or location is None:
            return head
        try:
            target = urljoin(request.url, location)
            is_elsewhere = urlsplit(target)[:2] != urlsplit(request.url)[:2]
        except ValueError:
            return _not_followed(head, location, "which leads nowhere")
        if head.status not in (307, 308):
            return _not_followed(head, target, "which would not keep the request")
        if is_elsewhere:
            # Credentials are for the origin they were meant for.
            return _not_followed(head, target, "which is another origin")
        request = msgspec.structs.replace(request, url=target)
    return _not_followed(head, request.url, f"the {_MAX_REDIRECTS}th in a row")  # type: ignore[reportPossiblyUnbound]


def _not_followed(head: Head, target: str, why: str) -> Head:
    return msgspec.structs.replace(head, note=f"a redirect to {address(target)}, {why}, is not followed")


def told(error: TransportFailed, limit: Limit, timeouts: Timeouts, request: Request | None = None) -> TransportFailed:
    """A failure in words: with the limit that was hit, if one was, and with the request, if it is given."""
    why, seconds = error.message, getattr(timeouts, limit)
    if error.is_timeout and seconds is not None:
        why = f"{_WAITED[limit]} {seconds:g} seconds (Timeouts.{limit})"
    if request is not None:
        why = f"{request.method} {address(request.url)}: {why}"
    return TransportFailed(why, was_sent=error.was_sent, is_lasting=error.is_lasting, is_timeout=error.is_timeout)


def address(url: str) -> str:
    """An address as it may be shown and logged."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that is none"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise ``TransportFailed`` for a header that cannot be sent: transports notice when they have connected."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or _NO_HEADER_VALUE.search(value):
            raise TransportFailed(f"the header {name!r} cannot be sent as it is", was_sent=False, is_lasting=True)


_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_NO_HEADER_VALUE = re.compile(r"[^\t\x20-\x7e]")


def read_answer(settings: Settings, request: Request) -> Program[bytes]:
    """The whole body of an answer that is no stream, up to a size no error or document needs."""
    pieces: list[bytes] = []
    size = 0
    while size <= _MAX_BODY:
        try:
            piece: bytes = yield Read(settings.timeouts.answer)
        except TransportFailed as error:
            raise told(error, "answer", settings.timeouts, request) from error
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    yield Close()
    return b"".join(pieces)


def fetch(settings: Settings, request: Request) -> Program[tuple[Head, bytes]]:
    """Send a request and read its answer. Raises ``HTTPRejected`` unless it is a success."""
    head = yield from open_answer(settings, request, "answer")
    body = yield from read_answer(settings, request)
    if not 200 <= head.status < 300:
        raise rejection(head, body, settings.now())
    return head, body


def merge_headers(*layers: Mapping[str, str | None] | Mapping[str, str] | None) -> dict[str, str]:
    """Headers where later ones replace earlier ones of the same name, whatever its case. None as a value removes."""
    merged: dict[str, tuple[str, str | None]] = {}
    for layer in layers:
        for name, value in () if layer is None else layer.items():
            merged[name.lower()] = (name, value)
    return {name: value for name, value in merged.values() if value is not None}


def rejection(head: Head, body: bytes, now: datetime, message: str = "") -> HTTPRejected:
    """A refusal in words: ours says code and message, FastAPI's ``detail``, others whatever they like."""
    text = body.decode("utf-8", "replace")
    value: Any = text
    if "json" in head.headers.get("content-type", ""):
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = text
    code: Any = None
    if is_object(value):
        error: Any = value.get("error", value)
        if is_object(error):
            code, error = error.get("code"), error.get("message", error.get("detail"))
        found = _words(error)
    else:
        found = text.strip()[:200]
    message = message or head.note or found
    wait = seconds_of(head.headers.get("retry-after"), now)
    code = code if isinstance(code, str) else None
    return HTTPRejected(head.status, code=code, message=message, body=value, retry_after=wait)


def _words(detail: Any) -> str:
    """What a server says in whatever form it says it, on one line; FastAPI lists what is wrong and where."""
    if is_array(detail):
        return "; ".join([piece for piece in map(_words, detail) if piece])[:_MAX_WORDS]
    if is_object(detail):
        where, what = detail.get("loc"), detail.get("msg", detail.get("message"))
        if isinstance(what, str):
            return f"{'.'.join(map(str, where))}: {what}" if is_array(where) and where else what
        return msgspec.json.encode(detail).decode()[:_MAX_WORDS]
    return " ".join(detail.split())[:_MAX_WORDS] if isinstance(detail, str) else ""


def seconds_of(value: str | None, now: datetime) -> float | None:
    """A ``Retry-After``: seconds, or a date. None for anything else."""
    if value is None:
        return None
    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a zone
        return None


def join_url(url: str, segments: tuple[str, ...]) -> str:
    """The address of something below an endpoint, its query kept; ids may hold anything but be a step in a path.

    Raises ``EncodeError`` for those: whoever gets the address would follow them.
    """
    for segment in segments:
        if segment in ("", ".", ".."):
            raise EncodeError(f"the id {segment!r} cannot be part of an address")
    parts = urlsplit(url)
    path = "/".join([parts.path.rstrip("/"), *(quote(segment, safe="") for segment in segments)])
    return parts._replace(path=path, fragment="").geturl()
