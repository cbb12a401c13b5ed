"""A request without its body, as handlers and ``authenticate`` hooks see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from aguila.server.errors import Rejected

MAX_QUERY_FIELDS: Final = 100


class Request:
    """A request without its body."""

    __slots__ = ("_headers", "_query", "asgi", "method", "path", "raw_headers")

    def __init__(self, asgi: Mapping[str, Any], path: str) -> None:
        self.asgi = asgi
        self.method: str = asgi["method"]
        self.path = path
        """The path below the mount of the app, without a trailing slash; ``/`` for its root."""
        pairs = asgi["headers"]
        self.raw_headers: Mapping[bytes, bytes] = dict(pairs)
        """The headers as bytes. The start of a run needs only some of them, and compares most of these as bytes."""
        if len(self.raw_headers) < len(pairs):
            self.raw_headers = _join_repeated(pairs)
        self._headers: dict[str, str] | None = None
        self._query: dict[str, str] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers, with lower-case names. Repeated headers are joined with commas."""
        if self._headers is None:
            pairs = self.raw_headers.items()
            self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}
        return self._headers

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. If one is repeated, the last value counts. Raises ``Rejected`` for too many."""
        if self._query is None:
            text = self.asgi.get("query_string", b"").decode("latin-1")
            try:
                pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS) if text else ()
            except ValueError:
                message = f"the query has more than {MAX_QUERY_FIELDS} parameters"
                raise Rejected(422, "too_many_parameters", message) from None
            self._query = dict(pairs)
        return self._query


def _join_repeated(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    values: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: b", ".join(found) for name, found in values.items()}


def base_url(request: Request) -> str:
    """Return the URL at which the client reached the app, without a trailing slash."""
    root: str = request.asgi.get("root_path", "").rstrip("/")
    host = request.headers.get("host", "localhost")
    return f"{request.asgi.get('scheme', 'http')}://{host}{quote(root)}"


def matches_etag(request: Request, etag: str) -> bool:
    """Return whether If-None-Match lists this ETag, weak (``W/``) or not."""
    names = request.headers.get("if-none-match")
    listed = [] if names is None else [name.strip().removeprefix("W/") for name in names.split(",")]
    return "*" in listed or etag in listed
