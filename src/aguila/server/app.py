"""``App``: an agent as an ASGI application.

It works alone, below a ``root_path``, and mounted in Starlette or FastAPI. Without a lifespan it starts with its first
request.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Never

from starlette.types import Message, Receive, Scope, Send

from aguila.codec import encode
from aguila.codec.notices import Warn, log_notice
from aguila.codec.protobuf import ProtobufEncoder, has_protobuf
from aguila.errors import StoreUnavailable
from aguila.protocol import AgentCapabilities
from aguila.server.config.agents import named_agents
from aguila.server.config.capabilities import derive_capabilities
from aguila.server.config.errors import Disconnected
from aguila.server.config.limits import WRITE_SECONDS, Limits
from aguila.server.config.options import Busy, HistoryMode, Sends, Settings, Timing, Trust
from aguila.server.config.removed import APP_OPTIONS, refuse_removed
from aguila.server.frontends.copilotkit import CopilotKit
from aguila.server.frontends.langgraph import LangGraph
from aguila.server.frontends.metrics import Metrics, MetricsRoute
from aguila.server.frontends.page.files import PageFiles
from aguila.server.frontends.page.options import Page, check_trace_url
from aguila.server.frontends.tanstack import TanStack
from aguila.server.http.access import Access, Authenticate, Preflight
from aguila.server.http.errors import error_response, to_rejected
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.openapi.document import build_document
from aguila.server.http.responses import (
    BufferedResponse,
    Headers,
    Response,
    add_headers,
    drop_body,
    json_response,
    limit_writes,
)
from aguila.server.http.routes import build_router, keep_encoded, path_segments
from aguila.server.http.service import Service
from aguila.server.http.stream import EventStream
from aguila.server.runs.runs import Runs
from aguila.server.signals import SignalListener
from aguila.store import MemoryStore, Retention, Store
from aguila.store.locations import MEMORY, make_store
from aguila.telemetry import load_meter
from aguila.telemetry.counts import Counts
from aguila.telemetry.instruments import REFUSALS

_log = logging.getLogger("aguila.server")

_MIN_CLOSE_TIMEOUT = 2.0
"""Minimum seconds for a store to close. A failing store gets only these."""


class App:
    """Serves an agent over AG-UI, or several by name: ``App({"default": agent, "research": other})``.

    ``POST /agents/{name}`` runs one of several agents, ``POST /`` the first. A thread belongs to the agent that
    started it. docs/options.md describes the options; all times are in seconds.

    ``store``: a ``Store``, the path or URL of one (``sqlite:///path``), ``":memory:"``; None is memory, with a warning.
    ``authenticate``: takes a ``Request`` and returns a ``Principal`` or a scope, or None to refuse. Without it all
    callers share one scope, and listing, deleting and files need ``allow_anonymous``.
    ``history``: which side keeps the messages. ``busy``: how a second run on a thread is handled.
    ``cancel_unwatched_after``: cancel a run this long after its last viewer left; None lets it continue.
    ``limits``: sizes, counts and quotas. ``retention``: which threads are deleted or compacted.
    ``timing``: how long the parts of a run may take. ``trust``: which input of clients reaches agents.
    ``sends``: how events are stored and sent.
    ``heartbeat``: how long a stream may be idle before it sends a comment.
    ``drain``: how long runs may continue during shutdown.
    ``allowed_hosts``: the host names that requests may use. ``cors_origins``: the other origins that may use the app.
    ``headers_allowed``: the request headers that agents see.
    ``capabilities``: merged over the derived capabilities.
    ``copilotkit``: serve CopilotKit's runtime contract at this path; True is ``/copilotkit``.
    ``langgraph_interrupts``: also send interrupts as CUSTOM ``on_interrupt``.
    ``page``: show chat and inspector to browsers that open the root of the app; a ``Page`` sets its title, colours and
    login. None: only if ``aguila serve`` serves the app on a loopback address.
    ``metrics``: answer ``GET /metrics`` for Prometheus, on this machine only; a ``Metrics`` sets who else may read it.
    ``trace_url``: the address of a trace, with ``{trace_id}``; the inspector links each run to its trace.
    ``debug``: send the texts of exceptions to clients, and fail a run whose replay differs.
    ``handle_signals``: begin the drain on SIGTERM and SIGINT. Without it only ``begin_drain`` and ``close`` do.
    ``warn``: receives a notice of each deviation that was tolerated.

    Raises ``TypeError`` for an agent that cannot be called with a run, ``ValueError`` for an invalid option.
    """

    def __init__(
        self,
        agent: Any,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        authenticate: Authenticate | None = None,
        allow_anonymous: bool = False,
        history: HistoryMode = "client",
        busy: Busy = "auto",
        cancel_unwatched_after: float | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        retention: Retention | None = None,
        timing: Timing = Timing(),  # noqa: B008 - frozen
        trust: Trust = Trust(),  # noqa: B008 - frozen
        sends: Sends = Sends(),  # noqa: B008 - frozen
        heartbeat: float = 15.0,
        drain: float = 10.0,
        allowed_hosts: Sequence[str] | None = None,
        cors_origins: Sequence[str] = (),
        headers_allowed: Sequence[str] = (),
        capabilities: AgentCapabilities | Mapping[str, Any] | None = None,
        copilotkit: str | bool = False,
        langgraph_interrupts: bool = False,
        page: bool | Page | None = None,
        metrics: bool | Metrics = False,
        trace_url: str | None = None,
        debug: bool = False,
        handle_signals: bool = True,
        warn: Warn = log_notice,
        **removed: Never,
    ) -> None:
        refuse_removed("App", removed, APP_OPTIONS)
        self._agents = named_agents(agent)
        self._settings = Settings(
            history=history,
            busy=busy,
            cancel_unwatched_after=cancel_unwatched_after,
            limits=limits,
            retention=retention,
            timing=timing,
            trust=trust,
            sends=sends,
            heartbeat=heartbeat,
            drain=drain,
            headers_allowed=headers_allowed,
            debug=debug,
        )
        self._access = Access(
            authenticate,
            allow_anonymous=allow_anonymous,
            allowed_hosts=allowed_hosts,
            cors_origins=cors_origins,
            limits=limits,
        )
        self.drain = drain
        self.copilotkit = CopilotKit(copilotkit) if copilotkit else None
        """The path of CopilotKit's routes; None if they are not served."""
        if not isinstance(page, bool | Page | None):
            raise TypeError(f"App(page={page!r}) is neither True, False, None nor a Page")
        if not isinstance(metrics, bool | Metrics):
            raise TypeError(f"App(metrics={metrics!r}) is neither True, False nor Metrics(...)")
        self._page_option = page
        if trace_url is not None:
            check_trace_url(trace_url)
        self._trace_url = trace_url
        self.store = _make_store(store, timing.store_patience)
        self._warns_of_memory = store is None
        self._capabilities = self._derive_capabilities(capabilities, has_names=isinstance(agent, Mapping))
        self._warn = warn
        self._front_ends: list[FrontEnd] = [TanStack(), LangGraph(sends_events=langgraph_interrupts)]
        if self.copilotkit is not None:
            self._front_ends.append(self.copilotkit)
        self.metrics = Metrics() if metrics is True else metrics or None
        """How the metrics are served; None if they are not. ``aguila serve --workers`` sets the folder."""
        if self.metrics is not None:
            self._front_ends.append(MetricsRoute(self.metrics))
        self._counts: Counts | None = None
        self._router = build_router(self._front_ends)
        self.page: PageFiles | None = None
        """The files of the page; None if it is not served."""
        if page:
            self._add_page()
        self._signals = SignalListener(self) if handle_signals else None
        self._service: Service | None = None
        self._starting = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None
        self._is_drain_requested = False  # set by a signal that comes while the app starts
        self.has_siblings = False
        """Whether other processes accept connections from the same socket. ``aguila serve --workers`` sets it.

        Under gunicorn or ``uvicorn --workers`` set it yourself: a worker that stops then leaves new connections to the
        others, where it would refuse new runs.
        """
        if has_protobuf():
            ProtobufEncoder()  # imports the extra, which takes some 30 ms: too long for the event loop

    def _derive_capabilities(
        self, override: AgentCapabilities | Mapping[str, Any] | None, *, has_names: bool
    ) -> dict[str | None, AgentCapabilities]:
        """Derive the capabilities of each agent, and those of the app at None."""
        return {
            agent: derive_capabilities(
                name=agent if has_names else None,
                is_durable=not isinstance(self.store, MemoryStore),
                agent=next(iter(self._agents.values())) if agent is None else self._agents[agent],
                override=override,
            )
            for agent in (None, *self._agents)
        }

    def show_page(self) -> None:
        """Serve the page unless ``page`` was given. ``aguila serve`` calls this on a loopback address."""
        if self._page_option is None:
            self._add_page()

    def _add_page(self) -> None:
        options = self._page_option if isinstance(self._page_option, Page) else None
        self.page = PageFiles(
            allows_anonymous=self._access.grants_ownership, options=options, trace_url=self._trace_url
        )
        self.add_front_end(self.page)

    def add_front_end(self, front_end: FrontEnd) -> None:
        """Serve a front end that needs more than the protocol. Call this before the app starts."""
        self._front_ends.append(front_end)
        self._router = build_router(self._front_ends)

    def openapi(self, address: str = "/") -> dict[str, Any]:
        """Return the routes of the app as an OpenAPI 3.1 document: the one that ``GET /openapi.json`` sends.

        ``address`` is where the app is reached, such as ``/`` or ``https://example.com/agent``.
        """
        has_credentials = self._access.authenticate is not None
        document = build_document(self._router.routes, self._front_ends, has_credentials=has_credentials)
        return {**document, "servers": [{"url": address}]}

    def _encode_openapi(self, address: str) -> bytes:
        return encode(self.openapi(address))

    def is_open_to(self, host: str, *, as_owner: bool = False) -> bool:
        """Return whether the app answers requests to ``host`` without credentials.

        ``as_owner`` asks about listing and deleting threads, and about files.
        """
        access = self._access
        return (
            access.authenticate is None
            and access.hosts.allows(host, "127.0.0.1")
            and (access.grants_ownership or not as_owner)
        )

    # Starting and stopping

    async def start(self) -> None:
        """Open the store and start serving. A second call does nothing. Raises ``StoreUnavailable``."""
        await self._ensure_started()

    async def _ensure_started(self) -> Service:
        service = self._service
        if service is not None:
            if not service.loop.is_closed():
                return service
            self._reset()
        async with self._starting:
            if self._service is None:
                if self._warns_of_memory:
                    _warn_of_memory()
                self._service = await self._start()
                if self._is_drain_requested:
                    self.begin_drain()
            return self._service

    async def _start(self) -> Service:
        if self._counts is None:  # not earlier: each worker has its own, also after a fork
            self._counts = self._make_counts()
        closing = [one.closing for one in self._front_ends if one.closing is not None]
        service = Service(
            Runs(
                self._agents,
                self.store,
                self._settings,
                self._warn,
                closing=lambda event: [one for close in closing for one in close(event)],
                counts=self._counts,
            ),
            agents=list(self._agents),
            settings=self._settings,
            capabilities=self._capabilities,
            front_ends=self._front_ends,
            access=self._access,
            openapi=lru_cache(maxsize=1)(self._encode_openapi),
            warn=self._warn,
            counts=self._counts,
        )
        if self._signals is not None:
            self._signals.install()  # before the slow steps: a run that starts after the signal must be drained too
        try:
            await self.store.open()
            try:
                await service.runs.open()
            except BaseException:
                await self._close_store(_MIN_CLOSE_TIMEOUT)
                raise
        except BaseException:
            if self._signals is not None:
                self._signals.uninstall()
            raise
        return service

    def _make_counts(self) -> Counts | None:
        """Make what the instruments count in; None if neither Prometheus nor OpenTelemetry reads it."""
        forward = load_meter()
        if self.metrics is None and forward is None:
            return None
        folder = None if self.metrics is None else self.metrics.folder
        return Counts(None if folder is None else Path(folder), forward)

    def _reset(self) -> None:
        """Drop the resources of a closed event loop, as after each test without a lifespan."""
        self._service = self._draining = None
        self._is_drain_requested = False
        if self._counts is not None:
            self._counts.reset_gauges()
        self._starting = asyncio.Lock()
        if self._signals is not None:
            self._signals.uninstall()

    async def close(self) -> None:
        """Drain the runs, end the streams and close the store."""
        if self._service is not None and self._service.loop.is_closed():
            self._reset()
            await self.store.close()
        async with self._starting:
            service, draining = self._service, self.begin_drain()
            self._service = None
            self._is_drain_requested = False
        if service is None or draining is None:
            return
        if self._signals is not None:
            self._signals.uninstall()
        await asyncio.shield(draining)
        self._draining = None
        await service.runs.close()
        await self._close_agents()
        is_short = service.runs.store_health.is_failing or service.runs.is_stopping_now
        patience = self._settings.timing.store_patience
        await self._close_store(_MIN_CLOSE_TIMEOUT if is_short else max(_MIN_CLOSE_TIMEOUT, patience))
        if self._counts is not None:
            self._counts.close()
            self._counts = None

    async def _close_agents(self) -> None:
        """Close the agents that hold connections: those with ``aclose``."""
        for agent in self._agents.values():
            close = getattr(agent, "aclose", None)
            if close is None:
                continue
            try:
                async with asyncio.timeout(max(_MIN_CLOSE_TIMEOUT, self.drain)):
                    await close()
            except Exception:  # noqa: BLE001 - the store is closed in any case
                _log.warning("cannot close an agent", exc_info=True)

    async def _close_store(self, seconds: float) -> None:
        """Close the store within ``seconds``. Its last writes only announce the shutdown, so they may be lost."""
        try:
            async with asyncio.timeout(seconds):
                await self.store.close()
        except TimeoutError:
            _log.warning("the store was not closed: it did not finish within %g seconds", seconds)

    async def __aenter__(self) -> App:
        await self._ensure_started()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncGenerator[None, None]:
        """Start and close the app with a parent application: ``Starlette(lifespan=app.lifespan)``."""
        async with self:
            yield

    def mount_on(self, parent: Any, path: str) -> None:
        """Mount on a Starlette or FastAPI application, so that ``path`` answers with and without a trailing slash."""
        path = "/" + path.strip("/")
        parent.router.add_route(path, _MountPoint(self), include_in_schema=False)
        parent.mount(path, self)

    def begin_drain(self) -> asyncio.Task[None] | None:
        """Refuse new runs, and cancel the others after ``drain`` seconds. SIGTERM and SIGINT do this.

        Returns a task that is done when all runs and streams have ended; None if the app is not started.
        """
        service = self._service
        if service is None:
            self._is_drain_requested = self._is_drain_requested or self._starting.locked()
            return None
        if self._draining is None:
            if service.runs.live:
                _log.info("shutting down; runs in progress have %g seconds to finish", self.drain)
            service.runs.stop_admission()
            self._draining = asyncio.create_task(service.drain())
        return self._draining

    def stop_now(self) -> None:
        """Shorten a drain in progress: cancel the runs and end the streams. A second SIGTERM or SIGINT does this."""
        if self._service is not None and self._draining is not None:
            self._service.stop_now()

    @property
    def is_stuck(self) -> bool:
        """Whether a stream is still open after the drain, because its client does not read."""
        return self._service is not None and self._service.is_stuck

    # ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] == "http":
            response = await self._respond(scope, receive)
            if response is None:
                return
            if scope["method"] == "HEAD":
                send = drop_body(send)
            if self._access.origins.are_listed or self._draining is not None:
                send = add_headers(send, self._common_headers(scope))
            if isinstance(response, EventStream):  # a timer that all streams share limits its writes
                await response(scope, receive, send)
                return
            with suppress(Disconnected):
                await response(scope, receive, limit_writes(send, WRITE_SECONDS))
        elif scope["type"] == "lifespan":
            await self._handle_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _respond(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response to a request; None if the client has disconnected."""
        service = self._service
        try:
            if service is None or service.loop.is_closed():
                service = None
                service = await self._ensure_started()
            routed = keep_encoded(scope, service)
            await self._router(routed, receive, _send_nothing)
            return routed["aguila.response"]
        except Disconnected:
            return None
        except Preflight as answer:
            return BufferedResponse(status=204, headers=answer.headers)
        except Exception as error:  # noqa: BLE001 - each becomes a response
            if isinstance(error, StoreUnavailable):
                if service is not None:
                    service.runs.store_health.record_failure(error)
                elif path_segments(scope) == ["healthz"]:  # it says only that the process answers
                    return json_response({"status": "ok"})
                else:
                    _log.warning("the app cannot start: %s", error)
            refusal = to_rejected(error, scope)
        if self._counts is not None:
            self._counts.add(REFUSALS, 1, refusal.code)
        refusal.__traceback__ = None  # its frames hold what was refused, and this frame would hold them
        return error_response(refusal, scope, self._front_ends)

    def _common_headers(self, scope: Scope) -> Headers:
        """Return the headers that every response to a request carries."""
        headers: list[tuple[bytes, bytes]] = []
        for name, value in scope["headers"]:
            if name == b"origin" and self._access.origins.are_listed:
                headers += self._access.origins.headers(value)
        if self._draining is not None and scope.get("http_version", "1.1").startswith("1"):
            headers.append((b"connection", b"close"))
        return headers

    async def _handle_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._ensure_started()
                    if self._signals is not None:
                        self._signals.install()  # again, in front of handlers that are newer than the app
                except StoreUnavailable as error:  # the server logs the message, which needs no traceback
                    await send({"type": "lifespan.startup.failed", "message": f"the app cannot start: {error}"})
                    return
                except Exception as error:  # noqa: BLE001 - the server reports it
                    _log.exception("the app cannot start")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _send_nothing(message: Message) -> None:
    raise RuntimeError("an endpoint sends no response: the app does, when the router has returned")


class _MountPoint:
    """Serves the app at exactly the path of its mount, which Starlette would answer with a redirect."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The whole path is the root of the app, with path parameters filled in. Some servers leave the mount of the
        # parent out of the path.
        root, path = scope.get("root_path", ""), scope["path"].rstrip("/")
        await self._app({**scope, "root_path": path if path.startswith(root) else root + path}, receive, send)


@cache
def _warn_of_memory() -> None:
    """Log that threads are lost on exit. Cached, so that a process with several apps logs it once."""
    _log.warning(
        'threads are kept in memory and lost on exit; use App(store=path) to keep them, or store=":memory:" if they '
        "need not be kept"
    )


def _make_store(store: Store | str | os.PathLike[str] | None, patience: float) -> Store:
    if store is None or store == MEMORY:
        return MemoryStore()
    return store if isinstance(store, Store) else make_store(store, busy_seconds=patience)
