"""The JSON and SSE decoders as fuzz targets: events or an ``AguilaError``, and laws that hold for any input."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from aguila.codec import EventDecoder, Notice, decode, encode
from aguila.codec.json.text import parse_json
from aguila.codec.sse import SSEDecoder, SSEParser
from aguila.errors import DecodeError
from aguila.protocol import AgentCapabilities, Event, Message, RunAgentInput
from aguila.protocol.legacy import MetaEvent

DOCUMENTS: list[Any] = [RunAgentInput, list[Message], AgentCapabilities, list[Event]]
LEVELS: Any = ["off", "standard", "wide"]


def fuzz_json(data: bytes) -> None:
    """Laws for any bytes.

    The typed path and the path of the rules agree; strict implies lenient, with the same result and without a notice;
    decoded events are encoded as strictly valid ones.
    """
    notices: list[Notice] = []
    strict = None
    lenient, refusal = events_of(data, LEVELS[len(data) % 3], notices)
    raw = None
    with suppress(DecodeError):
        raw = parse_json(data, strict=False, warn=lambda notice: None)
    if isinstance(raw, dict) and (refusal is None or not refusal[0].startswith("limit")):
        assert events_of(raw, LEVELS[len(data) % 3], []) == (lenient, refusal)
    with suppress(DecodeError):
        strict = EventDecoder(strict=True, warn=notices.append).feed(data)
    if strict is not None:
        assert strict == lenient
        assert notices == []
    for event in lenient or ():
        written = encode(event)
        if not isinstance(event, MetaEvent):  # a retired event, which strict mode does not know
            assert [encode(again) for again in EventDecoder(strict=True).feed(written)] == [written]
    if lenient is None:
        fuzz_document(data, DOCUMENTS[len(data) % 4])


def events_of(data: Any, level: Any, notices: list[Notice]) -> tuple[list[Event] | None, Any]:
    try:
        return EventDecoder(compat=level, warn=notices.append, new_id=lambda: "id").feed(data), None
    except DecodeError as error:
        return None, (error.rule, error.path, error.index)


def fuzz_document(data: bytes, type_: Any) -> None:
    notices: list[Notice] = []
    strict, value = None, None
    with suppress(DecodeError):
        value = decode(data, type_, warn=notices.append)
    with suppress(DecodeError):
        strict = decode(data, type_, strict=True, warn=notices.append)
    if strict is not None:
        assert strict == value
        assert notices == []
    if value is not None:
        written = encode(value)
        assert encode(decode(written, type_, strict=True)) == written


def fuzz_sse(data: bytes) -> None:
    """Check that a stream gives the same frames, events, error and id whole and in pieces."""
    size = 1 if len(data) < 32 else 2 + data[len(data) // 2] % 62  # hypothesis cuts longer ones byte by byte
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    assert read(SSEParser(max_size=2000), [data]) == read(SSEParser(max_size=2000), pieces)
    assert read(decoder(), [data]) == read(decoder(), pieces)


def decoder() -> SSEDecoder:
    return SSEDecoder(warn=lambda notice: None, new_id=lambda: "id", max_size=100_000)


def read(reader: SSEParser | SSEDecoder, pieces: list[bytes]) -> tuple[list[Any], Any]:
    found: list[Any] = []
    try:
        for piece in pieces:
            found += reader.feed(piece)
        found += reader.close()
    except DecodeError as error:
        return found, (error.rule, error.path, error.index)
    return found, reader.last_event_id
