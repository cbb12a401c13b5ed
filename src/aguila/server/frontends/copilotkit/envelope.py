"""Read requests to the single endpoint: envelopes ``{"method", "params", "body"}``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import unquote

import msgspec
from starlette.types import Message, Receive, Scope

from aguila.codec.json.bounded_floats import decode_json, json_decoder
from aguila.errors import NotFound
from aguila.server.frontends.copilotkit.errors import CopilotKitRejected
from aguila.server.http.body import check_media_type, read_body
from aguila.server.http.request import Request
from aguila.server.http.service import Service

_AGENT_METHODS: Final = {"agent/run": "run", "agent/suggest": "suggest", "agent/connect": "connect"}


MAX_TEXT: Final = 8192
"""Characters of a path, a method or an id in an envelope."""

_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]


class CopilotKitParams(msgspec.Struct, rename="camel"):
    """What is part of the path of the other routes. Each method needs some of it; others are skipped."""

    agent_id: _Text | None = None
    thread_id: _Text | None = None
    path: _Text | None = None
    http_method: _Text | None = None


class Envelope(msgspec.Struct):
    """The body that a client posts to the single endpoint. The inner body is not decoded here."""

    method: _Text | None = None
    params: CopilotKitParams | None = None
    body: msgspec.Raw = msgspec.Raw()


async def open_envelope(service: Service, request: Request) -> tuple[Sequence[str], Request]:
    """Read an envelope and return the request in it: its path segments, and a request with its method, query and body.

    Raises ``Rejected`` or ``NotFound``.
    """
    check_media_type(request, "an envelope")
    data = await read_body(request, request.caller.limits.body)
    request.reservation.release()  # the handler of the inner request reserves its body again
    try:
        envelope = _decode(data)
    except msgspec.ValidationError as error:
        raise _invalid(f"Invalid envelope: {error}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _invalid("Invalid JSON payload") from None
    method, params, body = envelope.method, envelope.params or CopilotKitParams(), bytes(envelope.body)
    if not method:
        raise _invalid("Missing method field")
    if method == "info":
        return ["info"], request
    if method == "transcribe":
        return ["transcribe"], request
    if method in _AGENT_METHODS:
        if body in (b"", b"null"):
            raise _invalid("Missing request body for JSON handler")
        segments = ["agent", _require(params.agent_id, "agentId"), _AGENT_METHODS[method]]
        return segments, _replace_body(request, request.scope, body)
    if method == "agent/stop":
        segments = ["agent", _require(params.agent_id, "agentId"), "stop", _require(params.thread_id, "threadId")]
        return segments, _replace_body(request, request.scope, body)
    if method == "resource/request":
        return _open_resource(request, params, body)
    raise _invalid(f"Unsupported method '{method}'")


_decode = json_decoder(Envelope).decode


def _open_resource(request: Request, params: CopilotKitParams, body: bytes) -> tuple[Sequence[str], Request]:
    """Return a request to a thread route. An envelope cannot reach other routes this way."""
    path, _, query = _require(params.path, "path").partition("?")
    if not path.startswith("/") or path.startswith("//"):
        raise _invalid("Resource path must be Runtime-relative")
    method = _require(params.http_method, "httpMethod").upper()
    try:
        segments = [unquote(piece, errors="strict") for piece in path.rstrip("/").split("/")[1:]]
    except UnicodeDecodeError:
        raise NotFound("the path is not valid UTF-8") from None
    if segments[:1] != ["threads"]:
        raise NotFound("there is no route at this path")
    scope = {**request.scope, "method": method, "query_string": query.encode()}
    return segments, _replace_body(request, scope, body)


def _replace_body(request: Request, scope: Scope, body: bytes) -> Request:
    if body == b"null":
        body = b""
    elif body.startswith(b'"'):  # a text body arrives as a JSON string
        try:
            body = decode_json(body, str).encode()
        except (msgspec.DecodeError, UnicodeError):
            raise _invalid("Invalid JSON payload") from None
    inner = Request(scope)
    inner.receive, inner.method = ReceivedBody(body, request.receive), scope["method"]
    inner.caller, inner.reservation = request.caller, request.reservation
    return inner


class ReceivedBody:
    """An ASGI ``receive`` that returns this body first, then the messages of the connection."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _require(value: str | None, name: str) -> str:
    if value is None or not value.strip():
        raise _invalid(f"Missing or invalid parameter '{name}'")
    return value


def _invalid(message: str) -> CopilotKitRejected:
    return CopilotKitRejected(400, "invalid_request", message)
