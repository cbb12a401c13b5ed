"""Layer: client. What both twins share: the settings of a client, and the requests that are not runs.

Below: ``exchange``, ``files``. Above: ``asyncio`` and ``sync``. No I/O here: see ``effects``.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from types import NoneType
from typing import Any, ClassVar, Generic, TypeVar, get_args
from urllib.parse import urlencode, urlsplit
from uuid import uuid4
from weakref import WeakSet

import msgspec

from aguila.chat.tools import AnyTool, Confirm, Toolbox
from aguila.client.arguments import expect, is_async_transport, listed
from aguila.client.drivers.effects import Program
from aguila.client.files import FileLike, mime_type_of, read_file, uploaded_part
from aguila.client.middleware import Middleware
from aguila.client.requests.http_requests import fetch, join_url, merge_headers
from aguila.client.streaming.reconnect import Reconnect
from aguila.client.tools import check_tools
from aguila.client.transports.base import Request, Timeouts
from aguila.codec import MAX_SIZE, decode
from aguila.codec.compat import Level
from aguila.codec.dialects import is_version, predates_versions
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.notice import Notice, Warn, log_notice
from aguila.codec.protobuf import ProtobufDecoder
from aguila.errors import DecodeError, HTTPRejected, TransportFailed
from aguila.protocol import PROTOCOL_VERSION, AgentCapabilities
from aguila.protocol.parts import MediaPart

TransportT = TypeVar("TransportT")

_WRONG_TWIN = {
    True: "{} is for Client, and would block the event loop",
    False: "{} is for AsyncClient; ThreadedTransport in aguila.client.transports.threaded makes one for Client of it",
}

Auth = str | Mapping[str, str] | Callable[[], Any]
"""A token, headers, or a function that gives either; for ``AsyncClient`` it may be async."""


class Memory:
    """What a client has learnt about its server."""

    def __init__(self) -> None:
        self.gives_ids = False


class Settings(msgspec.Struct, kw_only=True):
    """How a client works; see ``ClientBase`` for the meaning."""

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
    new_id: Callable[[], str]
    now: Callable[[], datetime]
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random
    memory: Memory = msgspec.field(default_factory=Memory)

    def route(self, *segments: str) -> str:
        """The address of something below the endpoint."""
        return join_url(self.url, segments)

    def stream_route(self, *segments: str) -> str:
        """Return the address of a stream below the endpoint, with the protocol version that an input would declare."""
        url = self.route(*segments)
        if predates_versions(self.peer_version):
            return url
        return f"{url}{'&' if '?' in url else '?'}protocolVersion={PROTOCOL_VERSION}"

    @property
    def accept(self) -> str:
        """What we can read. Always said: a client that says nothing is taken to read everything (PB-1, PY-3)."""
        return f"{PROTOBUF_MEDIA_TYPE}, {SSE_MEDIA_TYPE}" if self.protobuf else SSE_MEDIA_TYPE


class ClientBase(ABC, Generic[TransportT]):
    """The parameters of a client.

    ``url`` is the agent's endpoint: runs are POSTed to exactly this address, our server's other routes are below it.
    ``transport`` carries the requests; ``options`` are for the default one (``proxy``, ``http2``, ``verify``, ...).
    ``headers`` go with every request. ``auth`` is a token to send as ``Bearer``, or headers, or a function that gives
    either and is asked before every attempt, reconnecting included; what it raises is ``AuthFailed``. ``tools`` are
    offered in every run; ``confirm`` is asked before each call of one (see ``tool``). ``middleware`` sees every input,
    from first to last, and every raw event, from last to first. ``protobuf`` asks for the binary transport; either is
    read. ``peer_version`` is for an older server: what it is sent has that version's form. ``compat`` says how much of
    older forms is understood. ``reconnect`` is None for never. ``max_rounds`` limits how often a run is continued with
    tool results. ``refresh_stale`` fetches the thread after a run in which a state patch did not apply. ``warn``
    receives a notice for everything tolerated (default: the ``aguila`` logger).

    Raises TypeError or ValueError, with the parameter's name, for what it cannot be.
    """

    _is_async: ClassVar[bool]

    def __init__(
        self,
        url: str,
        *,
        transport: TransportT | None = None,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        tools: Iterable[AnyTool] = (),
        confirm: Confirm | None = None,
        middleware: Sequence[Middleware] = (),
        protobuf: bool = False,
        peer_version: str | None = None,
        compat: Level = "standard",
        timeouts: Timeouts | None = None,
        reconnect: Reconnect | None = Reconnect(),  # noqa: B008 - frozen
        max_rounds: int = 10,
        refresh_stale: bool = False,
        warn: Warn | None = None,
        max_size: int = MAX_SIZE,
        new_id: Callable[[], str] | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        expect("url", url, str, "the agent's address as text")
        expect("headers", headers, (Mapping, NoneType), "a mapping of names to values")
        expect("timeouts", timeouts, (Timeouts, NoneType), "Timeouts(...)")
        expect("reconnect", reconnect, (Reconnect, NoneType), "Reconnect(...) or None")
        expect("peer_version", peer_version, (str, NoneType), "a version as text")
        expect("max_rounds", max_rounds, int, "a number")
        if confirm is not None and not callable(confirm):
            expect("confirm", confirm, (), "a function")
        if compat not in get_args(Level):
            raise ValueError(f"compat: expected one of {', '.join(get_args(Level))}, got {compat!r}")
        if peer_version is not None and not is_version(peer_version):
            raise ValueError(f"peer_version: expected a version such as '0.0.45' or '1.0', got {peer_version!r}")
        if is_async_transport(transport) is (not self._is_async):
            raise TypeError(f"transport: {_WRONG_TWIN[self._is_async].format(type(transport).__name__)}")
        if iscoroutinefunction(auth) and not self._is_async:
            raise TypeError("auth: it is async, which only AsyncClient can wait for")
        stages = listed("middleware", middleware, "middleware, such as Record(...)")
        if protobuf:
            ProtobufDecoder()  # raises MissingExtra now and not in the middle of a run
        self.url = url
        self._auth = auth_function(auth)
        self._closed = threading.Event()
        self._drivers: WeakSet[Any] = WeakSet()  # of programs that are on, in the async twin: to be ended
        self._settings = Settings(
            url=url,
            headers=dict(headers or {}),
            timeouts=timeouts or Timeouts(),
            reconnect=reconnect,
            protobuf=protobuf,
            peer_version=peer_version,
            compat=compat,
            tools=check_tools(Toolbox(tools)),
            confirm=confirm,
            middleware=tuple(stages),
            max_rounds=max_rounds,
            refresh_stale=refresh_stale,
            warn=warn or log_notice,
            max_size=max_size,
            new_id=new_id or (lambda: str(uuid4())),
            now=now or (lambda: datetime.now(UTC)),
        )
        self._transport: TransportT = self._default_transport(options or {}) if transport is None else transport

    @abstractmethod
    def _default_transport(self, options: Mapping[str, Any]) -> TransportT: ...

    def _check_open(self, error: Exception | None = None) -> None:
        """Raise ``TransportFailed`` if the client was closed: then that is why something failed, whatever it was."""
        if self._closed.is_set():
            raise TransportFailed("the client was closed", was_sent=error is not None) from error

    def _told_of(self, error: Exception) -> TransportFailed:
        """A failure that a program is told of, to make the best of it. Raises any other."""
        self._check_open(error)
        if not isinstance(error, TransportFailed):
            raise error
        return error

    def _capabilities_program(self) -> Program[AgentCapabilities | None]:
        settings = self._settings
        request = Request(method="GET", url=settings.route("capabilities"), headers=json_headers(settings))
        try:
            _, body = yield from fetch(settings, request)
            return decode(body, AgentCapabilities, compat=settings.compat, warn=settings.warn)
        except (HTTPRejected, TransportFailed, DecodeError) as error:
            # None of our business stops here: a declaration that is missing or wrong is no declaration (CAP-9, CAP-10).
            settings.warn(Notice(rule="CAP-10", message=f"no capabilities: {error}"))
            return None

    def _upload_program(
        self, source: FileLike, mime_type: str | None, filename: str | None, thread_id: str | None
    ) -> Program[MediaPart]:
        settings = self._settings
        data, filename = read_file(source, filename)
        mime_type = mime_type or mime_type_of(data, filename)
        request = upload_request(settings, data, mime_type, filename, thread_id)
        _, body = yield from fetch(settings, request)
        try:
            return uploaded_part(msgspec.json.decode(body), mime_type, filename)
        except (ValueError, RecursionError) as error:  # msgspec's errors and Unicode's are ValueErrors
            raise DecodeError(
                f"the server's answer to the upload cannot be understood: {error}", rule="json"
            ) from error


def json_headers(settings: Settings, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Headers of a request for a document."""
    return merge_headers(settings.headers, extra, {"Accept": "application/json"})


def upload_request(
    settings: Settings, data: bytes, mime_type: str, filename: str | None, thread_id: str | None
) -> Request:
    """A file as the body of a request, with its name, and the thread it is to be deleted with, in the query."""
    url = urlsplit(settings.route("files"))
    told = {"filename": filename, "threadId": thread_id}
    query = urlencode({name: value for name, value in told.items() if value is not None})
    url = url._replace(query="&".join(piece for piece in (url.query, query) if piece))
    headers = merge_headers(json_headers(settings), {"Content-Type": mime_type})
    return Request(method="POST", url=url.geturl(), headers=headers, body=data)


def auth_function(auth: Any) -> Callable[[], Any] | None:
    """``auth`` as a function to ask. Raises TypeError."""
    if auth is None or callable(auth):
        return auth
    auth_headers(auth)  # raises for what it cannot be
    return lambda: auth


def auth_headers(given: Any) -> dict[str, str]:
    """What ``auth`` is or gave, as headers: a token, headers, or nothing. Raises TypeError for anything else."""
    if given is None:
        return {}
    if isinstance(given, str):
        return {"Authorization": f"Bearer {given}"}
    expect("auth", given, Mapping, "a token, headers, or a function that gives either")
    return dict(given)
