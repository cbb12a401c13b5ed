"""Layer: server. ``App``: an agent as an ASGI application.

Below: ``routes``, ``exchange`` and everything under them. Above: whoever serves or mounts it. It works alone, below a
``root_path``, and mounted in Starlette or FastAPI; with a lifespan and without one, in which case it starts with the
first request.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Literal

from aguila.codec.dialects import UNDECLARED, UNDECLARED_WITH_META, UNDECLARED_WITH_SUBAGENTS, Dialect
from aguila.codec.logs import log_event
from aguila.codec.notices import Warn, log_notice
from aguila.errors import CursorExpired, NotFound, StoreUnavailable
from aguila.protocol import AgentCapabilities
from aguila.server.agents import named_agents
from aguila.server.auth import ANONYMOUS, Authenticate, Hosts, Origins, Request, identify
from aguila.server.capabilities import derive_capabilities
from aguila.server.copilotkit.mount import CopilotKit, refusal_body
from aguila.server.copilotkit.routes import ROUTES as COPILOTKIT_ROUTES
from aguila.server.errors import Disconnected, Rejected
from aguila.server.history.projection import HistoryMode
from aguila.server.http.responses import BufferedResponse, Receive, Response, Send, drop_body, header_list
from aguila.server.http.routes import find_route, path_segments, split_agent
from aguila.server.limits import Limits
from aguila.server.runs.manager import Runs
from aguila.server.runs.run_context import new_id
from aguila.server.service import Exchange, Service
from aguila.server.settings import Busy, Settings, UndeclaredPeers
from aguila.server.signals import Signals
from aguila.store import MemoryStore, Retention, SQLiteStore, Store

_log = logging.getLogger("aguila.server")

_MIN_CLOSE_TIMEOUT = 2.0
"""Seconds that a store gets to close, at least; and at most, if it was seen not to work or there is no time."""

_UNDECLARED: Final[dict[str, Dialect]] = {
    "flatten": UNDECLARED,
    "subagents": UNDECLARED_WITH_SUBAGENTS,
    "meta": UNDECLARED_WITH_META,
}


class App:
    """Serves an agent over AG-UI, or several by name: ``App({"default": agent, "research": other})``.

    ``POST /agents/{name}`` runs one of several, ``POST /`` the first. A thread belongs to the agent that started it.

    ``store`` is a ``Store``, the path of an SQLite file, or None for memory. ``authenticate`` takes a ``Request`` and
    gives a ``Principal`` or a scope, or None to refuse; without it everybody shares one scope, and listing, deleting
    and files need ``allow_anonymous``. ``history`` says who keeps the messages, ``busy`` what becomes of a second run
    on a thread (see ``runs``). With ``on_disconnect="cancel"`` a run is cancelled ``disconnect_grace`` seconds after
    its last viewer left. ``heartbeat`` is the pause after which an idle stream sends a comment, ``lease`` how long a
    run survives a silent owner, ``drain`` what running runs get on shutdown, ``coalesce`` how long events may gather,
    ``store_patience`` how long they may wait to be stored; all in seconds. ``headers_allowed`` names the request
    headers that agents see; ``allowed_hosts`` the names by which the app may be called, ``cors_origins`` the foreign
    pages that may use it. ``echo_input`` puts the input on RUN_STARTED. ``one_text_at_a_time`` sends text messages that
    are written at the same time one after the other, for front ends that would mix them. ``undeclared_peers`` says
    what a client that declares no protocol version gets of subagents: ``"flatten"`` makes their output the agent's own,
    ``"subagents"`` sends SUBAGENT_* events, which clients before 0.0.59 refuse; ``"meta"`` flattens, and sends META
    events as META, which no published client reads. ``capabilities`` is merged
    over what is derived. ``copilotkit`` serves CopilotKit's runtime contract at this path, or at ``/copilotkit``
    if it is True. ``debug`` shows exception texts to clients. With ``handle_signals`` SIGTERM and SIGINT begin
    the drain (see ``signals``); without, only ``begin_drain`` and ``close`` do. ``warn`` receives notices of what was
    tolerated.

    Raises ``TypeError`` for an agent that cannot be called with a run, ``ValueError`` for an option it does not know.
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
        on_disconnect: Literal["continue", "cancel"] = "continue",
        disconnect_grace: float = 5.0,
        heartbeat: float = 15.0,
        lease: float = 30.0,
        drain: float = 10.0,
        coalesce: float = 0.005,
        cancel_grace: float = 5.0,
        store_patience: float = 5.0,
        limits: Limits | None = None,
        allowed_hosts: Sequence[str] | None = None,
        cors_origins: Sequence[str] = (),
        headers_allowed: Sequence[str] = (),
        allow_system_messages: bool = False,
        echo_input: bool = False,
        one_text_at_a_time: bool = False,
        undeclared_peers: UndeclaredPeers = "flatten",
        langgraph_interrupts: bool = False,
        capabilities: AgentCapabilities | Mapping[str, Any] | None = None,
        retention: Retention | None = None,
        debug: bool = False,
        handle_signals: bool = True,
        name: str | None = None,
        copilotkit: str | bool = False,
        warn: Warn = log_notice,
    ) -> None:
        agents = named_agents(agent)
        _one_of("history", history, ("client", "server"))
        _one_of("busy", busy, ("auto", "reject", "queue", "replace"))
        _one_of("on_disconnect", on_disconnect, ("continue", "cancel"))
        _one_of("undeclared_peers", undeclared_peers, ("flatten", "subagents", "meta"))
        for option, seconds in (("heartbeat", heartbeat), ("lease", lease), ("store_patience", store_patience)):
            if not seconds > 0:
                raise ValueError(f"{option} is a number of seconds above 0, not {seconds!r}")
        for option, seconds in (
            ("disconnect_grace", disconnect_grace),
            ("drain", drain),
            ("coalesce", coalesce),
            ("cancel_grace", cancel_grace),
        ):
            if not seconds >= 0:
                raise ValueError(f"{option} is a number of seconds, not {seconds!r}")
        for option, names in (
            ("allowed_hosts", allowed_hosts),
            ("cors_origins", cors_origins),
            ("headers_allowed", headers_allowed),
        ):
            if isinstance(names, str):  # which would be taken letter by letter
                raise ValueError(f"{option} is a list: [{names!r}]")
        self.name = name
        self.copilotkit = CopilotKit(copilotkit) if copilotkit else None
        """Where CopilotKit's routes are; None if they are not served."""
        self._is_memory = store is None
        if store is None:
            store = MemoryStore()
        elif not isinstance(store, Store):
            store = SQLiteStore(store, busy_seconds=store_patience)
        self.store = store
        self._authenticate = authenticate
        self._allow_anonymous = allow_anonymous
        self._hosts = Hosts(allowed_hosts)
        self._origins = Origins(cors_origins, headers_allowed)
        self.drain = drain
        self._store_patience = store_patience
        limits = Limits() if limits is None else limits
        settings = Settings(
            history=history,
            busy=busy,
            lease=lease,
            drain=drain,
            coalesce=coalesce,
            cancel_grace=cancel_grace,
            store_patience=store_patience,
            limits=limits,
            allow_system_messages=allow_system_messages,
            echo_input=echo_input,
            one_text_at_a_time=one_text_at_a_time,
            langgraph_interrupts=langgraph_interrupts,
            retention=retention,
            debug=debug,
        )
        is_durable = not isinstance(store, MemoryStore)
        declared: dict[str | None, AgentCapabilities] = {
            known_as: derive_capabilities(
                name=name if known_as is None or not isinstance(agent, Mapping) else known_as,
                is_durable=is_durable,
                override=capabilities,
            )
            for known_as in (None, *agents)
        }
        grace = disconnect_grace if on_disconnect == "cancel" else None

        def build() -> Service:
            return Service(
                Runs(agents, store, settings, warn),
                agents=list(agents),
                limits=limits,
                capabilities=declared,
                headers_allowed=headers_allowed,
                heartbeat=heartbeat,
                disconnect_grace=grace,
                undeclared=_UNDECLARED[undeclared_peers],
                serves_files=authenticate is not None or allow_anonymous,
                warn=warn,
            )

        self._build = build
        self._service: Service | None = None
        self._starting = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None
        self._is_told = False  # to stop, while it was starting
        self._signals = Signals(self) if handle_signals else None

    def is_open_to(self, host: str, *, as_owner: bool = False) -> bool:
        """Whether it answers requests that call it ``host`` and have no credentials.

        ``as_owner`` asks about listing, deleting and files.
        """
        return self._authenticate is None and self._hosts.allows(host) and (self._allow_anonymous or not as_owner)

    # Starting and stopping

    async def start(self) -> None:
        """Open the store and begin to serve; calling it again does nothing. Raises ``StoreUnavailable``."""
        await self._started()

    async def _started(self) -> Service:
        service = self._service
        if service is not None:
            if not service.runs.is_orphaned:
                return service
            self._let_go()
        async with self._starting:
            if self._service is None:
                if self._is_memory:
                    _log.warning("threads are kept in memory and forgotten on exit; App(store=path) keeps them")
                self._service = await self._start()
                if self._is_told:
                    self.begin_drain()
            return self._service

    async def _start(self) -> Service:
        service = self._build()
        if self._signals is not None:
            self._signals.hear()  # before anything that takes time: a run that begins after the signal must not go on
        try:
            await self.store.open()
            try:
                await service.runs.open()
            except BaseException:
                await self._close_store(_MIN_CLOSE_TIMEOUT)
                raise
        except BaseException:
            if self._signals is not None:
                self._signals.leave()
            raise
        return service

    def _let_go(self) -> None:
        """Forget what belongs to an event loop that is closed, as after each test without a lifespan: begin again."""
        self._service = self._draining = None
        self._is_told = False
        self._starting = asyncio.Lock()
        if self._signals is not None:
            self._signals.leave()

    async def close(self) -> None:
        """Drain the runs, end the streams and close the store."""
        if self._service is not None and self._service.runs.is_orphaned:
            self._let_go()
            await self.store.close()
        async with self._starting:
            service, draining = self._service, self.begin_drain()
            self._service = None
            self._is_told = False
        if service is None or draining is None:
            return
        if self._signals is not None:
            self._signals.leave()
        await asyncio.shield(draining)
        self._draining = None
        await service.runs.close()
        is_short = service.runs.store_health.is_failing or service.runs.is_stopping_now
        await self._close_store(_MIN_CLOSE_TIMEOUT if is_short else max(_MIN_CLOSE_TIMEOUT, self._store_patience))

    async def _close_store(self, seconds: float) -> None:
        """Close it in this time: each of its writes may take its patience, and the last are only to say that we go."""
        try:
            async with asyncio.timeout(seconds):
                await self.store.close()
        except TimeoutError:
            _log.warning("the store was left open: it could not be closed in time")

    async def __aenter__(self) -> App:
        await self._started()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncGenerator[None, None]:
        """For the ``lifespan`` of the application it is mounted in: ``Starlette(lifespan=app.lifespan)``."""
        async with self:
            yield

    def mount_on(self, parent: Any, path: str) -> None:
        """Mount on a Starlette or FastAPI application, so that ``path`` answers with and without a trailing slash."""
        path = "/" + path.strip("/")
        parent.router.add_route(path, _At(self), include_in_schema=False)
        parent.mount(path, self)

    def begin_drain(self) -> asyncio.Task[None] | None:
        """Take no new runs, and cancel those that are on after ``drain`` seconds. SIGTERM and SIGINT do this.

        Gives what is done when no run is left, and the streams have ended; None for an app that is not started.
        """
        service = self._service
        if service is None:
            self._is_told = self._is_told or self._starting.locked()
            return None
        if self._draining is None:
            if service.runs.live:
                _log.info("stopping; runs that are on get %g seconds", self.drain)
            service.runs.stop_admission()
            self._draining = asyncio.create_task(service.drain())
        return self._draining

    def stop_now(self) -> None:
        """Have a drain that has begun cancel the runs and end the streams now. A second SIGTERM or SIGINT does this."""
        if self._service is not None and self._draining is not None:
            self._service.stop_now()

    @property
    def is_stuck(self) -> bool:
        """Whether it was drained and a stream has not ended, because nobody reads it."""
        return self._service is not None and self._service.is_stuck

    # ASGI

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            reply = await self._reply(scope, receive)
            if reply is not None:
                await reply(receive, drop_body(send) if scope["method"] == "HEAD" else send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._started()
                    if self._signals is not None:
                        self._signals.hear()  # again: if it was started before, the server's own handler came later
                except StoreUnavailable as error:  # which says it all, and the server logs it
                    await send({"type": "lifespan.startup.failed", "message": f"the app cannot start: {error}"})
                    return
                except Exception as error:  # noqa: BLE001 - whatever it is, the server is told
                    _log.exception("the app could not start")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _reply(self, scope: MutableMapping[str, Any], receive: Receive) -> Response | None:
        """The answer to a request; None if the client has gone. Whatever fails before there is one becomes one."""
        headers: list[tuple[bytes, bytes]] = []
        try:
            return await self._answer(scope, receive, headers)
        except Disconnected:
            return None
        except Rejected as refusal:
            return self._refused(scope, refusal, headers)
        except NotFound as error:
            return self._refused(scope, Rejected(404, "not_found", str(error)), headers)
        except CursorExpired as error:
            return self._refused(scope, Rejected(410, "cursor_expired", str(error)), headers)
        except StoreUnavailable as error:
            if self._service is not None:
                self._service.runs.store_health.record_failure(error)
            else:
                _log.warning("the app cannot start: %s", error)
            again = {"retry-after": "1"}
            return self._refused(
                scope, Rejected(503, "store_unavailable", "the store cannot work now", headers=again), headers
            )
        except Exception as error:  # noqa: BLE001 - its text is for the log, not for the client
            reference = new_id()
            log_event(
                _log, logging.ERROR, f"{scope['method']} {scope['path']} failed", error=error, reference=reference
            )
            return self._refused(
                scope, Rejected(500, "internal", f"The request failed. Reference: {reference}"), headers
            )

    def _refused(
        self, scope: MutableMapping[str, Any], refusal: Rejected, headers: Sequence[tuple[bytes, bytes]]
    ) -> BufferedResponse:
        """Answer with a refusal, in the form that errors have at this path."""
        status, body = refusal.status, refusal.body()
        if self.copilotkit is not None:
            with suppress(NotFound):  # a path that is none
                if self.copilotkit.relative_path(path_segments(scope)) is not None:
                    status, body = refusal_body(refusal)
        return BufferedResponse(status=status, body=body, headers=[*header_list(refusal.headers), *headers])

    async def _answer(
        self, scope: MutableMapping[str, Any], receive: Receive, headers: list[tuple[bytes, bytes]]
    ) -> Response:
        service = self._service
        if service is None or service.runs.is_orphaned:
            service = await self._started()
        segments = path_segments(scope)
        request = Request(scope, "/" + "/".join(segments))
        is_from_page = "origin" in request.headers
        if is_from_page:
            headers += self._origins.headers(request)
        copilotkit = None if self.copilotkit is None else self.copilotkit.relative_path(segments)
        if copilotkit is not None:
            agent = None
            route, params = find_route(copilotkit, COPILOTKIT_ROUTES)
        else:
            agent, below = split_agent(segments, service.agents)
            route, params = find_route(below)
        if not route.is_public:
            self._hosts.check(request)
        method = "GET" if request.method == "HEAD" and not route.is_stream else request.method
        handler = route.handlers.get(method)
        if handler is None:
            preflight = self._origins.preflight(request, route.methods)
            if preflight is not None:
                return BufferedResponse(status=204, headers=preflight)
            allow = {"allow": ", ".join(route.methods)}
            raise Rejected(405, "method_not_allowed", f"{request.method} is not possible here", headers=allow)
        if is_from_page:
            self._origins.check(request)
        principal, found = None, ANONYMOUS
        if self._authenticate is not None and not route.is_public:
            principal, found = await identify(self._authenticate, request)
        is_owner = self._authenticate is not None or self._allow_anonymous
        route.check_owner(method, is_owner=is_owner)
        exchange = Exchange(
            request=request,
            receive=receive,
            scope=found,
            principal=principal,
            headers=headers,
            params=params,
            agent=agent,
            is_owner=is_owner,
        )
        return await handler(service, exchange)


class _At:
    """The app at exactly the path it is mounted on, which a mount leaves to a redirect."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        # What was asked for is the place itself, whatever stands for the parameters of a path; it may come without
        # what the parent is mounted on.
        root, path = scope.get("root_path", ""), scope["path"].rstrip("/")
        await self._app({**scope, "root_path": path if path.startswith(root) else root + path}, receive, send)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is one of {', '.join(allowed)}, not {value!r}")
