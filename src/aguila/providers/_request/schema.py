"""Reduce the JSON Schemas of tools to the keywords that each provider accepts.

Front ends and generators write any JSON Schema. Providers accept a part of it, and refuse the whole request for the
rest. The reduced schema accepts everything that the tool's own schema accepts, and may accept more: a tool checks its
arguments itself. A keyword that a provider does not accept is dropped if that widens the schema. If it would narrow the
schema, the keywords that depend on it are dropped too:

=========================================  ==========================================================================
a combination at the root                  an object with the properties of all branches; a property that some branch
                                           does not have accepts anything
properties with refused names,             ``additionalProperties`` beside them is dropped
``patternProperties`` (Gemini)
``not``, ``oneOf`` with reduced parts      dropped; becomes ``anyOf``
``contains`` with ``minContains``          dropped
external references, and too deep parts    accept anything
=========================================  ==========================================================================

References can make a short schema expand to any size. ``SchemaBudget`` limits the work for one request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from aguila.codec.json.values import is_array, is_object
from aguila.errors import RunFailed

Schema = dict[str, Any]

_DEEPEST = 40
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_NUMBER = (int, float)
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
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "multipleOf": _NUMBER,
}
_COMBINING = ("anyOf", "oneOf", "allOf")
_NOT_AT_THE_ROOT = (*_COMBINING, "not", "enum", "const", "$ref")
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


def standard_schema(
    parameters: Any,
    *,
    budget: SchemaBudget | None = None,
    property_name: str | None = None,
    on_dropped: Callable[[str], object] | None = None,
) -> Schema:
    """Reduce the schema of an object for OpenAI and Anthropic: known keywords only, references that resolve.

    ``property_name`` is a pattern. Properties with other names are dropped, and ``on_dropped`` is called for each.
    """
    root = parameters if is_object(parameters) else {}
    budget = SchemaBudget() if budget is None else budget
    cleaned = _Standard(root, budget, property_name, on_dropped).clean(_object_at_the_root(root, budget), 0)
    for keyword in _NOT_AT_THE_ROOT:
        cleaned.pop(keyword, None)
    cleaned["type"] = "object"
    cleaned.setdefault("properties", {})
    return cleaned


# References


def _target(root: Schema, reference: Any) -> Schema | None:
    match = _REFERENCE.match(reference) if isinstance(reference, str) else None
    definitions = None if match is None else root.get(match[1])
    if match is None or not is_object(definitions):
        return None
    target = definitions.get(match[2].replace("~1", "/").replace("~0", "~"))
    return target if is_object(target) else None


# The root must be an object without combinations


def _object_at_the_root(root: Schema, budget: SchemaBudget) -> Schema:
    if not any(name in root for name in (*_COMBINING, "$ref")):
        return root
    found = _Members(root, budget).of(root, ())
    plain = {name: value for name, value in root.items() if name in ("title", "description", "$defs", "definitions")}
    closed = {"additionalProperties": False} if found.is_closed else {}
    return {**plain, **closed, "properties": found.properties, "required": sorted(found.required)}


class _Found:
    """What all objects of a schema have in common: their properties, required names, and whether others are allowed."""

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
        if id(schema) in within or len(within) > _DEEPEST:
            self._cuts += 1
            return _Found({}, set(), False)
        known = self._found.get(id(schema))
        if known is not None:
            return known
        cuts = self._cuts
        found = self._collect(schema, (*within, id(schema)))
        if self._cuts == cuts:  # it does not depend on the schemas that led here
            self._found[id(schema)] = found
        return found

    def _collect(self, schema: Schema, within: tuple[int, ...]) -> _Found:
        required = {name for name in _array(schema.get("required")) if isinstance(name, str)}
        is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        found = _Found(dict(_object(schema.get("properties"))), required, is_closed)
        target = _target(self._root, schema.get("$ref"))
        if target is not None:
            found = self._both(found, self.of(target, within))
        for part in _array(schema.get("allOf")):
            found = self._both(found, self.of(part, within))
        for name in ("anyOf", "oneOf"):
            branches = [self.of(one, within) for one in _array(schema.get(name)) if _may_be_object(one)]
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
                    continue  # this branch does not allow it
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


# OpenAI and Anthropic


class _Standard:
    def __init__(
        self,
        root: Schema,
        budget: SchemaBudget,
        property_name: str | None,
        on_dropped: Callable[[str], object] | None,
    ) -> None:
        self._root = root
        self._budget = budget
        self._on_dropped = on_dropped
        self._property_name = None if property_name is None else re.compile(rf"{property_name}\Z")

    def clean(self, schema: Any, depth: int) -> Schema:
        self._budget.spend()
        if not is_object(schema) or depth > _DEEPEST:
            return {}  # true, or not a schema: accept anything
        cleaned = _plain(schema)
        self._clean_values(schema, cleaned)
        self._clean_combined(schema, cleaned, depth + 1)
        self._clean_object(schema, cleaned, depth + 1)
        self._clean_array(schema, cleaned, depth + 1)
        if _target(self._root, schema.get("$ref")) is not None:
            cleaned["$ref"] = schema["$ref"]
        for name in ("$defs", "definitions"):
            if is_object(schema.get(name)):
                cleaned[name] = {key: self.clean(one, depth + 1) for key, one in schema[name].items()}
        return cleaned

    def _clean_values(self, schema: Schema, cleaned: Schema) -> None:
        types = _types(schema)
        if types:
            cleaned["type"] = types[0] if isinstance(schema["type"], str) else types
        if _array(schema.get("enum")):
            cleaned["enum"] = schema["enum"]

    def _clean_combined(self, schema: Schema, cleaned: Schema, depth: int) -> None:
        for name in ("anyOf", "allOf"):
            if _array(schema.get(name)):
                cleaned[name] = [self.clean(one, depth) for one in schema[name]]
        if _array(schema.get("oneOf")):
            branches = [self.clean(one, depth) for one in schema["oneOf"]]
            if branches == schema["oneOf"]:
                cleaned["oneOf"] = branches
            else:  # reduced branches may overlap, and oneOf allows only one match
                cleaned.setdefault("anyOf", branches)
        if is_object(schema.get("not")) and self.clean(schema["not"], depth) == schema["not"]:
            cleaned["not"] = schema["not"]

    def _clean_object(self, schema: Schema, cleaned: Schema, depth: int) -> None:
        properties = _object(schema.get("properties"))
        kept = {name: self.clean(one, depth) for name, one in properties.items() if self._may_be_named(name)}
        if "properties" in schema:
            cleaned["properties"] = kept
        patterns = _object(schema.get("patternProperties"))
        if patterns and all(map(_is_pattern, patterns)):
            cleaned["patternProperties"] = {key: self.clean(one, depth) for key, one in patterns.items()}
        has_all = len(kept) == len(properties) and len(cleaned.get("patternProperties", {})) == len(patterns)
        if "additionalProperties" in schema and has_all:
            cleaned["additionalProperties"] = self._clean_or_bool(schema["additionalProperties"], depth)
        if is_object(schema.get("propertyNames")):
            cleaned["propertyNames"] = self.clean(schema["propertyNames"], depth)
        required = [name for name in _array(schema.get("required")) if isinstance(name, str) and name in kept]
        if required:
            cleaned["required"] = list(dict.fromkeys(required))

    def _may_be_named(self, name: str) -> bool:
        if self._property_name is None or self._property_name.match(name) is not None:
            return True
        if self._on_dropped is not None:
            self._on_dropped(name)
        return False

    def _clean_array(self, schema: Schema, cleaned: Schema, depth: int) -> None:
        if _array(schema.get("prefixItems")):
            cleaned["prefixItems"] = [self.clean(one, depth) for one in schema["prefixItems"]]
        if is_object(schema.get("items")):
            cleaned["items"] = self.clean(schema["items"], depth)
        elif cleaned.get("type") == "array":
            cleaned["items"] = {}
        if is_object(schema.get("contains")) and "minContains" not in schema:
            cleaned["contains"] = self.clean(schema["contains"], depth)

    def _clean_or_bool(self, schema: Any, depth: int) -> Schema | bool:
        return schema if isinstance(schema, bool) else self.clean(schema, depth)


def _plain(schema: Schema) -> Schema:
    return {
        name: schema[name]
        for name, type_ in _PLAIN.items()
        if name in schema
        and isinstance(schema[name], type_)
        and (type_ in (bool, object) or not isinstance(schema[name], bool))
        and (name != "pattern" or _is_pattern(schema[name]))
    }


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):  # also nested too deep, or a count beyond its limit
        return False
    return True


def _types(schema: Schema) -> list[str]:
    """Return the types that a schema names; none if one of them is unknown."""
    type_: Any = schema.get("type")
    named: list[Any] = [type_] if isinstance(type_, str) else _array(type_)
    known = [one for one in named if isinstance(one, str) and one in _TYPES]
    return list(dict.fromkeys(known)) if len(known) == len(named) else []


# Gemini accepts JSON Schema in ``parameters_json_schema``, limited to the keywords in its API reference.

_GEMINI_PLAIN = ("title", "description", "minimum", "maximum", "minItems", "maxItems")
_GEMINI_FORMATS = ("date-time", "date", "time")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]+\Z")


def gemini_schema(parameters: Any, *, budget: SchemaBudget | None = None) -> Schema:
    """Reduce the schema of an object for Gemini: known keywords, references without siblings and without cycles.

    ``anyOf`` has no siblings, enums have strings or numbers only, and ``allOf`` is merged into the schema.
    """
    root = parameters if is_object(parameters) else {}
    budget = SchemaBudget() if budget is None else budget
    cleaner = _Gemini(root, budget)
    cleaned = cleaner.clean(_object_at_the_root(root, budget), 0)
    made: Schema = {name: cleaned[name] for name in _GEMINI_PLAIN if name in cleaned}
    made |= {"type": "object", "properties": cleaned.get("properties", {})}
    made |= {name: cleaned[name] for name in ("required", "additionalProperties") if name in cleaned}
    if cleaner.definitions:
        made["$defs"] = cleaner.definitions
    return made


class _Gemini:
    def __init__(self, root: Schema, budget: SchemaBudget) -> None:
        self._root = root
        self._budget = budget
        self._names: dict[str, str] = {}  # names of definitions, by reference
        self._within: set[str] = set()
        self.definitions: dict[str, Schema] = {}

    def clean(self, schema: Any, depth: int) -> Schema:
        self._budget.spend()
        if not is_object(schema) or depth > _DEEPEST:
            return {}
        if _target(self._root, schema.get("$ref")) is not None:
            return self._reference(schema["$ref"], depth)
        schema = self._written_out(schema, ())
        plain = _plain(schema)
        made: Schema = {name: plain[name] for name in _GEMINI_PLAIN if name in plain}
        has_inside = any(name in schema for name in ("properties", "items", "prefixItems"))
        choices = _array(schema.get("anyOf")) or _array(schema.get("oneOf"))
        if not has_inside:
            if "const" in schema or _array(schema.get("enum")):
                values = [schema["const"]] if "const" in schema else schema["enum"]
                return _any_of(_of_values(values), made)
            if choices:
                return _any_of([self.clean(one, depth + 1) for one in choices], made)
        types = _types(schema)
        if types:
            made["type"] = types[0] if len(types) == 1 else types
        if types == ["string"] and schema.get("format") in _GEMINI_FORMATS:
            made["format"] = schema["format"]
        self._clean_object(schema, made, depth + 1)
        self._clean_array(schema, made, depth + 1)
        return made

    def _reference(self, reference: str, depth: int) -> Schema:
        """Return a reference to a definition. A cycle becomes a schema that accepts anything of the same type."""
        target = _target(self._root, reference)
        if reference in self._within or target is None:
            types = [] if target is None else _types(target)
            return {"type": types[0] if len(types) == 1 else types} if types else {}
        if reference not in self._names:
            name = reference.rpartition("/")[2]
            if not _SAFE_NAME.match(name) or name in self._names.values():
                name = f"definition-{len(self._names)}"
            self._names[reference] = name
            self._within.add(reference)
            self.definitions[name] = self.clean(target, depth + 1)
            self._within.remove(reference)
        return {"$ref": f"#/$defs/{self._names[reference]}"}

    def _written_out(self, schema: Schema, within: tuple[int, ...]) -> Schema:
        """Merge the ``allOf`` of a schema. Of two rules with the same keyword one is kept."""
        merged = {name: value for name, value in schema.items() if name not in ("allOf", "$ref")}
        if "patternProperties" in merged:
            merged.pop("additionalProperties", None)
        target = _target(self._root, schema.get("$ref"))
        parts = [*([] if target is None else [target]), *_array(schema.get("allOf"))]
        for part in parts:
            if not is_object(part) or id(part) in within or len(within) > _DEEPEST:
                continue
            part = self._written_out(part, (*within, id(part)))
            if "prefixItems" in part and "prefixItems" in merged:
                part.pop("items", None)  # they apply after its own prefix
            properties = {**_object(part.get("properties")), **_object(merged.get("properties"))}
            required = [*_array(merged.get("required")), *_array(part.get("required"))]
            self._budget.spend(1 + len(properties) + len(required))
            merged = {**part, **merged}
            if properties:
                merged["properties"] = properties
            if required:
                merged["required"] = required
        return merged

    def _clean_object(self, schema: Schema, made: Schema, depth: int) -> None:
        properties = _object(schema.get("properties"))
        if properties:
            made["properties"] = {name: self.clean(one, depth) for name, one in properties.items()}
        required = [name for name in _array(schema.get("required")) if isinstance(name, str) and name in properties]
        if required:
            made["required"] = list(dict.fromkeys(required))
        more = schema.get("additionalProperties")
        if isinstance(more, bool) or is_object(more):
            made["additionalProperties"] = more if isinstance(more, bool) else self.clean(more, depth)

    def _clean_array(self, schema: Schema, made: Schema, depth: int) -> None:
        if _array(schema.get("prefixItems")):
            made["prefixItems"] = [self.clean(one, depth) for one in schema["prefixItems"]]
        if is_object(schema.get("items")):
            made["items"] = self.clean(schema["items"], depth)
        elif made.get("type") == "array" and "prefixItems" not in made:
            made["items"] = {}


def _of_values(values: list[Any]) -> list[Schema]:
    """Make schemas that accept these values: strings and numbers as enums, other values by type."""
    texts = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if isinstance(value, _NUMBER) and not isinstance(value, bool)]
    made: list[Schema] = []
    if texts:
        made.append({"type": "string", "enum": list(dict.fromkeys(texts))})
    if numbers:
        is_whole = all(isinstance(value, int) for value in numbers)
        made.append({"type": "integer" if is_whole else "number", "enum": list(dict.fromkeys(numbers))})
    if any(isinstance(value, bool) for value in values):
        made.append({"type": "boolean"})
    if None in values:
        made.append({"type": "null"})
    if any(map(is_object, values)):
        made.append({"type": "object"})
    if any(map(is_array, values)):
        made.append({"type": "array", "items": {}})
    return made


def _any_of(choices: list[Schema], beside: Schema) -> Schema:
    """Make an ``anyOf`` without siblings. The description goes to the choices that have none."""
    described = {name: beside[name] for name in ("title", "description") if name in beside}
    choices = [one if "$ref" in one else {**described, **one} for one in choices]
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def _object(value: Any) -> Schema:
    return value if is_object(value) else {}


def _array(value: Any) -> list[Any]:
    return value if is_array(value) else []
