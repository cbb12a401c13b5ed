"""Limits on the head of a request: its request line and headers. They are checked before anything else is read."""

from __future__ import annotations

from typing import Final

MAX_HEADERS: Final = 100
MAX_HEAD_BYTES: Final = 1 << 16
"""Bytes of the path, the query and the headers together."""
HEAD_SECONDS: Final = 60.0
"""Seconds that a client has to send the head of a request."""
LINGER_SECONDS: Final = 10.0
"""Seconds that a client has to send the rest of a body after the response."""

HEAD_TOO_LARGE: Final = f"the head of a request has at most {MAX_HEADERS} headers and {MAX_HEAD_BYTES} bytes"
