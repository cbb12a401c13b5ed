"""The handlers of threads: list, view, update, delete, and the log."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Raw

from aguila.codec import encode
from aguila.codec.json.values import is_array, is_object
from aguila.codec.pointer import escape_token
from aguila.errors import ThreadBusy
from aguila.protocol import replace
from aguila.server.config.errors import Rejected
from aguila.server.config.limits import is_encodable
from aguila.server.http.body import read_object
from aguila.server.http.parameters import MAX_DIGITS, is_number, read_flag, read_limit
from aguila.server.http.request import Request, matches_etag
from aguila.server.http.responses import BufferedResponse, Headers, Response, document_response, json_response
from aguila.server.http.run_routes import describe_run, find_cursor, stream_log
from aguila.server.http.service import Service
from aguila.server.runs.admission import refuse_storage
from aguila.server.threads.interrupts.plan import find_open_interrupts
from aguila.store import MetadataFilter, ThreadFilter, ThreadSummary, ThreadTarget, ThreadUpdate, Usage, Want
from aguila.store.cursors import format_cursor
from aguila.store.encoding import MAX_TITLE, is_title, size_of_details
from aguila.store.refusals import quota_exceeded

MAX_PAGE = 500
_PAGE = 50
_MAX_PAGE_BYTES = 1 << 20
"""Bytes of titles and metadata on a page of threads."""
_MAX_METADATA = 1 << 14  # bytes of JSON
_MAX_MEMBERS = 64


async def list_threads(service: Service, request: Request) -> Response:
    """``GET /threads``: summaries, last updated first. Below ``/agents/{name}``: those of that agent."""
    archived = read_flag(request, "archived", default=None)
    key, value = (request.query.get(name) for name in ("metadataKey", "metadataValue"))
    if key is None and value is not None:
        raise Rejected(422, "bad_parameter", "metadataValue needs metadataKey; send both", "/metadataValue")
    metadata = None if key is None else MetadataFilter(key, value)
    wanted = read_filter(request, cursor="before", agent=request.agent, archived=archived, metadata=metadata)
    # Before the threads: a change in between makes the next request read them again.
    stamp = (await service.store.threads(request.caller.scope, ThreadFilter(limit=0))).stamp
    headers: Headers = ()
    if stamp is not None:
        # Two scopes never have the same one, even if their stamps are equal.
        etag = f'"{_digest(request.caller.scope, stamp)}"'
        headers = [(b"etag", etag.encode())]
        if matches_etag(request, etag):
            return BufferedResponse(status=304, headers=headers)
    found, more = await read_thread_page(service, request, wanted)
    caller = _digest("caller", request.caller.scope)
    return json_response({"threads": [describe_thread(one) for one in found], "next": more, "caller": caller}, headers)


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=12).hexdigest()


def read_filter(
    request: Request,
    *,
    cursor: str,
    agent: str | None,
    archived: bool | None,
    metadata: MetadataFilter | None = None,
) -> ThreadFilter:
    """Read which page of threads a request wants. ``cursor`` is the name of the query parameter that has the cursor.

    Raises ``Rejected``.
    """
    query = request.query
    limit = read_limit(request, MAX_PAGE) or _PAGE
    before = query.get(cursor)
    if before is not None and (not is_number(before) or len(before) > MAX_DIGITS):
        raise Rejected(
            422, "bad_cursor", f"{cursor} is not a cursor; use the cursor that the previous page returned", f"/{cursor}"
        )
    before = None if before is None else int(before)
    return ThreadFilter(limit=limit, before=before, agent=agent, archived=archived, metadata=metadata)


async def read_thread_page(
    service: Service, request: Request, wanted: ThreadFilter
) -> tuple[Sequence[ThreadSummary], str | None]:
    """Read a page of thread summaries, and the cursor of the next page; None if this is the last."""
    found = (await service.store.threads(request.caller.scope, wanted)).threads
    has_more = len(found) == wanted.limit
    size = 0
    for index, one in enumerate(found):
        size += len(one.metadata or b"") + len(one.title or "")
        if size > _MAX_PAGE_BYTES and index:
            found, has_more = found[:index], True
            break
    return found, str(found[-1].position) if has_more else None


async def get_thread(service: Service, request: Request) -> Response:
    """``GET /threads/{id}``: messages, state, open interrupts, pending calls, and the last event they include."""
    (thread_id,) = request.ids
    await service.check_agent(request, thread_id)
    view = await service.runs.threads.at(request.caller.scope, thread_id, request.query.get("run"))
    found = await service.store.thread(request.caller.scope, thread_id, Want(runs=True))
    summary, records = found.summary, found.runs
    cursor = format_cursor(summary.last, summary.token)
    if view.last != summary.last:  # a run in progress has continued meanwhile, or this is an earlier branch
        cursor = await find_cursor(service.store, request.caller.scope, thread_id, view.last)
    interrupts = await find_open_interrupts(service.store, request.caller.scope, view)
    answer = {
        "threadId": thread_id,
        **_describe_metadata(summary),
        "state": view.conversation.state,
        "interrupts": interrupts,
        # A run in progress may still answer its calls.
        "pendingToolCallIds": [] if view.is_running else [call.id for call in view.conversation.pending_tool_calls],
        "last": view.last,
        "cursor": cursor,
        "tip": view.tip,
    }
    messages = view.conversation.messages
    answer |= {"messages": list(messages), "runs": map(describe_run, records)}
    return await document_response(answer, service.unsent)


async def update_thread(service: Service, request: Request) -> Response:
    """``PATCH /threads/{id}``: change the title, the archived flag or the metadata."""
    (thread_id,) = request.ids
    await service.check_agent(request, thread_id)
    body = await read_object(service, request)
    unknown = sorted(body.keys() - {"title", "archived", "metadata"})
    if unknown:
        raise Rejected(
            422,
            "unknown_member",
            f"{unknown[0]!r} cannot be changed; send title, archived or metadata",
            f"/{unknown[0]}",
        )
    metadata = body.get("metadata", UNSET)
    if not (metadata is UNSET or metadata is None or is_object(metadata)):
        raise Rejected(422, "bad_metadata", "metadata is neither a JSON object nor null", "/metadata")
    if is_object(metadata) and len(metadata) > _MAX_MEMBERS:
        message = f"metadata has {len(metadata)} members; at most {_MAX_MEMBERS} are allowed, because each is indexed"
        raise Rejected(422, "bad_metadata", message, "/metadata")
    update = check_thread_update(body.get("title", UNSET), body.get("archived", UNSET), title_at="/title")
    if metadata is not UNSET:
        stored = None if metadata is None else encode(metadata)
        if stored is not None and len(stored) > _MAX_METADATA:
            raise Rejected(
                422,
                "too_large",
                f"metadata has {len(stored)} bytes of JSON; at most {_MAX_METADATA} are allowed",
                "/metadata",
            )
        surrogate = _find_surrogate(metadata)
        if surrogate is not None:
            message = "metadata contains a lone surrogate, which UTF-8 cannot encode"
            raise Rejected(422, "bad_metadata", message, f"/metadata{surrogate}")
        update = replace(update, metadata=stored)
    return json_response(describe_thread(await store_thread_update(service, request, thread_id, update)))


def _find_surrogate(value: Any) -> str | None:
    """Return the JSON Pointer of a text or a member whose name has a lone surrogate; None if there is none."""
    pending: list[tuple[Any, str]] = [(value, "")]
    while pending:
        item, path = pending.pop()
        if isinstance(item, str) and not is_encodable(item):
            return path
        if is_object(item):
            for name, member in item.items():
                inner = f"{path}/{escape_token(name)}"
                if not is_encodable(name):
                    return inner
                pending.append((member, inner))
        elif is_array(item):
            pending += [(one, f"{path}/{index}") for index, one in enumerate(item)]
    return None


async def store_thread_update(
    service: Service, request: Request, thread_id: str, update: ThreadUpdate
) -> ThreadSummary:
    """Change a thread. Raises ``NotFound``, or ``Rejected`` (507) if it would grow beyond a quota."""
    caller = request.caller
    if caller.quotas is not None:
        store, scope = service.store, caller.scope
        old = (await store.thread(scope, thread_id)).summary
        title = old.title if update.title is UNSET else update.title
        metadata = old.metadata if update.metadata is UNSET else update.metadata
        grown = size_of_details(title, metadata) - size_of_details(old.title, old.metadata)
        if grown > 0:
            held = await store.threads(scope, ThreadFilter(limit=0, usage=True))
            exceeded = caller.quotas.find_exceeded(held.usage, held.total, new=Usage(bytes=grown))
            if exceeded is not None:
                raise refuse_storage(quota_exceeded(exceeded), caller.quotas, caller.principal, caller.limits)
    return await service.store.amend(caller.scope, thread_id, update)


def check_thread_update(title: Any, archived: Any, *, title_at: str) -> ThreadUpdate:
    """Check the title and the archived flag that a request sends. Raises ``Rejected``."""
    if not (title is UNSET or title is None or is_title(title)):
        raise Rejected(
            422, "bad_title", f"the title is not a string of up to {MAX_TITLE} characters, or null", title_at
        )
    if not (archived is UNSET or isinstance(archived, bool)):
        raise Rejected(422, "bad_archived", "archived is neither true nor false", "/archived")
    return ThreadUpdate(title=title, archived=archived)


async def delete_thread(service: Service, request: Request) -> Response:
    """``DELETE /threads/{id}``: delete the thread with its log and its files."""
    (thread_id,) = request.ids
    await service.check_agent(request, thread_id)
    try:
        await service.store.delete(request.caller.scope, ThreadTarget(thread_id))
    except ThreadBusy as error:
        message = f"run {error.run.run_id} is in progress; cancel it before you delete the thread"
        raise Rejected(409, "thread_busy", message) from None
    return BufferedResponse(status=204)


async def stream_thread_events(service: Service, request: Request) -> Response:
    """``GET /threads/{id}/events``: the log after a cursor, then live until the end of the run in progress."""
    (thread_id,) = request.ids
    await service.check_agent(request, thread_id)
    found = await service.store.thread(request.caller.scope, thread_id, Want(runs=True))
    return await stream_log(service, request, found.runs)


def describe_thread(thread: ThreadSummary) -> dict[str, Any]:
    """Return the summary of a thread as JSON."""
    return {
        "threadId": thread.thread_id,
        "createdAt": thread.created_at,
        "updatedAt": thread.updated_at,
        "last": thread.last,
        "cursor": format_cursor(thread.last, thread.token),
        "runs": thread.runs,
        "isRunning": thread.is_running,
        "runningRunId": thread.running,
        **_describe_metadata(thread),
    }


def _describe_metadata(thread: ThreadSummary) -> dict[str, Any]:
    return {
        "agent": thread.agent,
        "title": thread.title,
        "archived": thread.archived,
        "metadata": None if thread.metadata is None else Raw(thread.metadata),
    }
