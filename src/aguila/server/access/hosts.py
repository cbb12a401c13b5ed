"""Which ``Host`` headers an app answers to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from aguila.server.errors import Rejected
from aguila.server.request import Request

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_HOST: Final = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]*))(?::[0-9]*)?")
_RESERVED_DOMAINS: Final = frozenset({"example", "invalid", "localhost", "test"})


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
        server = request.asgi.get("server")
        host = request.raw_headers.get(b"host", b"").decode("latin-1")
        if not self.allows(host, server and server[0]):
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


def _host_name(host: str) -> str:
    """Return a normalised host without its port: ``[::1]:80`` is ``::1``, ``Localhost.`` is ``localhost``.

    A host with anything else than digits for a port is returned as it is, and so matches no name.
    """
    found = _HOST.fullmatch(host)
    if found is None:
        return host.lower()  # an IPv6 address without brackets, or nonsense
    return (found[1] or found[2]).lower().removesuffix(".")
