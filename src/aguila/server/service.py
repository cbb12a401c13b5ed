"""Layer: server. One request that was let in, and what all handlers share: the runs, the store, and how to stream.

Below: ``runs`` (what runs), ``responses`` (how it is answered). Above: the handlers in ``run_routes``,
``thread_routes`` and ``file_routes``. Every store call of theirs carries the scope that the credentials gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

from aguila.agent.chat_values import FILE_PROVIDER
from aguila.codec import encode
from aguila.codec.dialects import UNDECLARED, Dialect, Link, dialect_of
from aguila.codec.logs import RunLogContext
from aguila.codec.negotiate import negotiate
from aguila.codec.notices import Warn
from aguila.errors import NotFound
from aguila.protocol import AgentCapabilities, FileSource
from aguila.server.auth import Request, base_url
from aguila.server.errors import draining
from aguila.server.http.body_limits import Admission
from aguila.server.http.responses import EventStream, Framing, Receive, Streams, framing_for
from aguila.server.limits import Limits
from aguila.server.runs.manager import STOP_NOW_TIMEOUT, Runs
from aguila.server.tanstack.events import TanStackFraming, is_tanstack
from aguila.store import Store
from aguila.stream.version import consumer_version_notice

_LAST_READS = 2.0
"""Seconds that viewers get to read the end of runs that were drained."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was let in, and who asks. ``headers`` belong on every answer to it."""

    request: Request
    receive: Receive
    scope: str
    principal: Any
    headers: Sequence[tuple[bytes, bytes]]
    params: Sequence[str]
    agent: str | None = None
    """The agent that the path names. Only its threads are visible then."""
    is_owner: bool = True
    """Whether the caller may list, change and delete threads, and use files."""


class Service:
    """What the handlers of one app work with."""

    def __init__(
        self,
        runs: Runs,
        *,
        agents: Sequence[str],
        limits: Limits,
        capabilities: Mapping[str | None, AgentCapabilities],
        headers_allowed: Sequence[str],
        heartbeat: float,
        disconnect_grace: float | None,
        undeclared: Dialect = UNDECLARED,
        serves_files: bool = False,
        warn: Warn,
    ) -> None:
        self.runs = runs
        self.store: Store = runs.store
        self.limits = limits
        self.admission = Admission(limits.at_once)
        self.agents = list(agents)
        self.capabilities = {name: encode(declared) for name, declared in capabilities.items()}
        """The declaration of each agent, and of the app at None."""
        self.headers_allowed = [name.lower() for name in headers_allowed]
        self.warn = warn
        self.is_stuck = False
        """Whether a stream did not end with the drain, because nobody reads it."""
        self._streams = Streams(heartbeat)
        self._grace = disconnect_grace
        self._undeclared = undeclared
        self._serves_files = serves_files

    async def drain(self) -> None:
        """Drain the runs, let their viewers read the end, then end the streams that are left.

        Those are slow, or what they watch goes on in another process: they may come back elsewhere.
        """
        await self.runs.drain()
        self.is_stuck = not await self._streams.end(
            STOP_NOW_TIMEOUT if self.runs.is_stopping_now else _LAST_READS, STOP_NOW_TIMEOUT
        )

    def stop_now(self) -> None:
        """Have a drain that is on end at once: runs are cancelled, and streams broken off."""
        self.runs.stop_now()
        self._streams.stop_now()

    def agent_of(self, exchange: Exchange) -> str:
        """The agent that a run of this request belongs to: the one in the path, or else the first."""
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
        """Return the framing of one response: the accepted media type, the version that the reader declared.

        Notices about the response name the thread and the run.
        """
        accepted = exchange.request.headers.get("accept")
        if declared is not None:
            notice = consumer_version_notice(declared)
            if notice is not None:
                self.warn(notice)
        elif is_tanstack(exchange.request):
            return TanStackFraming()
        dialect = dialect_of(declared, self._undeclared)
        if dialect.is_current:
            return framing_for(_negotiated(accepted))
        framing = framing_for(_negotiated(accepted), dialect, self._link(exchange.request))
        framing.warn = self.warn
        framing.log_context = RunLogContext(thread_id, run_id)
        return framing

    def _link(self, request: Request) -> Link | None:
        """Return what gives the address of an uploaded file, if this caller may download files."""
        if not self._serves_files:
            return None
        base = base_url(request)

        def link(source: FileSource) -> str | None:
            return f"{base}/files/{quote(source.value)}" if source.provider in (None, FILE_PROVIDER) else None

        return link

    def stream(
        self,
        exchange: Exchange,
        thread_id: str,
        framing: Framing | None = None,
        *,
        unstored: Store | None = None,
        **options: Any,
    ) -> EventStream:
        """An answer that streams a part of the log; ``options`` are those of ``EventStream``.

        Without a ``framing`` the reader sent no input: it may declare its version in the address.

        ``unstored`` is the store of a run that is not stored, which ends with its connection.

        Raises ``Rejected`` when the streams have been ended: one more would keep the server from stopping.
        """
        if self._streams.has_ended:
            raise draining()
        if framing is None:
            framing = self.framing(exchange, exchange.request.query.get("protocolVersion"), thread_id)
        return EventStream(
            framing,
            self.store if unstored is None else unstored,
            exchange.scope,
            thread_id,
            streams=self._streams,
            headers=exchange.headers,
            grace=self._grace if unstored is None else 0.0,
            **options,
        )


_negotiated = lru_cache(256)(negotiate)
