"""Layer: codec. The receiver's rules for what a peer may send (PROC): strip the unknown, refuse the malformed.

Below: ``shape`` (what is described). Above: ``json`` calls this only for input that the typed decoder refused, so
clean input pays nothing. Every removal is reported with its path; nothing is repaired, coerced or defaulted.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from aguila.codec.json.shapes import Choice, Integer, Listing, OneOf, Patch, Record, Shape
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice
from aguila.codec.pointer import escape_token, format_pointer, is_pointer
from aguila.errors import DecodeError

_UNKNOWN: Final = object()  # what a value is that its position has no description for

# The members each JSON Patch operation must have besides op and path (SNAP-8).
_PATCH_MEMBER: Final[dict[str, str | None]] = {
    "add": "value",
    "remove": None,
    "replace": "value",
    "move": "from",
    "copy": "from",
    "test": "value",
}


def strip(raw: Any, shape: Shape, event_type: str | None = None) -> tuple[Any, list[Notice], str | None]:
    """``raw`` without what ``shape`` does not describe, a notice for each removal, and the path of the unknown value
    that leaves nothing of it, if there is one.

    Never changes ``raw`` itself. Raises ``DecodeError`` for a malformed JSON Patch operation; other malformed
    values are left for the typed decoder to refuse.
    """
    walk = _Walk(event_type)
    value = walk.value(raw, shape, "")
    return value, walk.notices, walk.unknown if value is _UNKNOWN else None


class _Walk:
    def __init__(self, event_type: str | None) -> None:
        self.event_type = event_type
        self.notices: list[Notice] = []
        self.unknown = ""  # where the last unknown value was

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
                # A required slot without a known value makes its container unrecognised in turn (PROC-4);
                # only the outermost removal is worth a report.
                del self.notices[before:]
                return _UNKNOWN
            else:
                self.report("removed an unknown value", here)
        return kept

    def choice(self, raw: Any, shape: Choice, path: str) -> Any:
        if not is_object(raw):
            return raw  # malformed, not unknown: the typed decoder says so
        tag = raw.get(shape.tag_field)
        option = shape.options.get(tag) if isinstance(tag, str) else None
        if option is None:
            self.unknown = f"{path}/{shape.tag_field}"
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
            problem = patch_problem(operation)
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
    """Whether every operation is well formed and known; the cheap check on the typed path."""
    try:
        for operation in operations:
            name, path = operation["op"], operation["path"]
            # Most pointers begin with a slash and have no tilde; the others need the full look.
            if (path.__class__ is not str or path == "" or path[0] != "/" or "~" in path) and (
                path.__class__ is not str or not is_pointer(path)
            ):
                return False
            if name == "replace" or name == "add" or name == "test":
                if "value" not in operation:
                    return False
            elif name != "remove" and patch_problem(operation) is not None:
                return False
    except KeyError:
        return False
    return True


def patch_problem(operation: Any) -> tuple[str, str, str] | None:
    """What is wrong with one patch operation, as (rule, path within it, sentence); None if nothing is."""
    if not is_object(operation):
        return "SNAP-8", "", "a patch operation must be an object"
    name = operation.get("op")
    if not isinstance(name, str):
        return "SNAP-8", "/op", "a patch operation must say its op"
    if name not in _PATCH_MEMBER:
        return "SNAP-8", "/op", f"there is no patch operation {name!r}"
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


_AT = re.compile(r" - at `(\$[^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")
_MISSING_FIELD = re.compile(r"missing required field `([^`]*)`")


def refused(error: msgspec.ValidationError, raw: Any, shape: Shape) -> DecodeError:
    """msgspec's refusal of ``raw`` as an error of ours: the rule it breaks, and the path as a JSON Pointer."""  # noqa: D403
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
    """Whether the place that these steps lead to is one that must be filled (an element of a list counts as such)."""
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
