"""The parameters of both clients, and their requests that are not runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from types import NoneType
from typing import Any, ClassVar, Generic, get_args
from uuid import uuid4

from aguila.chat.tools import AnyTool, Confirm, Toolbox
from aguila.client.arguments import expect, is_async_transport, listed
from aguila.client.drivers.actions import Program
from aguila.client.files import FileLike, mime_type_of, read_file, uploaded_part
from aguila.client.middleware import Middleware
from aguila.client.requests.http_requests import fetch
from aguila.client.requests.urls import add_query, merge_headers
from aguila.client.settings import Auth, ClientCore, Settings, TransportT, auth_function
from aguila.client.streaming.reconnect_policy import Reconnect
from aguila.client.tools import check_tools
from aguila.client.transports.base import Request, Timeouts
from aguila.codec import MAX_SIZE, decode
from aguila.codec.compat import Level
from aguila.codec.dialects import is_version
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.codec.protobuf import ProtobufDecoder
from aguila.errors import DecodeError, HTTPRejected, TransportFailed
from aguila.protocol import AgentCapabilities
from aguila.protocol.parts import MediaPart

_WRONG_CLIENT = {
    True: "{} is for Client, and would block the event loop",
    False: "{} is for AsyncClient; wrap it for Client with ThreadedTransport of aguila.client.transports",
}


class ClientBase(ABC, Generic[TransportT]):
    """Base of ``Client`` and ``AsyncClient``.

    ``url`` is the agent's endpoint: runs are POSTed to exactly this URL. Other routes of our server are below it.
    ``transport`` carries the requests; ``options`` are for the default one (``proxy``, ``http2``, ``verify``, ...).
    ``headers`` are sent with every request. ``auth`` is a bearer token, headers, or a function that returns either. It
    is called before every attempt, and its exceptions become ``AuthFailed``. ``tools`` are offered in every run, and
    ``confirm`` is called before each call of one (see ``tool``). ``middleware`` sees every input, from first to last,
    and every raw event, from last to first. ``protobuf`` requests the binary transport; SSE is read as well.
    ``peer_version`` is the protocol version of an older server, and requests have its form. ``compat`` says how many
    older forms are accepted. ``reconnect`` says when to reconnect, None never. ``max_rounds`` limits how often a run is
    continued with tool results. ``refresh_stale`` fetches the thread after a run in which a state patch did not apply.
    ``max_size`` limits one event in bytes. ``max_events``, ``max_bytes`` and ``max_seconds`` limit what one run, or one
    document, may send; beyond them ``LimitExceeded`` is raised. ``warn`` receives a notice of everything that was
    tolerated; by default it is logged.

    Raise TypeError or ValueError with the name of an invalid parameter.
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
        max_events: int = 10_000_000,
        max_bytes: int = 4 * 1024 * 1024 * 1024,
        max_seconds: float = 24 * 3600.0,
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
            raise TypeError(f"transport: {_WRONG_CLIENT[self._is_async].format(type(transport).__name__)}")
        if iscoroutinefunction(auth) and not self._is_async:
            raise TypeError("auth: the function is async; only AsyncClient can await it")
        stages = listed("middleware", middleware, "middleware, such as Record(...)")
        if protobuf:
            ProtobufDecoder()  # raises MissingExtra now and not in the middle of a run
        self.url = url
        credentials = auth_function(auth)
        settings = Settings(
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
            max_events=max_events,
            max_bytes=max_bytes,
            max_seconds=max_seconds,
            new_id=new_id or (lambda: str(uuid4())),
            now=now or (lambda: datetime.now(UTC)),
        )
        if transport is None:
            transport = self._default_transport(settings.timeouts, options or {})
        self._core: ClientCore[TransportT] = ClientCore(settings, transport, credentials)

    @property
    def settings(self) -> Settings:
        """The parameters of this client, with their defaults."""
        return self._core.settings

    @property
    def transport(self) -> TransportT:
        """The transport that carries the requests."""
        return self._core.transport

    @abstractmethod
    def _default_transport(self, timeouts: Timeouts, options: Mapping[str, Any]) -> TransportT: ...

    def _capabilities_program(self) -> Program[AgentCapabilities | None]:
        settings = self.settings
        request = Request(method="GET", url=settings.route("capabilities"), headers=settings.json_headers())
        try:
            _, body = yield from fetch(settings, request)
            return decode(body, AgentCapabilities, compat=settings.compat, warn=settings.warn)
        except (HTTPRejected, TransportFailed, DecodeError) as error:
            # Capabilities are optional: missing or invalid ones are none (CAP-9, CAP-10).
            settings.warn(Notice(rule="CAP-10", message=f"no capabilities: {error}"))
            return None

    def _upload_program(
        self, source: FileLike, mime_type: str | None, filename: str | None, thread_id: str | None
    ) -> Program[MediaPart]:
        settings = self.settings
        data, filename = read_file(source, filename)
        mime_type = mime_type or mime_type_of(data, filename)
        _, body = yield from fetch(settings, upload_request(settings, data, mime_type, filename, thread_id))
        try:
            return uploaded_part(decode_json(body), mime_type, filename)
        except (ValueError, RecursionError) as error:  # msgspec's errors and Unicode's are ValueErrors
            raise DecodeError(f"the response to the upload is invalid: {error}", rule="json") from error


def upload_request(
    settings: Settings, data: bytes, mime_type: str, filename: str | None, thread_id: str | None
) -> Request:
    """Build the request of an upload. The query has the file name, and the thread that the file is deleted with."""
    url = add_query(settings.route("files"), {"filename": filename, "threadId": thread_id})
    headers = merge_headers(settings.json_headers(), {"Content-Type": mime_type})
    return Request(method="POST", url=url, headers=headers, body=data)
