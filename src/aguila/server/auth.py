"""Layer: server. Who asks, whom, and from which page: the authenticate hook, the host and origin checks, CORS.

Below: ``rejection``. Above: ``app``. A thread id is not a credential: what a request may see is the scope that the
application's hook returns, and nothing else. Without a hook everybody is "anonymous", in one scope.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec

from aguila.server.errors import Rejected

ANONYMOUS = "anonymous"
"""The scope of every request to an app without an ``authenticate`` hook."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. ``scope`` decides what they see; ``name`` and ``claims`` are for the agent, as ``run.principal``."""

    scope: str
    name: str | None = None
    claims: dict[str, Any] = {}


class Request:
    """What there is to know of a request before its body is read. ``headers`` has lower-case names."""

    __slots__ = ("_query", "asgi", "headers", "method", "path")

    def __init__(self, asgi: Mapping[str, Any], path: str) -> None:
        self.asgi = asgi
        self.method: str = asgi["method"]
        self.path = path
        """The path below the place where the app is mounted, without a trailing slash; ``/`` for its root."""
        pairs = asgi["headers"]
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
        if len(self.headers) < len(pairs):  # what was sent several times is one list
            self.headers.clear()
            for name, value in pairs:
                key, text = name.decode("latin-1").lower(), value.decode("latin-1")
                self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query parameters; of one that is repeated, the last."""
        if self._query is None:
            text = self.asgi.get("query_string", b"").decode("latin-1")
            self._query = dict(parse_qsl(text, keep_blank_values=True))
        return self._query


def base_url(request: Request) -> str:
    """Return the address at which the client reached the app, without a trailing slash."""
    root: str = request.asgi.get("root_path", "").rstrip("/")
    host = request.headers.get("host", "localhost")
    return f"{request.asgi.get('scheme', 'http')}://{host}{quote(root)}"


Authenticate = Callable[[Request], Awaitable[Any] | Any]
"""Gives a ``Principal``, a scope as a string, or any object with a ``scope``; None refuses with 401."""


async def identify(authenticate: Authenticate, request: Request) -> tuple[Any, str]:
    """The principal and its scope. Raises ``Rejected`` (401), or what the hook raises."""
    try:
        principal = authenticate(request)
        if inspect.isawaitable(principal):
            principal = await principal
    except Exception as error:
        refusal = _refusal_of(error)
        if refusal is None:
            raise
        raise refusal from error
    if principal is None:
        raise Rejected(401, "unauthenticated", "Authentication required.", headers={"www-authenticate": "Bearer"})
    scope = principal if isinstance(principal, str) else getattr(principal, "scope", None)
    if not isinstance(scope, str) or scope == "":
        raise TypeError("authenticate must return a Principal, a scope that is not empty, or None")
    return principal, scope


def _refusal_of(error: Exception) -> Rejected | None:
    """What the ``HTTPException`` of Starlette or FastAPI means, which their users raise where somebody is refused."""
    if not any(
        cls.__name__ == "HTTPException" and cls.__module__.startswith("starlette.") for cls in type(error).__mro__
    ):
        return None  # errors of other libraries have a status too, and are faults here
    status: Any = getattr(error, "status_code", None)
    if not isinstance(status, int) or not 400 <= status < 500:
        return None
    code = {401: "unauthenticated", 403: "forbidden", 429: "too_many_requests"}.get(status, "refused")
    detail: Any = getattr(error, "detail", None)
    headers: Any = getattr(error, "headers", None)
    return Rejected(status, code, detail if isinstance(detail, str) else "refused", headers=headers)


class Hosts:
    """The names by which the app may be called, whatever the port; None allows all.

    A page of a foreign site can have its own name point to this machine (DNS rebinding), and is then a page of the
    same origin to a browser. But its requests still name it as the host.
    """

    def __init__(self, allowed: Iterable[str] | None) -> None:
        self._allowed = None if allowed is None else frozenset(_host_name(host) for host in allowed)

    def allows(self, host: str) -> bool:
        """Whether this is one of them."""
        return self._allowed is None or _host_name(host) in self._allowed

    def check(self, request: Request) -> None:
        """Raise ``Rejected`` for a request that calls us by another name, or by none."""
        if self._allowed is None:
            return
        host = request.headers.get("host", "")
        if not self.allows(host):
            raise Rejected(
                403, "foreign_host", f"Host {host!r} is not in allowed_hosts; add it with App(allowed_hosts=[...])"
            )


def _host_name(host: str) -> str:
    """A host without its port: ``[::1]:80`` and ``::1`` are the same, as are ``Localhost:80`` and ``localhost.``."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    if host.count(":") > 1:
        return host.lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _is_of_host(origin: str, host: str) -> bool:
    """Whether a page is of this host. Origins leave out the port that their scheme has by default, hosts may not."""
    scheme, _, name = origin.partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return name.removesuffix(port) == host.removesuffix(port)


class Origins:
    """Which pages may use the app: those of its own host, and those that are listed (``"*"`` lists all)."""

    def __init__(self, allowed: Iterable[str], headers: Sequence[str]) -> None:
        self._allowed = frozenset(origin.rstrip("/") for origin in allowed)
        self._any = "*" in self._allowed
        names = [
            "accept",
            "authorization",
            "content-type",
            "last-event-id",
            "x-run-id",
            *(name.lower() for name in headers),
        ]
        self._headers = ", ".join(dict.fromkeys(names)).encode("latin-1")

    def check(self, request: Request) -> None:
        """Raise ``Rejected`` for an unsafe request from a foreign page: a browser may have sent it unasked."""
        origin = request.headers.get("origin")
        if origin is None or request.method in _SAFE_METHODS or self._is_listed(origin):
            return
        # A proxy may end TLS, so schemes are not compared. A browser that says same-origin cannot be made to lie.
        host = request.headers.get("host")
        if request.headers.get("sec-fetch-site") == "same-origin" or (
            host is not None and _is_of_host(origin.lower(), host.lower())
        ):
            return
        raise Rejected(403, "foreign_origin", f"pages of {origin} may not use this; list the origin to allow it")

    def headers(self, request: Request) -> list[tuple[bytes, bytes]]:
        """The CORS headers of an answer: none unless the origin is listed."""
        origin = request.headers.get("origin")
        if origin is None or not self._allowed:
            return []
        vary = (b"vary", b"origin")
        if not self._is_listed(origin):
            return [vary]
        found = [vary, (b"access-control-allow-origin", origin.encode("latin-1"))]
        if not self._any:
            found.append((b"access-control-allow-credentials", b"true"))
        return found

    def preflight(self, request: Request, methods: Sequence[str]) -> list[tuple[bytes, bytes]] | None:
        """The headers that answer a preflight request; None if it is none, or is not answered."""
        origin = request.headers.get("origin")
        if request.method != "OPTIONS" or origin is None or "access-control-request-method" not in request.headers:
            return None
        if not self._is_listed(origin):
            return None
        return [
            *self.headers(request),
            (b"access-control-allow-methods", ", ".join(methods).encode()),
            (b"access-control-allow-headers", self._headers),
            (b"access-control-max-age", b"600"),
        ]

    def _is_listed(self, origin: str) -> bool:
        return self._any or origin in self._allowed
