"""Write streams for TanStack AI (``@tanstack/ai-client``): mark interrupts as answerable and start client tools.

The client posts to the root route and resumes with ``Last-Event-ID``. It declares no protocol version, and names its
run in the header ``X-Run-Id``. It accepts an answer only to an interrupt with a marker, and starts a client tool only
on a CUSTOM event.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from aguila.codec import decode_event
from aguila.codec.json import text
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import log_notice
from aguila.errors import DecodeError
from aguila.protocol import (
    CustomEvent,
    Event,
    Interrupt,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    ToolCallArgsEvent,
    ToolCallStartEvent,
    replace,
)
from aguila.server.config.limits import UNLIMITED
from aguila.server.http.frames import SSEFraming
from aguila.store import Batch
from aguila.store.cursors import format_cursor
from aguila.stream.json_values import MAX_JSON_DEPTH

BINDING: Final = "tanstack:interruptBinding"
"""The member of an interrupt's metadata without which the client shows a question but accepts no answer."""
TOOL_INPUT: Final = "tool-input-available"
"""The CUSTOM event on which the client runs one of its tools."""
_DEPTH_AROUND: Final = 6
"""How deep the arguments or the result of a call are nested in the documents and events that contain them."""
_CALLS = (b'{"type":"TOOL_CALL_START"', b'{"type":"TOOL_CALL_ARGS"')
_ADAPTED = (*_CALLS, b'{"type":"RUN_FINISHED"')


def parse_json(content: Any) -> Any:
    """Parse JSON text as the client does. Return other text, and text that nests too deep to be sent, unchanged."""
    if not isinstance(content, str):
        return content
    try:
        text.check_depth(content, most=MAX_JSON_DEPTH - _DEPTH_AROUND)
        return text.parse_json(content, strict=True, warn=log_notice)
    except DecodeError:
        return content


class TanStackFraming(SSEFraming):
    """Server-sent events for TanStack's client.

    The id of an added event is the preceding id with a suffix. The client drops an event whose id it has seen, so an
    added event that is sent twice has its effect once.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.adapter = StreamAdapter()
        self.needs_past = True
        self.before = (0, "")
        """Number and token of the event before the next one: an added event has its cursor."""

    def observe(self, batch: Batch) -> None:
        self.adapter.observe(batch.events)
        self.before = (batch.last, batch.token)

    def frame_batch(self, first: int, events: Sequence[bytes], token: str = "") -> bytes:
        events = [self.rename_stored(event) for event in events]
        if any(event.startswith(_ADAPTED) for event in events):
            body = b"".join([self._one(number, event, token) for number, event in enumerate(events, first)])
        else:
            body = super().frame_batch(first, events, token)
        self.before = (first + len(events) - 1, token)
        return body

    def frame_large(self, number: int, event: bytes, token: str) -> Sequence[bytes]:
        if event.startswith(_ADAPTED):
            return [self.frame_batch(number, [event], token)]
        self.before = (number, token)
        return super().frame_large(number, event, token)

    def frame_events(self, events: Sequence[Event], cursor: str | None = None) -> bytes:
        return super().frame_events([one for event in events for one in self.adapter.expand(event)], cursor)

    def frame_pieces(self, events: Sequence[Event], cursor: str | None = None) -> Iterator[bytes]:
        return super().frame_pieces([one for event in events for one in self.adapter.expand(event)], cursor)

    def _one(self, number: int, data: bytes, token: str) -> bytes:
        event = decode_event(data, strict=True, max_size=UNLIMITED) if data.startswith(_ADAPTED) else None
        before = self.before[1] if self.before[0] == number - 1 else ""
        self.before = (number, token)
        if event is None:
            return super().frame_batch(number, [data], token)
        *added, last = self.adapter.expand(event)
        write = super().frame_events
        frames = [write([one], f"{format_cursor(number - 1, before)}.{place}") for place, one in enumerate(added, 1)]
        if last is event:
            return b"".join([*frames, super().frame_batch(number, [data], token)])
        return b"".join([*frames, write([last], format_cursor(number, token))])


class StreamAdapter:
    """Adapts the events of one run for the client. It needs every event of the run, from the first.

    Interrupts get the binding, and each call for the front end gets the CUSTOM event that starts the tool. A call
    without a parent message names the message that it creates.
    """

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, list[str]]] = {}

    def observe(self, events: Iterable[bytes]) -> None:
        """Apply events that the reader already has."""
        for data in events:
            if data.startswith(_CALLS):
                event = decode_event(data, strict=True, max_size=UNLIMITED)
                if event is not None:
                    self.expand(event)

    def expand(self, event: Event) -> list[Event]:
        """Return the events to send for this one. The last of them replaces it."""
        if isinstance(event, ToolCallStartEvent):
            self._calls[event.tool_call_id] = (event.tool_call_name, [])
            if event.parent_message_id is None:
                # Otherwise the client invents an id for the message of the call, and sends the call back under it.
                return [replace(event, parent_message_id=event.tool_call_id)]
        elif isinstance(event, ToolCallArgsEvent):
            if event.tool_call_id in self._calls:
                self._calls[event.tool_call_id][1].append(event.delta)
        elif isinstance(event, RunFinishedEvent):
            outcome = event.outcome
            if isinstance(outcome, RunFinishedInterruptOutcome):
                return [
                    replace(
                        event, outcome=replace(outcome, interrupts=bind_interrupts(outcome.interrupts, event.run_id))
                    )
                ]
            if isinstance(outcome, RunFinishedSuccessOutcome):
                pending = outcome.pending_tool_call_ids or ()
                return [*(self._tool_input(call_id) for call_id in pending if call_id in self._calls), event]
        return [event]

    def _tool_input(self, call_id: str) -> Event:
        name, pieces = self._calls[call_id]
        arguments = "".join(pieces)
        value: Any = parse_json(arguments or "{}")
        return CustomEvent(name=TOOL_INPUT, value={"toolCallId": call_id, "toolName": name, "input": value})


def bind_interrupts(interrupts: Iterable[Interrupt], run_id: str | None) -> list[Interrupt]:
    """Add the binding to a run's interrupts, so that the client accepts an answer to them."""
    return [
        replace(interrupt, metadata={**(interrupt.metadata or {}), BINDING: _build_binding(interrupt, run_id)})
        for interrupt in interrupts
    ]


def _build_binding(interrupt: Interrupt, run_id: str | None) -> dict[str, Any]:
    binding: dict[str, Any] = {
        "v": 1,
        "kind": "generic",
        "interruptId": interrupt.id,
        "interruptedRunId": run_id,
        "generation": 0,
    }
    if interrupt.response_schema is not None:
        binding["responseSchemaHash"] = hash_schema(interrupt.response_schema)
    if interrupt.expires_at is not None:
        binding["expiresAt"] = interrupt.expires_at
    return binding


def hash_schema(schema: Any) -> str:
    """Hash a schema as the client does, which refuses an answer if the two differ."""
    return f"sha256:{hashlib.sha256(to_canonical_json(schema).encode('utf-8', 'surrogatepass')).hexdigest()}"


def to_canonical_json(value: Any) -> str:
    """Write JSON as JavaScript does, with sorted keys and without spaces (the number form of RFC 8785)."""
    if is_object(value):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be", "surrogatepass"))
        return (
            "{"
            + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{to_canonical_json(one)}" for key, one in members)
            + "}"
        )
    if is_array(value):
        return "[" + ",".join(map(to_canonical_json, value)) + "]"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value, ensure_ascii=False)
    return _format_number(value)


def _format_number(value: int | float) -> str:
    """Write a number as ``Number.prototype.toString`` does: the shortest digits, an exponent from 1e21 and 1e-7 on."""
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"not a JSON number: {value!r}")
    if number == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    if len(text) <= point <= 21:
        text += "0" * (point - len(text))
    elif 0 < point <= 21:
        text = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        text = f"{text[0]}{fraction}e{point - 1:+d}"
    return f"-{text}" if sign else text
