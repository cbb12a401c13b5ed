"""Limit how far the references of a JSON Schema expand.

A validator applies ``$ref`` and the combining keywords anew for each path that leads to a schema. Thirty schemas of two
references each are a billion paths. The number of paths at one place of a value is counted here before a validator is
used. Recursion into the members of a value is bounded by the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aguila.codec.json.values import is_array, is_object

MAX_PATHS: Final = 50_000
"""How many paths a schema may have: validation at one place of a value takes some milliseconds."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ONE: Final = ("not", "if", "then", "else")
_MANY: Final = ("allOf", "anyOf", "oneOf", "extends")
_NAMED: Final = ("dependentSchemas", "dependencies")
_APPLYING: Final = frozenset({*_REFERENCES, *_ONE, *_MANY, *_NAMED})


def check_expansion(schema: Any, most: int = MAX_PATHS) -> None:
    """Raise ``ValueError`` for a schema with too many paths."""
    parts: list[Any] = [schema]
    for part in parts:  # the loop also visits added parts
        if is_object(part):
            parts += part.values()
        elif is_array(part):
            parts += part
    objects = [part for part in parts if is_object(part)]
    named = _named_schemas(objects)
    applied: dict[int, list[Any]] = {}  # by the id of the schema. Made when it is needed: each may be long
    left = most
    for start in objects:
        if _APPLYING.isdisjoint(start):
            continue
        # A depth-first walk. ``open_`` are the schemas that lead to the current one: a cycle ends there.
        walk: list[Iterator[Any]] = [iter([start])]
        open_: list[int] = []
        is_open: set[int] = set()
        left += 1  # for the start
        while walk:
            part = next(walk[-1], None)
            if part is None:
                walk.pop()
                if open_:
                    is_open.discard(open_.pop())
                continue
            left -= 1
            if left < 0:
                raise ValueError(f"its references and combinations expand to more than {most} parts")
            if id(part) in is_open or _APPLYING.isdisjoint(part):
                continue
            further = applied.get(id(part))
            if further is None:
                further = applied[id(part)] = _applied(part, schema, named)
            walk.append(iter(further))
            open_.append(id(part))
            is_open.add(id(part))


def _applied(schema: dict[str, Any], root: Any, named: dict[str, list[Any]]) -> list[Any]:
    """Return the schemas that apply to the same value as this one."""
    found: list[Any] = []
    for name in _REFERENCES:
        reference = schema.get(name)
        if isinstance(reference, str):
            found += _targets(reference, root, named)
    found += [schema.get(name) for name in _ONE]
    for name in _MANY:
        parts = schema.get(name)
        found += parts if is_array(parts) else [parts]
    for name in _NAMED:
        parts = schema.get(name)
        found += parts.values() if is_object(parts) else ()
    return [one for one in found if is_object(one)]


def _named_schemas(objects: list[Any]) -> dict[str, list[Any]]:
    """Return the schemas by their anchors, and by the last part of their ids."""
    named: dict[str, list[Any]] = {}
    for schema in objects:
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                named.setdefault(f"#{schema[keyword]}", []).append(schema)
        for keyword in ("$id", "id"):
            if isinstance(schema.get(keyword), str):
                address, _, anchor = schema[keyword].partition("#")
                named.setdefault(_last_part(address), []).append(schema)
                if anchor:
                    named.setdefault(f"#{anchor}", []).append(schema)
    return named


def _last_part(address: str) -> str:
    return address.rpartition("/")[2].rpartition(":")[2]


def _targets(reference: str, root: Any, named: dict[str, list[Any]]) -> list[Any]:
    """Return the schemas that a reference may name."""
    address, _, fragment = reference.partition("#")
    bases = named.get(_last_part(address), []) if address else [root, *named.get("", [])]
    if not fragment:
        return bases
    if fragment.startswith("/"):
        return [target for base in bases if (target := _at_pointer(base, fragment)) is not None]
    return named.get(f"#{fragment}", [])


def _at_pointer(value: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if is_object(value):
            value = value.get(name)
        elif is_array(value) and name.isdecimal() and int(name[:9]) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
