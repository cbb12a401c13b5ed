"""The configuration of a client, and the objects that its threads, runs and drivers share."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import msgspec

from aguila.chat.tools import Confirm, Toolbox
from aguila.client.arguments import expect
from aguila.client.middleware import Middleware
from aguila.client.requests.urls import join_url, merge_headers
from aguila.client.streaming.reconnect_policy import Reconnect
from aguila.client.transports.base import Timeouts
from aguila.codec.compat import Level
from aguila.codec.dialects import predates_versions
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.notices import Warn
from aguila.errors import LimitExceeded, TransportFailed
from aguila.protocol import PROTOCOL_VERSION

TransportT = TypeVar("TransportT")

Auth = str | Mapping[str, str] | Callable[[], Any]
"""A token, headers, or a function that returns either. For ``AsyncClient`` the function may be async."""


class Settings(msgspec.Struct, kw_only=True):
    """The parameters of a client, checked and with their defaults. ``ClientBase`` explains them."""

    url: str
    headers: Mapping[str, str]
    timeouts: Timeouts
    reconnect: Reconnect | None
    protobuf: bool
    peer_version: str | None
    compat: Level
    tools: Toolbox
    confirm: Confirm | None
    middleware: tuple[Middleware, ...]
    max_rounds: int
    refresh_stale: bool
    warn: Warn
    max_size: int
    max_events: int
    max_bytes: int
    max_seconds: float
    new_id: Callable[[], str]
    now: Callable[[], datetime]
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random
    server_sends_ids: bool = False
    """Whether an event of the server has had an id. Set when the first one arrives."""

    def route(self, *segments: str) -> str:
        """Return the URL of a route below the endpoint."""
        return join_url(self.url, segments)

    def stream_route(self, *segments: str) -> str:
        """Return the URL of a stream below the endpoint, with the protocol version that an input would declare."""
        url = self.route(*segments)
        if predates_versions(self.peer_version):
            return url
        return f"{url}{'&' if '?' in url else '?'}protocolVersion={PROTOCOL_VERSION}"

    @property
    def accept(self) -> str:
        """The ``Accept`` header. It is always sent: without one, servers may send anything (PB-1, PY-3)."""
        return f"{PROTOBUF_MEDIA_TYPE}, {SSE_MEDIA_TYPE}" if self.protobuf else SSE_MEDIA_TYPE

    def json_headers(self) -> dict[str, str]:
        """Return the headers of a request for a JSON document."""
        return merge_headers(self.headers, {"Accept": "application/json"})


class ClientCore(Generic[TransportT]):
    """The objects that the threads, runs and drivers of one client share."""

    def __init__(self, settings: Settings, transport: TransportT, auth: Callable[[], Any] | None) -> None:
        self.settings = settings
        self.transport = transport
        self.auth = auth
        self.closed = threading.Event()
        self.drivers: WeakSet[Any] = WeakSet()
        """The drivers of the async client, which are interrupted when it is closed."""

    def closing_error(self, error: Exception | None = None) -> TransportFailed:
        """Return the failure of everything after ``close``. ``error`` is the exception that closing has caused."""
        failure = TransportFailed("the client was closed", was_sent=error is not None)
        failure.__cause__ = error
        return failure

    def explain_failure(self, error: Exception) -> Exception:
        """Return the exception of an action, for the program. Raise ``closing_error`` if the client was closed.

        A lack of memory is raised as such, also if a library reports it as a broken connection.
        """
        if self.closed.is_set():
            raise self.closing_error(error)
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, MemoryError):
                raise cause
            cause = cause.__cause__
        return error

    def out_of_memory(self, conversation: Any = None) -> LimitExceeded:
        """Return the error of a response that this process has not enough memory for."""
        most = self.settings.max_bytes
        error = LimitExceeded(
            "max_bytes",
            most,
            "bytes",
            f"there is not enough memory for the response; lower max_bytes ({most}) or max_size "
            f"({self.settings.max_size}) of the client to refuse such responses earlier",
        )
        error.conversation = conversation
        return error


def auth_function(auth: Any) -> Callable[[], Any] | None:
    """Return ``auth`` as a function to call before each attempt. Raise TypeError."""
    if auth is None or callable(auth):
        return auth
    auth_headers(auth)  # raises TypeError
    return lambda: auth


def auth_headers(given: Any) -> dict[str, str]:
    """Return credentials as headers: a token, headers, or none. Raise TypeError for anything else."""
    if given is None:
        return {}
    if isinstance(given, str):
        return {"Authorization": f"Bearer {given}"}
    expect("auth", given, Mapping, "a token, headers, or a function that returns either")
    return dict(given)
