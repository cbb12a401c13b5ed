"""``App``: an agent as an ASGI application.

It works alone, below a ``root_path``, and mounted in Starlette or FastAPI. Without a lifespan it starts with its first
request.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, Literal, Never

from aguila.chat.allowed_media import DEFAULT_MEDIA, AllowedMedia
from aguila.codec.notices import Warn, log_notice
from aguila.codec.protobuf import ProtobufEncoder, has_protobuf
from aguila.errors import StoreUnavailable
from aguila.protocol import AgentCapabilities
from aguila.server.access.authentication import Authenticate
from aguila.server.access.control import AccessControl
from aguila.server.agents import named_agents
from aguila.server.capabilities import derive_capabilities
from aguila.server.copilotkit.mount import CopilotKit
from aguila.server.errors import Disconnected
from aguila.server.history.client_history.known_messages import UnknownHistory
from aguila.server.history.projection import HistoryMode
from aguila.server.http.dispatch import Dispatcher
from aguila.server.http.event_stream import EventStream
from aguila.server.http.responses import Receive, Send, drop_body, limit_writes
from aguila.server.limits import Limits
from aguila.server.page.files import PageFiles
from aguila.server.page.options import Page
from aguila.server.runs.manager import Runs
from aguila.server.service import Service
from aguila.server.settings import Busy, HTTPSettings, Settings, UndeclaredPeers
from aguila.server.signals import SignalListener
from aguila.store import Durability, MemoryStore, Retention, Store
from aguila.store.locations import MEMORY, make_store

_log = logging.getLogger("aguila.server")

_MIN_CLOSE_TIMEOUT = 2.0
"""Minimum seconds for a store to close. A failing store gets only these."""


_REMOVED = {
    "one_text_at_a_time": (
        "one_text_at_a_time is gone: clients that declare no protocol version get one text and one tool call at a "
        "time; App(undeclared_peers='parallel') sends parallel ones as the agent writes them"
    ),
}
"""Options of earlier versions, and what replaces them."""


class App:
    """Serves an agent over AG-UI, or several by name: ``App({"default": agent, "research": other})``.

    ``POST /agents/{name}`` runs one of several agents, ``POST /`` the first. A thread belongs to the agent that
    started it. docs/server.md describes the options; all times are in seconds.

    ``store``: a ``Store``, the path or URL of one (``sqlite:///path``), ``":memory:"``; None is memory, with a warning.
    ``durability``: with ``"process"`` stored events survive the death of the process, with ``"power"`` also the loss of
    power.
    ``authenticate``: takes a ``Request`` and returns a ``Principal`` or a scope, or None to refuse. Without it all
    callers share one scope, and listing, deleting and files need ``allow_anonymous``.
    ``history``: which side keeps the messages. ``busy``: how a second run on a thread is handled.
    ``on_disconnect``: with ``"cancel"`` a run is cancelled ``disconnect_grace`` after its last viewer left.
    ``heartbeat``: how long a stream may be idle before it sends a comment.
    ``lease``: how long a run survives if its process does not renew the lease.
    ``drain``: how long runs may continue during shutdown. ``cancel_grace``: how long a cancelled agent may clean up.
    ``coalesce``: how long events may be buffered. ``merge_deltas``: send buffered deltas of the same text, reasoning
    or arguments as one. ``store_patience``: how long events may wait for a failing store.
    ``allowed_hosts``: the host names that requests may use. ``cors_origins``: the other origins that may use the app.
    ``headers_allowed``: the request headers that agents see.
    ``unknown_history``: with ``"drop"``, remove assistant and tool messages of clients that no run has sent.
    ``state_keys``: the top-level keys of the state that clients may change; None allows all.
    ``allowed_media``: which references to media agents see; by default data, uploads, and public hosts with https.
    ``echo_input``: put the input on RUN_STARTED.
    ``undeclared_peers``: what a client that declares no protocol version receives. ``"flatten"`` makes the output of
    subagents the agent's own, and sends one text and one tool call at a time, because front ends mix parallel ones.
    ``"parallel"`` flattens only. ``"subagents"`` sends SUBAGENT_* events, which clients before 0.0.59 refuse, one text
    and one call at a time. ``"meta"`` is ``"flatten"``, with META events as META, which no published client reads.
    ``capabilities``: merged over the derived capabilities.
    ``copilotkit``: serve CopilotKit's runtime contract at this path; True is ``/copilotkit``.
    ``page``: show chat and inspector to browsers that open the root of the app; a ``Page`` sets its title, colours and
    login. None: only if ``aguila serve`` serves the app on a loopback address.
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
        durability: Durability = "process",
        authenticate: Authenticate | None = None,
        allow_anonymous: bool = False,
        history: HistoryMode = "client",
        busy: Busy = "auto",
        on_disconnect: Literal["continue", "cancel"] = "continue",
        disconnect_grace: float = 5.0,
        heartbeat: float = 15.0,
        lease: float = 30.0,
        drain: float = 10.0,
        coalesce: float = 0.005,
        merge_deltas: bool = True,
        cancel_grace: float = 5.0,
        store_patience: float = 5.0,
        limits: Limits | None = None,
        allowed_hosts: Sequence[str] | None = None,
        cors_origins: Sequence[str] = (),
        headers_allowed: Sequence[str] = (),
        allow_system_messages: bool = False,
        unknown_history: UnknownHistory = "keep",
        state_keys: Sequence[str] | None = None,
        allowed_media: AllowedMedia = DEFAULT_MEDIA,
        echo_input: bool = False,
        undeclared_peers: UndeclaredPeers = "flatten",
        langgraph_interrupts: bool = False,
        capabilities: AgentCapabilities | Mapping[str, Any] | None = None,
        retention: Retention | None = None,
        debug: bool = False,
        handle_signals: bool = True,
        name: str | None = None,
        copilotkit: str | bool = False,
        page: bool | Page | None = None,
        warn: Warn = log_notice,
        **removed: Never,
    ) -> None:
        for option in removed:
            raise TypeError(_REMOVED.get(option, f"App() got an unexpected keyword argument {option!r}"))
        self._agents = named_agents(agent)
        self._settings = Settings(
            history=history,
            busy=busy,
            lease=lease,
            drain=drain,
            coalesce=coalesce,
            merge_deltas=merge_deltas,
            cancel_grace=cancel_grace,
            store_patience=store_patience,
            limits=Limits() if limits is None else limits,
            allow_system_messages=allow_system_messages,
            unknown_history=unknown_history,
            state_keys=state_keys,
            allowed_media=allowed_media,
            echo_input=echo_input,
            langgraph_interrupts=langgraph_interrupts,
            retention=retention,
            debug=debug,
        )
        self._http = HTTPSettings(
            on_disconnect=on_disconnect,
            disconnect_grace=disconnect_grace,
            heartbeat=heartbeat,
            headers_allowed=headers_allowed,
            undeclared_peers=undeclared_peers,
        )
        self._access = AccessControl(
            authenticate,
            allow_anonymous=allow_anonymous,
            allowed_hosts=allowed_hosts,
            cors_origins=cors_origins,
        )
        self.name = name
        self.drain = drain
        self.copilotkit = CopilotKit(copilotkit) if copilotkit else None
        """The path of CopilotKit's routes; None if they are not served."""
        if not isinstance(page, bool | Page | None):
            raise TypeError(f"App(page={page!r}) is neither True, False, None nor a Page")
        self._page_option = page
        self.store = _make_store(store, durability, store_patience)
        self._warns_of_memory = store is None
        self._capabilities = self._derive_capabilities(capabilities, has_names=isinstance(agent, Mapping))
        self._warn = warn
        self._dispatcher = Dispatcher(self._access, self.copilotkit, self._ensure_started)
        if page:
            self._add_page()
        self._signals = SignalListener(self) if handle_signals else None
        self._service: Service | None = None
        self._starting = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None
        self._is_drain_requested = False  # set by a signal that comes while the app starts
        self.has_siblings = False
        """Whether other processes accept connections from the same socket. ``aguila serve --workers`` sets it."""
        if has_protobuf():
            ProtobufEncoder()  # imports the extra, which takes some 30 ms: too long for the event loop

    def _derive_capabilities(
        self, override: AgentCapabilities | Mapping[str, Any] | None, *, has_names: bool
    ) -> dict[str | None, AgentCapabilities]:
        """Derive the capabilities of each agent, and those of the app at None."""
        return {
            agent: derive_capabilities(
                name=agent if has_names and agent is not None else self.name,
                is_durable=not isinstance(self.store, MemoryStore),
                agent=next(iter(self._agents.values())) if agent is None else self._agents[agent],
                override=override,
            )
            for agent in (None, *self._agents)
        }

    @property
    def page(self) -> PageFiles | None:
        """The files of the page; None if it is not served."""
        return self._dispatcher.page

    def show_page(self) -> None:
        """Serve the page unless ``page`` was given. ``aguila serve`` calls this on a loopback address."""
        if self._page_option is None:
            self._add_page()

    def _add_page(self) -> None:
        options = self._page_option if isinstance(self._page_option, Page) else None
        self._dispatcher.page = PageFiles(allows_anonymous=self._access.grants_ownership, options=options)

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
            if not service.runs.is_orphaned:
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
        service = Service(
            Runs(self._agents, self.store, self._settings, self._warn),
            agents=list(self._agents),
            limits=self._settings.limits,
            capabilities=self._capabilities,
            http=self._http,
            serves_files=self._access.grants_ownership,
            warn=self._warn,
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

    def _reset(self) -> None:
        """Drop the resources of a closed event loop, as after each test without a lifespan."""
        self._service = self._draining = None
        self._is_drain_requested = False
        self._starting = asyncio.Lock()
        if self._signals is not None:
            self._signals.uninstall()

    async def close(self) -> None:
        """Drain the runs, end the streams and close the store."""
        if self._service is not None and self._service.runs.is_orphaned:
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
        patience = self._settings.store_patience
        await self._close_store(_MIN_CLOSE_TIMEOUT if is_short else max(_MIN_CLOSE_TIMEOUT, patience))

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

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] == "http":
            response = await self._dispatcher.respond(scope, receive)
            if response is None:
                return
            if scope["method"] == "HEAD":
                send = drop_body(send)
            if isinstance(response, EventStream):  # a timer that all streams share limits its writes
                await response(receive, send)
                return
            with suppress(Disconnected):
                await response(receive, limit_writes(send, self._settings.limits.write_seconds))
        elif scope["type"] == "lifespan":
            await self._handle_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})

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


class _MountPoint:
    """Serves the app at exactly the path of its mount, which Starlette would answer with a redirect."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
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


def _make_store(store: Store | str | os.PathLike[str] | None, durability: Durability, patience: float) -> Store:
    if durability not in ("process", "power"):
        raise ValueError(f'durability is {durability!r}; use "process" or "power"')
    if store is None or store == MEMORY:
        store = MemoryStore()
    if not isinstance(store, Store):
        return make_store(store, busy_seconds=patience, durability=durability)
    if durability == "power" and store.durability != "power":
        raise ValueError(
            'durability="power" needs a store that survives the loss of power, and this one does not; '
            'use App(store=path), or SQLiteStore(path, durability="power")'
        )
    return store
