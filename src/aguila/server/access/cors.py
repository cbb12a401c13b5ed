"""Which pages of other origins may use an app, and the CORS headers that tell browsers so."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final

from aguila.codec.logs import log_event
from aguila.server.errors import Rejected
from aguila.server.request import Request

_log = logging.getLogger("aguila.server")

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token of RFC 9110
_MAX_HEADERS: Final = 64
"""How many header names a preflight may ask for."""
_MAX_REFUSED: Final = 100
"""How many refused origins are remembered and logged: a client can make up any number of them."""
_MAX_ORIGIN: Final = 300
"""How many characters of a refused origin are remembered and logged: a host name has at most 253."""


def _is_same_host(origin: str, host: str) -> bool:
    """Return whether an origin has this host. An origin omits the default port of its scheme; a host may have it."""
    scheme, _, name = origin.partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return name.removesuffix(port) == host.removesuffix(port)


class Origins:
    """The origins whose pages may use the app: its own host, and the listed ones. ``"*"`` lists all."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(origin.rstrip("/") for origin in allowed)
        self._allows_all = "*" in self._allowed
        self._refused: set[str] = set()

    def check(self, request: Request) -> None:
        """Raise ``Rejected`` (403) if a page of a foreign origin sends a request that may change data (CSRF)."""
        origin = request.headers.get("origin")
        if origin is None or request.method in _SAFE_METHODS or self._is_listed(origin):
            return
        # Schemes are not compared, because a proxy may end TLS. Pages cannot set Sec-Fetch-Site themselves.
        host = request.headers.get("host")
        if request.headers.get("sec-fetch-site") == "same-origin" or (
            host is not None and _is_same_host(origin.lower(), host.lower())
        ):
            return
        raise Rejected(
            403, "foreign_origin", f"origin {origin!r} is not in cors_origins; add it with App(cors_origins=[...])"
        )

    def headers(self, request: Request) -> list[tuple[bytes, bytes]]:
        """Return the CORS headers of a response: none unless the origin is listed."""
        origin = request.headers.get("origin")
        if origin is None or not self._allowed:
            return []
        vary = (b"vary", b"origin")
        if not self._is_listed(origin):
            return [vary]
        headers = [vary, (b"access-control-allow-origin", origin.encode("latin-1"))]
        if not self._allows_all:
            headers.append((b"access-control-allow-credentials", b"true"))
        return headers

    def preflight(self, request: Request, methods: Sequence[str]) -> list[tuple[bytes, bytes]] | None:
        """Return the headers that answer a preflight; None for other requests and for origins that are not listed.

        Every header that the page wants to send is allowed: an agent sees only those in ``headers_allowed``. A refusal
        is logged once for each origin, because the page itself learns only that the request failed.
        """
        origin = request.headers.get("origin")
        if request.method != "OPTIONS" or origin is None or "access-control-request-method" not in request.headers:
            return None
        if not self._is_listed(origin):
            self._log_refusal(origin[:_MAX_ORIGIN])
            return None
        answer = [*self.headers(request), (b"access-control-allow-methods", ", ".join(methods).encode())]
        asked = [name.strip() for name in request.headers.get("access-control-request-headers", "").split(",")]
        names = [name for name in asked if _HEADER_NAME.fullmatch(name)][:_MAX_HEADERS]
        if names:
            answer.append((b"access-control-allow-headers", ", ".join(names).encode()))
        return [*answer, (b"access-control-max-age", b"600")]

    def _log_refusal(self, origin: str) -> None:
        if origin in self._refused or len(self._refused) >= _MAX_REFUSED:
            return
        self._refused.add(origin)
        message = (
            "a preflight was refused: its origin is not in cors_origins; allow it with App(cors_origins=[...]) or "
            "aguila serve --cors-origin"
        )
        log_event(_log, logging.WARNING, message, origin=origin)
        if len(self._refused) == _MAX_REFUSED:
            log_event(_log, logging.WARNING, "refused preflights of further origins are not logged")

    def _is_listed(self, origin: str) -> bool:
        return self._allows_all or origin in self._allowed
