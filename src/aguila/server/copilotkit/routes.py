"""CopilotKit's routes and their handlers, which call the handlers of the app."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from aguila.codec.negotiate import SSE_MEDIA_TYPE
from aguila.codec.sse import SSEEncoder
from aguila.errors import NotFound, ThreadBusy
from aguila.server.copilotkit import documents
from aguila.server.copilotkit.envelope import ReceivedBody, open_envelope
from aguila.server.copilotkit.mount import CopilotKitRejected
from aguila.server.copilotkit.suggestions import is_suggestion
from aguila.server.history.projection import Projection
from aguila.server.http.body_limits import Reservation
from aguila.server.http.documents import document_response
from aguila.server.http.handlers import runs as run_routes
from aguila.server.http.handlers import threads as thread_routes
from aguila.server.http.request_body import read_body, read_object
from aguila.server.http.responses import PIECE, BufferedResponse, Receive, Response, Send, json_response
from aguila.server.http.routes import Route, find_route
from aguila.server.interrupts.derived_runs import latest_derived
from aguila.server.service import Exchange, Service
from aguila.store import RunRecord, Store

_PAGE: Final = 200

_HELD_EVENTS: Final = 4 * PIECE
"""Bytes that are counted for a reader of the log: those of a usual batch, which is sent whole."""


# Agents


async def get_info(service: Service, exchange: Exchange) -> Response:
    """``GET /info``."""
    return json_response(documents.build_info(service, exchange, is_single=False), exchange.headers)


def _select_agent(service: Service, exchange: Exchange) -> Exchange:
    """Return the exchange for the agent that the path names first. Raises ``Rejected``."""
    name, *params = exchange.params
    if name not in service.agents:
        raise CopilotKitRejected(404, "Agent not found", f"Agent '{name}' does not exist")
    return replace(exchange, agent=name, params=params)


async def run(service: Service, exchange: Exchange) -> Response:
    """``POST /agent/{id}/run``.

    A client before 1.75, or at the single endpoint, asks for suggestions here instead of ``/suggest``, each on a new
    thread. Those runs are not stored either, because no client returns to them.
    """
    exchange = _select_agent(service, exchange)
    with Reservation(service.body_budget, exchange) as reservation:
        data = await read_body(exchange.request, exchange.receive, service.limits.body, reservation)
    exchange = replace(exchange, receive=ReceivedBody(data, exchange.receive))
    if is_suggestion(data):
        return await run_routes.start_unstored_run(service, exchange)
    return await run_routes.start_run(service, exchange)


async def suggest(service: Service, exchange: Exchange) -> Response:
    """``POST /agent/{id}/suggest``: a run that is not stored."""
    return await run_routes.start_unstored_run(service, _select_agent(service, exchange))


async def connect(service: Service, exchange: Exchange) -> Response:
    """``POST /agent/{id}/connect``: hydrate the thread and follow its running run. Empty for an unknown thread."""
    exchange = _select_agent(service, exchange)
    input = await run_routes.read_input(service, exchange)  # noqa: A001 - the protocol's word for it
    try:
        is_known = (await service.store.thread(exchange.scope, input.thread_id)).agent == exchange.agent
    except NotFound:
        is_known = False
    if not is_known:
        headers = [(b"cache-control", b"no-cache"), *exchange.headers]
        return BufferedResponse(body=SSEEncoder().comment(), media_type=SSE_MEDIA_TYPE.encode(), headers=headers)
    return await run_routes.connect_to(service, exchange, input)


async def stop(service: Service, exchange: Exchange) -> Response:
    """``POST /agent/{id}/stop/{threadId}``: cancel the running run, or only the run that the body names."""
    exchange = _select_agent(service, exchange)
    (thread_id,) = exchange.params
    body = await read_object(service, exchange, may_be_empty=True)
    run_id = body.get("runId")
    if body.keys() - {"runId"}:
        raise CopilotKitRejected(400, "Invalid stop request", "the body must be empty or an object with a runId")
    if "runId" in body and not (isinstance(run_id, str) and run_id.strip()):
        raise CopilotKitRejected(400, "Invalid runId", "runId must be a string that is not empty")
    if await _stop(service, exchange, thread_id, run_id):
        interrupt = {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"}
        return json_response({"stopped": True, "interrupt": interrupt}, exchange.headers)
    if run_id is None:
        message = f"No active run for thread '{thread_id}'."
    else:
        message = f"Run '{run_id}' is not the active run for thread '{thread_id}'."
    return json_response({"stopped": False, "message": message}, exchange.headers)


async def _stop(service: Service, exchange: Exchange, thread_id: str, run_id: str | None) -> bool:
    """Cancel the running run of a thread, if it is ``run_id`` or was derived from it. Return whether there was one."""
    runs, scope = service.runs, exchange.scope
    try:
        if (await service.store.thread(scope, thread_id)).agent != exchange.agent:
            return False
        if run_id is not None and await runs.withdraw(scope, thread_id, run_id):
            return True
        summary = await service.store.thread(scope, thread_id)
        if summary.running is None:
            return False
        if run_id not in (None, summary.running):
            derived = await latest_derived(service.store, scope, thread_id, str(run_id))
            if derived is None or derived.run_id != summary.running:
                return False
        return (await runs.cancel(scope, thread_id, summary.running)).is_running
    except NotFound:
        return False


# Threads


async def list_threads(service: Service, exchange: Exchange) -> Response:
    """``GET /threads``: the threads of an agent, or all, last updated first."""
    query = exchange.request.query
    archived = None if query.get("includeArchived") == "true" else False
    found, more = await thread_routes.read_thread_page(
        service, exchange, cursor="cursor", agent=query.get("agentId"), archived=archived
    )
    records = [documents.to_thread_record(one) for one in found]
    return json_response({"threads": records, "nextCursor": more}, exchange.headers)


async def _body_and_agent(service: Service, exchange: Exchange) -> tuple[dict[str, Any], str | None]:
    """Read a body that may be empty, and the agent that it names. Raises ``Rejected``."""
    body = await read_object(service, exchange, may_be_empty=True)
    agent = body.get("agentId")
    if not (agent is None or isinstance(agent, str)):
        raise CopilotKitRejected(400, "Valid agentId is required", "agentId must be a string")
    return body, agent


async def _read_change(service: Service, exchange: Exchange) -> tuple[str, dict[str, Any]]:
    """Read the body of a change, and check that the thread belongs to the agent it names.

    Raises ``Rejected`` or ``NotFound``.
    """
    (thread_id,) = exchange.params
    body, agent = await _body_and_agent(service, exchange)
    await service.check_agent(replace(exchange, agent=agent), thread_id)
    return thread_id, body


async def update_thread(service: Service, exchange: Exchange) -> Response:
    """``PATCH /threads/{id}``: rename, archive or unarchive."""
    thread_id, body = await _read_change(service, exchange)
    update = thread_routes.check_thread_update(body.get("name", UNSET), body.get("archived", UNSET), title_at="/name")
    summary = await thread_routes.store_thread_update(service, exchange, thread_id, update)
    return json_response(documents.to_thread_record(summary), exchange.headers)


async def archive_thread(service: Service, exchange: Exchange) -> Response:
    """``POST /threads/{id}/archive``."""
    thread_id, _ = await _read_change(service, exchange)
    update = thread_routes.check_thread_update(UNSET, True, title_at="")
    await thread_routes.store_thread_update(service, exchange, thread_id, update)
    return json_response({"threadId": thread_id, "archived": True}, exchange.headers)


async def delete_thread(service: Service, exchange: Exchange) -> Response:
    """``DELETE /threads/{id}``."""
    thread_id, _ = await _read_change(service, exchange)
    await thread_routes.delete_thread(service, replace(exchange, params=[thread_id]))
    return json_response({"threadId": thread_id, "deleted": True}, exchange.headers)


async def clear_threads(service: Service, exchange: Exchange) -> Response:
    """``POST /threads/clear``: delete the idle threads of the scope; with ``agentId``, those of this agent."""
    _, agent = await _body_and_agent(service, exchange)
    before: int | None = None
    while found := await service.store.threads(exchange.scope, limit=_PAGE, before=before, agent=agent):
        before = found[-1].position
        for one in found:
            try:
                await service.store.delete_thread(exchange.scope, one.thread_id)
            except (NotFound, ThreadBusy):
                continue
    return BufferedResponse(status=204, headers=exchange.headers)


async def _check_query_agent(service: Service, exchange: Exchange) -> None:
    """Raise ``NotFound`` if ``?agentId=`` names another agent than the thread's."""
    agent = exchange.request.query.get("agentId")
    if agent is not None:
        await service.check_agent(replace(exchange, agent=agent), exchange.params[0])


async def _load_view(service: Service, exchange: Exchange) -> Projection | None:
    """Return the thread; None if it does not exist, which is normal for a new thread."""
    try:
        await _check_query_agent(service, exchange)
        return await service.runs.projections.load(exchange.scope, exchange.params[0])
    except NotFound:
        return None


async def list_messages(service: Service, exchange: Exchange) -> Response:
    """``GET /threads/{id}/messages``."""
    view = await _load_view(service, exchange)
    found = [] if view is None else view.conversation.messages
    answer = {"messages": map(documents.to_message, found)}
    return await document_response(answer, exchange.headers, service.unsent)


async def get_state(service: Service, exchange: Exchange) -> Response:
    """``GET /threads/{id}/state``."""
    view = await _load_view(service, exchange)
    answer = {"state": None if view is None else view.conversation.state}
    return await document_response(answer, exchange.headers, service.unsent)


async def list_events(service: Service, exchange: Exchange) -> Response:
    """``GET /threads/{id}/events``: the whole log."""
    (thread_id,) = exchange.params
    try:
        await _check_query_agent(service, exchange)
    except NotFound:
        return EventList(service.store, exchange, [])
    found = EventList(service.store, exchange, await service.store.runs(exchange.scope, thread_id))
    return service.unsent.hold(found, _HELD_EVENTS)


class EventList:
    """A response with the log of a thread as one JSON document, sent while it is read."""

    def __init__(self, store: Store, exchange: Exchange, runs: Any) -> None:
        self._store = store
        self._exchange = exchange
        self._runs: list[RunRecord] = list(runs)

    async def __call__(self, receive: Receive, send: Send) -> None:
        """Send the document."""
        headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *self._exchange.headers,
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        piece = b'{"events":['
        if self._runs:
            after, last = self._runs[0].first - 1, self._runs[-1].last
            thread_id = self._runs[0].thread_id
            while after < last:
                # One batch at a time: a reader that stalls holds no more.
                batches = await self._store.read(self._exchange.scope, thread_id, after, until=last, limit=1)
                if not batches:
                    break
                for batch in batches:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    piece = b"," if after >= self._runs[0].first else b""
                    piece += b",".join(batch.events)
                    after = batch.last
        await send({"type": "http.response.body", "body": piece + b"]}"})


async def transcribe(service: Service, exchange: Exchange) -> Response:
    """``POST /transcribe``: always 503, because there is no transcription."""
    message = "Transcription service is not configured"
    answer = {"error": "service_not_configured", "message": message, "retryable": False}
    return json_response(answer, exchange.headers, 503)


# The single endpoint


async def handle_envelope(service: Service, exchange: Exchange) -> Response:
    """``POST {url}``: a request in an envelope ``{"method", "params", "body"}``."""
    opened = await open_envelope(service, exchange)
    if opened.is_info:
        return json_response(documents.build_info(service, opened.exchange, is_single=True), exchange.headers)
    route, params = find_route(opened.segments, ROUTES)
    method = opened.exchange.request.method
    handler = route.handlers.get(method)
    if handler is None or route.path == ():
        raise route.method_not_allowed(method)
    route.check_owner(method, is_owner=exchange.is_owner)
    return await handler(service, replace(opened.exchange, params=params))


_OWNERS: Final = frozenset({"GET", "POST", "PATCH", "DELETE"})

ROUTES: Final = (
    Route((), {"POST": handle_envelope}),
    Route(("info",), {"GET": get_info}),
    Route(("agent", None, "run"), {"POST": run}),
    Route(("agent", None, "suggest"), {"POST": suggest}),
    Route(("agent", None, "connect"), {"POST": connect}),
    Route(("agent", None, "stop", None), {"POST": stop}),
    Route(("threads",), {"GET": list_threads}, needs_owner=_OWNERS),
    Route(("threads", "clear"), {"POST": clear_threads}, needs_owner=_OWNERS),
    Route(("threads", None), {"PATCH": update_thread, "DELETE": delete_thread}, needs_owner=_OWNERS),
    Route(("threads", None, "archive"), {"POST": archive_thread}, needs_owner=_OWNERS),
    Route(("threads", None, "messages"), {"GET": list_messages}),
    Route(("threads", None, "events"), {"GET": list_events}),
    Route(("threads", None, "state"), {"GET": get_state}),
    Route(("transcribe",), {"POST": transcribe}),
)
