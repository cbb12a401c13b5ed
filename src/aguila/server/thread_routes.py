"""Layer: server. The handlers about threads: lists, views, the log, deletion.

Below: ``exchange``, ``projection``, ``replay``, ``run_routes`` (a run as JSON, and cursors). Above: the table in
``routes``.
"""

from __future__ import annotations

from typing import Any

from aguila.agent.apart import apart, has_large_content, is_large
from aguila.errors import ThreadBusy
from aguila.server.exchange import Exchange, Service
from aguila.server.interrupts import open_interrupts
from aguila.server.rejection import Rejected
from aguila.server.replay import compacted, is_compact
from aguila.server.responses import Document, Reply, json_document
from aguila.server.run_routes import cursor_of, run_document
from aguila.store import ThreadSummary

_MAX_PAGE = 500
_DIGITS = 18  # of a position, which fits 64 bits


async def threads(service: Service, exchange: Exchange) -> Reply:
    """``GET /threads``: summaries, last updated first."""
    query = exchange.request.query
    text = query.get("limit", "50")
    if not (text.isascii() and text.isdigit()) or len(text) > 6 or not 1 <= int(text) <= _MAX_PAGE:
        raise Rejected(422, "bad_limit", f"limit is a number from 1 to {_MAX_PAGE}", "/limit")
    limit = int(text)
    before = query.get("before")
    if before is not None and (not (before.isascii() and before.isdigit()) or len(before) > _DIGITS):
        raise Rejected(422, "bad_cursor", "before is what the previous page gave as next", "/before")
    found = await service.store.threads(exchange.scope, limit=limit, before=None if before is None else int(before))
    more = str(found[-1].position) if len(found) == limit else None
    return json_document({"threads": [_summary(one) for one in found], "next": more}, exchange.headers)


async def thread(service: Service, exchange: Exchange) -> Reply:
    """``GET /threads/{id}``: messages, state, open interrupts and calls, with the sequence number they cover."""
    (thread_id,) = exchange.params
    view = await service.runs.projections.of(exchange.scope, thread_id, exchange.request.query.get("run"))
    records = await service.store.runs(exchange.scope, thread_id)
    interrupts = await open_interrupts(service.store, exchange.scope, view)
    answer = {
        "threadId": thread_id,
        "messages": view.conversation.messages,
        "state": view.conversation.state,
        "interrupts": interrupts,
        # While a run is on, it may still answer them.
        "pendingToolCallIds": [] if view.is_running else [call.id for call in view.conversation.pending_tool_calls],
        "last": view.last,
        "tip": view.tip,
        "runs": [run_document(record) for record in records],
    }
    if any(map(has_large_content, view.conversation.messages)) or is_large(view.conversation.state):
        return await apart(json_document, answer, exchange.headers, is_large=True)
    return json_document(answer, exchange.headers)


async def delete_thread(service: Service, exchange: Exchange) -> Reply:
    """``DELETE /threads/{id}``: everything in it, its files too."""
    (thread_id,) = exchange.params
    try:
        await service.store.delete_thread(exchange.scope, thread_id)
    except ThreadBusy as error:
        message = f"run {error.run.run_id} is on; cancel it first"
        raise Rejected(409, "thread_busy", message) from None
    return Document(status=204, headers=exchange.headers)


async def thread_events(service: Service, exchange: Exchange) -> Reply:
    """``GET /threads/{id}/events``: the log after a cursor, then live until the end of the run that is on."""
    (thread_id,) = exchange.params
    summary = await service.store.thread(exchange.scope, thread_id)
    after = await cursor_of(service, exchange, thread_id)
    after = 0 if after is None else after
    replay = None
    if is_compact(exchange.request):
        records = await service.store.runs(exchange.scope, thread_id)
        replay = compacted(service.store, records, service.warn)
    watched = await service.runs.watchable_on(exchange.scope, thread_id) if summary.is_running else None
    return service.stream(
        exchange,
        thread_id,
        after=after,
        until=summary.last,
        is_live=summary.is_running,
        replay=replay,
        fails_in_band=False,
        watched=watched,
    )


def _summary(thread: ThreadSummary) -> dict[str, Any]:
    return {
        "threadId": thread.thread_id,
        "createdAt": thread.created_at,
        "updatedAt": thread.updated_at,
        "last": thread.last,
        "runs": thread.runs,
        "isRunning": thread.is_running,
    }
