"""Read the body of a request within its limits, then decode it.

The size is checked while the body is read. Then an outline is decoded, which skips the large members: it is enough to
refuse a run, or to check the counts. A full decode takes five times as long, and its result needs memory.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from aguila.codec import decode, encode
from aguila.codec.compat import Level
from aguila.codec.json.bounded_floats import json_decoder
from aguila.codec.json.buffer import PresizedBuffer
from aguila.codec.json.decoder import decode_exactly, decode_excised
from aguila.codec.json.large_strings import ExcisedJSON, excise_strings
from aguila.codec.json.text import parse_json
from aguila.codec.json.values import is_object
from aguila.codec.logs import RunLogContext
from aguila.codec.notices import Notice, NoticeLimiter, Warn
from aguila.errors import DecodeError
from aguila.offload import LARGE, LARGE_JSON, offload
from aguila.protocol import RunAgentInput
from aguila.server.errors import Disconnected, Rejected
from aguila.server.http.body_limits import Reservation
from aguila.server.http.responses import Receive
from aguila.server.limits import Limits
from aguila.server.request import Request
from aguila.server.runs.starting.start_request import hash_body
from aguila.server.service import Exchange, Service
from aguila.stream.json_values import MAX_JSON_DEPTH

_JSON: Final = b"application/json"

_SMALL: Final = 1 << 14
"""Bytes up to which a valid body is decoded at once: an outline would take as long."""

_MAX_OBJECT: Final = 1 << 17
"""Limit of a body that is not a run's, in bytes."""


class Outline(msgspec.Struct, rename="camel"):
    """The ids in an undecoded body, and its large members as raw JSON."""

    protocol_version: Any = None
    thread_id: Any = None
    run_id: Any = None
    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    resume: msgspec.Raw = msgspec.Raw()
    state: msgspec.Raw = msgspec.Raw()

    @property
    def has_ids(self) -> bool:
        """Whether both ids are strings, as a valid input has them."""
        return isinstance(self.thread_id, str) and isinstance(self.run_id, str)


class Body(msgspec.Struct, frozen=True):
    """The body of a request that names a run."""

    data: bytes
    outline: Outline | RunAgentInput | None
    """The whole input of a small valid body; None if only the full decoder can read the body or report its faults."""
    excised: ExcisedJSON | None = None
    """The body without its large strings. If it is set, the outline is made from it."""


async def read_run_body(service: Service, exchange: Exchange, reservation: Reservation) -> Body:
    """Read the body and its outline. A large body waits for its reservation.

    Raises ``Rejected`` for another media type or too many bytes.
    """
    request = exchange.request
    check_media_type(request, "a RunAgentInput")
    data = await read_body(request, exchange.receive, service.limits.body, reservation)
    if len(data) > LARGE_JSON:
        return await offload(_outline_large, data)
    decoded = decode_exactly(data, RunAgentInput) if len(data) <= _SMALL else None
    return Body(data, _outline(data) if decoded is None else decoded)


def check_media_type(request: Request, what: str) -> None:
    """Raise ``Rejected`` (415) unless the body is uncompressed JSON."""
    media_type = request.raw_headers.get(b"content-type", b"")
    if media_type != _JSON and media_type.partition(b";")[0].strip().lower() != _JSON:
        message = f"the content type is {media_type.decode('latin-1')!r}; send {what} as application/json"
        raise Rejected(415, "unsupported_media_type", message)
    encoding = request.raw_headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        message = f"content encoding {encoding.decode('latin-1')!r} is not supported; send plain JSON"
        raise Rejected(415, "unsupported_encoding", message)


async def read_object(service: Service, exchange: Exchange, *, may_be_empty: bool = False) -> dict[str, Any]:
    """Read a body that is a small JSON object. With ``may_be_empty`` no body counts as ``{}``. Raises ``Rejected``."""
    with Reservation(service.body_budget, exchange) as reservation:
        data = await read_body(exchange.request, exchange.receive, min(service.limits.body, _MAX_OBJECT), reservation)
    if may_be_empty and not data.strip():
        return {}
    check_media_type(exchange.request, "a JSON object")
    try:
        value = parse_json(data, strict=True, warn=service.warn)
    except DecodeError as error:
        raise Rejected(422, "bad_json", error.message, error.path) from None
    if not is_object(value):
        raise Rejected(422, "bad_json", "the body is not a JSON object", "")
    return value


async def decode_input(service: Service, body: Body) -> tuple[RunAgentInput, str | None]:
    """Decode the input, and hash a large body. Raises ``Rejected``: for exceeded limits before other faults."""
    if isinstance(body.outline, RunAgentInput):
        return _check_decoded(body.outline, body.data, service.limits), None
    if body.outline is None or not body.outline.has_ids:
        return await _decode_outlined(service, body)
    with RunLogContext(body.outline.thread_id, body.outline.run_id):  # for notices about the body
        return await _decode_outlined(service, body)


async def _decode_outlined(service: Service, body: Body) -> tuple[RunAgentInput, str | None]:
    limits = service.limits
    digest: str | None = None
    try:
        size = len(body.data)
        exact = decode_exactly(body.data, RunAgentInput) if _SMALL < size <= LARGE_JSON else None
        if size <= _SMALL or exact is not None:
            warn = NoticeLimiter(_mark_data_routine(service.warn))
            decoded = _decode(body, limits, warn, exact)
            warn.report_omitted()
        else:
            notices: list[Notice] = []  # the thread must not call service.warn
            warn = NoticeLimiter(_mark_data_routine(notices.append))
            decoded, digest = await offload(lambda: (_decode(body, limits, warn), hash_body(body.data)))
            warn.report_omitted()
            for notice in notices:
                service.warn(notice)
    except DecodeError as error:
        code = "bad_json" if error.rule in ("json", "utf-8") else "malformed_input"
        raise Rejected(422, code, error.message, error.path) from None
    return decoded, digest


def _mark_data_routine(warn: Warn) -> Warn:
    """Mark notices about ``data`` as routine: TanStack AI repeats ``forwardedProps`` there in every request."""

    def report(notice: Notice) -> None:
        warn(replace(notice, is_routine=True) if notice.path == "/data" and notice.rule == "PROC-3" else notice)

    return report


def _check_decoded(input: RunAgentInput, data: bytes, limits: Limits) -> RunAgentInput:  # noqa: A002
    """Check the limits of a small input that is decoded already. Raises ``Rejected``."""
    limits.check(input)
    # An empty state is always allowed. Few brackets cannot be nested too deep.
    if input.state and (len(data) > limits.state or data.count(b"{") + data.count(b"[") > MAX_JSON_DEPTH):
        limits.check_raw(state=msgspec.Raw(encode(input.state)))
    return input


def _decode(body: Body, limits: Limits, warn: Warn, exact: RunAgentInput | None = None) -> RunAgentInput:
    """Check the limits, then decode the body unless ``exact`` is its input. Raises ``Rejected`` or ``DecodeError``."""
    outline, excised = body.outline, body.excised
    if isinstance(outline, Outline) and limits.may_exceed(len(body.data)):
        limits.check_raw(
            messages=outline.messages,
            tools=outline.tools,
            resume=outline.resume,
            state=outline.state,
            state_size=None if excised is None else excised.full_size(bytes(outline.state)),
            text=body.data if excised is None else excised.text,
        )
    level = _compat_level(body)
    if exact is not None:
        input = exact  # noqa: A001
    elif excised is not None:
        input = decode_excised(excised, RunAgentInput, compat=level, warn=warn)  # noqa: A001
    else:
        input = decode(body.data, RunAgentInput, compat=level, warn=warn, max_size=max(limits.body, 1))  # noqa: A001
    limits.check(input)
    if outline is None and input.state is not None:
        limits.check_raw(state=msgspec.Raw(encode(input.state)))
    return input


def _outline_large(data: bytes) -> Body:
    excised = excise_strings(data) if len(data) > LARGE else None
    outline = None if excised is None else _outline(excised.text)
    return Body(data, _outline(data)) if outline is None else Body(data, outline, excised)


def _outline(data: bytes) -> Outline | None:
    try:
        return _decode_outline(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


_decode_outline = json_decoder(Outline).decode


def _compat_level(body: Body) -> Level:
    """Return which older shapes are read. A client that declares no version is a 0.x client (VER-8)."""
    if body.outline is None:
        return "standard" if b'"protocolVersion"' in body.data else "wide"
    return "wide" if body.outline.protocol_version is None else "standard"


async def read_body(request: Request, receive: Receive, limit: int, reservation: Reservation) -> bytes:
    """Read a body of at most ``limit`` bytes. Raises ``Rejected`` (413) or ``Disconnected``."""
    length = request.raw_headers.get(b"content-length", b"")
    expected = int(length[:20]) if length.isdigit() else None
    if expected is not None and expected > limit:
        raise _too_large(limit)
    buffer: PresizedBuffer | None = None
    size = 0
    while True:
        message = await reservation.receive(receive)
        if message["type"] == "http.disconnect":
            raise Disconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        is_more = message.get("more_body", False)
        if buffer is None:
            if not is_more:
                if size > LARGE:
                    await reservation.arrived(size)
                return piece
            buffer = PresizedBuffer(expected)
        buffer.write(piece)
        await reservation.arrived(len(piece))
        if not is_more:
            return buffer.getvalue()


def _too_large(limit: int) -> Rejected:
    return Rejected(413, "too_large", f"the body has more than {limit} bytes, the limit of this server")
