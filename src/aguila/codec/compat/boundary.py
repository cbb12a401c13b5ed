"""Apply the compatibility rules to raw input.

The decoder calls this only for input that the typed decoder refused, before unknown members are stripped (PROC-8), so
a current stream pays nothing. The walk follows described members only; opaque values are not searched.

The level ``off`` has no rules. ``standard`` has the rules that contradict no conformance stream. ``wide`` adds rules
that accept a malformed value of a known member, for old peers, such as one that declares no protocol version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, get_args

from aguila import protocol
from aguila.codec.compat.context import Level, Raw, Rule, RuleContext
from aguila.codec.compat.rules import RULES
from aguila.codec.json.shapes import Choice, Listing, Record, Shape, shape_of
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Warn, log_notice
from aguila.protocol import legacy
from aguila.protocol._base import Wire

Plan = Mapping[str, tuple[Rule, ...]]
"""The rules of one stage by the place they apply to."""

_UNIONS: dict[str, Any] = {
    "ContentPart": protocol.ContentPart,
    "Message": protocol.Message,
    "RunFinishedOutcome": protocol.RunFinishedOutcome,
    "SubagentFinishedOutcome": protocol.SubagentFinishedOutcome,
    "PartSource": protocol.PartSource,
}
_UNION_OF: dict[type[Any], str] = {cls: name for name, union in _UNIONS.items() for cls in get_args(union)}


@cache
def _plans(level: Level) -> tuple[Plan, ...]:
    """Return the rules of a level by stage. A later stage relies on the results of earlier ones."""
    plans: list[Plan] = []
    for stage in ("spelling", "shape", "nulls"):
        plan: dict[str, tuple[Rule, ...]] = {}
        for rule in RULES:
            if rule.stage == stage and (level == "wide" or rule.level == level):
                for place in rule.places:
                    plan[place] = (*plan.get(place, ()), rule)
        if plan:
            plans.append(plan)
    return tuple(plans)


@cache
def _events() -> dict[str, Record]:
    """Return the records of all events by type, retired ones included."""
    current, retired = shape_of(protocol.Event), shape_of(legacy.LegacyEvent)
    assert isinstance(current, Choice)  # noqa: S101
    assert isinstance(retired, Choice)  # noqa: S101
    return {**retired.options, **current.options}


@cache
def _document(kind: str) -> Shape | None:
    """Return the shape of a document by the name of its type (``Message[]`` is a list), or None."""
    if kind.endswith("[]"):
        item = _document(kind[:-2])
        return None if item is None else Listing(item)
    type_: Any = _UNIONS.get("RunFinishedOutcome" if kind == "Outcome" else kind)
    if type_ is None:
        type_ = getattr(protocol, kind, None)
        if not isinstance(type_, type) or not issubclass(type_, Wire) or issubclass(type_, protocol.BaseEvent):
            return None
        # An ImagePart may have been a binary part, so a member of a union is looked up in the union.
        type_ = _UNIONS[_UNION_OF[type_]] if type_ in _UNION_OF else type_
    return shape_of(type_)


@cache
def _binary() -> Record:
    shape = shape_of(legacy.BinaryInputContent)
    assert isinstance(shape, Record)  # noqa: S101
    return shape


@cache
def _place(shape: Shape) -> str:
    if isinstance(shape, Listing):
        return _place(shape.item) + "[]"
    if isinstance(shape, Choice):
        return _UNION_OF.get(next(iter(shape.options.values())).cls, "")
    return shape.cls.__name__ if isinstance(shape, Record) else ""


@cache
def _nested(record: Record) -> tuple[tuple[str, Shape], ...]:
    """Return the members that contain described objects; the walk ends at all others."""
    return tuple((name, s) for name, s in record.members.items() if isinstance(s, Record | Choice | Listing))


class Compat:
    """Translates one stream, or one document, of an older peer.

    Each rule that applies is reported once per instance. ``new_id`` makes the ids that an older shape lacks; without it
    they are derived from the run's id and a count, so that the same input gives the same output.
    """

    OBSERVED: ClassVar[frozenset[type[Any]]] = frozenset(
        {
            protocol.RunStartedEvent,
            protocol.RunFinishedEvent,
            protocol.RunErrorEvent,
            protocol.ActivitySnapshotEvent,
            protocol.StepFinishedEvent,
            protocol.ReasoningMessageStartEvent,
            protocol.ReasoningMessageChunkEvent,
            protocol.ReasoningEndEvent,
        }
    )
    """The events that must be passed to ``observe``."""

    def __init__(
        self, level: Level = "standard", warn: Warn = log_notice, new_id: Callable[[], str] | None = None
    ) -> None:
        self.level: Level = level
        self._plans = () if level == "off" else _plans(level)
        self._context = RuleContext(warn, new_id, level)

    def observe(self, event: protocol.Event) -> bool:
        """Record an event that is valid as it is. Types that are not in ``OBSERVED`` are ignored.

        Return False if it has to be translated nevertheless, because an older event before it concerns it.
        """
        context = self._context
        if isinstance(event, protocol.RunStartedEvent):
            context.start_run(event.run_id, event.protocol_version)
        elif isinstance(event, protocol.RunFinishedEvent | protocol.RunErrorEvent):
            context.end_run()
        elif isinstance(event, protocol.ActivitySnapshotEvent):
            context.activities[event.message_id] = event.activity_type
        elif isinstance(event, protocol.StepFinishedEvent):
            context.end_step(event.subagent_run_id, event.step_name)
        else:
            return not context.encrypted
        return True

    def upgrade(self, raw: Raw) -> list[Raw]:
        """Translate a raw event to current ones: one, none or several. Never changes ``raw``.

        Pass those that are valid to ``observe``.
        """
        self._context.keeps_spelling = False
        events = [raw]
        for plan in self._plans:
            events = [result for event in events for result in self._event(event, plan)]
        return events

    def upgrade_document(self, raw: Any, kind: str) -> Any:
        """Translate a document by the name of its type (``"RunAgentInput"``, ``"Message[]"``, ``"Outcome"``).

        Never changes ``raw``. A name without rules returns it as it is.
        """
        shape = _document(kind)
        if shape is None:
            return raw
        self._context.event_type = None
        self._context.keeps_spelling = kind == "RunAgentInput"
        for plan in self._plans:
            raw = self._value(raw, shape, plan, "")
        return raw

    def _event(self, raw: Raw, plan: Plan) -> list[Raw]:
        context = self._context
        type_ = raw.get("type")
        if not isinstance(type_, str):
            return [raw]
        context.event_type = type_
        context.preceding, context.following = [], []
        record = _events().get(type_)
        event: Raw | None = raw
        for place in ("*", "Event", "" if record is None else record.cls.__name__):
            if place in plan:
                event = self._rules(event, place, plan, "", record)
                if event is None:
                    return []
        # A rule may have changed the type, and with it the members.
        record = _events().get(event["type"])
        if record is not None:
            event = self._members(event, record, plan, "")
        return [*context.preceding, event, *context.following]

    def _rules(self, value: Any, place: str, plan: Plan, path: str, record: Record | None = None) -> Any:
        context = self._context
        for rule in plan.get(place, ()):
            context.rule, context.path, context.record = rule, path, record
            value = rule.apply(value, context)
            if value is None:
                break
        return value

    def _value(self, raw: Any, shape: Shape, plan: Plan, path: str) -> Any:
        if isinstance(shape, Record):
            if not is_object(raw):
                return raw
            for place in ("*", shape.cls.__name__):
                if place in plan:
                    raw = self._rules(raw, place, plan, path, shape)
            return self._members(raw, shape, plan, path)
        if isinstance(shape, Choice):
            place = _place(shape)
            if place in plan:
                raw = self._rules(raw, place, plan, path)
            tag: Any = raw.get(shape.tag_field) if is_object(raw) else None
            record = shape.options.get(tag) if isinstance(tag, str) else None
            if record is None and tag == "binary" and place == "ContentPart":
                record = _binary()
            return raw if record is None else self._value(raw, record, plan, path)
        if isinstance(shape, Listing):
            if (place := _place(shape)) in plan:
                raw = self._rules(raw, place, plan, path)
            return self._items(raw, shape.item, plan, path) if is_array(raw) else raw
        return raw

    def _members(self, raw: Raw, record: Record, plan: Plan, path: str) -> Raw:
        changed: Raw | None = None
        for name, shape in _nested(record):
            if name not in raw:
                continue
            before = raw[name]
            after = self._value(before, shape, plan, f"{path}/{name}")
            if after is not before:
                changed = dict(raw) if changed is None else changed
                changed[name] = after
        return raw if changed is None else changed

    def _items(self, raw: list[Any], shape: Shape, plan: Plan, path: str) -> list[Any]:
        changed: list[Any] | None = None
        for i, before in enumerate(raw):
            after = self._value(before, shape, plan, f"{path}/{i}")
            if after is not before:
                changed = list(raw) if changed is None else changed
                changed[i] = after
        return raw if changed is None else changed
