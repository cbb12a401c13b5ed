"""Layer: server. The handlers about runs: start, come back, join, look, cancel.

Below: ``exchange``, ``inputs``, ``join``, ``replay``. Above: the table in ``routes``.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from msgspec.structs import replace

from aguila.codec.logs import RunLogContext
from aguila.errors import CursorExpired, NotFound
from aguila.offload import offload
from aguila.protocol import RunAgentInput
from aguila.server.errors import Rejected
from aguila.server.history.agent_input import check_parent
from aguila.server.history.compact_log import compact_replay, wants_compact
from aguila.server.history.hydration import cancelled_run, hydrate_thread
from aguila.server.http.body_limits import Share
from aguila.server.http.request_body import Body, decode_input, read_outline
from aguila.server.http.responses import Framing, Receive, Reply, WithoutIds, json_document
from aguila.server.interrupts.langgraph_pages import on_interrupt_events
from aguila.server.runs.derived_runs import SentRunId, latest_derived
from aguila.server.runs.event_encoding import is_large_event
from aguila.server.runs.start_request import StartRequest, StartResult
from aguila.server.service import Exchange, Service
from aguila.server.tanstack.events import TanStackFraming, is_tanstack
from aguila.server.tanstack.history import restore_request
from aguila.store import RunRecord


async def run(service: Service, exchange: Exchange) -> Reply:
    """``POST /``: start a run, or come back to it; with ``?store=false`` one that is not stored."""
    if exchange.request.asgi.get("query_string") and not flag(exchange, "store", default=True):
        return await run_unstored(service, exchange)
    with Share(service.admission) as share:
        input, started = await _start(service, exchange, share)  # noqa: A001 - the protocol's word for it
        if share.size and started.live is not None:
            share.until(started.live.ended)
    first = started.first
    if first is not None:
        framing = _framing(service, exchange, input, started)
        opening = framing.batch(first.first, first.events)
        return service.stream(
            exchange, input.thread_id, framing, after=first.last, opening=opening, is_live=True, watched=started.live
        )
    record = started.record
    after = None if record is None else await cursor_of(service, exchange, input.thread_id)
    framing = _framing(service, exchange, input, started)
    if started.is_hydration or (record is not None and not record.is_running and after is None):
        return await _join(service, exchange, input, input.run_id if record is None else record.run_id, framing)
    if started.is_withdrawn:
        opening = framing.events(cancelled_run(input.thread_id, input.run_id))
        return service.stream(exchange, input.thread_id, framing, after=0, opening=opening, is_live=False)
    if record is None:
        raise LookupError("a request leads to a new run, to one that is there, or to none")
    return await run_stream(service, exchange, record, after, framing=framing)


def _framing(service: Service, exchange: Exchange, input: RunAgentInput, started: StartResult) -> Framing:  # noqa: A002
    """Return the framing for the stream of a run. The stream of a derived run shows the run id that was sent (IN-3)."""
    framing = service.framing(exchange, input.protocol_version, input.thread_id, input.run_id)
    run_id = started.run_id
    if run_id is None or run_id == input.run_id:
        return framing
    return SentRunId(framing, stored=run_id, sent=input.run_id)


async def run_unstored(service: Service, exchange: Exchange) -> Reply:
    """Start a run that is not stored. It ends when the client hangs up."""
    with Share(service.admission) as share:
        body = await read_outline(service, exchange, share)
        input, digest = await decode_input(service, body)  # noqa: A001
        framing = WithoutIds(service.framing(exchange, input.protocol_version, input.thread_id, input.run_id))
        unstored = await service.runs.start_unstored(_build_start_request(service, exchange, body, input, digest))
    first = unstored.first
    return service.stream(
        exchange,
        input.thread_id,
        framing,
        after=first.last,
        opening=framing.batch(first.first, first.events),
        is_live=True,
        watched=unstored.live,
        unstored=unstored.store,
    )


def flag(exchange: Exchange, name: str, *, default: bool | None) -> bool | None:
    """Read a query parameter that is ``true`` or ``false``. Raises ``Rejected``."""
    text = exchange.request.query.get(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise Rejected(422, "bad_parameter", f"{name} is true or false, not {text!r}", f"/{name}")
    return text == "true"


async def run_stream(
    service: Service,
    exchange: Exchange,
    record: RunRecord,
    after: int | None,
    *,
    framing: Framing | None = None,
    **options: Any,
) -> Reply:
    """Answer with a run's part of the log after a cursor, then live until its end."""
    if isinstance(framing, TanStackFraming) and after is not None:
        await _observe(service, exchange, record, after, framing)
    return service.stream(
        exchange,
        record.thread_id,
        framing,
        after=record.first - 1 if after is None else max(after, record.first - 1),
        until=None if record.is_running else record.last,
        is_live=record.is_running,
        watched=service.runs.find_watched(record) if record.is_running else None,
        **options,
    )


async def _observe(
    service: Service, exchange: Exchange, record: RunRecord, after: int, framing: TanStackFraming
) -> None:
    """Show a framing the events of a run that the reader has already."""
    at = record.first - 1
    while at < after:
        batches = await service.store.read(exchange.scope, record.thread_id, at, until=after)
        for batch in batches:
            framing.adapter.observe(batch.events)
        at = batches[-1].last if batches else after


async def _start(service: Service, exchange: Exchange, share: Share) -> tuple[RunAgentInput, StartResult]:
    """Read the body and start what it asks for. The body is gone when this returns: it may be large."""
    body = await read_outline(service, exchange, share)
    outline = body.outline
    if outline is None or not (isinstance(outline.thread_id, str) and isinstance(outline.run_id, str)):
        return await _decode_and_start(service, exchange, share, body)
    with RunLogContext(outline.thread_id, outline.run_id):
        return await _decode_and_start(service, exchange, share, body)


async def _decode_and_start(
    service: Service, exchange: Exchange, share: Share, body: Body
) -> tuple[RunAgentInput, StartResult]:
    await _check_room(service, exchange, body)
    input, digest = await decode_input(service, body)  # noqa: A001
    if share.size:
        share.lend()
    request = _build_start_request(service, exchange, body, input, digest)
    if input.protocol_version is None and is_tanstack(exchange.request):
        request = await restore_request(request, service.runs.projections)
    if not service.runs.has_queue:
        return input, await service.runs.start(request)
    with Hearing(exchange.receive) as hearing:
        return input, await service.runs.start(replace(request, is_disconnected=hearing.is_disconnected))


def _build_start_request(
    service: Service,
    exchange: Exchange,
    body: Body,
    input: RunAgentInput,  # noqa: A002
    digest: str | None,
) -> StartRequest:
    request = exchange.request
    headers: dict[str, str] = {}
    for name in service.headers_allowed:
        if name in request.headers:
            headers[name] = request.headers[name]
    return StartRequest(
        input=input,
        body=body.data,
        scope=exchange.scope,
        principal=exchange.principal,
        headers=headers,
        digest=digest,
        cursor=_last_event_id(exchange),
        agent=service.agent_of(exchange),
    )


async def _check_room(service: Service, exchange: Exchange, body: Body) -> None:
    """Raise ``Rejected`` if no run can begin now, before the body is decoded; but coming back is always possible."""
    refusal = service.runs.refusal(exchange.scope)
    if refusal is None or body.outline is None:
        return
    thread_id, run_id = body.outline.thread_id, body.outline.run_id
    if isinstance(thread_id, str) and isinstance(run_id, str):
        # Runs of requests that came in the same turn of the event loop begin in the next: this may be one of them.
        await asyncio.sleep(0)
        try:
            await service.store.run(exchange.scope, thread_id, run_id)
        except NotFound:
            raise refusal from None


async def connect(service: Service, exchange: Exchange) -> Reply:
    """``POST /connect``: the thread as it is, in a form that a stock client can consume, then the live tail."""
    return await connect_to(service, exchange, await read_input(service, exchange))


async def read_input(service: Service, exchange: Exchange) -> RunAgentInput:
    """Read the input of a request that starts nothing. Raises ``Rejected``."""
    with Share(service.admission) as share:
        input, _ = await decode_input(service, await read_outline(service, exchange, share))  # noqa: A001
    return input


async def connect_to(service: Service, exchange: Exchange, input: RunAgentInput) -> Reply:  # noqa: A002
    """Answer with the thread that an input names, then the live tail."""
    run_id = input.run_id
    try:
        await service.store.run(exchange.scope, input.thread_id, run_id)
    except NotFound:  # else it is that run which is told about, wherever it went on from
        for notice in await check_parent(input, service.store, exchange.scope):
            service.warn(notice)
    else:
        derived = await latest_derived(service.store, exchange.scope, input.thread_id, run_id)
        run_id = run_id if derived is None else derived.run_id
    framing = service.framing(exchange, input.protocol_version, input.thread_id, run_id)
    return await _join(service, exchange, input, run_id, framing)


async def _join(
    service: Service,
    exchange: Exchange,
    input: RunAgentInput,  # noqa: A002
    run_id: str,
    framing: Framing,
) -> Reply:
    store, scope, thread_id = service.store, exchange.scope, input.thread_id
    await service.check_agent(exchange, thread_id)
    records = await store.runs(scope, thread_id)
    running = records[-1] if records and records[-1].is_running else None
    projections = service.runs.projections
    joined = await hydrate_thread(
        store, projections, scope, thread_id, run_id, live=running, branch=input.parent_run_id
    )

    events = joined.events
    if service.runs.sends_on_interrupt:
        events = [*events[:-1], *on_interrupt_events(events[-1]), events[-1]]
    frames = partial(framing.events, events, joined.after)
    opening = await offload(frames) if any(map(is_large_event, events)) else frames()
    watched = service.runs.find_watched(running) if running is not None and joined.is_live else None
    return service.stream(
        exchange, thread_id, framing, after=joined.after, opening=opening, is_live=joined.is_live, watched=watched
    )


async def run_status(service: Service, exchange: Exchange) -> Reply:
    """``GET /threads/{id}/runs/{run}``."""
    return json_document(run_document(await _record(service, exchange)), exchange.headers)


async def run_events(service: Service, exchange: Exchange) -> Reply:
    """``GET /threads/{id}/runs/{run}/events``: the run's part of the log, then live until its end."""
    record = await _record(service, exchange)
    after = await cursor_of(service, exchange, record.thread_id)
    replay = compact_replay(service.store, [record], service.warn) if wants_compact(exchange.request) else None
    return await run_stream(service, exchange, record, after, replay=replay, fails_in_band=False)


async def cancel(service: Service, exchange: Exchange) -> Reply:
    """``POST /threads/{id}/runs/{run}/cancel``: 202 while it has to be awaited, 200 for a run that has ended."""
    thread_id, run_id = exchange.params
    runs, scope = service.runs, exchange.scope
    await service.check_agent(exchange, thread_id)
    try:
        record = await runs.cancel(scope, thread_id, run_id)
    except NotFound:
        if runs.withdraw(scope, thread_id, run_id):
            answer = {"threadId": thread_id, "runId": run_id, "status": "cancelled", "cancelRequested": True}
            return json_document(answer, exchange.headers)
        record = await runs.cancel(scope, thread_id, run_id)  # its turn may have come just now
    return json_document(run_document(record), exchange.headers, 202 if record.is_running else 200)


async def cancel_thread(service: Service, exchange: Exchange) -> Reply:
    """``POST /threads/{id}/cancel``: cancel the run that is on; 200 if there is none."""
    (thread_id,) = exchange.params
    await service.check_agent(exchange, thread_id)
    record = await service.runs.cancel_thread(exchange.scope, thread_id)
    if record is None:
        answer = {"threadId": thread_id, "runId": None, "status": "idle", "cancelRequested": False}
        return json_document(answer, exchange.headers)
    return json_document(run_document(record), exchange.headers, 202 if record.is_running else 200)


async def _record(service: Service, exchange: Exchange) -> RunRecord:
    thread_id, run_id = exchange.params
    record = await service.store.run(exchange.scope, thread_id, run_id)
    if exchange.agent not in (None, record.agent):
        raise NotFound(f"agent {exchange.agent!r} has no thread {thread_id!r}; it belongs to {record.agent!r}")
    return record


async def cursor_of(service: Service, exchange: Exchange, thread_id: str) -> int | None:
    """Where a reader goes on. Raises ``Rejected`` for what is no number, ``CursorExpired`` for one of another log."""
    text = _cursor_text(exchange)
    if text is None:
        return None
    if is_tanstack(exchange.request):
        text = text.partition(".")[0]  # the suffix of an added event
    if not (text.isascii() and text.isdigit()):
        raise Rejected(422, "bad_cursor", "a cursor is the id of an event of this thread, a number", "/after")
    if len(text) > 18:
        raise CursorExpired("no log has as many events")
    after = int(text)
    await service.store.read(exchange.scope, thread_id, after, until=after)
    return after


def _cursor_text(exchange: Exchange) -> str | None:
    # A browser that reconnects asks for the same address again, so the header is the newer one.
    return exchange.request.headers.get("last-event-id") or exchange.request.query.get("after")


def _last_event_id(exchange: Exchange) -> int | None:
    """Return the cursor of a request. It is checked only if the request comes back to a run (``cursor_of``)."""
    text = _cursor_text(exchange)
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 18 else None


def run_document(record: RunRecord) -> dict[str, Any]:
    """How a run stands, as JSON."""
    return {
        "threadId": record.thread_id,
        "runId": record.run_id,
        "agent": record.agent,
        "parentRunId": record.parent_run_id,
        "status": "running" if record.outcome is None else record.outcome,
        "cancelRequested": record.cancel_requested,
        "first": record.first,
        "last": record.last,
        "startedAt": record.started_at,
        "endedAt": record.ended_at,
    }


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

    def is_disconnected(self) -> bool:
        """Whether it has hung up."""
        return self._task is not None and self._task.done()

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
