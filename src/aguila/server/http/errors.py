"""Turn exceptions into refusals, and refusals into JSON responses."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from starlette.types import Scope

from aguila.codec.logs import log_event
from aguila.errors import CursorExpired, NotFound, StoreUnavailable
from aguila.server.config.errors import Rejected
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.responses import BufferedResponse, header_list
from aguila.server.runs.context import new_id

_log = logging.getLogger("aguila.server")


def to_rejected(error: Exception, scope: Scope) -> Rejected:
    """Return the refusal for an exception. The text of an unexpected one is for the log, not for the client."""
    match error:
        case Rejected():
            return error
        case NotFound():
            return Rejected(404, "not_found", str(error))
        case CursorExpired():
            return Rejected(410, "cursor_expired", str(error))
        case StoreUnavailable():
            message = "the store is unavailable; try again in a second"
            return Rejected(503, "store_unavailable", message, headers={"retry-after": "1"})
        case _:
            reference = new_id()
            message = f"{scope['method']} {scope['path']} failed"
            log_event(_log, logging.ERROR, message, error=error, reference=reference)
            return Rejected(500, "internal", f"The request failed. Reference: {reference}")


def error_response(refusal: Rejected, scope: Scope, front_ends: Iterable[FrontEnd] = ()) -> BufferedResponse:
    """Return the response to a refused request, in the form of the front end whose path it has."""
    status, body = refusal.status, refusal.body()
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    for front_end in front_ends:
        if front_end.path and f"{path.removeprefix(root)}/".startswith(f"{front_end.path}/"):
            status, body = front_end.describe_error(refusal) or (status, body)
    return BufferedResponse(status=status, body=body, headers=header_list(refusal.headers))
