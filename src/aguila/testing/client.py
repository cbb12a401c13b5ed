"""Layer: testing. A client for an agent or an app in the same process: no sockets, no ports, no server to start.

Below: ``aguila.client`` over its ASGI transport, ``aguila.server`` for an agent. An agent needs the extra ``server``;
an application of your own needs none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aguila.errors import MissingExtra

if TYPE_CHECKING:
    from aguila.client import AsyncClient, Client
    from aguila.client.transports.base import AsyncTransport

URL = "http://agent.test"
"""Where the agent seems to be."""

Wrap = Callable[[Any], Any]
"""Makes a transport of another, such as ``Chaos(seed=1).wrap``."""


class ClientMaker(Protocol):
    """What the fixture ``agui_client`` gives: ``sync_client_for``, and the client is closed after the test."""

    def __call__(self, target: Any, *, url: str = URL, wrap: Wrap | None = None, **options: Any) -> Client:
        """A client for an agent or an app."""
        ...


def client_for(target: Any, *, url: str = URL, wrap: Wrap | None = None, **options: Any) -> AsyncClient:
    """An ``AsyncClient`` for an agent, an ``App``, or any ASGI application; ``options`` are the client's.

    An agent is served from memory, and the texts of its exceptions are shown. ``url`` says where in an application the
    agent is mounted. ``wrap`` is put around the transport. Close the client, or use it as a context manager: that ends
    the application, too. Raises TypeError for what is neither an agent nor an application.
    """
    make = _transport(target, wrap)
    from aguila.client import AsyncClient

    return AsyncClient(url, transport=make(), **options)


def sync_client_for(target: Any, *, url: str = URL, wrap: Wrap | None = None, **options: Any) -> Client:
    """``client_for`` without asyncio: the agent runs in a thread."""
    make = _transport(target, wrap)
    from aguila.client import Client
    from aguila.client.transports.threaded import ThreadedTransport

    return Client(url, transport=ThreadedTransport(make), **options)


def _transport(target: Any, wrap: Wrap | None) -> Callable[[], AsyncTransport]:
    from aguila.client.arguments import expect
    from aguila.client.transports.asgi import ASGITransport

    if isinstance(target, str):
        raise TypeError("target: expected an agent or an ASGI application, got an address; Client(url) calls it there")
    expect("target", target, Callable, "an agent or an ASGI application")
    app = target if is_asgi(target) else _serve(target)

    def make() -> AsyncTransport:
        transport = ASGITransport(app)
        return transport if wrap is None else wrap(transport)

    return make


def _serve(agent: Any) -> Any:
    try:
        from aguila.server import App
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "aguila":
            raise
        raise MissingExtra("server", package) from error
    from aguila.store import MemoryStore

    return App(agent, store=MemoryStore(), allow_anonymous=True, debug=True)


def is_asgi(target: Any) -> bool:
    """Whether something is an ASGI application rather than an agent: it takes a scope, receive and send."""
    call = target if inspect.isroutine(target) else getattr(target, "__call__", target)  # noqa: B004 - it is looked at
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
    ]
    return len(needed) == 3
