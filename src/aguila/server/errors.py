"""Layer: server. What a request is refused with, before any stream began (SSE-9).

Below: ``aguila.codec`` (how much is said of what a peer sent). Above: everything in this package raises ``Rejected``;
``app`` turns it into an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aguila.codec.notices import shorten
from aguila.errors import AguilaError


def draining() -> Rejected:
    """What is refused because the server stops may be tried again: another one has its place by then."""
    return Rejected(503, "draining", "this server is shutting down", headers={"retry-after": "1"})


class Disconnected(Exception):
    """The client went away before it was answered. Nobody is to be told."""


class Rejected(AguilaError):
    """An HTTP error answer: ``{"error": {"code", "message", "path"}}``. An authenticate hook may raise it too."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        path: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.message = shorten(message)
        self.path = None if path is None else shorten(path)
        super().__init__(f"{status} {code}: {self.message}")
        self.headers: Mapping[str, str] = {} if headers is None else headers

    def body(self) -> bytes:
        """The JSON form."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.path is not None:
            error["path"] = self.path
        return msgspec.json.encode({"error": error})
