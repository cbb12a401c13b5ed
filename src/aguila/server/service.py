"""The objects that the handlers of an app share: the runs, the store, the limits and the open streams."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any
from urllib.parse import quote

import msgspec

from aguila.agent.chat_values import FILE_PROVIDER
from aguila.codec import encode
from aguila.codec.dialects import Link, dialect_of
from aguila.codec.logs import RunLogContext
from aguila.codec.negotiate import SSE_MEDIA_TYPE, negotiate
from aguila.codec.notices import Warn
from aguila.errors import NotFound, StoreUnavailable
from aguila.protocol import PROTOCOL_VERSION, AgentCapabilities, FileSource
from aguila.server.errors import draining_error
from aguila.server.file_types import FileTypes
from aguila.server.http.body_limits import BodyBudget
from aguila.server.http.event_stream import EventStream, OpenStreams, StreamPlan
from aguila.server.http.framing import CURRENT_SSE, Framing, framing_for
from aguila.server.http.responses import Receive, UnsentBytes
from aguila.server.limits import Limits, is_encodable
from aguila.server.quotas import PeerQuotas
from aguila.server.request import Request, base_url
from aguila.server.runs.manager import STOP_NOW_TIMEOUT, Runs
from aguila.server.runs.starting.capacity import PeerRuns
from aguila.server.settings import HTTPSettings
from aguila.server.tanstack.events import TanStackFraming, is_tanstack
from aguila.store import Store
from aguila.stream.version import consumer_version_notice

_log = logging.getLogger("aguila.server")

_LAST_READS = 2.0
"""Seconds that viewers have to read the end of drained runs."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One authenticated request, without its body, for a handler."""

    request: Request
    receive: Receive
    scope: str
    """The tenant of the request. Every store call of a handler carries it."""
    principal: Any
    headers: Sequence[tuple[bytes, bytes]]
    """Headers that every response to the request carries."""
    params: Sequence[str]
    """The ids in the path."""
    agent: str | None = None
    """The agent that the path names. If it is set, only threads of this agent are visible."""
    is_owner: bool = True
    """Whether the caller may list, change and delete threads, and use files."""

    @property
    def counted_address(self) -> str | None:
        """The address of a caller without credentials; None for this machine: a loopback address or a Unix socket.

        Of an IPv6 address it is the network of 64 bits, because a visitor has all addresses of one.
        """
        client = self.request.asgi.get("client")
        if self.principal is not None or client is None or not client[0]:
            return None
        return _counted(client[0])

    @property
    def peer(self) -> str:
        """The scope and the address of the caller, for fair queues."""
        client = self.request.asgi.get("client")
        return f"{self.scope} {'' if client is None else client[0]}"


def _counted(address: str) -> str | None:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return None
    return str(parsed if parsed.version == 4 else ipaddress.IPv6Network((parsed, 64), strict=False))


class Service:
    """The running app, as its handlers see it. It belongs to one event loop."""

    def __init__(
        self,
        runs: Runs,
        *,
        agents: Sequence[str],
        limits: Limits,
        capabilities: Mapping[str | None, AgentCapabilities],
        http: HTTPSettings,
        serves_files: bool,
        warn: Warn,
    ) -> None:
        self.runs = runs
        self.store: Store = runs.store
        self.file_types = FileTypes(runs.store)
        self.limits = limits
        self.body_budget = BodyBudget(limits.at_once)
        self.agents = list(agents)
        self.capabilities = {name: encode(declared) for name, declared in capabilities.items()}
        """The encoded capabilities of each agent; those of the app are at None."""
        self.headers_allowed = [name.lower() for name in http.headers_allowed]
        self.warn = warn
        self.is_stuck = False
        """Whether a stream is still open after the drain, because its client does not read."""
        self.peer_runs = PeerRuns(limits.runs_per_peer)
        self.peer_quotas = PeerQuotas(limits)
        self.unsent = UnsentBytes(limits.unsent)
        self._streams = OpenStreams(http.heartbeat, limits.write_seconds)
        self._cancel_after = http.cancel_after
        self._undeclared = http.undeclared_dialect
        self._serves_files = serves_files
        self._checking = asyncio.Lock()
        self._checked_at = -inf
        self._check_error: StoreUnavailable | None = None
        self._has_warned_of_proxy = False

    async def drain(self) -> None:
        """Drain the runs, let their viewers read the end, then end the streams that are left.

        Those have slow clients, or follow a run of another process: their clients may reconnect elsewhere.
        """
        await self.runs.drain()
        self.is_stuck = not await self._streams.close(
            STOP_NOW_TIMEOUT if self.runs.is_stopping_now else _LAST_READS, STOP_NOW_TIMEOUT
        )

    async def check_store(self) -> None:
        """Check that the store can write: one check at a time, and none for a second after the last.

        Raises ``StoreUnavailable``.
        """
        loop = asyncio.get_running_loop()
        async with self._checking:
            # The result counts for a second, unless a run has seen the opposite since.
            if loop.time() - self._checked_at < 1.0 and self.runs.store_health.is_failing == (
                self._check_error is not None
            ):
                if self._check_error is None:
                    return
                raise StoreUnavailable(str(self._check_error)) from self._check_error
            try:
                await self.runs.maintenance.check_store()
            except StoreUnavailable as error:
                self._check_error = error
                raise
            else:
                self._check_error = None
            finally:
                self._checked_at = loop.time()

    def stop_now(self) -> None:
        """Shorten a drain in progress: cancel the runs and end the streams."""
        self.runs.stop_now()
        self._streams.stop_now()

    def note_forwarded(self, request: Request) -> None:
        """Log once if a request was forwarded by a proxy that the server does not trust: its visitors share limits."""
        client = request.asgi.get("client")
        address = "" if client is None else client[0]
        forwarded = [one.strip() for one in request.raw_headers[b"x-forwarded-for"].decode("latin-1").split(",")]
        is_trusted = address != "" and any(
            one == address or one.startswith((f"{address}:", f"[{address}]")) for one in forwarded
        )
        if is_trusted or self._has_warned_of_proxy:
            return
        self._has_warned_of_proxy = True
        what = (
            "a request from %s has X-Forwarded-For, but that address is not trusted as a proxy, so its visitors have no"
        )
        what += " addresses of their own; name the proxy with --forwarded-allow-ips"
        _log.warning(what, address or "a Unix socket")

    def select_headers(self, request: Request) -> dict[str, str]:
        """Return the headers of a request that agents may see."""
        return {name: request.headers[name] for name in self.headers_allowed if name in request.headers}

    def agent_of(self, exchange: Exchange) -> str:
        """Return the agent that the path names, or else the first one."""
        return self.agents[0] if exchange.agent is None else exchange.agent

    async def check_agent(self, exchange: Exchange, thread_id: str) -> None:
        """Raise ``NotFound`` if the path names an agent and the thread belongs to another one."""
        if exchange.agent is None:
            return
        try:
            summary = await self.store.thread(exchange.scope, thread_id)
        except NotFound:
            return
        if summary.agent != exchange.agent:
            raise NotFound(f"agent {exchange.agent!r} has no thread {thread_id!r}; it belongs to {summary.agent!r}")

    def framing(self, exchange: Exchange, declared: str | None, thread_id: str, run_id: str | None = None) -> Framing:
        """Return the framing for the accepted media type and the protocol version that the reader declared.

        Notices about the response name the thread and the run.
        """
        media_type = choose_media_type(exchange.request, declared)
        if declared == PROTOCOL_VERSION and media_type == SSE_MEDIA_TYPE:
            return CURRENT_SSE
        if declared is not None:
            notice = consumer_version_notice(declared)
            if notice is not None:
                self.warn(notice)
        elif is_tanstack(exchange.request):
            return TanStackFraming()
        dialect = dialect_of(declared, self._undeclared)
        if dialect.is_current:
            return framing_for(media_type)
        framing = framing_for(media_type, dialect, self._link(exchange.request), max_held=self.limits.held)
        framing.warn = self.warn
        framing.log_context = RunLogContext(thread_id, run_id)
        return framing

    def _link(self, request: Request) -> Link | None:
        """Return a function that makes the URL of an upload; None if the caller may not download files."""
        if not self._serves_files:
            return None
        base = base_url(request)

        def link(source: FileSource) -> str | None:
            if source.provider not in (None, FILE_PROVIDER) or not is_encodable(source.value):
                return None  # no stored id has a lone surrogate
            return f"{base}/files/{quote(source.value)}"

        return link

    def stream(
        self, exchange: Exchange, plan: StreamPlan, framing: Framing, *, unstored: Store | None = None
    ) -> EventStream:
        """Make the response that streams a part of the log.

        ``unstored`` is the store of a run that is not stored; that run is cancelled when the stream ends.

        Raises ``Rejected`` if the streams were closed: another stream would keep the server from stopping.
        """
        if self._streams.is_closed:
            raise draining_error()
        return EventStream(
            plan,
            framing,
            self.store if unstored is None else unstored,
            exchange.scope,
            streams=self._streams,
            headers=exchange.headers,
            grace=self._cancel_after if unstored is None else 0.0,
        )


def choose_media_type(request: Request, declared: str | None) -> str:
    """Return the media type of a stream for a reader that declared this protocol version, or none.

    A reader that declares none gets protobuf only if it accepts nothing else: the protobuf decoders of
    ``@ag-ui/client`` 0.0.40 to 0.0.59 cannot read all tools, reasoning and activities.
    """
    accepted = request.raw_headers.get(b"accept")
    return negotiate(None if accepted is None else accepted.decode("latin-1"), prefers_sse=declared is None)
