"""Read the body of a request within its limits, then decode it.

A valid body is decoded in one call, in C. Any other is decoded by the tolerant decoder, after its counts were checked.
"""

from __future__ import annotations

from contextlib import nullcontext
from io import BytesIO
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from aguila.codec import decode, encode
from aguila.codec.json.bounded_floats import json_decoder
from aguila.codec.json.decoder import decode_exact_input
from aguila.codec.json.text import parse_json
from aguila.codec.json.values import is_object
from aguila.codec.logs import use_log_context
from aguila.codec.notices import Notice, NoticeLimiter, Warn
from aguila.errors import DecodeError, EncodeError
from aguila.offload import LARGE, offload
from aguila.protocol import RunAgentInput
from aguila.server.config.errors import Disconnected, Rejected
from aguila.server.config.limits import Limits
from aguila.server.http.request import Request
from aguila.server.http.service import Service
from aguila.stream.json_values import MAX_DIGITS, MAX_JSON_DEPTH, check_integers

_JSON: Final = "application/json"

_MAX_OBJECT: Final = 1 << 17
"""Limit of a body that is not a run's, in bytes."""


class _Counted(msgspec.Struct, rename="camel"):
    """The members of a body that need a guard before the tolerant decoder, which reports each of their faults."""

    protocol_version: Any = None
    thread_id: Any = None
    run_id: Any = None
    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    resume: msgspec.Raw = msgspec.Raw()
    state: msgspec.Raw = msgspec.Raw()
    forwarded_props: msgspec.Raw = msgspec.Raw()


_decode_counted = json_decoder(_Counted).decode


class _Report(msgspec.Struct):
    """What the tolerant decoder noticed about a body, and the ids in it. The worker must not call ``warn``."""

    notices: list[Notice] = []
    counted: _Counted | None = None

    def send(self, warn: Warn) -> None:
        """Report the notices, with the ids of the request."""
        found = self.counted
        has_ids = found is not None and isinstance(found.thread_id, str) and isinstance(found.run_id, str)
        with use_log_context(found.thread_id, found.run_id) if has_ids and found is not None else nullcontext():
            for notice in self.notices:
                warn(notice)


async def read_input(service: Service, request: Request) -> tuple[RunAgentInput, bytes]:
    """Read and decode the body of a request that names a run. A large body waits for its reservation.

    Raises ``Rejected``: for exceeded limits before other faults.
    """
    if request.headers.get("content-type") != _JSON or "content-encoding" in request.headers:
        check_media_type(request, "a RunAgentInput")
    limits = request.caller.limits
    data = await read_body(request, limits.body)
    report = _Report()
    try:
        # A valid body takes one call in C, but the sender decides how many numbers it has, and each takes long.
        if len(data) > LARGE:
            input = await offload(decode_input, data, limits, report)  # noqa: A001
        else:
            input = decode_input(data, limits, report)  # noqa: A001
    finally:
        if report.notices:
            report.send(service.warn)
    limits.check(input)
    return input, data


def decode_input(data: bytes, limits: Limits, report: _Report) -> RunAgentInput:
    """Decode an input, tolerantly if it does not match the schema exactly. Raises ``Rejected``."""
    input = decode_exact_input(data)  # noqa: A001
    if input is None:
        input = _decode_tolerantly(data, limits, report)  # noqa: A001
    # An empty state is always allowed. Few brackets cannot be nested too deep.
    if (input.state or input.forwarded_props) and (
        len(data) > limits.state or data.count(b"{") + data.count(b"[") > MAX_JSON_DEPTH
    ):
        limits.check_raw(
            state=msgspec.Raw(encode(input.state)) if input.state else msgspec.Raw(),
            forwarded_props=msgspec.Raw(encode(input.forwarded_props)),
        )
    if input.state and len(data) > MAX_DIGITS:
        try:
            check_integers(input.state, "/state")
        except EncodeError as error:
            raise Rejected(422, "malformed_input", error.message, error.path) from None
    return input


def _decode_tolerantly(data: bytes, limits: Limits, report: _Report) -> RunAgentInput:
    """Decode an input that does not match the schema exactly: an older shape, or one with faults."""
    counted = report.counted = _count(data)
    # A client that declares no version is a 0.x client (VER-8).
    is_declared = b'"protocolVersion"' in data if counted is None else counted.protocol_version is not None
    if counted is not None:
        limits.check_raw(
            messages=counted.messages,
            tools=counted.tools,
            resume=counted.resume,
            state=counted.state,
            forwarded_props=counted.forwarded_props,
        )
    warn = NoticeLimiter(_mark_data_routine(report.notices.append))
    try:
        level = "standard" if is_declared else "wide"
        return decode(data, RunAgentInput, compat=level, warn=warn, max_size=max(limits.body, 1))
    except DecodeError as error:
        code = "bad_json" if error.rule in ("json", "utf-8") else "malformed_input"
        raise Rejected(422, code, error.message, error.path) from None
    finally:
        warn.report_omitted()


def _count(data: bytes) -> _Counted | None:
    try:
        return _decode_counted(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _mark_data_routine(warn: Warn) -> Warn:
    """Mark notices about ``data`` as routine: a front end repeats ``forwardedProps`` there in every request."""

    def report(notice: Notice) -> None:
        warn(replace(notice, is_routine=True) if notice.path == "/data" and notice.rule == "PROC-3" else notice)

    return report


def check_media_type(request: Request, what: str) -> None:
    """Raise ``Rejected`` (415) unless the body is uncompressed JSON."""
    media_type = request.headers.get("content-type", "")
    if media_type.partition(";")[0].strip().lower() != _JSON:
        message = f"the content type is {media_type!r}; send {what} as application/json"
        raise Rejected(415, "unsupported_media_type", message)
    encoding = request.headers.get("content-encoding")
    if encoding is not None and encoding.strip().lower() != "identity":
        message = f"content encoding {encoding!r} is not supported; send plain JSON"
        raise Rejected(415, "unsupported_encoding", message)


async def read_object(service: Service, request: Request, *, may_be_empty: bool = False) -> dict[str, Any]:
    """Read a body that is a small JSON object. With ``may_be_empty`` no body counts as ``{}``. Raises ``Rejected``."""
    data = await read_body(request, min(request.caller.limits.body, _MAX_OBJECT))
    if may_be_empty and not data.strip():
        return {}
    check_media_type(request, "a JSON object")
    try:
        value = parse_json(data, strict=True, warn=service.warn)
    except DecodeError as error:
        raise Rejected(422, "bad_json", error.message, error.path) from None
    if not is_object(value):
        raise Rejected(422, "bad_json", "the body is not a JSON object", "")
    return value


async def read_body(request: Request, limit: int) -> bytes:
    """Read a body of at most ``limit`` bytes. Raises ``Rejected`` (413) or ``Disconnected``."""
    reservation = request.reservation
    length = request.headers.get("content-length", "")
    expected = int(length[:20]) if length.isascii() and length.isdigit() else None
    if expected is not None and expected > limit:
        raise _too_large(limit)
    buffer: BytesIO | None = None
    size = 0
    while True:
        message = await reservation.receive(request.receive)
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
            # In its full size, of which pages take memory once they are written: growing it would take memory twice.
            buffer = BytesIO(bytes(expected or 0))
        buffer.write(piece)
        await reservation.arrived(len(piece))
        if not is_more:
            buffer.truncate()
            return buffer.getvalue()


def _too_large(limit: int) -> Rejected:
    return Rejected(413, "too_large", f"the body has more than {limit} bytes, the limit of Limits.body or this route")
