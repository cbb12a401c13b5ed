"""Layer: server. The HTTP surface: one handler per route, and the table that finds it.

Below: ``runs`` (what runs), ``responses`` (how it is answered), ``projection``, ``join``, ``files``. Above: ``app``,
which has checked origin and credentials before a handler is called. Every store call here carries the scope that the
credentials gave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from aguila.agent.chat import FILE_PROVIDER
from aguila.codec import decode, decode_event, encode
from aguila.codec.compat import Level
from aguila.codec.negotiate import negotiate
from aguila.codec.notice import Notice, Warn
from aguila.errors import CursorExpired, DecodeError, NotFound, ThreadBusy
from aguila.protocol import PROTOCOL_VERSION, AgentCapabilities, Event, RunAgentInput
from aguila.server.auth import Request
from aguila.server.files import file_response, receive_upload
from aguila.server.history import check_parent
from aguila.server.interrupts import open_interrupts
from aguila.server.join import join
from aguila.server.limits import LARGE, STORED, Limits
from aguila.server.live import LiveRun
from aguila.server.rejection import Disconnected, Rejected
from aguila.server.responses import (
    Document,
    EventStream,
    Framing,
    Receive,
    Reply,
    Send,
    Streams,
    framing_for,
    json_document,
)
from aguila.server.runs import Asked, Runs, fingerprint
from aguila.store import RunRecord, Store, ThreadSummary
from aguila.stream import compact

_MAX_PAGE = 500


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was let in, and who asks. ``headers`` belong on every answer to it."""

    request: Request
    receive: Receive
    scope: str
    principal: Any
    headers: Sequence[tuple[bytes, bytes]]
    params: Sequence[str]


class Routes:
    """The handlers of one app."""

    def __init__(
        self,
        runs: Runs,
        *,
        limits: Limits,
        capabilities: AgentCapabilities,
        headers_allowed: Sequence[str],
        heartbeat: float,
        disconnect_grace: float | None,
        warn: Warn,
    ) -> None:
        self.streams = Streams(heartbeat)
        self.runs = runs
        self._store: Store = runs.store
        self._limits = limits
        self._capabilities = encode(capabilities)
        self._headers_allowed = [name.lower() for name in headers_allowed]
        self._grace = disconnect_grace
        self._warn = warn

    async def drain(self) -> None:
        """Drain the runs, then end the streams that are left: what they watch goes on in another process."""
        await self.runs.drain()
        self.streams.break_off()

    # Runs

    async def run(self, exchange: Exchange) -> Reply:
        """``POST /``: start a run, or come back to it."""
        input, body, digest = await self._input(exchange)  # noqa: A001 - the protocol's word for it
        request = exchange.request
        headers = {name: request.headers[name] for name in self._headers_allowed if name in request.headers}
        with Hearing(exchange.receive) if self.runs.has_queue else nullcontext() as hearing:
            asked = Asked(
                input=input,
                body=body,
                scope=exchange.scope,
                principal=exchange.principal,
                headers=headers,
                is_gone=bool if hearing is None else hearing.is_gone,
                digest=digest,
            )
            started = await self.runs.start(asked)
        record = started.record
        if started.is_hydration or (record is not None and not record.is_running):
            return await self._join(exchange, input)
        framing = _framing(exchange, input.protocol_version)
        if record is not None:
            after, opening, live = record.first - 1, b"", self._live(record)
        else:
            first, live = started.first, started.live
            assert first is not None  # noqa: S101
            after, opening = first.last, framing.batch(first.first, first.events)
        return self._stream(
            exchange, input.thread_id, framing, after=after, opening=opening, is_live=True, watched=live
        )

    async def connect(self, exchange: Exchange) -> Reply:
        """``POST /connect``: the thread as it is, in a form that a stock client can consume, then the live tail."""
        input, _, _ = await self._input(exchange)  # noqa: A001
        try:
            await self._store.run(exchange.scope, input.thread_id, input.run_id)
        except NotFound:  # else it is that run which is told about, wherever it went on from
            for notice in await check_parent(input, self._store, exchange.scope):
                self._warn(notice)
        return await self._join(exchange, input)

    async def _join(self, exchange: Exchange, input: RunAgentInput) -> Reply:  # noqa: A002
        store, scope, thread_id = self._store, exchange.scope, input.thread_id
        records = await store.runs(scope, thread_id)
        running = records[-1] if records and records[-1].is_running else None
        projections = self.runs.projections
        joined = await join(
            store, projections, scope, thread_id, input.run_id, live=running, branch=input.parent_run_id
        )
        framing = _framing(exchange, input.protocol_version)
        opening = b"".join([framing.event(event) for event in joined.events[:-1]])
        opening += framing.event(joined.events[-1], joined.after)
        live = self._live(running) if running is not None and joined.is_live else None
        return self._stream(
            exchange, thread_id, framing, after=joined.after, opening=opening, is_live=joined.is_live, watched=live
        )

    async def run_status(self, exchange: Exchange) -> Reply:
        """``GET /threads/{id}/runs/{run}``."""
        return json_document(_status(await self._record(exchange)), exchange.headers)

    async def run_events(self, exchange: Exchange) -> Reply:
        """``GET /threads/{id}/runs/{run}/events``: the run's part of the log, then live until its end."""
        record = await self._record(exchange)
        after = await self._cursor(exchange)
        return self._stream(
            exchange,
            record.thread_id,
            after=record.first - 1 if after is None else max(after, record.first - 1),
            until=None if record.is_running else record.last,
            is_live=record.is_running,
            fails_in_band=False,
            watched=self._live(record) if record.is_running else None,
        )

    async def cancel(self, exchange: Exchange) -> Reply:
        """``POST /threads/{id}/runs/{run}/cancel``: 202 while it has to be awaited, 200 for a run that has ended."""
        thread_id, run_id = exchange.params
        record = await self.runs.cancel(exchange.scope, thread_id, run_id)
        return json_document(_status(record), exchange.headers, 202 if record.is_running else 200)

    # Threads

    async def threads(self, exchange: Exchange) -> Reply:
        """``GET /threads``: summaries, last updated first."""
        query = exchange.request.query
        text = query.get("limit", "50")
        if not (text.isascii() and text.isdigit()) or len(text) > 6 or not 1 <= int(text) <= _MAX_PAGE:
            raise Rejected(422, "bad_limit", f"limit is a number from 1 to {_MAX_PAGE}", "/limit")
        limit = int(text)
        found = await self._store.threads(exchange.scope, limit=limit, before=query.get("before"))
        more = found[-1].thread_id if len(found) == limit else None
        return json_document({"threads": [_summary(one) for one in found], "next": more}, exchange.headers)

    async def thread(self, exchange: Exchange) -> Reply:
        """``GET /threads/{id}``: messages, state and open interrupts, with the sequence number they cover."""
        (thread_id,) = exchange.params
        view = await self.runs.projections.of(exchange.scope, thread_id, exchange.request.query.get("run"))
        records = await self._store.runs(exchange.scope, thread_id)
        interrupts = await open_interrupts(self._store, exchange.scope, view)
        answer = {
            "threadId": thread_id,
            "messages": view.conversation.messages,
            "state": view.conversation.state,
            "interrupts": interrupts,
            "last": view.last,
            "tip": view.tip,
            "runs": [_status(record) for record in records],
        }
        return json_document(answer, exchange.headers)

    async def delete_thread(self, exchange: Exchange) -> Reply:
        """``DELETE /threads/{id}``: everything in it, its files too."""
        (thread_id,) = exchange.params
        try:
            await self._store.delete_thread(exchange.scope, thread_id)
        except ThreadBusy as error:
            message = f"run {error.run.run_id} is on; cancel it first"
            raise Rejected(409, "thread_busy", message) from None
        return Document(status=204, headers=exchange.headers)

    async def thread_events(self, exchange: Exchange) -> Reply:
        """``GET /threads/{id}/events``: the log after a cursor, then live until the end of the run that is on."""
        (thread_id,) = exchange.params
        summary = await self._store.thread(exchange.scope, thread_id)
        after = await self._cursor(exchange)
        after = 0 if after is None else after
        records: Sequence[RunRecord] = ()
        if exchange.request.query.get("compact", "").lower() in ("1", "true"):
            records = await self._store.runs(exchange.scope, thread_id)
        live = None
        if summary.is_running:
            running = [one for key, one in self.runs.live.items() if key[:2] == (exchange.scope, thread_id)]
            live = running[0] if running else None
        return self._stream(
            exchange,
            thread_id,
            after=after,
            until=summary.last,
            is_live=summary.is_running,
            replay=partial(self._replay_compacted, records) if records else None,
            fails_in_band=False,
            watched=live,
        )

    async def _replay_compacted(self, records: Sequence[RunRecord], stream: EventStream) -> None:
        """Write finished runs that begin after the cursor in their shortest form; the last event has the run's id.

        A run of which the reader has seen a part goes on as it was.
        """
        framing = stream.framing
        for record in records:
            if record.is_running or record.first <= stream.after:
                if record.last > stream.after:
                    return
                continue
            events: list[Event] = []
            position = stream.after
            while position < record.last:
                for batch in await self._store.read(stream.scope, stream.thread_id, position, until=record.last):
                    decoded = [decode_event(data, strict=True, max_size=STORED) for data in batch.events]
                    events += [event for event in decoded if event is not None]
                    position = batch.last
            short = compact(events, warn=self._warn)
            body = b"".join([framing.event(event) for event in short[:-1]])
            stream.after = record.last
            await stream.write(body + framing.event(short[-1], record.last))

    # The rest

    async def capabilities(self, exchange: Exchange) -> Reply:
        """``GET /capabilities``."""
        return Document(body=self._capabilities, headers=exchange.headers)

    async def upload(self, exchange: Exchange) -> Reply:
        """``POST /files``."""
        blob = await receive_upload(
            exchange.request, exchange.receive, store=self._store, scope=exchange.scope, limits=self._limits
        )
        answer = {
            "id": blob.blob_id,
            "mediaType": blob.media_type,
            "filename": blob.filename,
            "size": blob.size,
            "source": {"type": "file", "value": blob.blob_id, "provider": FILE_PROVIDER, "mimeType": blob.media_type},
        }
        return json_document(answer, exchange.headers, 201)

    async def download(self, exchange: Exchange) -> Reply:
        """``GET /files/{id}``."""
        (file_id,) = exchange.params
        blob, data = await self._store.blob(exchange.scope, file_id)
        status, headers, body = file_response(blob, data)

        async def reply(receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": status, "headers": [*headers, *exchange.headers]})
            await send({"type": "http.response.body", "body": body})

        return reply

    async def healthz(self, exchange: Exchange) -> Reply:
        """``GET /healthz``: 200 if the store can write, 503 if it cannot or the server is shutting down."""
        await self._store.check()
        if self.runs.is_draining:
            raise Rejected(503, "draining", "this server is shutting down")
        return json_document({"status": "ok"}, exchange.headers)

    # What they share

    async def _input(self, exchange: Exchange) -> tuple[RunAgentInput, bytes, str | None]:
        """The input, the body it was in, and that body's fingerprint if it is large."""
        request = exchange.request
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise Rejected(415, "unsupported_media_type", "send a RunAgentInput as application/json")
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise Rejected(415, "unsupported_encoding", "send the body as it is, not compressed")
        body = await read_body(request, exchange.receive, self._limits.body)
        digest: str | None = None
        try:
            if len(body) <= LARGE:
                found = self._decoded(body, self._warn)
            else:
                notices: list[Notice] = []
                found, digest = await asyncio.to_thread(
                    lambda: (self._decoded(body, notices.append), fingerprint(body))
                )
                for notice in notices:
                    self._warn(notice)
        except DecodeError as error:
            code = "bad_json" if error.rule in ("json", "utf-8") else "malformed_input"
            raise Rejected(422, code, error.message, error.path) from None
        self._limits.check(found, len(body))
        return found, body, digest

    def _decoded(self, body: bytes, warn: Warn) -> RunAgentInput:
        return decode(body, RunAgentInput, compat=_level(body), warn=warn, max_size=max(self._limits.body, 1))

    async def _record(self, exchange: Exchange) -> RunRecord:
        thread_id, run_id = exchange.params
        return await self._store.run(exchange.scope, thread_id, run_id)

    async def _cursor(self, exchange: Exchange) -> int | None:
        """Where to go on. Raises ``Rejected`` for what is no number, ``CursorExpired`` beyond the end of the log."""
        # A browser that reconnects asks for the same address again, so the header is the newer one.
        text = exchange.request.headers.get("last-event-id") or exchange.request.query.get("after")
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            raise Rejected(422, "bad_cursor", "a cursor is the id of an event of this thread, a number", "/after")
        last = await self._store.last(exchange.scope, exchange.params[0])
        if len(text) > 18 or int(text) > last:
            raise CursorExpired("the log of this thread has no such event")
        return int(text)

    def _stream(
        self, exchange: Exchange, thread_id: str, framing: Framing | None = None, **options: Any
    ) -> EventStream:
        return EventStream(
            _framing(exchange) if framing is None else framing,
            self._store,
            exchange.scope,
            thread_id,
            streams=self.streams,
            headers=exchange.headers,
            grace=self._grace,
            **options,
        )

    def _live(self, record: RunRecord) -> LiveRun | None:
        return self.runs.live.get((record.scope, record.thread_id, record.run_id))


class Hearing:
    """Hears whether a client hangs up while its request is being looked at."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Hearing:
        self._task = asyncio.create_task(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    def is_gone(self) -> bool:
        """Whether it has hung up."""
        return self._task is not None and self._task.done()

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def read_body(request: Request, receive: Receive, limit: int) -> bytes:
    """The body, if it is not larger than ``limit``. Raises ``Rejected`` (413) or ``Disconnected``."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit:
        raise Rejected(413, "too_large", f"the body may have {limit} bytes")
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise Rejected(413, "too_large", f"the body may have {limit} bytes")
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_negotiated = lru_cache(256)(negotiate)


def _framing(exchange: Exchange, declared: str | None = PROTOCOL_VERSION) -> Framing:
    return framing_for(_negotiated(exchange.request.headers.get("accept")), declared)


class _Declaration(msgspec.Struct, rename="camel"):
    protocol_version: Any = None


def _level(body: bytes) -> Level:
    """How old the shapes may be: a peer that declares no version is from before there were any (VER-8)."""
    if b'"protocolVersion"' not in body:
        return "wide"
    try:
        found = msgspec.json.decode(body, type=_Declaration)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "standard"
    return "wide" if found.protocol_version is None else "standard"


def _status(record: RunRecord) -> dict[str, Any]:
    return {
        "threadId": record.thread_id,
        "runId": record.run_id,
        "parentRunId": record.parent_run_id,
        "status": "running" if record.outcome is None else record.outcome,
        "cancelRequested": record.cancel_requested,
        "first": record.first,
        "last": record.last,
        "startedAt": record.started_at,
        "endedAt": record.ended_at,
    }


def _summary(thread: ThreadSummary) -> dict[str, Any]:
    return {
        "threadId": thread.thread_id,
        "createdAt": thread.created_at,
        "updatedAt": thread.updated_at,
        "last": thread.last,
        "runs": thread.runs,
        "isRunning": thread.is_running,
    }


# The table

Handler = Callable[[Routes, Exchange], Awaitable[Reply]]


class Route(msgspec.Struct, frozen=True):
    """A path, where None stands for an id, and its handlers by method."""

    path: tuple[str | None, ...]
    handlers: Mapping[str, Handler]
    is_open: bool = False
    """Answers without credentials."""
    needs_owner: frozenset[str] = frozenset()
    """Methods that are refused while everybody is anonymous: they show or remove what others left."""


ROUTES: Final = (
    Route((), {"POST": Routes.run}),
    Route(("connect",), {"POST": Routes.connect}),
    Route(("capabilities",), {"GET": Routes.capabilities}),
    Route(("threads",), {"GET": Routes.threads}, needs_owner=frozenset({"GET"})),
    Route(
        ("threads", None),
        {"GET": Routes.thread, "DELETE": Routes.delete_thread},
        needs_owner=frozenset({"DELETE"}),
    ),
    Route(("threads", None, "events"), {"GET": Routes.thread_events}),
    Route(("threads", None, "runs", None), {"GET": Routes.run_status}),
    Route(("threads", None, "runs", None, "events"), {"GET": Routes.run_events}),
    Route(("threads", None, "runs", None, "cancel"), {"POST": Routes.cancel}),
    Route(("files",), {"POST": Routes.upload}, needs_owner=frozenset({"POST"})),
    Route(("files", None), {"GET": Routes.download}, needs_owner=frozenset({"GET"})),
    Route(("healthz",), {"GET": Routes.healthz}, is_open=True),
)


def find_route(segments: Sequence[str]) -> tuple[Route, list[str]]:
    """The route of a path and the ids in it. Raises ``NotFound``."""
    if not segments:
        return ROUTES[0], []
    for route in ROUTES:
        if len(route.path) == len(segments) and all(
            (wanted is None and given != "") or wanted == given
            for wanted, given in zip(route.path, segments, strict=True)
        ):
            return route, [given for wanted, given in zip(route.path, segments, strict=True) if wanted is None]
    raise NotFound("there is nothing at this path")


def path_segments(asgi: Mapping[str, Any]) -> list[str]:
    """The path below the mount, split and then decoded: an id may hold a slash. Trailing slashes do not count."""
    path: str = asgi["path"]
    root: str = asgi.get("root_path", "").rstrip("/")
    raw: bytes | None = asgi.get("raw_path")
    is_below = root != "" and (path == root or path.startswith(root + "/"))
    text = path if raw is None else raw.partition(b"?")[0].decode("latin-1")
    pieces = text.split("/")[1:]
    if is_below:
        pieces = pieces[root.count("/") :]
    while pieces and pieces[-1] == "":
        pieces.pop()
    if raw is None:
        return pieces
    try:
        return [unquote(piece, errors="strict") for piece in pieces]
    except UnicodeDecodeError:
        raise NotFound("the path is not UTF-8") from None
