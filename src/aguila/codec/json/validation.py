"""The receiver's rules (PROC): strip unknown members, refuse malformed ones.

``decoder`` applies them only to input that the typed decoder refused, so exact input costs nothing. Every removal is
reported with its path. Nothing is repaired, coerced or defaulted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from aguila.codec.json.shapes import Choice, Integer, Listing, OneOf, Patch, Record, Shape, shape_of
from aguila.codec.json.text import replace_surrogates
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn
from aguila.codec.pointer import escape_token, format_pointer, is_pointer
from aguila.errors import DecodeError
from aguila.protocol import (
    ActivityDeltaEvent,
    Event,
    ReasoningMessageStartEvent,
    ResumeStatus,
    RunAgentInput,
    StateDeltaEvent,
)
from aguila.protocol.events import IMPLIED_REASONING_ROLE

_UNKNOWN: Final = object()  # stands for a value that the protocol does not describe
_EVENT_SHAPE = shape_of(Event)
assert isinstance(_EVENT_SHAPE, Choice)  # noqa: S101
_EVENT_RECORDS: Final = _EVENT_SHAPE.options

# The members each JSON Patch operation must have besides op and path (SNAP-8).
_PATCH_MEMBER: Final[dict[str, str | None]] = {
    "add": "value",
    "remove": None,
    "replace": "value",
    "move": "from",
    "copy": "from",
    "test": "value",
}


def enforce_event(raw: dict[str, Any], strict: bool, warn: Warn) -> Event | None:
    """Convert a raw event to its type. Return None if it is dropped, with a notice. Raises ``DecodeError``."""
    type_ = raw.get("type")
    if not isinstance(type_, str) or not type_:
        raise DecodeError("an event must have a type", rule="ENV-1", path="/type")
    record = _EVENT_RECORDS.get(type_)
    if record is None:
        if strict:
            raise DecodeError(f"unknown event type {type_!r}", rule="PROC-3", path="/type")
        warn(Notice(rule="PROC-3", message="dropped an event of an unknown type", path="/type", event_type=type_))
        return None
    stripped, notices, unknown = _strip(raw, record, type_)
    if strict and notices:
        raise _as_error(notices[0])
    if unknown is not None:
        if strict:
            raise DecodeError("unknown value in a required member", rule="PROC-4", path=unknown)
        message = "dropped an event with an unknown value in a required member"
        warn(Notice(rule="PROC-4", message=message, path=unknown, event_type=type_))
        return None
    event: Any = _convert(stripped, record.cls, record)
    check = EVENT_CHECKS.get(event.__class__)
    if check is not None and not check(event):  # patches were checked while stripping: only the role can fail
        raise DecodeError("required member is missing", rule="RSN-3", path="/role")
    for notice in notices:
        warn(notice)
    return event


def enforce_document(raw: Any, type_: Any, strict: bool, warn: Warn) -> Any:
    """Convert a plain value that is not an event to its protocol type. Raises ``DecodeError``."""
    if type_ is RunAgentInput:  # an input has no JSON Patch, whose rules msgspec does not know
        with suppress(msgspec.ValidationError, UnicodeEncodeError):  # there is something to strip or to report
            return msgspec.convert(raw, type_)
    stripped, notices, unknown = _strip(raw, shape_of(type_))
    if strict and notices:
        raise _as_error(notices[0])
    if unknown is not None:
        raise DecodeError("unknown value in a required member", rule="PROC-4", path=unknown)
    if type_ is RunAgentInput and is_object(raw):
        _refuse_dropped_answers(raw, stripped)
    value = _convert(stripped, with_required_tag(type_), shape_of(type_))
    for notice in notices:
        warn(notice)
    return value


def _refuse_dropped_answers(raw: dict[str, Any], stripped: dict[str, Any]) -> None:
    """Raise ``DecodeError`` if a resume entry was stripped: its interrupt would silently stay unanswered (AMB-9)."""
    before, after = raw.get("resume"), stripped.get("resume")
    if is_array(before) and is_array(after) and len(after) < len(before):
        known = get_args(ResumeStatus)
        index = next(i for i, entry in enumerate(before) if is_object(entry) and entry.get("status") not in known)
        raise DecodeError("a resume entry has an unknown status", rule="AMB-9", path=f"/resume/{index}/status")


def _as_error(notice: Notice) -> DecodeError:
    message = notice.message.removeprefix("removed an ").removeprefix("removed the ")
    return DecodeError(message, rule=notice.rule, path=notice.path)


def _convert(raw: Any, type_: Any, shape: Shape) -> Any:
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError as error:
        raise _refusal(error, raw, shape) from None
    except UnicodeEncodeError:
        # msgspec fails on a lone surrogate in a discriminator or an enum before it can name the place.
        _convert(replace_surrogates(raw), type_, shape)
        raise DecodeError("a lone surrogate in a member that is not free text", rule="PROC-2") from None


@cache
def with_required_tag(type_: Any) -> Any:
    """Return a type for msgspec that requires the discriminator, which msgspec does only within a union."""
    if get_origin(type_) is list:
        return list[with_required_tag(get_args(type_)[0])]
    config = getattr(type_, "__struct_config__", None)
    if config is None or config.tag is None:
        return type_
    sibling = msgspec.defstruct("Sibling", [], tag_field=config.tag_field, tag="\x00")
    return Union[type_, sibling]  # noqa: UP007  # built at run time


# Stripping


def _strip(raw: Any, shape: Shape, event_type: str | None = None) -> tuple[Any, list[Notice], str | None]:
    """Return ``raw`` without the parts that ``shape`` does not describe, a notice for each removal, and a path.

    The path is that of an unknown value that invalidates all of ``raw``, else None. Never changes ``raw``. Raises
    ``DecodeError`` for a malformed JSON Patch operation and for an object of a union without its discriminator; the
    typed decoder refuses other malformed values.
    """
    stripper = _Stripper(event_type)
    value = stripper.value(raw, shape, "")
    return value, stripper.notices, stripper.unknown if value is _UNKNOWN else None


class _Stripper:
    def __init__(self, event_type: str | None) -> None:
        self.event_type = event_type
        self.notices: list[Notice] = []
        self.unknown = ""  # the path of the last unknown value

    def value(self, raw: Any, shape: Shape, path: str) -> Any:
        if isinstance(shape, Record):
            return self.record(raw, shape, path) if is_object(raw) else raw
        if isinstance(shape, Choice):
            return self.choice(raw, shape, path)
        if isinstance(shape, Listing):
            return self.listing(raw, shape, path)
        if isinstance(shape, Patch):
            return self.patch(raw, path)
        if isinstance(shape, OneOf):
            if isinstance(raw, str) and raw not in shape.values:
                self.unknown = path
                return _UNKNOWN
            return raw
        if isinstance(shape, Integer) and isinstance(raw, float) and raw.is_integer():
            return int(raw)
        return raw

    def record(self, raw: dict[str, Any], shape: Record, path: str) -> Any:
        kept: dict[str, Any] = {}
        before = len(self.notices)
        for name, value in raw.items():
            member = shape.members.get(name)
            here = f"{path}/{escape_token(name)}"
            if member is None:
                self.report("removed an unknown member", here)
                continue
            value = self.value(value, member, here)
            if value is not _UNKNOWN:
                kept[name] = value
            elif name in shape.required:
                # A required member without a known value makes its container unrecognised in turn (PROC-4). Only the
                # outermost removal is reported.
                del self.notices[before:]
                return _UNKNOWN
            else:
                self.report("removed an unknown value", here)
        return kept

    def choice(self, raw: Any, shape: Choice, path: str) -> Any:
        if not is_object(raw):
            return raw  # malformed, not unknown: the typed decoder refuses it
        tag = raw.get(shape.tag_field)
        option = shape.options.get(tag) if isinstance(tag, str) else None
        if option is None:
            self.unknown = f"{path}/{shape.tag_field}"
            if not isinstance(tag, str) and not shape.is_outcome:
                problem = f"required member {shape.tag_field} is missing or not a string"
                raise DecodeError(problem, rule="AMB-3", path=self.unknown)
            return _UNKNOWN
        return self.record(raw, option, path)

    def listing(self, raw: Any, shape: Listing, path: str) -> Any:
        if not is_array(raw):
            return raw
        kept: list[Any] = []
        for i, item in enumerate(raw):
            here = f"{path}/{i}"
            value = self.value(item, shape.item, here)
            if value is _UNKNOWN:
                self.report("removed an unknown element", here)
            else:
                kept.append(value)
        return kept

    def patch(self, raw: Any, path: str) -> Any:
        if not is_array(raw):
            return raw
        kept: list[Any] = []
        for i, operation in enumerate(raw):
            here = f"{path}/{i}"
            if is_object(operation) and _is_unknown_operation(operation):
                self.report(f"removed the unknown patch operation {operation['op']!r}", here, rule="SNAP-8")
                continue
            problem = _patch_problem(operation)
            if problem is not None:
                rule, where, message = problem
                raise DecodeError(message, rule=rule, path=here + where)
            kept.append(operation)
        return kept

    def report(self, message: str, path: str, rule: str = "PROC-3") -> None:
        self.notices.append(Notice(rule=rule, message=message, path=path, event_type=self.event_type))


def _is_unknown_operation(operation: dict[str, Any]) -> bool:
    name = operation.get("op")
    return isinstance(name, str) and name not in _PATCH_MEMBER


def is_patch(operations: list[dict[str, Any]]) -> bool:
    """Return whether every operation is known and well formed: a cheap check for events of the typed decoder."""
    try:
        for operation in operations:
            name, path = operation["op"], operation["path"]
            # Most pointers begin with a slash and have no tilde; only the others need the full check.
            if (path.__class__ is not str or path == "" or path[0] != "/" or "~" in path) and (
                path.__class__ is not str or not is_pointer(path)
            ):
                return False
            if name == "replace" or name == "add" or name == "test":
                if "value" not in operation:
                    return False
            elif name != "remove" and _patch_problem(operation) is not None:
                return False
    except KeyError:
        return False
    return True


def _patch_problem(operation: Any) -> tuple[str, str, str] | None:
    """Return the rule, path and message of the first error in a patch operation, or None."""
    if not is_object(operation):
        return "SNAP-8", "", "a patch operation must be an object"
    name = operation.get("op")
    if not isinstance(name, str):
        return "SNAP-8", "/op", "a patch operation must have an op"
    if name not in _PATCH_MEMBER:
        return "SNAP-8", "/op", f"unknown patch operation {name!r}"
    pointers = ["path"]
    needed = _PATCH_MEMBER[name]
    if needed == "from":
        pointers.append("from")
    elif needed is not None and needed not in operation:
        return "SNAP-8", f"/{needed}", f"the patch operation {name!r} needs a {needed}"
    for member in pointers:
        pointer = operation.get(member)
        if not isinstance(pointer, str):
            return "SNAP-8", f"/{member}", f"the patch operation {name!r} needs a {member} that is a string"
        if not is_pointer(pointer):
            return "SNAP-7", f"/{member}", f"{pointer!r} is not a JSON Pointer"
    return None


def _has_role(event: ReasoningMessageStartEvent) -> bool:
    return event.role is not IMPLIED_REASONING_ROLE


EVENT_CHECKS: Final[dict[type[Any], Callable[[Any], bool]]] = {
    StateDeltaEvent: lambda event: is_patch(event.delta),
    ActivityDeltaEvent: lambda event: is_patch(event.patch),
    ReasoningMessageStartEvent: _has_role,
}
"""Checks that the typed decoder cannot make: patch operations are dicts to it, and the role has a default."""


# Errors

_AT = re.compile(r" - at `(\$[^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")
_MISSING_FIELD = re.compile(r"missing required field `([^`]*)`")


def _refusal(error: msgspec.ValidationError, raw: Any, shape: Shape) -> DecodeError:
    """Convert an error of msgspec to a ``DecodeError`` with a rule and a JSON Pointer."""
    text = str(error)
    at = _AT.search(text)
    steps: list[str] = []
    if at is not None:
        text = text[: at.start()]
        steps = [name or step for name, step in _STEP.findall(at[1])]
    rule = "PROC-2"
    if (unknown := _UNKNOWN_FIELD.search(text)) is not None:
        rule, text = "PROC-3", "unknown member"
        steps.append(unknown[1])
    elif (missing := _MISSING_FIELD.search(text)) is not None:
        text = "required member is missing"
        steps.append(missing[1])
    elif text.endswith("got `null`") and not _is_required(steps, raw, shape):
        rule = "ENV-6"
    return DecodeError(text.replace("`", ""), rule=rule, path=format_pointer(steps))


def _is_required(steps: list[str], raw: Any, shape: Shape) -> bool:
    """Return whether these steps lead to a required member. An element of a list counts as one."""
    required = True
    for step in steps:
        if isinstance(shape, Choice) and is_object(raw):
            shape = shape.options.get(raw.get(shape.tag_field, ""), shape)
        if isinstance(shape, Record) and is_object(raw):
            required = step in shape.required
            raw, shape = raw.get(step), shape.members.get(step, shape)
        elif isinstance(shape, Listing) and is_array(raw) and step.isdigit():
            required = True
            raw, shape = raw[int(step)], shape.item
    return required
