"""The form of errors that CopilotKit's client expects."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from aguila.server.config.errors import Rejected

_TITLES: Final = {
    400: "Invalid request body",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Request body too large",
    429: "Too many runs",
    500: "Failed to run agent",
    503: "Service unavailable",
}


def describe_error(refusal: Rejected) -> tuple[int, bytes]:
    """Convert a refusal to the status and the body that CopilotKit's client expects.

    An invalid body is 400, with ``details`` beside the ``message``. ``code`` is our addition.
    """
    status = 400 if refusal.status == 422 else refusal.status
    message = refusal.message if not refusal.path else f"{refusal.path}: {refusal.message}"
    title = refusal.title if isinstance(refusal, CopilotKitRejected) else _TITLES.get(status, "Request failed")
    if refusal.code in ("bad_limit", "bad_cursor"):
        title = "Invalid query parameter"
    body: dict[str, Any] = {"error": title}
    if status == 400:
        body["details"] = message
    body["message"] = message
    if not isinstance(refusal, CopilotKitRejected):
        body["code"] = refusal.code
    return status, msgspec.json.encode(body)


class CopilotKitRejected(Rejected):
    """A refusal with a text of CopilotKit's own runtime. ``title`` becomes ``error`` in the body."""

    def __init__(self, status: int, title: str, message: str) -> None:
        super().__init__(status, "copilotkit", message)
        self.title = title
