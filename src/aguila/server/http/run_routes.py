"""The handlers of runs: start, reconnect, hydrate, status, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import Any

from aguila.errors import CursorExpired, NotFound
from aguila.offload import LARGE, is_large
from aguila.protocol import RunAgentInput
from aguila.server.config.errors import Withdrawn
from aguila.server.http.body import read_input
from aguila.server.http.compact_replay import Replay, build_compact_replay, wants_compact
from aguila.server.http.frames import Framing, select_framing
from aguila.server.http.parameters import peek_cursor, read_cursor, read_flag, read_skip, wants_times
from aguila.server.http.request import Request
from aguila.server.http.responses import Pieces, Response, json_response
from aguila.server.http.service import Service
from aguila.server.http.stream import EventStream, wait_for_disconnect
from aguila.server.runs.repeated import latest_derived
from aguila.server.runs.start_request import Started, StartRequest, hash_body
from aguila.server.threads.client.agent_input import check_parent
from aguila.server.threads.hydration import build_cancelled_run, hydrate_thread
from aguila.server.threads.log import read_log
from aguila.store import RunKey, RunRecord, Store
from aguila.store.cursors import format_cursor

# Starting a run


async def start_run(service: Service, request: Request, *, is_stored: bool = True) -> Response:
    """``POST /``: start a run, or reconnect to it. With ``?store=false`` the run is not stored.

    A run that is not stored is cancelled when the client disconnects.
    """
    sends_times = False
    if request.scope.get("query_string"):
        is_stored = is_stored and read_flag(request, "store", default=True) is not False
        sends_times = wants_times(request, is_compact=False)
    input, start = await start_request(service, request, is_stored=is_stored)  # noqa: A001 - the protocol's word
    try:
        if isinstance(start, RunRecord):
            started = start
        else:
            is_stored = start.is_stored
            started = await (service.runs.start if is_stored else service.runs.start_unstored)(start)
    except Withdrawn:
        return _answer_cancelled(service, request, input)
    finally:
        if isinstance(start, StartRequest) and start.disconnected is not None:
            start.disconnected.cancel()
        del start  # its body may be large
    framing = select_framing(service, request, input.protocol_version, input.thread_id, input.run_id)
    found = started.live.lease if isinstance(started, Started) else started
    run_id = input.run_id if found is None else found.run_id
    if not is_stored or run_id != input.run_id:
        framing = copy(framing)  # it may be shared
        framing.has_ids = is_stored
        framing.run_ids = None if run_id == input.run_id else (run_id, input.run_id)
    if not isinstance(started, Started):
        return await _attach(service, request, input, started, framing, sends_times=sends_times)
    live, first = started.live, started.first
    if request.reservation.size:
        request.reservation.release_after(live.ended)
    opening = framing.frame_batch(first.first, first.events, first.token)
    return EventStream(
        service,
        framing,
        request.caller.scope,
        input.thread_id,
        after=first.first + len(first.events) - 1,
        opening=b": time=%d\n\n%b" % (first.at, opening) if sends_times else opening,
        opening_events=len(first.events),
        is_live=True,
        watched=live,
        sends_times=sends_times,
        unstored=None if is_stored else live.store,
    )


async def start_request(
    service: Service, request: Request, *, is_stored: bool
) -> tuple[RunAgentInput, StartRequest | RunRecord]:
    """Read the request to start a run; return its input, too. A front end may know the run that it has started before.

    Raises ``Rejected``.
    """
    input, body = await read_input(service, request)  # noqa: A001
    if request.reservation.size:
        request.reservation.release_soon()
    headers, caller, props = request.headers, request.caller, input.forwarded_props
    may_reconnect = bool(request.scope.get("query_string")) or "last-event-id" in headers
    start = StartRequest(
        input=input,
        body=body,
        scope=caller.scope,
        principal=caller.principal,
        limits=caller.limits,
        quotas=caller.quotas,
        headers={name: headers[name] for name in service.headers_allowed if name in headers},
        fingerprint=hash_body(body) if len(body) > LARGE else "",
        cursor=peek_cursor(request) if may_reconnect else None,
        agent=service.agents[0] if request.agent is None else request.agent,
        address=caller.address,
        is_stored=is_stored,
    )
    for one in service.front_ends if is_stored else ():
        if one.header in headers or (one.member and isinstance(props, dict) and one.member in props):
            translated = await one.translate(start, request, service.runs)
            if isinstance(translated, RunRecord):
                return input, translated
            start = translated
    if service.spans is not None:
        sent = start.input
        start.span = service.spans.of_run(
            headers, agent=start.agent, thread_id=sent.thread_id, run_id=sent.run_id, scope=start.scope
        )
    if service.runs.has_queue:
        start.disconnected = asyncio.create_task(wait_for_disconnect(request.receive))
    return input, start


async def _attach(
    service: Service,
    request: Request,
    input: RunAgentInput,  # noqa: A002
    record: RunRecord | None,
    framing: Framing,
    *,
    sends_times: bool,
) -> Response:
    """Answer a request that starts no run: with the run that it has started before, or with the thread as it is."""
    if record is None:
        return await _hydrate(service, request, input, input.run_id, framing)
    after = await read_cursor(service, request, input.thread_id)
    if not record.is_running and after is None:
        return await _hydrate(service, request, input, record.run_id, framing)
    return await stream_runs(service, request, [record], after, framing=framing, sends_times=sends_times)


def _answer_cancelled(service: Service, request: Request, input: RunAgentInput) -> Response:  # noqa: A002
    """Answer a request that was cancelled by its run id before its run had begun."""
    framing = select_framing(service, request, input.protocol_version, input.thread_id, input.run_id)
    events = build_cancelled_run(input.thread_id, input.run_id)
    opening, scope = framing.frame_events(events), request.caller.scope
    return EventStream(service, framing, scope, input.thread_id, opening=opening, opening_events=len(events))


# Following a run


async def stream_runs(
    service: Service,
    request: Request,
    runs: Sequence[RunRecord],
    after: int | None,
    *,
    framing: Framing | None = None,
    replay: Replay | None = None,
    fails_in_band: bool = True,
    sends_times: bool = False,
) -> Response:
    """Stream the events of consecutive runs of a thread after a cursor, then live until the end of the last one."""
    first, last = runs[0], runs[-1]
    if framing is None:
        framing = select_framing(service, request, request.query.get("protocolVersion"), last.thread_id)
    after = max(after or 0, first.first - 1)
    for record in runs if framing.needs_past else ():
        if record.first <= after and (record.is_running or after < record.last):
            await _observe(service, request, record, after, framing)
    return EventStream(
        service,
        framing,
        request.caller.scope,
        last.thread_id,
        after=after,
        until=last.last,
        is_live=last.is_running,
        replay=replay,
        fails_in_band=fails_in_band,
        watched=service.runs.find_watched(last) if last.is_running else None,
        sends_times=sends_times,
    )


async def _observe(service: Service, request: Request, record: RunRecord, after: int, framing: Framing) -> None:
    """Pass the events of a run that the reader has already received to the framing, which needs them for later ones."""
    async for batches in read_log(service.store, request.caller.scope, record.thread_id, record.first - 1, after):
        for batch in batches:
            framing.observe(batch)
        await asyncio.sleep(0)  # a store may return without a turn of the event loop
    if framing.sequencer is not None:
        framing.sequencer.resume(read_skip(request))


async def connect(service: Service, request: Request) -> Response:
    """``POST /connect``: hydrate a client with the thread, then stream the run in progress."""
    input, _ = await read_input(service, request)  # noqa: A001
    return await connect_to(service, request, input)


async def connect_to(service: Service, request: Request, input: RunAgentInput) -> Response:  # noqa: A002
    """Hydrate a client with the thread that an input names, then stream the run in progress."""
    run_id = input.run_id
    try:
        await service.store.run(RunKey(request.caller.scope, input.thread_id, run_id))
    except NotFound:
        # A stored run has its own parent, so only the parent of an unknown run is checked.
        for notice in await check_parent(input, service.store, request.caller.scope):
            service.warn(notice)
    else:
        derived = await latest_derived(service.store, request.caller.scope, input.thread_id, run_id)
        run_id = run_id if derived is None else derived.run_id
    framing = select_framing(service, request, input.protocol_version, input.thread_id, run_id)
    return await _hydrate(service, request, input, run_id, framing)


async def _hydrate(
    service: Service,
    request: Request,
    input: RunAgentInput,  # noqa: A002
    run_id: str,
    framing: Framing,
) -> Response:
    store, scope, thread_id = service.store, request.caller.scope, input.thread_id
    await service.check_agent(request, thread_id)
    running = await service.runs.find_running(scope, thread_id)
    threads = service.runs.threads
    joined = await hydrate_thread(store, threads, scope, thread_id, run_id, live=running, branch=input.parent_run_id)

    events = joined.events
    if framing.dialect.user_parts != "text":
        events = await service.file_types.complete(scope, events)
    events = [*events[:-1], *service.runs.closing(events[-1]), events[-1]]
    cursor = await find_cursor(store, scope, thread_id, joined.after)
    events = [framing.rename(event) for event in events]
    pieces = await Pieces.begin(framing.frame_pieces(events, cursor), is_large=any(map(is_large, events)))
    return EventStream(
        service,
        framing,
        scope,
        thread_id,
        after=joined.after,
        opening=pieces,
        opening_events=len(events),
        is_live=joined.is_live,
        watched=service.runs.find_watched(running) if running is not None and joined.is_live else None,
    )


async def find_cursor(store: Store, scope: str, thread_id: str, number: int) -> str:
    """Return the cursor of the last event that a hydration includes."""
    try:
        return format_cursor(number, (await store.read(scope, thread_id, number, limit=0)).token)
    except (NotFound, CursorExpired):  # there is no such thread, or it was deleted meanwhile
        return str(number)


async def stream_run_events(service: Service, request: Request) -> Response:
    """``GET /threads/{id}/runs/{run}/events``: the run's part of the log, then live until its end."""
    return await stream_log(service, request, [await find_run(service, request)])


async def stream_log(service: Service, request: Request, runs: Sequence[RunRecord]) -> Response:
    """Stream the events of consecutive runs of a thread, as the query asks for them."""
    after = await read_cursor(service, request, runs[-1].thread_id)
    is_compact = wants_compact(request)
    replay = build_compact_replay(service.store, runs, service.warn) if is_compact else None
    times = wants_times(request, is_compact=is_compact)
    return await stream_runs(service, request, runs, after, replay=replay, fails_in_band=False, sends_times=times)


# Status and cancellation


async def get_run(service: Service, request: Request) -> Response:
    """``GET /threads/{id}/runs/{run}``."""
    return json_response(describe_run(await find_run(service, request)))


async def cancel_run(service: Service, request: Request) -> Response:
    """``POST /threads/{id}/runs/{run}/cancel``: 202 while the run is ending, 200 if it has ended or was queued."""
    thread_id, run_id = request.ids
    await service.check_agent(request, thread_id)
    return await cancel_or_withdraw(service, request.caller.scope, thread_id, run_id)


async def cancel_or_withdraw(service: Service, scope: str, thread_id: str, run_id: str) -> Response:
    """Cancel a run, or withdraw the requests for it that are queued. Raises ``NotFound``."""
    runs = service.runs
    try:
        record = await runs.cancel(scope, thread_id, run_id)
    except NotFound:
        if await runs.turns.withdraw(scope, thread_id, run_id):
            answer = {"threadId": thread_id, "runId": run_id, "status": "cancelled", "cancelRequested": True}
            return json_response(answer)
        record = await runs.cancel(scope, thread_id, run_id)  # the run may have left the queue and begun meanwhile
    return json_response(describe_run(record), status=202 if record.is_running else 200)


async def cancel_thread(service: Service, request: Request) -> Response:
    """``POST /threads/{id}/cancel``: cancel the run in progress; 200 if there is none."""
    (thread_id,) = request.ids
    await service.check_agent(request, thread_id)
    record = await service.runs.cancel_thread(request.caller.scope, thread_id)
    if record is None:
        answer = {"threadId": thread_id, "runId": None, "status": "idle", "cancelRequested": False}
        return json_response(answer)
    return json_response(describe_run(record), status=202 if record.is_running else 200)


async def find_run(service: Service, request: Request) -> RunRecord:
    """Find the run that the path names. Raises ``NotFound``."""
    thread_id, run_id = request.ids
    record = await service.store.run(RunKey(request.caller.scope, thread_id, run_id))
    if request.agent not in (None, record.agent):
        raise NotFound(f"agent {request.agent!r} has no thread {thread_id!r}; it belongs to {record.agent!r}")
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
