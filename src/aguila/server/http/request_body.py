"""Layer: server. The body of a request that asks for a run: read within its limits, then decoded.

Below: ``limits``, ``aguila.codec``. Above: ``run_routes``. First comes the size, while it is read; then an outline, a
pass that skips over everything, which is enough to say no to a run, or to count; then the decoding, which costs five
times as much and holds what it finds.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from aguila.codec import decode, encode
from aguila.codec.compat import Level
from aguila.codec.json.buffer import PresizedBuffer
from aguila.codec.json.decoder import decode_exactly, decode_excised
from aguila.codec.json.large_strings import ExcisedJSON, excise_strings
from aguila.codec.json.text import parse_json
from aguila.codec.json.values import is_object
from aguila.codec.notices import Notice, NoticeLimiter, Warn
from aguila.errors import DecodeError
from aguila.offload import LARGE, offload
from aguila.protocol import RunAgentInput
from aguila.server.auth import Request
from aguila.server.errors import Disconnected, Rejected
from aguila.server.http.body_limits import Reservation
from aguila.server.http.responses import Receive
from aguila.server.limits import Limits
from aguila.server.runs.start_request import hash_body
from aguila.server.service import Exchange, Service
from aguila.stream.json_values import MAX_JSON_DEPTH

_JSON: Final = "application/json"

_SHORT: Final = 1 << 14
"""Bytes up to which an outline costs as much as the whole."""

_SOON: Final = 1 << 17
"""Bytes up to which a body is decoded on the event loop. What is in order takes microseconds, but a repair 100 times as
long, and whoever sends it decides which it is."""


class Outline(msgspec.Struct, rename="camel"):
    """What a body says about itself before it is decoded: which run, and where its large members are."""

    protocol_version: Any = None
    thread_id: Any = None
    run_id: Any = None
    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    resume: msgspec.Raw = msgspec.Raw()
    state: msgspec.Raw = msgspec.Raw()


class Body(msgspec.Struct, frozen=True):
    """The body of a request. Without an ``outline`` the decoder will say what is wrong, or has to repair it.

    If there are large strings in it, the outline is that of ``short``, which is without them. Of a short one that is
    in order, as most are, there is no outline but all of it, which takes no longer.
    """

    data: bytes
    outline: Outline | RunAgentInput | None
    short: ExcisedJSON | None = None


async def read_run_body(service: Service, exchange: Exchange, reservation: Reservation) -> Body:
    """The body, not decoded yet; a large one waits for its reservation.

    Raises ``Rejected`` for another media type, or too many bytes.
    """
    request = exchange.request
    check_media_type(request, "a RunAgentInput")
    data = await read_body(request, exchange.receive, service.limits.body, reservation)
    if len(data) > LARGE:
        return await offload(_large, data)
    exactly = decode_exactly(data, RunAgentInput) if len(data) <= _SHORT else None
    return Body(data, _outline(data) if exactly is None else exactly)


def check_media_type(request: Request, what: str) -> None:
    """Raise ``Rejected`` (415) unless the body is JSON that is not compressed."""
    media_type = request.headers.get("content-type", "")
    if media_type != _JSON and media_type.partition(";")[0].strip().lower() != _JSON:
        raise Rejected(415, "unsupported_media_type", f"send {what} as application/json")
    encoding = request.headers.get("content-encoding")
    if encoding is not None and encoding.strip().lower() != "identity":
        raise Rejected(415, "unsupported_encoding", "send the body as it is, not compressed")


async def read_object(service: Service, exchange: Exchange, *, may_be_empty: bool = False) -> dict[str, Any]:
    """Read a body that is a small JSON object; with ``may_be_empty``, no body is an empty one. Raises ``Rejected``."""
    with Reservation(service.body_budget) as reservation:
        data = await read_body(exchange.request, exchange.receive, min(service.limits.body, _SOON), reservation)
    if may_be_empty and not data.strip():
        return {}
    check_media_type(exchange.request, "a JSON object")
    try:
        value = parse_json(data, strict=True, warn=service.warn)
    except DecodeError as error:
        raise Rejected(422, "bad_json", error.message, error.path) from None
    if not is_object(value):
        raise Rejected(422, "bad_json", "the body is a JSON object", "")
    return value


async def decode_input(service: Service, body: Body) -> tuple[RunAgentInput, str | None]:
    """The input, and the fingerprint of a body that is large. Raises ``Rejected``: first for too much of something."""
    limits = service.limits
    digest: str | None = None
    if isinstance(body.outline, RunAgentInput):
        return _checked(body.outline, body.data, limits), None
    try:
        if len(body.data) <= _SOON:
            warn = NoticeLimiter(_expecting_data(service.warn))
            found = _decoded(body, limits, warn)
            warn.report_omitted()
        else:
            notices: list[Notice] = []
            warn = NoticeLimiter(_expecting_data(notices.append))
            found, digest = await offload(lambda: (_decoded(body, limits, warn), hash_body(body.data)))
            warn.report_omitted()
            for notice in notices:
                service.warn(notice)
    except DecodeError as error:
        code = "bad_json" if error.rule in ("json", "utf-8") else "malformed_input"
        raise Rejected(422, code, error.message, error.path) from None
    return found, digest


def _expecting_data(warn: Warn) -> Warn:
    """Report ``data`` as routine: TanStack AI repeats ``forwardedProps`` under this name in every request."""

    def report(notice: Notice) -> None:
        warn(replace(notice, is_routine=True) if notice.path == "/data" and notice.rule == "PROC-3" else notice)

    return report


def _checked(input: RunAgentInput, data: bytes, limits: Limits) -> RunAgentInput:  # noqa: A002
    """A short input as it is. Raises ``Rejected`` for too much of something."""
    limits.check(input)
    is_shallow = data.count(b"{") + data.count(b"[") <= MAX_JSON_DEPTH
    if input.state is not None and not (is_shallow and len(data) <= limits.state):
        limits.check_raw(state=msgspec.Raw(encode(input.state)))
    return input


def _decoded(body: Body, limits: Limits, warn: Warn) -> RunAgentInput:
    outline, short = body.outline, body.short
    if isinstance(outline, Outline) and limits.may_exceed(len(body.data)):
        limits.check_raw(
            messages=outline.messages,
            tools=outline.tools,
            resume=outline.resume,
            state=outline.state,
            state_size=None if short is None else short.full_size(bytes(outline.state)),
        )
    found = _input(body, warn, max(limits.body, 1))
    limits.check(found)
    if outline is None and found.state is not None:
        limits.check_raw(state=msgspec.Raw(encode(found.state)))
    return found


def _input(body: Body, warn: Warn, max_size: int) -> RunAgentInput:
    if body.short is not None:
        return decode_excised(body.short, RunAgentInput, compat=_level(body), warn=warn)
    return decode(body.data, RunAgentInput, compat=_level(body), warn=warn, max_size=max_size)


def _large(data: bytes) -> Body:
    short = excise_strings(data)
    outline = None if short is None else _outline(short.text)
    return Body(data, _outline(data)) if outline is None else Body(data, outline, short)


def _outline(data: bytes) -> Outline | None:
    try:
        return _decode_outline(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


_decode_outline = msgspec.json.Decoder(Outline).decode


def _level(body: Body) -> Level:
    """How old the shapes may be: a peer that declares no version is from before there were any (VER-8)."""
    if body.outline is None:
        return "standard" if b'"protocolVersion"' in body.data else "wide"
    return "wide" if body.outline.protocol_version is None else "standard"


async def read_body(request: Request, receive: Receive, limit: int, reservation: Reservation) -> bytes:
    """The body, if it is not larger than ``limit``. Raises ``Rejected`` (413) or ``Disconnected``."""
    length = request.headers.get("content-length", "")
    expected = int(length[:20]) if length.isdecimal() else None  # of what Latin-1 has, just these are numbers
    if expected is not None:
        if expected > limit:
            raise Rejected(413, "too_large", f"the body may have {limit} bytes")
        if expected > LARGE:
            await reservation.reserve(expected)
    whole: PresizedBuffer | None = None
    size = 0
    while True:
        message = await (reservation.receive(receive) if reservation.size else receive())
        if message["type"] == "http.disconnect":
            raise Disconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise Rejected(413, "too_large", f"the body may have {limit} bytes")
        is_more = message.get("more_body", False)
        if whole is None:
            if not is_more:
                return piece
            whole = PresizedBuffer(expected)
        whole.write(piece)
        if expected is None and size > LARGE:
            expected = limit  # nobody has said how much it will be
            await reservation.reserve(expected)
        if not is_more:
            return whole.getvalue()
