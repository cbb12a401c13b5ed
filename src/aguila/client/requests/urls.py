"""URLs and headers of requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from aguila.errors import EncodeError, TransportFailed

_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_NOT_IN_HEADER_VALUE = re.compile(r"[^\t\x20-\x7e]")


def join_url(url: str, segments: tuple[str, ...]) -> str:
    """Return the URL of a route below an endpoint, with the endpoint's query.

    Ids are quoted. Raise ``EncodeError`` for an id that is empty, ``.`` or ``..``: servers and proxies resolve those.
    """
    for segment in segments:
        if segment in ("", ".", ".."):
            raise EncodeError(f"the id {segment!r} cannot be part of a URL; choose another id")
    parts = urlsplit(url)
    path = "/".join([parts.path.rstrip("/"), *(quote(segment, safe="") for segment in segments)])
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def add_query(url: str, members: Mapping[str, str | None]) -> str:
    """Return a URL with more query parameters. None as a value leaves the parameter out."""
    parts = urlsplit(url)
    query = urlencode({name: value for name, value in members.items() if value is not None})
    return urlunsplit(parts._replace(query="&".join(piece for piece in (parts.query, query) if piece)))


def display_url(url: str) -> str:
    """Return a URL for messages and logs: without credentials and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid URL"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def merge_headers(*layers: Mapping[str, str | None] | Mapping[str, str] | None) -> dict[str, str]:
    """Merge headers. Later ones replace earlier ones of the same name in any case; None as a value removes."""
    merged: dict[str, tuple[str, str | None]] = {}
    for layer in layers:
        for name, value in () if layer is None else layer.items():
            merged[name.lower()] = (name, value)
    return {name: value for name, value in merged.values() if value is not None}


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise ``TransportFailed`` for a header that cannot be sent. Transports would notice only after connecting."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or _NOT_IN_HEADER_VALUE.search(value):
            problem = f"the header {name!r} cannot be sent: its name or value has characters that HTTP does not allow"
            raise TransportFailed(problem, was_sent=False, is_lasting=True)
