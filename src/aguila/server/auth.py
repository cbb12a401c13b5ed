"""Check the credentials, the host and the origin of a request, and answer CORS.

A thread id is not a credential: a request sees the scope that the ``authenticate`` hook returns, and nothing else.
Without a hook all callers are anonymous and share one scope.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec

from aguila.server.errors import Rejected
from aguila.server.settings import check_list

ANONYMOUS = "anonymous"
"""The scope of every request to an app without an ``authenticate`` hook."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated caller. ``scope`` decides what it sees. The agent reads all of it as ``run.principal``."""

    scope: str
    name: str | None = None
    claims: dict[str, Any] = {}


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


Authenticate = Callable[[Request], Awaitable[Any] | Any]
"""Returns a ``Principal``, a scope, any object with a ``scope``, or None to refuse the request (401)."""


async def identify(authenticate: Authenticate, request: Request) -> tuple[Any, str]:
    """Return the principal of a request and its scope. Raises ``Rejected`` (401), or what the hook raises."""
    try:
        principal = authenticate(request)
        if inspect.isawaitable(principal):
            principal = await principal
    except Exception as error:
        rejected = _convert_http_exception(error)
        if rejected is None:
            raise
        raise rejected from error
    if principal is None:
        raise Rejected(401, "unauthenticated", "Authentication required.", headers={"www-authenticate": "Bearer"})
    scope = principal if isinstance(principal, str) else getattr(principal, "scope", None)
    if not isinstance(scope, str) or scope == "":
        raise TypeError(
            f"authenticate returned {type(principal).__name__} without a scope; "
            "return a Principal, a non-empty string or None"
        )
    return principal, scope


def _convert_http_exception(error: Exception) -> Rejected | None:
    """Convert an ``HTTPException`` of Starlette or FastAPI with a status below 500; return None for other errors."""
    if not any(
        cls.__name__ == "HTTPException" and cls.__module__.startswith("starlette.") for cls in type(error).__mro__
    ):
        return None  # errors of other libraries may have a status too, but here they are faults
    status: Any = getattr(error, "status_code", None)
    if not isinstance(status, int) or not 400 <= status < 500:
        return None
    code = {401: "unauthenticated", 403: "forbidden", 429: "too_many_requests"}.get(status, "refused")
    detail: Any = getattr(error, "detail", None)
    headers: Any = getattr(error, "headers", None)
    return Rejected(status, code, detail if isinstance(detail, str) else "refused", headers=headers)


LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_RESERVED_DOMAINS: Final = frozenset({"example", "invalid", "localhost", "test"})


class Hosts:
    """The host names that requests may use, with any port; ``"*"`` allows all.

    This protects against DNS rebinding: a foreign page whose host name resolves to this machine has the same origin
    for a browser, but its requests carry the foreign host name. None allows the names of the loopback interface only,
    if callers need no credentials or the server listens on a loopback address. Other servers then allow all.

    A server that listens on a Unix socket tells a path, or nothing. A test client, such as ``httpx.ASGITransport`` or
    Starlette's ``TestClient``, calls the app itself and tells the name in its URL. That name is allowed by default if
    public DNS cannot have it, such as ``testserver`` or ``app.test``.
    """

    def __init__(self, allowed: Iterable[str] | None, *, is_anonymous: bool) -> None:
        names = frozenset(_host_name(host) for host in (LOOPBACK_NAMES if allowed is None else allowed))
        self._allows_all = "*" in names
        self._names = names
        self._is_default = allowed is None
        self._is_anonymous = is_anonymous

    def allows(self, host: str, server: Any = None) -> bool:
        """Return whether a host is allowed. Its port is ignored. ``server`` is the address that received a request."""
        if self._allows_all or _host_name(host) in self._names:
            return True
        if not self._is_default:
            return False
        address = _ip_address(server)
        if address is not None and address.is_loopback:
            return False
        return not self._is_anonymous or (server == _host_name(host) and _is_private_name(server))

    def check(self, request: Request) -> None:
        """Raise ``Rejected`` (403) if the ``Host`` of a request is not allowed, or is missing."""
        if self._allows_all:
            return
        host = request.headers.get("host", "")
        if not self.allows(host, (request.asgi.get("server") or (None,))[0]):
            raise Rejected(
                403, "foreign_host", f"Host {host!r} is not in allowed_hosts; add it with App(allowed_hosts=[...])"
            )


def _ip_address(text: Any) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _is_private_name(name: str) -> bool:
    """Return whether public DNS cannot have a name: it is a single word, or below a reserved domain (RFC 6761)."""
    return name.rpartition(".")[2] in _RESERVED_DOMAINS or set(name).isdisjoint(".:/")


@lru_cache(256)
def _host_name(host: str) -> str:
    """Return a normalised host without its port: ``[::1]:80`` is ``::1``, ``Localhost.`` is ``localhost``."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    if host.count(":") > 1:
        return host.lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _is_same_host(origin: str, host: str) -> bool:
    """Return whether an origin has this host. An origin omits the default port of its scheme; a host may have it."""
    scheme, _, name = origin.partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return name.removesuffix(port) == host.removesuffix(port)


class Origins:
    """The origins whose pages may use the app: its own host, and the listed ones. ``"*"`` lists all."""

    def __init__(self, allowed: Iterable[str], headers: Sequence[str]) -> None:
        self._allowed = frozenset(origin.rstrip("/") for origin in allowed)
        self._allows_all = "*" in self._allowed
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
        """Raise ``Rejected`` (403) for a request from a foreign page that may change something (CSRF)."""
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
        """Return the headers that answer a preflight; None for other requests and for origins that are not listed."""
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
        return self._allows_all or origin in self._allowed


class AccessControl:
    """Which requests an app answers: by host, origin and credentials."""

    def __init__(
        self,
        authenticate: Authenticate | None,
        *,
        allow_anonymous: bool,
        allowed_hosts: Sequence[str] | None,
        cors_origins: Sequence[str],
        headers_allowed: Sequence[str],
    ) -> None:
        check_list("allowed_hosts", allowed_hosts)
        check_list("cors_origins", cors_origins)
        self.hosts = Hosts(allowed_hosts, is_anonymous=authenticate is None)
        self.origins = Origins(cors_origins, headers_allowed)
        self.is_anonymous = authenticate is None
        """Whether callers need no credentials."""
        self.grants_ownership = authenticate is not None or allow_anonymous
        """Whether callers may list, change and delete threads, and use files."""
        self._authenticate = authenticate

    async def identify(self, request: Request) -> tuple[Any, str]:
        """Return the principal of a request and its scope. Raises ``Rejected`` (401), or what the hook raises."""
        return (None, ANONYMOUS) if self._authenticate is None else await identify(self._authenticate, request)
