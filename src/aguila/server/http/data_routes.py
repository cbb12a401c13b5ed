"""The handlers of everything that a caller has stored: export it, and erase it."""

from __future__ import annotations

from typing import Final

from starlette.types import Receive, Scope, Send

from aguila.errors import CursorExpired, NotFound, StoreUnavailable, ThreadBusy
from aguila.server.config.errors import Disconnected, Rejected
from aguila.server.http.request import Request
from aguila.server.http.responses import BufferedResponse, Response
from aguila.server.http.service import Service
from aguila.store import ScopeTarget
from aguila.store.archives.export import export_scope

_PIECE: Final = 1 << 16

_HEADERS: Final = [
    (b"content-type", b"application/jsonl"),
    (b"content-disposition", b'attachment; filename="export.jsonl"'),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


async def export_data(service: Service, request: Request) -> Response:
    """``GET /data``: everything in the scope of the caller, as ``aguila scopes export`` writes it.

    Nothing is locked while the client reads. If a thread is removed or compacted meanwhile, the response is cut off.
    """
    store, caller = service.store, request.caller.scope

    async def reply(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        try:
            async for piece in export_scope(store, caller):
                for at in range(0, len(piece), _PIECE):
                    await send({"type": "http.response.body", "body": piece[at : at + _PIECE], "more_body": True})
        except (NotFound, CursorExpired, StoreUnavailable):
            raise Disconnected from None  # the client sees that bytes are missing
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return service.unsent.hold(reply, 4 * _PIECE)


async def delete_data(service: Service, request: Request) -> Response:
    """``DELETE /data``: erase every thread and file in the scope of the caller."""
    try:
        await service.store.delete(request.caller.scope, ScopeTarget())
    except ThreadBusy as error:
        run = error.run
        message = f"run {run.run_id} of thread {run.thread_id} is in progress; cancel it before you delete your data"
        raise Rejected(409, "thread_busy", message) from None
    return BufferedResponse(status=204)
