"""Send requests with fresh credentials, follow redirects, and turn failures and refusals into errors.

These are programs (see ``drivers.actions``): they neither wait nor connect themselves.
"""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec

from aguila.client.drivers.actions import Authorize, Close, Head, Open, Program, Read
from aguila.client.requests.read_limits import Limit, ReadLimits
from aguila.client.requests.urls import check_headers, display_url, merge_headers
from aguila.client.transports.base import Request, Timeouts
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.values import is_array, is_object
from aguila.errors import HTTPRejected, TransportFailed

if TYPE_CHECKING:
    from aguila.client.settings import Settings

_MAX_REFUSAL = 1 << 20
"""How many bytes of a refusal are read."""

_MAX_REDIRECTS = 5
_MAX_DETAIL = 500
"""How many characters of a refusal go into the message."""

_TIMED_OUT: Final[dict[Limit, str]] = {
    "first_event": "no event within",
    "idle": "no data for",
    "answer": "no answer within",
    "linger": "no more data within",
}


def open_response(settings: Settings, request: Request, limit: Limit, budget: ReadLimits) -> Program[Head]:
    """Send a request with fresh credentials. Follow redirects that keep method, body and origin.

    Raise ``TransportFailed`` with the request and the time limit that ran out, or ``LimitExceeded``.
    """
    timeout: float | None = getattr(settings.timeouts, limit)
    for _ in range(_MAX_REDIRECTS):
        extra = yield Authorize()
        headers = merge_headers(request.headers, extra)
        try:
            check_headers(headers)
            head: Head = yield Open(msgspec.structs.replace(request, headers=headers), budget.shorten(timeout))
        except TransportFailed as error:
            budget.check_time()
            raise explain_failure(error, limit, settings.timeouts, request) from error
        budget.check_time()
        location = head.headers.get("location")
        if not 300 <= head.status < 400 or location is None:
            return head
        try:
            target = urljoin(request.url, location)
            is_elsewhere = urlsplit(target)[:2] != urlsplit(request.url)[:2]
        except ValueError:
            return _not_followed(head, location, "which cannot be resolved")
        if head.status not in (307, 308):
            return _not_followed(head, target, "which would not keep the request")
        if is_elsewhere:
            # Credentials are for the origin they were given for.
            return _not_followed(head, target, "which is another origin")
        request = msgspec.structs.replace(request, url=target)
    return _not_followed(head, request.url, f"the {_MAX_REDIRECTS}th in a row")  # type: ignore[reportPossiblyUnbound]


def _not_followed(head: Head, target: str, why: str) -> Head:
    return msgspec.structs.replace(head, note=f"a redirect to {display_url(target)}, {why}, is not followed")


def explain_failure(
    error: TransportFailed, limit: Limit, timeouts: Timeouts, request: Request | None = None
) -> TransportFailed:
    """Return the failure with the time limit that ran out, if one did, and with the request, if it is given."""
    why, seconds = error.message, getattr(timeouts, limit)
    if error.is_timeout and seconds is not None:
        why = f"{_TIMED_OUT[limit]} {seconds:g} seconds (Timeouts.{limit})"
    if request is not None:
        why = f"{request.method} {display_url(request.url)}: {why}"
    return TransportFailed(why, was_sent=error.was_sent, is_lasting=error.is_lasting, is_timeout=error.is_timeout)


def read_body(
    settings: Settings, request: Request, budget: ReadLimits, limit: int | None = _MAX_REFUSAL
) -> Program[bytes]:
    """Read the body of a response that is not a stream; no more pieces once it has more bytes than ``limit``."""
    pieces: list[bytes] = []
    size = 0
    while limit is None or size <= limit:
        try:
            piece: bytes = yield Read(budget.shorten(settings.timeouts.answer))
        except TransportFailed as error:
            budget.check_time()
            raise explain_failure(error, "answer", settings.timeouts, request) from error
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
        budget.spend(len(piece))
        budget.check_time()
    yield Close()
    return b"".join(pieces)


def fetch(settings: Settings, request: Request) -> Program[tuple[Head, bytes]]:
    """Send a request and read the response. Raise ``HTTPRejected`` unless it is a success, or ``LimitExceeded``."""
    budget = ReadLimits(settings)
    head = yield from open_response(settings, request, "answer", budget)
    is_success = 200 <= head.status < 300
    body = yield from read_body(settings, request, budget, None if is_success else _MAX_REFUSAL)
    if not is_success:
        raise rejection(head, body, settings.now())
    return head, body


def rejection(head: Head, body: bytes, now: datetime, message: str = "") -> HTTPRejected:
    """Make an error from a refusal: from our server's code and message, FastAPI's ``detail``, or any other text."""
    text = body.decode("utf-8", "replace")
    value: Any = text
    if "json" in head.headers.get("content-type", ""):
        try:
            value = decode_json(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = text
    code: Any = None
    if is_object(value):
        error: Any = value.get("error", value)
        if is_object(error):
            code, error = error.get("code"), error.get("message", error.get("detail"))
        found = _detail_text(error)
    else:
        found = text.strip()[:200]
    message = message or head.note or found
    wait = retry_after_seconds(head.headers.get("retry-after"), now)
    code = code if isinstance(code, str) else None
    return HTTPRejected(head.status, code=code, message=message, body=value, retry_after=wait)


def _detail_text(detail: Any) -> str:
    """Format the detail of a refusal on one line. FastAPI sends a list of problems with their locations."""
    if is_array(detail):
        return "; ".join([piece for piece in map(_detail_text, detail) if piece])[:_MAX_DETAIL]
    if is_object(detail):
        where, what = detail.get("loc"), detail.get("msg", detail.get("message"))
        if isinstance(what, str):
            return f"{'.'.join(map(str, where))}: {what}" if is_array(where) and where else what
        return msgspec.json.encode(detail).decode()[:_MAX_DETAIL]
    return " ".join(detail.split())[:_MAX_DETAIL] if isinstance(detail, str) else ""


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """Parse a ``Retry-After`` header: seconds or a date. Return None for anything else."""
    if value is None:
        return None
    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError):  # not a date, or a date without a zone
        return None
