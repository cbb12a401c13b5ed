"""The shape of every protocol type, derived from the types, so that there is no second copy of the schema.

A shape determines which parts of a raw value the protocol does not describe. It does not check described values;
msgspec does that afterwards.
"""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import inspect as mi

from aguila.protocol._base import Phantom
from aguila.protocol.events import ActivityDeltaEvent, StateDeltaEvent
from aguila.protocol.run import RunFinishedOutcome, SubagentFinishedOutcome


class Opaque:
    """Any JSON, or a scalar: nothing in it is stripped."""


class Integer:
    """An integer: JSON Schema counts 5.0 as one, and JavaScript peers write it so (PY-5)."""


class OneOf:
    """One of several strings. Another string is unrecognised, not malformed (AMB-1)."""

    def __init__(self, values: frozenset[str]) -> None:
        self.values = values


class Listing:
    """A list whose elements have a shape. Only the unrecognised elements are dropped (PROC-4)."""

    def __init__(self, item: Shape) -> None:
        self.item = item


class Patch:
    """A JSON Patch: unknown operations are dropped, malformed ones are fatal, extra members stay (SNAP-8, PROC-5)."""


class Record:
    """A closed object: its described members, which of them are required, and its discriminator."""

    def __init__(self, cls: type[msgspec.Struct], tag_field: str | None) -> None:
        self.cls = cls
        self.tag_field = tag_field
        self.members: dict[str, Shape] = {}
        self.required: set[str] = set()


class Choice:
    """A union of objects with a discriminator. An unknown one is unrecognised (PROC-4), a missing one malformed.

    A missing one of an outcome is unrecognised too, as it is to the published client (AMB-3).
    """

    def __init__(self, tag_field: str, options: dict[str, Record]) -> None:
        self.tag_field = tag_field
        self.options = options
        self.is_outcome = not _OUTCOMES.isdisjoint(record.cls for record in options.values())


_OUTCOMES = frozenset((*get_args(RunFinishedOutcome), *get_args(SubagentFinishedOutcome)))

Shape = Opaque | Integer | OneOf | Listing | Patch | Record | Choice

_OPAQUE, _INTEGER, _PATCH = Opaque(), Integer(), Patch()
_PATCH_MEMBERS = {(StateDeltaEvent, "delta"), (ActivityDeltaEvent, "patch")}
_records: dict[type[msgspec.Struct], Record] = {}


@cache
def shape_of(type_: Any) -> Shape:
    """Return the shape of a protocol type, of a union of them, or of a list of either."""
    return _shape(mi.type_info(type_))


def _shape(info: mi.Type) -> Shape:
    match info:
        case mi.StructType():
            return _record(info)
        case mi.UnionType(types=types):
            return _union(types)
        case mi.ListType(item_type=item):
            return Listing(_shape(item))
        case mi.LiteralType(values=values) if len(values) > 1:
            return OneOf(frozenset(str(value) for value in values))
        case mi.IntType():
            return _INTEGER
        case _:
            return _OPAQUE


def _record(info: mi.StructType) -> Record:
    known = _records.get(info.cls)
    if known is not None:
        return known
    record = _records[info.cls] = Record(info.cls, info.tag_field)
    for field in info.fields:
        is_patch = (info.cls, field.name) in _PATCH_MEMBERS
        record.members[field.encode_name] = _PATCH if is_patch else _shape(field.type)
        # A member that the constructor implies is still required on the wire (REASONING_MESSAGE_START.role, RSN-3).
        if field.required or field.default_factory is not msgspec.NODEFAULT:
            record.required.add(field.encode_name)
    if info.tag_field is not None:
        record.members[info.tag_field] = _OPAQUE
    return record


def _union(types: tuple[mi.Type, ...]) -> Shape:
    records = [_record(t) for t in types if isinstance(t, mi.StructType) and t.cls is not Phantom]
    if len(records) > 1:
        tag_field = records[0].tag_field
        assert tag_field is not None, "a union of objects has a discriminator"  # noqa: S101
        return Choice(tag_field, {str(r.cls.__struct_config__.tag): r for r in records})
    if records:
        return records[0]
    lists = [t for t in types if isinstance(t, mi.ListType)]
    # For `str | list[part]` only the list has a shape. The list of an opaque value has items of Any and is opaque.
    if len(lists) == 1 and not isinstance(lists[0].item_type, mi.AnyType):
        return _shape(lists[0])
    return _OPAQUE
