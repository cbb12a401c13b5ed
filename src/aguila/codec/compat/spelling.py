"""Compatibility rules for names and nulls, in described objects of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aguila.codec.compat.context import Raw, RuleContext, omit
from aguila.codec.json.values import is_object
from aguila.protocol import ReasoningMessageStartEvent

_PART_TYPES = frozenset({"text", "image", "audio", "video", "document", "binary"})

# Members of older shapes that no current type has, so that their snake_case is recognised too.
_OLD_MEMBERS: dict[str, frozenset[str]] = {
    "StepStartedEvent": frozenset({"stepId", "parentStepId"}),
    "StepFinishedEvent": frozenset({"stepId", "parentStepId"}),
    "ActivitySnapshotEvent": frozenset({"activityId"}),
    "ActivityDeltaEvent": frozenset({"activityId"}),
    "ReasoningStartEvent": frozenset({"encryptedContent"}),
    "MultiAgentCapabilities": frozenset({"subAgents"}),
}


def part_type_case(part: Any, context: RuleContext) -> Any:
    """Read the part type ``"Text"`` as ``"text"``."""
    if not is_object(part):
        return part
    kind = part.get("type")
    if not isinstance(kind, str) or kind in _PART_TYPES or kind.lower() not in _PART_TYPES:
        return part
    context.report("type")
    return {**part, "type": kind.lower()}


def snake_case(raw: Raw, context: RuleContext) -> Raw:
    """Read snake_case names of described members as camelCase. Opaque and unknown members keep their names."""
    record = context.record
    if record is None:
        return raw
    old = _OLD_MEMBERS.get(record.cls.__name__, frozenset())
    renamed: dict[str, str] = {}
    for name in raw:
        if "_" not in name or name in record.members:
            continue
        camel = _camel(name)
        if camel not in raw and (camel in record.members or camel in old):
            context.report(name)
            renamed[name] = camel
    return {renamed.get(name, name): value for name, value in raw.items()} if renamed else raw


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in tail)


def drop_null(member: str) -> Callable[[Raw, RuleContext], Raw]:
    """Make a function that removes a member if it is null."""

    def apply(raw: Raw, context: RuleContext) -> Raw:
        if member not in raw or raw[member] is not None:
            return raw
        context.report(member)
        return omit(raw, member)

    return apply


def null_optional(raw: Raw, context: RuleContext) -> Raw:
    """Remove nulls of optional members. A null in a required member stays (ENV-7)."""
    record = context.record
    if record is None:
        return raw
    nulls = [
        name
        for name, value in raw.items()
        if value is None and name in record.members and name not in record.required and name != record.tag_field
    ]
    if record.cls is ReasoningMessageStartEvent and "role" in nulls:
        nulls.remove("role")  # the constructor implies it, but it is required on the wire (RSN-3)
    for name in nulls:
        context.report(name)
    return omit(raw, *nulls) if nulls else raw
