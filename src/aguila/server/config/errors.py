"""Errors that become HTTP responses. They are raised before a stream begins (SSE-9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aguila.codec.notices import shorten
from aguila.errors import AguilaError
from aguila.protocol import RunAgentInput


def draining_error() -> Rejected:
    """Make the error for a request that comes while the server drains."""
    return Rejected(503, "draining", "the server is shutting down; try again in a second", headers={"retry-after": "1"})


class Disconnected(Exception):
    """The client disconnected before its response began. No response is sent."""


class Withdrawn(Exception):
    """The request with this ``input`` was cancelled by its run id before its run had begun."""

    def __init__(self, input: RunAgentInput) -> None:  # noqa: A002 - the protocol's word for it
        super().__init__(input)
        self.input = input


class Rejected(AguilaError):
    """An HTTP error: ``{"error": {"code", "message", "path"}}``. An ``authenticate`` hook may raise it too."""

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
        self.message = shorten(_escape_surrogates(message))
        self.path = None if path is None else shorten(_escape_surrogates(path))
        super().__init__(f"{status} {code}: {self.message}")
        self.headers: Mapping[str, str] = {} if headers is None else headers

    def body(self) -> bytes:
        """Encode the error as JSON."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.path is not None:
            error["path"] = self.path
        return msgspec.json.encode({"error": error})


def _escape_surrogates(text: str) -> str:
    """Write lone surrogates of a request, which UTF-8 cannot encode, as ``\\ud800``."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
