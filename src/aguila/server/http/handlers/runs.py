"""The handlers of runs: start, reconnect, hydrate, status, cancel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from aguila.errors import CursorExpired, NotFound
from aguila.protocol import RunAgentInput
from aguila.server.history.client_history.agent_input import check_parent
from aguila.server.history.compact_log import build_compact_replay, wants_compact
from aguila.server.history.hydration import build_cancelled_run, hydrate_thread
from aguila.server.http.body_limits import Reservation
from aguila.server.http.disconnect import listen_for_disconnect
from aguila.server.http.documents import Pieces
from aguila.server.http.event_stream import EventStream, StreamPlan, WatchedRun
from aguila.server.http.framing import Framing, FramingWithoutIds
from aguila.server.http.parameters import peek_cursor, read_cursor, read_flag, read_skip, wants_times
from aguila.server.http.request_body import Body, Outline, decode_input, read_run_body
from aguila.server.http.responses import Response, json_response
from aguila.server.interrupts.derived_runs import SentRunId, latest_derived
from aguila.server.interrupts.langgraph_pages import on_interrupt_events
from aguila.server.runs.event_encoding import is_large_event
from aguila.server.runs.starting.start_request import StartRequest, StartResult
from aguila.server.runs.unstored import UnstoredStart
from aguila.server.service import Exchange, Service
from aguila.server.tanstack.events import is_tanstack
from aguila.server.tanstack.history import restore_request
from aguila.store import Batch, RunRecord, Store
from aguila.store.cursors import format_cursor

# Starting a run


async def start_run(service: Service, exchange: Exchange) -> Response:
    """``POST /``: start a run, or reconnect to it. With ``?store=false`` the run is not stored."""
    sends_times = False
    if exchange.request.asgi.get("query_string"):
        if not read_flag(exchange, "store", default=True):
            return await start_unstored_run(service, exchange)
        sends_times = wants_times(exchange, is_compact=False)
    with Reservation(service.body_budget, exchange) as reservation:
        input, started = await _read_and_start(service, exchange, reservation)  # noqa: A001 - the protocol's word
        if reservation.size and started.live is not None:
            reservation.release_after(started.live.ended)
    if started.first is not None:
        framing = _framing(service, exchange, input, started)
        plan = _plan_live(input, started.first, started.live, framing, sends_times=sends_times)
        return service.stream(exchange, plan, framing)
    record = started.record
    after = None if record is None else await read_cursor(service, exchange, input.thread_id)
    framing = _framing(service, exchange, input, started)
    if started.is_hydration or (record is not None and not record.is_running and after is None):
        return await _hydrate(service, exchange, input, input.run_id if record is None else record.run_id, framing)
    if started.is_withdrawn:
        opening = framing.frame_events(build_cancelled_run(input.thread_id, input.run_id))
        return service.stream(exchange, StreamPlan(thread_id=input.thread_id, opening=opening), framing)
    if record is None:
        raise LookupError("a start request leads to a new run, a stored run, a hydration or a withdrawal")
    return await stream_run(service, exchange, record, after, framing=framing, sends_times=sends_times)


def _framing(service: Service, exchange: Exchange, input: RunAgentInput, started: StartResult) -> Framing:  # noqa: A002
    """Return the framing for the stream of a run. The stream of a derived run shows the run id that was sent (IN-3)."""
    framing = service.framing(exchange, input.protocol_version, input.thread_id, input.run_id)
    run_id = started.run_id
    if run_id is None or run_id == input.run_id:
        return framing
    return SentRunId(framing, stored=run_id, sent=input.run_id)


async def start_unstored_run(service: Service, exchange: Exchange) -> Response:
    """Start a run that is not stored. It is cancelled when the client disconnects."""
    with Reservation(service.body_budget, exchange) as reservation:
        body = await read_run_body(service, exchange, reservation)
        input, digest = await decode_input(service, body)  # noqa: A001
        framing = FramingWithoutIds(service.framing(exchange, input.protocol_version, input.thread_id, input.run_id))
        request = _build_start_request(service, exchange, body, input, digest)
        unstored = await _start_unstored(service, exchange, request)
    plan = _plan_live(input, unstored.first, unstored.live, framing)
    return service.stream(exchange, plan, framing, unstored=unstored.store)


async def _start_unstored(service: Service, exchange: Exchange, request: StartRequest) -> UnstoredStart:
    address = exchange.counted_address
    if address is None:
        return await service.runs.start_unstored(request)
    refusal = service.peer_runs.refusal(address)
    if refusal is not None:
        raise refusal
    with service.peer_runs.admitted(address) as count_until:
        unstored = await service.runs.start_unstored(request)
        count_until(unstored.live.ended)
    return unstored


def _plan_live(
    input: RunAgentInput,  # noqa: A002
    first: Batch,
    watched: WatchedRun | None,
    framing: Framing,
    *,
    sends_times: bool = False,
) -> StreamPlan:
    """Plan the stream of a new run: its first batch, then live events."""
    opening = framing.frame_batch(first.first, first.events, first.token)
    if sends_times:
        opening = b": time=%d\n\n%b" % (first.at, opening)
    return StreamPlan(
        thread_id=input.thread_id,
        after=first.last,
        opening=opening,
        is_live=True,
        watched=watched,
        sends_times=sends_times,
    )


async def _read_and_start(
    service: Service, exchange: Exchange, reservation: Reservation
) -> tuple[RunAgentInput, StartResult]:
    """Read the body and start its run. The body is freed when this returns, because it may be large."""
    body = await read_run_body(service, exchange, reservation)
    if isinstance(body.outline, Outline) and body.outline.has_ids:  # refuse before a body is decoded for nothing
        await service.runs.check_capacity(exchange.scope, body.outline.thread_id, body.outline.run_id)
    input, digest = await decode_input(service, body)  # noqa: A001 - the protocol's word
    if reservation.size:
        reservation.release_soon()
    address = exchange.counted_address
    if address is None:
        return input, await _start(service, exchange, body, input, digest)
    refusal = service.peer_runs.refusal(address) or service.peer_quotas.refusal(address)
    if refusal is not None:
        try:
            await service.store.run(exchange.scope, input.thread_id, input.run_id)  # attaching is always possible
        except NotFound:
            raise refusal from None
    size, is_new, has_begun = len(body.data), False, False
    service.peer_quotas.count(address, size=size, threads=1)
    try:
        with service.peer_runs.admitted(address) as count_until:
            result = await _start(service, exchange, body, input, digest)
            if result.live is not None and result.first is not None:
                has_begun, is_new = True, result.first.first == 1
                count_until(result.live.ended)
    finally:
        service.peer_quotas.give_back(address, size=0 if has_begun else size, threads=0 if is_new else 1)
    return input, result


async def _start(
    service: Service,
    exchange: Exchange,
    body: Body,
    input: RunAgentInput,  # noqa: A002
    digest: str | None,
) -> StartResult:
    request = _build_start_request(service, exchange, body, input, digest)
    if input.protocol_version is None and is_tanstack(exchange.request):
        request = await restore_request(request, service.runs.projections)
    if not service.runs.has_queue:
        return await service.runs.start(request)
    listening = listen_for_disconnect(exchange.receive)
    try:
        return await service.runs.start(replace(request, disconnected=listening))
    finally:
        listening.cancel()


def _build_start_request(
    service: Service,
    exchange: Exchange,
    body: Body,
    input: RunAgentInput,  # noqa: A002
    digest: str | None,
) -> StartRequest:
    request = exchange.request
    return StartRequest(
        input=input,
        body=body.data,
        scope=exchange.scope,
        principal=exchange.principal,
        headers=service.select_headers(request) if service.headers_allowed else {},
        digest=digest,
        cursor=peek_cursor(exchange),
        agent=service.agent_of(exchange),
    )


# Following a run


async def stream_run(
    service: Service,
    exchange: Exchange,
    record: RunRecord,
    after: int | None,
    *,
    framing: Framing | None = None,
    replay: Callable[[EventStream], Awaitable[None]] | None = None,
    fails_in_band: bool = True,
    sends_times: bool = False,
) -> Response:
    """Stream a run's part of the log after a cursor, then live until its end."""
    if framing is None:
        framing = service.framing(exchange, exchange.request.query.get("protocolVersion"), record.thread_id)
    if after is not None:
        await observe_run(service, exchange, record, after, framing)
    plan = StreamPlan(
        thread_id=record.thread_id,
        after=record.first - 1 if after is None else max(after, record.first - 1),
        until=None if record.is_running else record.last,
        is_live=record.is_running,
        replay=replay,
        fails_in_band=fails_in_band,
        watched=service.runs.find_watched(record) if record.is_running else None,
        sends_times=sends_times,
    )
    return service.stream(exchange, plan, framing)


async def observe_run(service: Service, exchange: Exchange, record: RunRecord, after: int, framing: Framing) -> None:
    """Pass the events that the reader has already received to the framing, if it needs them for later ones."""
    if not framing.needs_past:
        return
    at = record.first - 1
    while at < after:
        batches = await service.store.read(exchange.scope, record.thread_id, at, until=after)
        for batch in batches:
            framing.observe(batch)
        at = batches[-1].last if batches else after
    if framing.sequencer is not None:
        framing.sequencer.resume(read_skip(exchange))


async def connect(service: Service, exchange: Exchange) -> Response:
    """``POST /connect``: hydrate a client with the thread, then stream the run in progress."""
    return await connect_to(service, exchange, await read_input(service, exchange))


async def read_input(service: Service, exchange: Exchange) -> RunAgentInput:
    """Read the input of a request that starts no run. Raises ``Rejected``."""
    with Reservation(service.body_budget, exchange) as reservation:
        input, _ = await decode_input(service, await read_run_body(service, exchange, reservation))  # noqa: A001
    return input


async def connect_to(service: Service, exchange: Exchange, input: RunAgentInput) -> Response:  # noqa: A002
    """Hydrate a client with the thread that an input names, then stream the run in progress."""
    run_id = input.run_id
    try:
        await service.store.run(exchange.scope, input.thread_id, run_id)
    except NotFound:
        # A stored run has its own parent, so only the parent of an unknown run is checked.
        for notice in await check_parent(input, service.store, exchange.scope):
            service.warn(notice)
    else:
        derived = await latest_derived(service.store, exchange.scope, input.thread_id, run_id)
        run_id = run_id if derived is None else derived.run_id
    framing = service.framing(exchange, input.protocol_version, input.thread_id, run_id)
    return await _hydrate(service, exchange, input, run_id, framing)


async def _hydrate(
    service: Service,
    exchange: Exchange,
    input: RunAgentInput,  # noqa: A002
    run_id: str,
    framing: Framing,
) -> Response:
    store, scope, thread_id = service.store, exchange.scope, input.thread_id
    await service.check_agent(exchange, thread_id)
    records = await store.runs(scope, thread_id)
    running = records[-1] if records and records[-1].is_running else None
    projections = service.runs.projections
    joined = await hydrate_thread(
        store, projections, scope, thread_id, run_id, live=running, branch=input.parent_run_id
    )

    events = joined.events
    if framing.dialect.user_parts != "text":
        events = await service.file_types.complete(scope, events)
    if service.runs.sends_on_interrupt:
        events = [*events[:-1], *on_interrupt_events(events[-1]), events[-1]]
    cursor = await find_cursor(store, scope, thread_id, joined.after)
    pieces = Pieces(framing.frame_pieces(events, cursor), is_large=any(map(is_large_event, events)))
    opening = await pieces.take()
    plan = StreamPlan(
        thread_id=thread_id,
        after=joined.after,
        opening=opening,
        opening_rest=None if pieces.is_complete else pieces,
        is_live=joined.is_live,
        watched=service.runs.find_watched(running) if running is not None and joined.is_live else None,
    )
    return service.stream(exchange, plan, framing)


async def find_cursor(store: Store, scope: str, thread_id: str, number: int) -> str:
    """Return the cursor of the last event that a hydration includes."""
    try:
        return format_cursor(number, await store.token(scope, thread_id, number))
    except (NotFound, CursorExpired):  # there is no such thread, or it was deleted meanwhile
        return str(number)


async def stream_run_events(service: Service, exchange: Exchange) -> Response:
    """``GET /threads/{id}/runs/{run}/events``: the run's part of the log, then live until its end."""
    record = await find_run(service, exchange)
    after = await read_cursor(service, exchange, record.thread_id)
    is_compact = wants_compact(exchange.request)
    replay = build_compact_replay(service.store, [record], service.warn) if is_compact else None
    times = wants_times(exchange, is_compact=is_compact)
    return await stream_run(service, exchange, record, after, replay=replay, fails_in_band=False, sends_times=times)


# Status and cancellation


async def get_run(service: Service, exchange: Exchange) -> Response:
    """``GET /threads/{id}/runs/{run}``."""
    return json_response(describe_run(await find_run(service, exchange)), exchange.headers)


async def cancel_run(service: Service, exchange: Exchange) -> Response:
    """``POST /threads/{id}/runs/{run}/cancel``: 202 while the run is ending, 200 if it has ended or was queued."""
    thread_id, run_id = exchange.params
    runs, scope = service.runs, exchange.scope
    await service.check_agent(exchange, thread_id)
    try:
        record = await runs.cancel(scope, thread_id, run_id)
    except NotFound:
        if await runs.withdraw(scope, thread_id, run_id):
            answer = {"threadId": thread_id, "runId": run_id, "status": "cancelled", "cancelRequested": True}
            return json_response(answer, exchange.headers)
        record = await runs.cancel(scope, thread_id, run_id)  # the run may have left the queue and begun meanwhile
    return json_response(describe_run(record), exchange.headers, 202 if record.is_running else 200)


async def cancel_thread(service: Service, exchange: Exchange) -> Response:
    """``POST /threads/{id}/cancel``: cancel the run in progress; 200 if there is none."""
    (thread_id,) = exchange.params
    await service.check_agent(exchange, thread_id)
    record = await service.runs.cancel_thread(exchange.scope, thread_id)
    if record is None:
        answer = {"threadId": thread_id, "runId": None, "status": "idle", "cancelRequested": False}
        return json_response(answer, exchange.headers)
    return json_response(describe_run(record), exchange.headers, 202 if record.is_running else 200)


async def find_run(service: Service, exchange: Exchange) -> RunRecord:
    """Find the run that the path names. Raises ``NotFound``."""
    thread_id, run_id = exchange.params
    record = await service.store.run(exchange.scope, thread_id, run_id)
    if exchange.agent not in (None, record.agent):
        raise NotFound(f"agent {exchange.agent!r} has no thread {thread_id!r}; it belongs to {record.agent!r}")
    return record


def describe_run(record: RunRecord) -> dict[str, Any]:
    """Return the status of a run as JSON."""
    return {
        "threadId": record.thread_id,
        "runId": record.run_id,
        "agent": record.agent,
        "parentRunId": record.parent_run_id,
        "status": "running" if record.outcome is None else record.outcome,
        "cancelRequested": record.cancel_requested,
        "first": record.first,
        "last": record.last,
        "cursor": format_cursor(record.last, record.token),
        "startedAt": record.started_at,
        "endedAt": record.ended_at,
    }
