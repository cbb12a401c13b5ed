"""The path of CopilotKit's routes, and the form of their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from aguila.server.errors import Rejected

DEFAULT_PATH: Final = "/copilotkit"

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


class CopilotKit:
    """The path of CopilotKit's routes: ``True`` is ``/copilotkit``.

    Raises ``ValueError`` for a path that collides with the routes of the app.
    """

    def __init__(self, path: str | bool) -> None:
        text = DEFAULT_PATH if path is True else path
        parts = text.strip("/").split("/") if isinstance(text, str) else []
        if not isinstance(text, str) or not text.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f'copilotkit must be True or a path such as "/api/copilotkit", not {path!r}')
        if parts[0] in _APP_ROUTES:
            raise ValueError(f"copilotkit={text!r} is below a route of the app; choose another path")
        self.path = "/" + "/".join(parts)
        self._parts = parts

    def relative_path(self, segments: Sequence[str]) -> Sequence[str] | None:
        """Return the rest of a path below this one; None if the path is elsewhere."""
        count = len(self._parts)
        return segments[count:] if list(segments[:count]) == self._parts else None


_APP_ROUTES: Final = frozenset({"agents", "capabilities", "connect", "files", "healthz", "readyz", "threads"})


def to_error_response(refusal: Rejected) -> tuple[int, bytes]:
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
