"""Limits on the head of a request: its request line and headers. They are checked before anything else is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aguila.server.errors import Rejected

MAX_HEADERS: Final = 100
MAX_HEAD_BYTES: Final = 1 << 16
"""Bytes of the path, the query and the headers together."""
HEAD_SECONDS: Final = 60.0
"""Seconds that a client has to send the head of a request."""
LINGER_SECONDS: Final = 10.0
"""Seconds that a client has to send the rest of a body after the response."""

HEAD_TOO_LARGE: Final = f"the head of a request has at most {MAX_HEADERS} headers and {MAX_HEAD_BYTES} bytes"


def check_head(asgi: Mapping[str, Any]) -> None:
    """Raise ``Rejected`` (431) if the head of a request is too large."""
    headers = asgi["headers"]
    size = len(asgi.get("raw_path") or asgi["path"]) + len(asgi.get("query_string", b""))
    if len(headers) <= MAX_HEADERS:
        for name, value in headers:
            size += len(name) + len(value)
        if size <= MAX_HEAD_BYTES:
            return
    raise Rejected(431, "head_too_large", HEAD_TOO_LARGE)
