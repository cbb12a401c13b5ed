"""Which requests an app answers, and who sends them: host, origin, credentials, owner.

A thread id is not a credential: a request sees the scope that the ``authenticate`` hook returns, and nothing else.
Without a hook all callers are anonymous and share one scope.
"""

from __future__ import annotations

import inspect
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec
from starlette.exceptions import HTTPException

from aguila.codec.logs import log_event
from aguila.server.config.errors import Rejected
from aguila.server.config.limits import Limits
from aguila.server.config.options import check_list
from aguila.server.http.request import Request
from aguila.server.http.responses import Headers
from aguila.server.runs.admission import anonymous_quota, storage_quotas
from aguila.store import Quotas

if TYPE_CHECKING:
    from aguila.server.http.routes import Endpoint

_log = logging.getLogger("aguila.server")

ANONYMOUS = "anonymous"
"""The scope of every request to an app without an ``authenticate`` hook."""
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")

_HOST: Final = re.compile(r"\A(?:\[([^\]]+)\]|([^:\[\]]*))(?::[0-9]*)?\Z")
"""A host and its port, if the port consists of digits. ``[::1]:80`` is ``::1``."""
_RESERVED_DOMAINS: Final = frozenset({"example", "invalid", "localhost", "test"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token of RFC 9110
_MAX_HEADERS: Final = 64
"""How many header names a preflight may ask for."""
_MAX_REFUSED: Final = 100
"""How many refused origins are remembered and logged: a client can make up any number of them."""
_MAX_ORIGIN: Final = 300
"""How many characters of a refused origin are remembered and logged: a host name has at most 253."""


Right = Literal["admin"]
"""What a caller may do besides using its own scope. ``admin``: see and cancel the runs of all scopes."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated caller, which the agent gets as ``run.principal``. It sees the threads of its ``scope``.

    ``limits`` are those of its requests, its runs and its scope, instead of the app's. Limits that count all scopes,
    this process, or callers without credentials, stay those of the app.

    Raises ``ValueError`` for unknown rights.
    """

    scope: str
    name: str | None = None
    claims: dict[str, Any] = {}
    rights: Collection[Right] = ()
    limits: Limits | None = None

    def __post_init__(self) -> None:
        """Refuse unknown rights, a string instead of a set, and limits of another type."""
        if not isinstance(self.limits, Limits | None):
            raise TypeError(f"Principal(limits={self.limits!r}) is no Limits; use limits=Limits(...)")
        if self.rights and not _RIGHTS.issuperset(self.rights):
            raise ValueError(f"Principal(rights={self.rights!r}) has an unknown right; use rights={{'admin'}}")


_RIGHTS: Final = frozenset[str](get_args(Right))

Authenticate = Callable[[Request], Awaitable[Any] | Any]
"""Returns a ``Principal``, a scope, any object with a ``scope``, or None to refuse the request (401)."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a request."""

    scope: str = ANONYMOUS
    """The tenant. Every store call of a handler carries it."""
    principal: Any = None
    limits: Limits
    """The limits of its requests: those of its principal, or of the app."""
    quotas: Quotas | None
    """What its scope and the store may hold."""
    client: str = ""
    """The address of the connection; empty for a Unix socket."""
    address: str | None = None
    """The address of a caller without credentials; None for this machine: a loopback address or a Unix socket."""

    @property
    def peer(self) -> str:
        """The scope and the address of the caller, for fair queues."""
        return f"{self.scope} {self.client}"


class Preflight(Exception):
    """A request is the preflight of a listed origin. It is answered with these headers (204)."""

    def __init__(self, headers: Headers) -> None:
        self.headers = headers


class Access:
    """Which requests an app answers: by host, origin and credentials."""

    def __init__(
        self,
        authenticate: Authenticate | None,
        *,
        allow_anonymous: bool,
        allowed_hosts: Sequence[str] | None,
        cors_origins: Sequence[str],
        limits: Limits,
    ) -> None:
        check_list("allowed_hosts", allowed_hosts)
        check_list("cors_origins", cors_origins)
        self.hosts = Hosts(allowed_hosts, is_anonymous=authenticate is None)
        self.origins = Origins(cors_origins)
        self._limits = limits
        self._quotas = storage_quotas(limits.per_scope, limits.total)
        self._anonymous_quotas = storage_quotas(anonymous_quota(limits), limits.total)
        self.authenticate = authenticate
        """Returns the principal of a request; None if callers need no credentials."""
        self.grants_ownership = authenticate is not None or allow_anonymous
        """Whether callers may list, change and delete threads, and use files."""
        self._has_warned_of_proxy = False

    async def admit(self, request: Request, endpoint: Endpoint) -> Caller:
        """Check host, method, origin, credentials, ownership and right of a request to an endpoint, in this order.

        Raises ``Rejected``, ``Preflight``, or the exception of the hook.
        """
        headers, server = request.headers, request.scope.get("server")
        host = headers.get("host", "")
        if not endpoint.allows_any_host and not self.hosts.allows(host, server and server[0]):
            message = f"Host {host!r} is not in allowed_hosts; add it with App(allowed_hosts=[...])"
            raise Rejected(403, "foreign_host", message)
        if request.method not in endpoint.handlers:
            self.origins.answer_preflight(request, list(endpoint.handlers))
            raise endpoint.refuse_method(request.method)
        if "origin" in headers:
            self.origins.check(request)
        address = request.scope.get("client")
        client: str = "" if address is None else address[0] or ""
        if "x-forwarded-for" in headers and is_untrusted_proxy(client, headers["x-forwarded-for"]):
            self._warn_of_proxy(client)
        principal, scope = None, ANONYMOUS
        if self.authenticate is not None and not endpoint.is_public:
            principal, scope = await identify(self.authenticate, request)
        if request.method in endpoint.needs_owner:
            self.check_owner(request.method)
        if endpoint.right is not None:
            _check_right(principal, endpoint.right)
        visitor = _visitor_address(client) if client and principal is None else None
        limits = self._limits
        quotas = self._anonymous_quotas if principal is None else self._quotas
        if isinstance(principal, Principal) and principal.limits is not None:
            limits = principal.limits
            quotas = storage_quotas(limits.per_scope, self._limits.total)
        return Caller(scope=scope, principal=principal, limits=limits, quotas=quotas, client=client, address=visitor)

    def check_owner(self, method: str) -> None:
        """Raise ``Rejected`` (403) unless callers may see and delete what others have stored."""
        if not self.grants_ownership:
            message = f"anonymous callers may not {method} here; set App(authenticate=...) or App(allow_anonymous=True)"
            raise Rejected(403, "anonymous_not_allowed", message)

    def _warn_of_proxy(self, client: str) -> None:
        """Log once that a request was forwarded by a proxy that the server does not trust."""
        if self._has_warned_of_proxy:
            return
        self._has_warned_of_proxy = True
        what = (
            "a request from %s has X-Forwarded-For, but that address is not trusted as a proxy, so its visitors have no"
        )
        what += " addresses of their own; name the proxy with --forwarded-allow-ips"
        _log.warning(what, client or "a Unix socket")


def _check_right(principal: Any, right: Right) -> None:
    """Raise ``Rejected`` (403) unless the caller has this right.

    Only a ``Principal`` has rights: an attribute of that name on another object may mean something else.
    """
    if not isinstance(principal, Principal) or right not in principal.rights:
        message = f"this route needs the right {right!r}; authenticate gives it: Principal(rights={{{right!r}}})"
        raise Rejected(403, "forbidden", message)


def is_untrusted_proxy(client: str, forwarded: str) -> bool:
    """Return whether a request has X-Forwarded-For from an address that the server does not trust as a proxy.

    The address of a trusted one is replaced by one of the header.
    """
    return not (
        client != ""
        and any(
            one == client or one.startswith((f"{client}:", f"[{client}]"))
            for one in map(str.strip, forwarded.split(","))
        )
    )


def _visitor_address(client: str) -> str | None:
    """Return the address that counts for quotas; None for a loopback address.

    Of an IPv6 address it is the network of 64 bits, because a visitor has all addresses of one.
    """
    parsed = _ip_address(client.partition("%")[0])
    if parsed is None:
        return client
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return None
    return str(parsed if parsed.version == 4 else ipaddress.IPv6Network((parsed, 64), strict=False))


async def identify(authenticate: Authenticate, request: Request) -> tuple[Any, str]:
    """Return the principal of a request and its scope."""
    try:
        principal = authenticate(request)
        if inspect.isawaitable(principal):
            principal = await principal
    except HTTPException as error:  # of Starlette or FastAPI
        if not 400 <= error.status_code < 500:
            raise
        code = {401: "unauthenticated", 403: "forbidden", 429: "too_many_requests"}.get(error.status_code, "refused")
        detail: Any = error.detail
        message = detail if isinstance(detail, str) else "refused"
        raise Rejected(error.status_code, code, message, headers=error.headers) from error
    if principal is None:
        raise Rejected(401, "unauthenticated", "Authentication required.", headers={"www-authenticate": "Bearer"})
    scope = principal if isinstance(principal, str) else getattr(principal, "scope", None)
    if not isinstance(scope, str) or scope == "":
        raise TypeError(
            f"authenticate returned {type(principal).__name__} without a scope; "
            "return a Principal, a non-empty string or None"
        )
    return principal, scope


class Hosts:
    """The host names that requests may use, with any port; ``"*"`` allows all.

    This protects against DNS rebinding: a foreign page whose host name resolves to this machine has the same origin
    for a browser, but its requests carry the foreign host name. None allows the names of the loopback interface only,
    if callers need no credentials or the server listens on a loopback address. Other servers then allow all.

    The address of a server that listens on a Unix socket is a path, or is missing. A test client, such as
    ``httpx.ASGITransport`` or Starlette's ``TestClient``, calls the app directly, and its server address is the host
    name of its URL. That name is allowed by default if public DNS cannot have it, such as ``testserver`` or
    ``app.test``.
    """

    def __init__(self, allowed: Iterable[str] | None, *, is_anonymous: bool) -> None:
        names = LOOPBACK_NAMES if allowed is None else allowed
        self._names = frozenset(_HOST.sub(r"\1\2", name).lower().removesuffix(".") for name in names)
        self._allows_all = "*" in self._names
        self._is_default = allowed is None
        self._is_anonymous = is_anonymous

    def allows(self, host: str, server: Any = None) -> bool:
        """Return whether a host is allowed. Its port is ignored. ``server`` is the address that received a request."""
        name = _HOST.sub(r"\1\2", host).lower().removesuffix(".")
        if self._allows_all or name in self._names:
            return True
        if not self._is_default:
            return False
        address = _ip_address(server)
        if address is not None and address.is_loopback:
            return False
        return not self._is_anonymous or (server == name and _is_private_name(server))


def _ip_address(text: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_private_name(name: str) -> bool:
    """Return whether public DNS cannot have a name: it is a single word, or below a reserved domain (RFC 6761)."""
    return name.rpartition(".")[2] in _RESERVED_DOMAINS or set(name).isdisjoint(".:/")


def _is_same_host(origin: str, host: str) -> bool:
    """Return whether an origin has this host. An origin omits the default port of its scheme; a host may have it."""
    scheme, _, name = origin.partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return name.removesuffix(port) == host.removesuffix(port)


class Origins:
    """The origins whose pages may use the app: its own host, and the listed ones. ``"*"`` lists all."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(origin.rstrip("/") for origin in allowed)
        self.are_listed = bool(self._allowed)
        """Whether responses need CORS headers."""
        self._allows_all = "*" in self._allowed
        self._refused: set[str] = set()

    def check(self, request: Request) -> None:
        """Raise ``Rejected`` (403) if a page of a foreign origin sends a request that may change data (CSRF)."""
        origin = request.headers.get("origin")
        if origin is None or request.method in _SAFE_METHODS or self.is_listed(origin):
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

    def headers(self, origin: bytes) -> Headers:
        """Return the CORS headers of every response to a page of this origin: none unless the origin is listed."""
        vary = (b"vary", b"origin")
        if not self.is_listed(origin.decode("latin-1")):
            return (vary,)
        headers = (vary, (b"access-control-allow-origin", origin))
        return headers if self._allows_all else (*headers, (b"access-control-allow-credentials", b"true"))

    def answer_preflight(self, request: Request, methods: Sequence[str]) -> None:
        """Raise ``Preflight`` if a request is the preflight of a listed origin.

        Every header that the page wants to send is allowed: an agent sees only those in ``headers_allowed``. A refusal
        is logged once for each origin, because the page itself learns only that the request failed.
        """
        origin = request.headers.get("origin")
        if request.method != "OPTIONS" or origin is None or "access-control-request-method" not in request.headers:
            return
        if not self.is_listed(origin):
            self._log_refusal(origin[:_MAX_ORIGIN])
            return
        answer = [(b"access-control-allow-methods", ", ".join(methods).encode())]
        asked = [name.strip() for name in request.headers.get("access-control-request-headers", "").split(",")]
        names = [name for name in asked if _HEADER_NAME.fullmatch(name)][:_MAX_HEADERS]
        if names:
            answer.append((b"access-control-allow-headers", ", ".join(names).encode()))
        raise Preflight([*answer, (b"access-control-max-age", b"600")])

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

    def is_listed(self, origin: str) -> bool:
        """Return whether pages of this origin may use the app from another host."""
        return self._allows_all or origin in self._allowed
