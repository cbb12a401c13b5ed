"""What the protobuf wire makes of an event, on its JSON form: the table of losses in aguila.codec.protobuf (PB-12)."""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.codec import EventDecoder, encode
from aguila.protocol import Event


def after_protobuf(event: Event) -> Event:
    """Return the event as it is after a passage over the wire."""
    (read,) = EventDecoder(warn=_unexpected, compat="off").feed(encode(lossy(msgspec.json.decode(encode(event)))))
    return read


def lossy(document: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON form of an event as it is after a passage over the wire."""
    document = _without_empty(document, "usage")
    if "outcome" in document:
        outcome = _without_empty(document["outcome"], "pendingToolCallIds", "interruptIds")
        document = {**document, "outcome": outcome}
    if document["type"] == "STATE_DELTA":
        document = {**document, "delta": [_operation(operation) for operation in document["delta"]]}
    if document["type"] == "ACTIVITY_DELTA":
        document = {**document, "patch": [_operation(operation) for operation in document["patch"]]}
    if document["type"] == "MESSAGES_SNAPSHOT":
        document = {**document, "messages": _messages(document["messages"])}
    if document["type"] == "RUN_STARTED" and "input" in document:
        given = document["input"]
        given = _without_empty({**given, "messages": _messages(given["messages"])}, "tools", "context", "resume")
        document = {**document, "input": given}
    return document


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_without_empty(message, "toolCalls") for message in messages]


def _operation(operation: dict[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in operation.items() if name in ("op", "path", "from", "value")}


def _without_empty(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: member for name, member in document.items() if name not in names or member != []}


def _unexpected(notice: object) -> None:
    raise AssertionError(f"a valid event needs no tolerance: {notice}")
