"""Read query parameters and cursors of a request."""

from __future__ import annotations

from aguila.codec.negotiate import SSE_MEDIA_TYPE, negotiate
from aguila.errors import CursorExpired
from aguila.server.config.errors import Rejected
from aguila.server.http.request import Request
from aguila.server.http.service import Service
from aguila.store.cursors import check_token

MAX_DIGITS = 18
"""Digits of a number that fits into 64 bits."""


def read_flag(request: Request, name: str, *, default: bool | None) -> bool | None:
    """Read a query parameter that is ``true`` or ``false``. Raises ``Rejected``."""
    text = request.query.get(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise Rejected(422, "bad_parameter", f"{name} is {text!r}; use true or false", f"/{name}")
    return text == "true"


def read_count(request: Request, name: str) -> int | None:
    """Read a query parameter that is a whole number; None if it is absent. Raises ``Rejected``."""
    text = request.query.get(name)
    if text is None:
        return None
    if not is_number(text) or len(text) > MAX_DIGITS:
        message = f"{name} is {text!r}; use a whole number of at most {MAX_DIGITS} digits"
        raise Rejected(422, "bad_parameter", message, f"/{name}")
    return int(text)


def read_limit(request: Request, most: int) -> int | None:
    """Read how many elements a page may have; None if the request does not say. Raises ``Rejected``."""
    text = request.query.get("limit")
    if text is None:
        return None
    if not is_number(text) or len(text) > MAX_DIGITS or not 1 <= int(text) <= most:
        raise Rejected(422, "bad_limit", f"limit is {text!r}; use a number from 1 to {most}", "/limit")
    return int(text)


def wants_times(request: Request, *, is_compact: bool) -> bool:
    """Return whether a request has ``?times=true``. Raises ``Rejected`` if the response cannot have times."""
    if not read_flag(request, "times", default=False):
        return False
    if is_compact:
        raise Rejected(422, "bad_parameter", "a compacted run has no times; send times=true or compact=true", "/times")
    if negotiate(request.headers.get("accept"), prefers_sse="protocolVersion" not in request.query) != SSE_MEDIA_TYPE:
        raise Rejected(422, "bad_parameter", f"times=true needs Accept: {SSE_MEDIA_TYPE}", "/times")
    return True


def is_number(text: str) -> bool:
    """Return whether a parameter consists of ASCII digits."""
    return text.isascii() and text.isdigit()


async def read_cursor(service: Service, request: Request, thread_id: str) -> int | None:
    """Read the cursor of a request; None if there is none.

    A cursor is a number, or a number and a token. Either may have a suffix, which ``read_skip`` reads. Raises
    ``Rejected`` for anything else, ``CursorExpired`` if the log of the thread has no such event, or another one with
    this number.
    """
    text = _cursor_text(request)
    if text is None:
        return None
    text, dot, suffix = text.partition(".")
    digits, dash, token = text.partition("-")
    if not is_number(digits) or (dot and not is_number(suffix)):
        message = "the cursor does not begin with a number; use the id of an event of this thread, or its number"
        raise Rejected(422, "bad_cursor", message, "/after")
    if len(digits) > MAX_DIGITS:
        raise CursorExpired("the log has no event with this number")
    after = int(digits)
    found = await service.store.read(request.caller.scope, thread_id, after, limit=0)
    check_token(after, token if dash else None, found.token)
    return after


def read_skip(request: Request) -> int:
    """Return how many events after its cursor a reader has already, see ``Sequencer``."""
    suffix = (_cursor_text(request) or "").partition(".")[2]
    return int(suffix) if is_number(suffix) and len(suffix) <= MAX_DIGITS else 0


def peek_cursor(request: Request) -> int | None:
    """Return the cursor of a request without checking it against the log; None if it is not a number."""
    digits = (_cursor_text(request) or "").partition(".")[0].partition("-")[0]
    return int(digits) if is_number(digits) and len(digits) <= MAX_DIGITS else None


def _cursor_text(request: Request) -> str | None:
    # A browser reconnects to the same URL, so the header is newer than the parameter.
    return request.headers.get("last-event-id") or request.query.get("after")
