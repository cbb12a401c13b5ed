"""A client for an agent or an app in the same process, without sockets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from aguila.errors import MissingExtra

if TYPE_CHECKING:
    from aguila.client import AsyncClient, Client
    from aguila.client.transports.base import AsyncTransport
    from aguila.client.transports.threaded import LoopThread

URL = "http://agent.test"
"""The URL that the client uses."""

Wrap = Callable[[Any], Any]
"""Wraps a transport, such as ``Chaos(seed=1).wrap``."""


class ClientMaker(Protocol):
    """The type of the fixture ``agui_client``: ``sync_client_for``, with clients that are closed after the test."""

    def __call__(self, target: Any, *, url: str = URL, wrap: Wrap | None = None, **options: Any) -> Client:
        """Make a client for an agent or an app."""
        ...


def client_for(target: Any, *, url: str = URL, wrap: Wrap | None = None, **options: Any) -> AsyncClient:
    """Make an ``AsyncClient`` for an agent, an ``App``, or any ASGI application. ``options`` are the client's.

    An agent is served with a memory store (extra ``server``), and the client sees the text of its exceptions. ``url``
    has the path of an agent that is mounted in an application. ``wrap`` wraps the transport. Closing the client ends
    the application, too. Raise TypeError for a target that is neither.
    """
    make = _transport(target, wrap)
    from aguila.client import AsyncClient

    return AsyncClient(url, transport=make(), **options)


def sync_client_for(target: Any, *, url: str = URL, wrap: Wrap | None = None, **options: Any) -> Client:
    """Make a ``Client``, as ``client_for`` does. The agent runs in a thread, which all clients of its app share."""
    make = _transport(target, wrap)
    from aguila.client import Client
    from aguila.client.transports.threaded import LoopThread, ThreadedTransport

    thread = _threads.setdefault(target, LoopThread())
    return Client(url, transport=ThreadedTransport(make, thread=thread), **options)


_threads: WeakKeyDictionary[Any, LoopThread] = WeakKeyDictionary()
"""The event loop of each application: it belongs to one, and two clients may stand for two users of it."""


def _transport(target: Any, wrap: Wrap | None) -> Callable[[], AsyncTransport]:
    from aguila.client.arguments import expect
    from aguila.client.transports.asgi import ASGITransport

    if isinstance(target, str):
        raise TypeError("target: expected an agent or an ASGI application, got a string; for a URL use Client(url)")
    expect("target", target, Callable, "an agent or an ASGI application")
    app = target if is_asgi(target) else _serve(target)

    def make() -> AsyncTransport:
        transport = ASGITransport(app)
        return transport if wrap is None else wrap(transport)

    return make


def _serve(agent: Any) -> Any:
    try:
        from aguila.server import App, Sends
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "aguila":
            raise
        raise MissingExtra("server", package) from None
    from aguila.store import MemoryStore

    # One event for each delta: tests compare the events, and how many deltas wait together depends on the machine.
    return App(agent, store=MemoryStore(), allow_anonymous=True, sends=Sends(merge_deltas=False), debug=True)


def is_asgi(target: Any) -> bool:
    """Return whether a target is an ASGI application: it takes scope, receive and send."""
    call = target if inspect.isroutine(target) else getattr(target, "__call__", target)  # noqa: B004 - its signature is needed
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
