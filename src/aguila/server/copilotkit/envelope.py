"""Read requests to the single endpoint: envelopes ``{"method", "params", "body"}``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from aguila.codec.json.bounded_floats import json_decoder
from aguila.codec.json.text import parse_json
from aguila.codec.json.values import is_object
from aguila.errors import DecodeError, NotFound
from aguila.server.copilotkit.mount import CopilotKitRejected
from aguila.server.http.body_limits import Reservation
from aguila.server.http.request_body import check_media_type, read_body
from aguila.server.http.responses import Message, Receive
from aguila.server.request import Request
from aguila.server.service import Exchange, Service

_AGENT_METHODS: Final = {"agent/run": "run", "agent/suggest": "suggest", "agent/connect": "connect"}


class Envelope(msgspec.Struct):
    """The body that a client posts to the single endpoint."""

    method: Any = None
    params: Any = None
    body: msgspec.Raw = msgspec.Raw()


class UnwrappedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request in an envelope: its path segments, and an exchange with its method, query and body."""

    segments: Sequence[str]
    exchange: Exchange
    is_info: bool = False


async def open_envelope(service: Service, exchange: Exchange) -> UnwrappedRequest:
    """Read an envelope and return the request in it. Raises ``Rejected`` or ``NotFound``."""
    check_media_type(exchange.request, "an envelope")
    with Reservation(service.body_budget, exchange) as reservation:
        data = await read_body(exchange.request, exchange.receive, service.limits.body, reservation)
    try:
        envelope = _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _invalid("Invalid JSON payload") from None
    method, body = envelope.method, bytes(envelope.body)
    if not method:
        raise _invalid("Missing method field")
    if not isinstance(method, str):
        raise _invalid(f"Unsupported method of type {type(method).__name__}")
    if method == "info":
        return UnwrappedRequest(segments=["info"], exchange=exchange, is_info=True)
    if method == "transcribe":
        return UnwrappedRequest(segments=["transcribe"], exchange=exchange)
    if method in _AGENT_METHODS:
        if body in (b"", b"null"):
            raise _invalid("Missing request body for JSON handler")
        segments = ["agent", _get_text(envelope.params, "agentId"), _AGENT_METHODS[method]]
        return UnwrappedRequest(segments=segments, exchange=_with_body(exchange, body))
    if method == "agent/stop":
        segments = ["agent", _get_text(envelope.params, "agentId"), "stop", _get_text(envelope.params, "threadId")]
        return UnwrappedRequest(segments=segments, exchange=_with_body(exchange, body))
    if method == "resource/request":
        return _unwrap_resource(exchange, envelope.params, body)
    raise _invalid(f"Unsupported method '{method}'")


_decode = json_decoder(Envelope).decode


def _unwrap_resource(exchange: Exchange, params: Any, body: bytes) -> UnwrappedRequest:
    """Return a request to a thread route. An envelope cannot reach other routes this way."""
    path, _, query = _get_text(params, "path").partition("?")
    if not path.startswith("/") or path.startswith("//"):
        raise _invalid("Resource path must be Runtime-relative")
    method = _get_text(params, "httpMethod").upper()
    try:
        segments = [unquote(piece, errors="strict") for piece in path.rstrip("/").split("/")[1:]]
    except UnicodeDecodeError:
        raise NotFound("the path is not valid UTF-8") from None
    if segments[:1] != ["threads"]:
        raise NotFound("there is no route at this path")
    asgi = {**exchange.request.asgi, "method": method, "query_string": query.encode()}
    inner = replace(exchange, request=Request(asgi, exchange.request.path + path))
    return UnwrappedRequest(segments=segments, exchange=_with_body(inner, body))


def _with_body(exchange: Exchange, body: bytes) -> Exchange:
    if body == b"null":
        body = b""
    elif body.startswith(b'"'):  # a text body arrives as a JSON string
        try:
            body = str(parse_json(body, strict=True, warn=_ignore)).encode()
        except (DecodeError, UnicodeError):
            raise _invalid("Invalid JSON payload") from None
    return replace(exchange, receive=ReceivedBody(body, exchange.receive))


class ReceivedBody:
    """An ASGI ``receive`` that returns this body first, then the messages of the connection."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """Return the next message."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _get_text(params: Any, name: str) -> str:
    value = params.get(name) if is_object(params) else None
    if not isinstance(value, str) or not value.strip():
        raise _invalid(f"Missing or invalid parameter '{name}'")
    return value


def _invalid(message: str) -> CopilotKitRejected:
    return CopilotKitRejected(400, "invalid_request", message)


def _ignore(_: Any) -> None:
    """Drop a notice: strict reading gives none."""
