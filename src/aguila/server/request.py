"""A request without its body, as handlers and ``authenticate`` hooks see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote


class Request:
    """A request without its body. ``headers`` has lower-case names."""

    __slots__ = ("_query", "asgi", "headers", "method", "path")

    def __init__(self, asgi: Mapping[str, Any], path: str) -> None:
        self.asgi = asgi
        self.method: str = asgi["method"]
        self.path = path
        """The path below the mount of the app, without a trailing slash; ``/`` for its root."""
        pairs = asgi["headers"]
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
        if len(self.headers) < len(pairs):  # repeated headers are joined with commas
            self.headers.clear()
            for name, value in pairs:
                key, text = name.decode("latin-1").lower(), value.decode("latin-1")
                self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. If one is repeated, the last value counts."""
        if self._query is None:
            text = self.asgi.get("query_string", b"").decode("latin-1")
            self._query = dict(parse_qsl(text, keep_blank_values=True)) if text else {}
        return self._query


def base_url(request: Request) -> str:
    """Return the URL at which the client reached the app, without a trailing slash."""
    root: str = request.asgi.get("root_path", "").rstrip("/")
    host = request.headers.get("host", "localhost")
    return f"{request.asgi.get('scheme', 'http')}://{host}{quote(root)}"
