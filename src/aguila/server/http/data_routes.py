"""The handlers of everything that a caller has stored: export it, and erase it."""

from __future__ import annotations

from typing import Final

from aguila.errors import ThreadBusy
from aguila.server.config.errors import Rejected
from aguila.server.http.request import Request
from aguila.server.http.responses import PIECE, BufferedResponse, Response, stream_response
from aguila.server.http.service import Service
from aguila.store import ScopeTarget
from aguila.store.archives.export import export_scope

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
    return service.unsent.hold(stream_response(export_scope(service.store, request.caller.scope), _HEADERS), 4 * PIECE)


async def delete_data(service: Service, request: Request) -> Response:
    """``DELETE /data``: erase every thread and file in the scope of the caller."""
    try:
        await service.store.delete(request.caller.scope, ScopeTarget())
    except ThreadBusy as error:
        run = error.run
        message = f"run {run.run_id} of thread {run.thread_id} is in progress; cancel it before you delete your data"
        raise Rejected(409, "thread_busy", message) from None
    return BufferedResponse(status=204)
