"""Reduce schemas for Gemini, which accepts some keywords of JSON Schema in ``parameters_json_schema``."""

from __future__ import annotations

import re
from typing import Any

from aguila.codec.json.values import is_array, is_object
from aguila.providers._request.schemas.parts import (
    MAX_DEPTH,
    NUMBER,
    Schema,
    SchemaBudget,
    as_array,
    as_object,
    plain_keywords,
    target_of,
    types_of,
)
from aguila.providers._request.schemas.root_object import object_at_the_root

_PLAIN = ("title", "description", "minimum", "maximum", "minItems", "maxItems")
_FORMATS = ("date-time", "date", "time")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]+\Z")


def gemini_schema(parameters: Any, *, budget: SchemaBudget | None = None) -> Schema:
    """Reduce the schema of an object for Gemini: known keywords, references without siblings and without cycles.

    ``anyOf`` has no siblings, enums have strings or numbers only, and ``allOf`` is merged into the schema.
    """
    root = parameters if is_object(parameters) else {}
    budget = SchemaBudget() if budget is None else budget
    cleaner = _Gemini(root, budget)
    cleaned = cleaner.clean(object_at_the_root(root, budget), 0)
    made: Schema = {name: cleaned[name] for name in _PLAIN if name in cleaned}
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
        if not is_object(schema) or depth > MAX_DEPTH:
            return {}
        if target_of(self._root, schema.get("$ref")) is not None:
            return self._reference(schema["$ref"], depth)
        schema = self._written_out(schema, ())
        plain = plain_keywords(schema)
        made: Schema = {name: plain[name] for name in _PLAIN if name in plain}
        has_inside = any(name in schema for name in ("properties", "items", "prefixItems"))
        choices = as_array(schema.get("anyOf")) or as_array(schema.get("oneOf"))
        if not has_inside:
            if "const" in schema or as_array(schema.get("enum")):
                values = [schema["const"]] if "const" in schema else schema["enum"]
                return _any_of(_of_values(values), made)
            if choices:
                return _any_of([self.clean(one, depth + 1) for one in choices], made)
        types = types_of(schema)
        if types:
            made["type"] = types[0] if len(types) == 1 else types
        if types == ["string"] and schema.get("format") in _FORMATS:
            made["format"] = schema["format"]
        self._clean_object(schema, made, depth + 1)
        self._clean_array(schema, made, depth + 1)
        return made

    def _reference(self, reference: str, depth: int) -> Schema:
        """Return a reference to a definition. A cycle becomes a schema that accepts anything of the same type."""
        target = target_of(self._root, reference)
        if reference in self._within or target is None:
            types = [] if target is None else types_of(target)
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
        target = target_of(self._root, schema.get("$ref"))
        parts = [*([] if target is None else [target]), *as_array(schema.get("allOf"))]
        for part in parts:
            if not is_object(part) or id(part) in within or len(within) > MAX_DEPTH:
                continue
            part = self._written_out(part, (*within, id(part)))
            if "prefixItems" in part and "prefixItems" in merged:
                part.pop("items", None)  # these items apply only after its own prefix
            properties = {**as_object(part.get("properties")), **as_object(merged.get("properties"))}
            required = [*as_array(merged.get("required")), *as_array(part.get("required"))]
            self._budget.spend(1 + len(properties) + len(required))
            merged = {**part, **merged}
            if properties:
                merged["properties"] = properties
            if required:
                merged["required"] = required
        return merged

    def _clean_object(self, schema: Schema, made: Schema, depth: int) -> None:
        properties = as_object(schema.get("properties"))
        if properties:
            made["properties"] = {name: self.clean(one, depth) for name, one in properties.items()}
        required = [name for name in as_array(schema.get("required")) if isinstance(name, str) and name in properties]
        if required:
            made["required"] = list(dict.fromkeys(required))
        more = schema.get("additionalProperties")
        if isinstance(more, bool) or is_object(more):
            made["additionalProperties"] = more if isinstance(more, bool) else self.clean(more, depth)

    def _clean_array(self, schema: Schema, made: Schema, depth: int) -> None:
        if as_array(schema.get("prefixItems")):
            made["prefixItems"] = [self.clean(one, depth) for one in schema["prefixItems"]]
        if is_object(schema.get("items")):
            made["items"] = self.clean(schema["items"], depth)
        elif made.get("type") == "array" and "prefixItems" not in made:
            made["items"] = {}


def _of_values(values: list[Any]) -> list[Schema]:
    """Make schemas that accept these values: strings and numbers as enums, other values by type."""
    texts = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if isinstance(value, NUMBER) and not isinstance(value, bool)]
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
