"""Layer: server. The body of a request that asks for a run: read within its limits, then decoded.

Below: ``limits``, ``aguila.codec``. Above: ``run_routes``.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from aguila.codec import decode
from aguila.codec.compat import Level
from aguila.codec.notice import Notice, Warn
from aguila.errors import DecodeError
from aguila.protocol import RunAgentInput
from aguila.server.auth import Request
from aguila.server.exchange import Exchange, Service
from aguila.server.limits import LARGE, Limits
from aguila.server.rejection import Disconnected, Rejected
from aguila.server.responses import Receive
from aguila.server.runs import fingerprint


async def read_input(service: Service, exchange: Exchange) -> tuple[RunAgentInput, bytes, str | None]:
    """The input, the body it was in, and that body's fingerprint if it is large. Raises ``Rejected``."""
    request, limits, warn = exchange.request, service.limits, service.warn
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Rejected(415, "unsupported_media_type", "send a RunAgentInput as application/json")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Rejected(415, "unsupported_encoding", "send the body as it is, not compressed")
    body = await read_body(request, exchange.receive, limits.body)
    digest: str | None = None
    try:
        if len(body) <= LARGE:
            found = _decoded(body, limits, warn)
        else:
            notices: list[Notice] = []
            found, digest = await asyncio.to_thread(lambda: (_decoded(body, limits, notices.append), fingerprint(body)))
            for notice in notices:
                warn(notice)
    except DecodeError as error:
        code = "bad_json" if error.rule in ("json", "utf-8") else "malformed_input"
        raise Rejected(422, code, error.message, error.path) from None
    limits.check(found, len(body))
    return found, body, digest


def _decoded(body: bytes, limits: Limits, warn: Warn) -> RunAgentInput:
    return decode(body, RunAgentInput, compat=_level(body), warn=warn, max_size=max(limits.body, 1))


async def read_body(request: Request, receive: Receive, limit: int) -> bytes:
    """The body, if it is not larger than ``limit``. Raises ``Rejected`` (413) or ``Disconnected``."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit:
        raise Rejected(413, "too_large", f"the body may have {limit} bytes")
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise Rejected(413, "too_large", f"the body may have {limit} bytes")
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Declaration(msgspec.Struct, rename="camel"):
    protocol_version: Any = None


def _level(body: bytes) -> Level:
    """How old the shapes may be: a peer that declares no version is from before there were any (VER-8)."""
    if b'"protocolVersion"' not in body:
        return "wide"
    try:
        found = msgspec.json.decode(body, type=_Declaration)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "standard"
    return "wide" if found.protocol_version is None else "standard"
