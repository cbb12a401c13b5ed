"""The parts that all reductions share: the budget, references, and keywords that refer to no other schema."""

from __future__ import annotations

import re
from typing import Any

from aguila.codec.json.values import is_array, is_object
from aguila.errors import RunFailed

Schema = dict[str, Any]

MAX_DEPTH = 40
"""How deep a schema is read. A deeper part accepts anything."""
NUMBER = (int, float)
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_PLAIN: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "title": str,
    "description": str,
    "format": str,
    "pattern": str,
    "examples": list,
    "default": object,
    "const": object,
    "minLength": int,
    "maxLength": int,
    "minItems": int,
    "maxItems": int,
    "minProperties": int,
    "maxProperties": int,
    "uniqueItems": bool,
    "minimum": NUMBER,
    "maximum": NUMBER,
    "exclusiveMinimum": NUMBER,
    "exclusiveMaximum": NUMBER,
    "multipleOf": NUMBER,
}
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/]+)\Z")

MAX_PARTS = 20_000
"""How many parts the schemas of one request may expand to: less than 0.2 s of CPU time."""


class SchemaBudget:
    """Counts the parts that the schemas of one request expand to.

    ``spend`` raises ``RunFailed`` (``tool_schema_too_complex``) beyond ``MAX_PARTS``.
    """

    def __init__(self, most: int = MAX_PARTS) -> None:
        self._most = most
        self._left = most

    def spend(self, parts: int = 1) -> None:
        """Count parts of a schema."""
        self._left -= parts
        if self._left < 0:
            raise RunFailed(
                f"The schemas of the tools expand to more than {self._most} parts. Send fewer tools, or schemas with"
                " fewer references and combinations.",
                code="tool_schema_too_complex",
            )


def target_of(root: Schema, reference: Any) -> Schema | None:
    """Return the definition that a reference names; None if it is not a definition of this schema."""
    match = _REFERENCE.match(reference) if isinstance(reference, str) else None
    definitions = None if match is None else root.get(match[1])
    if match is None or not is_object(definitions):
        return None
    target = definitions.get(match[2].replace("~1", "/").replace("~0", "~"))
    return target if is_object(target) else None


def plain_keywords(schema: Schema) -> Schema:
    """Return the keywords that refer to no other schema, without those whose value has a wrong type."""
    return {
        name: schema[name]
        for name, type_ in _PLAIN.items()
        if name in schema
        and isinstance(schema[name], type_)
        and (type_ in (bool, object) or not isinstance(schema[name], bool))
        and (name != "pattern" or is_pattern(schema[name]))
    }


def is_pattern(text: str) -> bool:
    """Return whether a text is a regular expression."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):  # also nested too deep, or a count beyond its limit
        return False
    return True


def types_of(schema: Schema) -> list[str]:
    """Return the types that a schema names; none if one of them is unknown."""
    type_: Any = schema.get("type")
    named: list[Any] = [type_] if isinstance(type_, str) else as_array(type_)
    known = [one for one in named if isinstance(one, str) and one in _TYPES]
    return list(dict.fromkeys(known)) if len(known) == len(named) else []


def as_object(value: Any) -> Schema:
    """Return a JSON object; an empty one in place of anything else."""
    return value if is_object(value) else {}


def as_array(value: Any) -> list[Any]:
    """Return a JSON array; an empty one in place of anything else."""
    return value if is_array(value) else []
