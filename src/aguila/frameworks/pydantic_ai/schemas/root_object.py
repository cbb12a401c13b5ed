"""Write the root of a schema as an object without combinations, as every provider requires."""

from __future__ import annotations

from typing import Any

from aguila.codec.json.values import is_array, is_object
from aguila.frameworks.pydantic_ai.schemas.parts import MAX_DEPTH, Schema, SchemaBudget, as_array, as_object, target_of

COMBINING = ("anyOf", "oneOf", "allOf")
"""The keywords that combine schemas."""


def object_at_the_root(root: Schema, budget: SchemaBudget) -> Schema:
    """Return a schema whose root is an object without combinations: the properties of all branches."""
    if not any(name in root for name in (*COMBINING, "$ref")):
        return root
    found = _Members(root, budget).of(root, ())
    plain = {name: value for name, value in root.items() if name in ("title", "description", "$defs", "definitions")}
    closed = {"additionalProperties": False} if found.is_closed else {}
    return {**plain, **closed, "properties": found.properties, "required": sorted(found.required)}


class _Found:
    """The common parts of all objects of a schema: their properties, required names, and whether others are allowed."""

    def __init__(self, properties: dict[str, Any], required: set[str], is_closed: bool) -> None:
        self.properties = properties
        self.required = required
        self.is_closed = is_closed


class _Members:
    def __init__(self, root: Schema, budget: SchemaBudget) -> None:
        self._root = root
        self._budget = budget
        self._equality = _Equality(budget)
        self._found: dict[int, _Found] = {}  # by the id of the schema
        self._cuts = 0

    def of(self, schema: Any, within: tuple[int, ...]) -> _Found:
        """Collect the properties of a schema. ``within`` are the schemas that lead to this one."""
        if not is_object(schema):
            return _Found({}, set(), False)
        if id(schema) in within or len(within) > MAX_DEPTH:
            self._cuts += 1
            return _Found({}, set(), False)
        known = self._found.get(id(schema))
        if known is not None:
            return known
        cuts = self._cuts
        found = self._collect(schema, (*within, id(schema)))
        if self._cuts == cuts:  # the result does not depend on the schemas that led here
            self._found[id(schema)] = found
        return found

    def _collect(self, schema: Schema, within: tuple[int, ...]) -> _Found:
        required = {name for name in as_array(schema.get("required")) if isinstance(name, str)}
        is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        found = _Found(dict(as_object(schema.get("properties"))), required, is_closed)
        target = target_of(self._root, schema.get("$ref"))
        if target is not None:
            found = self._both(found, self.of(target, within))
        for part in as_array(schema.get("allOf")):
            found = self._both(found, self.of(part, within))
        for name in ("anyOf", "oneOf"):
            branches = [self.of(one, within) for one in as_array(schema.get(name)) if _may_be_object(one)]
            if branches:
                found = self._both(found, self._either(branches))
        return found

    def _both(self, one: _Found, other: _Found) -> _Found:
        """Combine two schemas that both apply. Of two rules for a property one is kept."""
        self._budget.spend(1 + len(one.properties) + len(other.properties))
        properties = {**other.properties, **one.properties}
        return _Found(properties, one.required | other.required, one.is_closed or other.is_closed)

    def _either(self, branches: list[_Found]) -> _Found:
        """Combine schemas of which one applies."""
        properties: dict[str, Any] = {}
        for name in dict.fromkeys(name for branch in branches for name in branch.properties):
            self._budget.spend(len(branches))
            choices: dict[int, Any] = {}
            for branch in branches:
                if name in branch.properties:
                    choice = branch.properties[name]
                elif branch.is_closed:
                    continue  # this branch does not allow the property
                else:
                    choice = _ANYTHING
                choices.setdefault(self._equality.number(choice), choice)
            properties[name] = {"anyOf": list(choices.values())} if len(choices) > 1 else next(iter(choices.values()))
        required = branches[0].required.intersection(*[branch.required for branch in branches])
        return _Found(properties, required, all(branch.is_closed for branch in branches))


_ANYTHING: Schema = {}


class _Equality:
    """Numbers JSON values so that equal values have the same number. A value that is seen again costs nothing."""

    def __init__(self, budget: SchemaBudget) -> None:
        self._budget = budget
        self._by_id: dict[int, tuple[int, Any]] = {}  # with the object, so that its id is not used again
        self._by_value: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        known = self._by_id.get(id(value))
        if known is not None:
            return known[0]
        self._budget.spend()
        key: Any
        if is_object(value):
            key = ("object", frozenset((name, self.number(one)) for name, one in value.items()))
        elif is_array(value):
            key = ("array", *map(self.number, value))
        else:
            key = (type(value), value)
        number = self._by_value.setdefault(key, len(self._by_value))
        self._by_id[id(value)] = (number, value)
        return number


def _may_be_object(schema: Any) -> bool:
    type_ = schema.get("type", "object") if is_object(schema) else "object"
    return schema is not False and (type_ == "object" or (is_array(type_) and "object" in type_))
