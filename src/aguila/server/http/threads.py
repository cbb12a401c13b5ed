"""Layer: server. The handlers about threads: lists, views, the log, deletion.

Below: ``exchange``, ``projection``, ``replay``, ``run_routes`` (a run as JSON, and cursors). Above: the table in
``routes``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from aguila.codec import encode
from aguila.codec.json.text import parse_json
from aguila.codec.json.values import is_object
from aguila.codec.notices import log_notice
from aguila.errors import ThreadBusy
from aguila.offload import is_large, offload
from aguila.protocol import replace
from aguila.server.errors import Rejected
from aguila.server.history.compact_log import compact_replay, wants_compact
from aguila.server.http.request_body import read_object
from aguila.server.http.responses import Document, Reply, json_document
from aguila.server.http.runs import cursor_of, flag, run_document
from aguila.server.interrupts.plan import find_open_interrupts
from aguila.server.service import Exchange, Service
from aguila.store import ThreadSummary, ThreadUpdate

_MAX_PAGE = 500
_DIGITS = 18  # of a position, which fits 64 bits
_MAX_TITLE = 500  # characters
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which UTF-8 cannot hold
_MAX_METADATA = 1 << 14


async def threads(service: Service, exchange: Exchange) -> Reply:
    """``GET /threads``: summaries, last updated first; below ``/agents/{name}`` those of that agent."""
    archived = flag(exchange, "archived", default=None)
    found, more = await thread_page(service, exchange, cursor="before", agent=exchange.agent, archived=archived)
    return json_document({"threads": [summary_document(one) for one in found], "next": more}, exchange.headers)


async def thread_page(
    service: Service, exchange: Exchange, *, cursor: str, agent: str | None, archived: bool | None
) -> tuple[Sequence[ThreadSummary], str | None]:
    """Read one page of threads, and the cursor of the next one. ``cursor`` is the name of the query parameter.

    Raises ``Rejected``.
    """
    query = exchange.request.query
    text = query.get("limit", "50")
    if not (text.isascii() and text.isdigit()) or len(text) > 6 or not 1 <= int(text) <= _MAX_PAGE:
        raise Rejected(422, "bad_limit", f"limit is a number from 1 to {_MAX_PAGE}", "/limit")
    limit = int(text)
    before = query.get(cursor)
    if before is not None and (not (before.isascii() and before.isdigit()) or len(before) > _DIGITS):
        raise Rejected(422, "bad_cursor", f"{cursor} is what the previous page gave as next", f"/{cursor}")
    found = await service.store.threads(
        exchange.scope,
        limit=limit,
        before=None if before is None else int(before),
        agent=agent,
        archived=archived,
    )
    return found, str(found[-1].position) if len(found) == limit else None


async def thread(service: Service, exchange: Exchange) -> Reply:
    """``GET /threads/{id}``: messages, state, open interrupts and calls, with the sequence number they cover."""
    (thread_id,) = exchange.params
    await service.check_agent(exchange, thread_id)
    view = await service.runs.projections.load(exchange.scope, thread_id, exchange.request.query.get("run"))
    records = await service.store.runs(exchange.scope, thread_id)
    summary = await service.store.thread(exchange.scope, thread_id)
    interrupts = await find_open_interrupts(service.store, exchange.scope, view)
    answer = {
        "threadId": thread_id,
        **_described(summary),
        "messages": view.conversation.messages,
        "state": view.conversation.state,
        "interrupts": interrupts,
        # While a run is on, it may still answer them.
        "pendingToolCallIds": [] if view.is_running else [call.id for call in view.conversation.pending_tool_calls],
        "last": view.last,
        "tip": view.tip,
        "runs": [run_document(record) for record in records],
    }
    if is_large(view.conversation.messages) or is_large(view.conversation.state):
        return await offload(json_document, answer, exchange.headers, is_large=True)
    return json_document(answer, exchange.headers)


async def update_thread(service: Service, exchange: Exchange) -> Reply:
    """``PATCH /threads/{id}``: change the title, the archived flag or the metadata."""
    (thread_id,) = exchange.params
    await service.check_agent(exchange, thread_id)
    body = await read_object(service, exchange)
    unknown = sorted(body.keys() - {"title", "archived", "metadata"})
    if unknown:
        raise Rejected(422, "unknown_member", "a thread has title, archived and metadata to change", f"/{unknown[0]}")
    metadata = body.get("metadata", UNSET)
    if not (metadata is UNSET or metadata is None or is_object(metadata)):
        raise Rejected(422, "bad_metadata", "metadata is a JSON object or null", "/metadata")
    update = thread_update(body.get("title", UNSET), body.get("archived", UNSET), title_at="/title")
    if metadata is not UNSET:
        stored = None if metadata is None else encode(metadata)
        if stored is not None and len(stored) > _MAX_METADATA:
            raise Rejected(422, "too_large", f"metadata has at most {_MAX_METADATA} bytes of JSON", "/metadata")
        update = replace(update, metadata=stored)
    summary = await service.store.update_thread(exchange.scope, thread_id, update)
    return json_document(summary_document(summary), exchange.headers)


def thread_update(title: Any, archived: Any, *, title_at: str) -> ThreadUpdate:
    """Check what a request changes of a thread. Raises ``Rejected``."""
    if isinstance(title, str):
        is_good = len(title) <= _MAX_TITLE and _SURROGATE.search(title) is None
    else:
        is_good = title is UNSET or title is None
    if not is_good:
        raise Rejected(422, "bad_title", f"a title is a string of up to {_MAX_TITLE} characters, or null", title_at)
    if not (archived is UNSET or isinstance(archived, bool)):
        raise Rejected(422, "bad_archived", "archived is true or false", "/archived")
    return ThreadUpdate(title=title, archived=archived)


async def delete_thread(service: Service, exchange: Exchange) -> Reply:
    """``DELETE /threads/{id}``: everything in it, its files too."""
    (thread_id,) = exchange.params
    await service.check_agent(exchange, thread_id)
    try:
        await service.store.delete_thread(exchange.scope, thread_id)
    except ThreadBusy as error:
        message = f"run {error.run.run_id} is on; cancel it first"
        raise Rejected(409, "thread_busy", message) from None
    return Document(status=204, headers=exchange.headers)


async def thread_events(service: Service, exchange: Exchange) -> Reply:
    """``GET /threads/{id}/events``: the log after a cursor, then live until the end of the run that is on."""
    (thread_id,) = exchange.params
    await service.check_agent(exchange, thread_id)
    summary = await service.store.thread(exchange.scope, thread_id)
    after = await cursor_of(service, exchange, thread_id)
    after = 0 if after is None else after
    replay = None
    if wants_compact(exchange.request):
        records = await service.store.runs(exchange.scope, thread_id)
        replay = compact_replay(service.store, records, service.warn)
    watched = await service.runs.find_watched_on(exchange.scope, thread_id) if summary.is_running else None
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


def summary_document(thread: ThreadSummary) -> dict[str, Any]:
    """A thread of a list, as JSON."""
    return {
        "threadId": thread.thread_id,
        "createdAt": thread.created_at,
        "updatedAt": thread.updated_at,
        "last": thread.last,
        "runs": thread.runs,
        "isRunning": thread.is_running,
        "runningRunId": thread.running,
        **_described(thread),
    }


def _described(thread: ThreadSummary) -> dict[str, Any]:
    return {
        "agent": thread.agent,
        "title": thread.title,
        "archived": thread.archived,
        "metadata": None if thread.metadata is None else parse_json(thread.metadata, strict=False, warn=log_notice),
    }
