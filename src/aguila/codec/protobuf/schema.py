"""The messages of ``agui.proto`` and their fields, as ``reader`` and ``writer`` use them.

All of it comes from the generated descriptors, except which opaque fields contain a Struct and which payloads may be
null.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

from google.protobuf.descriptor import FieldDescriptor

from aguila.codec.protobuf._generated import agui_pb2
from aguila.protocol import Event, EventType

# Metadata is a Struct on events, messages, tool calls, tools and resume entries, and a Value on parts and interrupts.
_STRUCTS = frozenset(
    {
        "BaseEvent.metadata",
        "Message.metadata",
        "Message.activity_content",
        "ToolCall.metadata",
        "Tool.metadata",
        "ResumeEntry.metadata",
        "ActivitySnapshotEvent.content",
    }
)

NULLABLE = frozenset({"StateSnapshotEvent.snapshot", "CustomEvent.value", "RawEvent.event"})
"""Required payloads: null is a value in them, not absence (ENV-7)."""

_SCALARS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_INT64)


class MessageFields:
    """The fields of one message by what they contain. Their names are also those of our attributes.

    ``without`` names scalars whose attribute has another shape.
    """

    def __init__(self, name: str, without: Collection[str] = ()) -> None:
        self.new: Any = message_class(name)
        fields: list[Any] = list(self.new.DESCRIPTOR.fields)
        opaque = [f.name for f in fields if f.type == FieldDescriptor.TYPE_BYTES]
        scalars = [f.name for f in fields if f.type in _SCALARS and not f.is_repeated]
        self.scalars: tuple[str, ...] = tuple(n for n in scalars if n not in without)
        self.structs: tuple[str, ...] = tuple(n for n in opaque if f"{name}.{n}" in _STRUCTS)
        self.values: tuple[str, ...] = tuple(n for n in opaque if f"{name}.{n}" not in _STRUCTS)
        self.json_names: dict[str, str] = {f.name: f.json_name for f in fields}
        self.nullable = frozenset(n for n in opaque if f"{name}.{n}" in NULLABLE)
        # Strings without presence: an absent one reads as empty (PB-12).
        self.implicit: tuple[str, ...] = tuple(
            f.name for f in fields if f.type == FieldDescriptor.TYPE_STRING and not f.has_presence and not f.is_repeated
        )


def message_class(name: str) -> Any:
    """Return the generated class of a message. A nested one is named with its parent (``ToolCall.Function``)."""
    cls: Any = agui_pb2
    for part in name.split("."):
        cls = getattr(cls, part)
    return cls


_FIELD_NUMBERS: dict[str, int] = {f.name.upper(): f.number for f in message_class("Event").DESCRIPTOR.fields}
_TYPE_NUMBERS: dict[str, int] = dict(agui_pb2.EventType.items())

EVENTS: tuple[tuple[type[Any], EventType, int, int], ...] = tuple(
    (cls, cls.type, _FIELD_NUMBERS[cls.type], _TYPE_NUMBERS[cls.type]) for cls in get_args(Event)
)
"""Every event: its class, its type, the number of its field in the envelope, and the number of its type."""

TYPE_NAMES: dict[int, str] = {number: name for name, number in _TYPE_NUMBERS.items()}
OPERATIONS: dict[str, int] = {name.lower(): number for name, number in agui_pb2.JsonPatchOperationType.items()}
"""JSON Patch operations by name."""

OPERATION_NAMES: dict[int, str] = {number: name for name, number in OPERATIONS.items()}
PARTS: tuple[str, ...] = tuple(f.name for f in message_class("InputContent").DESCRIPTOR.fields)
SOURCES: tuple[str, ...] = tuple(f.name for f in message_class("InputContentSource").DESCRIPTOR.fields)
