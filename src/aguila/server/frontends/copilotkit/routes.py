"""CopilotKit's routes and their handlers, which call the handlers of the app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

from msgspec import UNSET
from starlette.routing import Match

from aguila.codec.negotiate import SSE_MEDIA_TYPE
from aguila.codec.sse import SSEEncoder
from aguila.errors import NotFound, ThreadBusy
from aguila.protocol import replace
from aguila.server.frontends.copilotkit import documents
from aguila.server.frontends.copilotkit.envelope import open_envelope
from aguila.server.frontends.copilotkit.errors import CopilotKitRejected
from aguila.server.http import run_routes, thread_routes
from aguila.server.http.body import read_input, read_object
from aguila.server.http.request import Request
from aguila.server.http.responses import (
    DOCUMENT_HEADERS,
    PIECE,
    BufferedResponse,
    Response,
    document_response,
    json_response,
    stream_response,
)
from aguila.server.http.routes import Endpoint, encode_segments, route
from aguila.server.http.service import Service
from aguila.server.runs.repeated import latest_derived
from aguila.server.threads.log import read_log
from aguila.server.threads.view import View
from aguila.store import RunRecord, Store, ThreadFilter, ThreadTarget, Want

_PAGE: Final = 200

_HELD_EVENTS: Final = 4 * PIECE
"""Bytes that are counted for a reader of the log: those of a usual batch, which is sent whole."""


# Agents


async def get_info(service: Service, request: Request) -> Response:
    """``GET /info``."""
    return json_response(documents.build_info(service, request, is_single=False))


def _select_agent(service: Service, request: Request) -> None:
    """Set the agent of a request, which its path names first. Raises ``Rejected``."""
    name, *ids = request.ids
    if name not in service.agents:
        raise CopilotKitRejected(404, "Agent not found", f"Agent '{name}' does not exist")
    request.agent, request.ids = name, ids


async def run(service: Service, request: Request) -> Response:
    """``POST /agent/{id}/run``. See ``CopilotKit.translate``."""
    _select_agent(service, request)
    return await run_routes.start_run(service, request)


async def suggest(service: Service, request: Request) -> Response:
    """``POST /agent/{id}/suggest``: a run that is not stored."""
    _select_agent(service, request)
    return await run_routes.start_run(service, request, is_stored=False)


async def connect(service: Service, request: Request) -> Response:
    """``POST /agent/{id}/connect``: hydrate the thread and follow its running run. Empty for an unknown thread."""
    _select_agent(service, request)
    input, _ = await read_input(service, request)  # noqa: A001 - the protocol's word for it
    try:
        is_known = (await service.store.thread(request.caller.scope, input.thread_id)).summary.agent == request.agent
    except NotFound:
        is_known = False
    if not is_known:
        headers = [(b"cache-control", b"no-cache")]
        return BufferedResponse(body=SSEEncoder().comment(), media_type=SSE_MEDIA_TYPE.encode(), headers=headers)
    return await run_routes.connect_to(service, request, input)


async def stop(service: Service, request: Request) -> Response:
    """``POST /agent/{id}/stop/{threadId}``: cancel the running run, or only the run that the body names."""
    _select_agent(service, request)
    (thread_id,) = request.ids
    body = await read_object(service, request, may_be_empty=True)
    run_id = body.get("runId")
    if body.keys() - {"runId"}:
        raise CopilotKitRejected(400, "Invalid stop request", "the body must be empty or an object with a runId")
    if "runId" in body and not (isinstance(run_id, str) and run_id.strip()):
        raise CopilotKitRejected(400, "Invalid runId", "runId must be a string that is not empty")
    if await _stop(service, request, thread_id, run_id):
        interrupt = {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"}
        return json_response({"stopped": True, "interrupt": interrupt})
    if run_id is None:
        message = f"No active run for thread '{thread_id}'."
    else:
        message = f"Run '{run_id}' is not the active run for thread '{thread_id}'."
    return json_response({"stopped": False, "message": message})


async def _stop(service: Service, request: Request, thread_id: str, run_id: str | None) -> bool:
    """Cancel the running run of a thread, if it is ``run_id`` or was derived from it. Return whether there was one."""
    runs, scope = service.runs, request.caller.scope
    try:
        if (await service.store.thread(scope, thread_id)).summary.agent != request.agent:
            return False
        if run_id is not None and await runs.turns.withdraw(scope, thread_id, run_id):
            return True
        summary = (await service.store.thread(scope, thread_id)).summary
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


async def list_threads(service: Service, request: Request) -> Response:
    """``GET /threads``: the threads of an agent, or all, last updated first."""
    query = request.query
    archived = None if query.get("includeArchived") == "true" else False
    wanted = thread_routes.read_filter(request, cursor="cursor", agent=query.get("agentId"), archived=archived)
    found, more = await thread_routes.read_thread_page(service, request, wanted)
    records = [documents.to_thread_record(one) for one in found]
    return json_response({"threads": records, "nextCursor": more})


async def _body_and_agent(service: Service, request: Request) -> tuple[dict[str, Any], str | None]:
    """Read a body that may be empty, and the agent that it names. Raises ``Rejected``."""
    body = await read_object(service, request, may_be_empty=True)
    agent = body.get("agentId")
    if not (agent is None or isinstance(agent, str)):
        raise CopilotKitRejected(400, "Valid agentId is required", "agentId must be a string")
    return body, agent


async def _read_change(service: Service, request: Request) -> tuple[str, dict[str, Any]]:
    """Read the body of a change, and check that the thread belongs to the agent it names.

    Raises ``Rejected`` or ``NotFound``.
    """
    (thread_id,) = request.ids
    body, request.agent = await _body_and_agent(service, request)
    await service.check_agent(request, thread_id)
    return thread_id, body


async def update_thread(service: Service, request: Request) -> Response:
    """``PATCH /threads/{id}``: rename, archive or unarchive."""
    thread_id, body = await _read_change(service, request)
    update = thread_routes.check_thread_update(body.get("name", UNSET), body.get("archived", UNSET), title_at="/name")
    summary = await thread_routes.store_thread_update(service, request, thread_id, update)
    return json_response(documents.to_thread_record(summary))


async def archive_thread(service: Service, request: Request) -> Response:
    """``POST /threads/{id}/archive``."""
    thread_id, _ = await _read_change(service, request)
    update = thread_routes.check_thread_update(UNSET, True, title_at="")
    await thread_routes.store_thread_update(service, request, thread_id, update)
    return json_response({"threadId": thread_id, "archived": True})


async def delete_thread(service: Service, request: Request) -> Response:
    """``DELETE /threads/{id}``."""
    thread_id, _ = await _read_change(service, request)
    await thread_routes.delete_thread(service, request)
    return json_response({"threadId": thread_id, "deleted": True})


async def clear_threads(service: Service, request: Request) -> Response:
    """``POST /threads/clear``: delete the idle threads of the scope; with ``agentId``, those of this agent."""
    _, agent = await _body_and_agent(service, request)
    wanted = ThreadFilter(limit=_PAGE, agent=agent)
    while found := (await service.store.threads(request.caller.scope, wanted)).threads:
        wanted = replace(wanted, before=found[-1].position)
        for one in found:
            try:
                await service.store.delete(request.caller.scope, ThreadTarget(one.thread_id))
            except (NotFound, ThreadBusy):
                continue
    return BufferedResponse(status=204)


async def _check_query_agent(service: Service, request: Request) -> None:
    """Raise ``NotFound`` if ``?agentId=`` names another agent than the thread's."""
    request.agent = request.query.get("agentId")
    await service.check_agent(request, request.ids[0])


async def _load_view(service: Service, request: Request) -> View | None:
    """Return the thread; None if it does not exist, which is normal for a new thread."""
    try:
        await _check_query_agent(service, request)
        return await service.runs.threads.at(request.caller.scope, request.ids[0])
    except NotFound:
        return None


async def list_messages(service: Service, request: Request) -> Response:
    """``GET /threads/{id}/messages``."""
    view = await _load_view(service, request)
    found = [] if view is None else view.conversation.messages
    answer = {"messages": map(documents.to_message, found)}
    return await document_response(answer, service.unsent)


async def get_state(service: Service, request: Request) -> Response:
    """``GET /threads/{id}/state``."""
    view = await _load_view(service, request)
    answer = {"state": None if view is None else view.conversation.state}
    return await document_response(answer, service.unsent)


async def list_events(service: Service, request: Request) -> Response:
    """``GET /threads/{id}/events``: the whole log."""
    (thread_id,) = request.ids
    try:
        await _check_query_agent(service, request)
        runs = (await service.store.thread(request.caller.scope, thread_id, Want(runs=True))).runs
    except NotFound:
        runs = ()
    pieces = _read_events(service.store, request.caller.scope, thread_id, runs)
    return service.unsent.hold(stream_response(pieces, DOCUMENT_HEADERS), _HELD_EVENTS)


async def _read_events(store: Store, scope: str, thread_id: str, runs: Sequence[RunRecord]) -> AsyncIterator[bytes]:
    """Yield the log of a thread as one JSON document."""
    mark = b'{"events":['
    after, last = (runs[0].first - 1, runs[-1].last) if runs else (0, 0)
    # One batch at a time: a reader that stalls holds no more.
    async for batches in read_log(store, scope, thread_id, after, last, limit=1):
        for batch in batches:
            yield mark + b",".join(batch.events)
            mark = b","
    yield b"]}" if mark == b"," else mark + b"]}"


async def transcribe(service: Service, request: Request) -> Response:
    """``POST /transcribe``: always 503, because there is no transcription."""
    message = "Transcription service is not configured"
    answer = {"error": "service_not_configured", "message": message, "retryable": False}
    return json_response(answer, status=503)


# The single endpoint


async def handle_envelope(service: Service, request: Request) -> Response:
    """``POST {url}``: a request in an envelope ``{"method", "params", "body"}``."""
    segments, inner = await open_envelope(service, request)
    if segments == ["info"]:
        return json_response(documents.build_info(service, request, is_single=True))
    scope = {"type": "http", "method": inner.method, "path": encode_segments(segments)}
    for one in ROUTES:
        match, found = one.matches(scope)
        if match is Match.FULL:
            endpoint: Endpoint = found["endpoint"]
            inner.ids = [unquote(value) for value in found["path_params"].values()]
            if inner.method not in endpoint.handlers:
                raise endpoint.refuse_method(inner.method)
            if inner.method in endpoint.needs_owner:
                service.access.check_owner(inner.method)
            return await endpoint.handlers[inner.method](service, inner)
    raise NotFound("there is no route at this path")


_OWNERS: Final = frozenset({"GET", "POST", "PATCH", "DELETE"})

ROUTES: Final = (
    route("/", {"POST": handle_envelope}),
    route("/info", {"GET": get_info}),
    route("/agent/{name}/run", {"POST": run}),
    route("/agent/{name}/suggest", {"POST": suggest}),
    route("/agent/{name}/connect", {"POST": connect}),
    route("/agent/{name}/stop/{thread}", {"POST": stop}),
    route("/threads", {"GET": list_threads}, needs_owner=_OWNERS),
    route("/threads/clear", {"POST": clear_threads}, needs_owner=_OWNERS),
    route("/threads/{thread}", {"PATCH": update_thread, "DELETE": delete_thread}, needs_owner=_OWNERS),
    route("/threads/{thread}/archive", {"POST": archive_thread}, needs_owner=_OWNERS),
    route("/threads/{thread}/messages", {"GET": list_messages}),
    route("/threads/{thread}/events", {"GET": list_events}),
    route("/threads/{thread}/state", {"GET": get_state}),
    route("/transcribe", {"POST": transcribe}),
)
