"""Reduce schemas for OpenAI and Anthropic."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from aguila.codec.json.values import is_object
from aguila.frameworks.pydantic_ai.schemas.parts import (
    MAX_DEPTH,
    Schema,
    SchemaBudget,
    as_array,
    as_object,
    is_pattern,
    plain_keywords,
    target_of,
    types_of,
)
from aguila.frameworks.pydantic_ai.schemas.root_object import COMBINING, object_at_the_root

_NOT_AT_THE_ROOT = (*COMBINING, "not", "enum", "const", "$ref")


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
    cleaned = _Standard(root, budget, property_name, on_dropped).clean(object_at_the_root(root, budget), 0)
    for keyword in _NOT_AT_THE_ROOT:
        cleaned.pop(keyword, None)
    cleaned["type"] = "object"
    cleaned.setdefault("properties", {})
    return cleaned


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
        if not is_object(schema) or depth > MAX_DEPTH:
            return {}  # true, or not a schema: accept anything
        cleaned = plain_keywords(schema)
        self._clean_values(schema, cleaned)
        self._clean_combined(schema, cleaned, depth + 1)
        self._clean_object(schema, cleaned, depth + 1)
        self._clean_array(schema, cleaned, depth + 1)
        if target_of(self._root, schema.get("$ref")) is not None:
            cleaned["$ref"] = schema["$ref"]
        for name in ("$defs", "definitions"):
            if is_object(schema.get(name)):
                cleaned[name] = {key: self.clean(one, depth + 1) for key, one in schema[name].items()}
        return cleaned

    def _clean_values(self, schema: Schema, cleaned: Schema) -> None:
        types = types_of(schema)
        if types:
            cleaned["type"] = types[0] if isinstance(schema["type"], str) else types
        if as_array(schema.get("enum")):
            cleaned["enum"] = schema["enum"]

    def _clean_combined(self, schema: Schema, cleaned: Schema, depth: int) -> None:
        for name in ("anyOf", "allOf"):
            if as_array(schema.get(name)):
                cleaned[name] = [self.clean(one, depth) for one in schema[name]]
        if as_array(schema.get("oneOf")):
            branches = [self.clean(one, depth) for one in schema["oneOf"]]
            if branches == schema["oneOf"]:
                cleaned["oneOf"] = branches
            else:  # reduced branches may overlap, and oneOf allows only one match
                cleaned.setdefault("anyOf", branches)
        if is_object(schema.get("not")) and self.clean(schema["not"], depth) == schema["not"]:
            cleaned["not"] = schema["not"]

    def _clean_object(self, schema: Schema, cleaned: Schema, depth: int) -> None:
        properties = as_object(schema.get("properties"))
        kept = {name: self.clean(one, depth) for name, one in properties.items() if self._may_be_named(name)}
        if "properties" in schema:
            cleaned["properties"] = kept
        patterns = as_object(schema.get("patternProperties"))
        if patterns and all(map(is_pattern, patterns)):
            cleaned["patternProperties"] = {key: self.clean(one, depth) for key, one in patterns.items()}
        has_all = len(kept) == len(properties) and len(cleaned.get("patternProperties", {})) == len(patterns)
        if "additionalProperties" in schema and has_all:
            cleaned["additionalProperties"] = self._clean_or_bool(schema["additionalProperties"], depth)
        if is_object(schema.get("propertyNames")):
            cleaned["propertyNames"] = self.clean(schema["propertyNames"], depth)
        required = [name for name in as_array(schema.get("required")) if isinstance(name, str) and name in kept]
        if required:
            cleaned["required"] = list(dict.fromkeys(required))

    def _may_be_named(self, name: str) -> bool:
        if self._property_name is None or self._property_name.match(name) is not None:
            return True
        if self._on_dropped is not None:
            self._on_dropped(name)
        return False

    def _clean_array(self, schema: Schema, cleaned: Schema, depth: int) -> None:
        if as_array(schema.get("prefixItems")):
            cleaned["prefixItems"] = [self.clean(one, depth) for one in schema["prefixItems"]]
        if is_object(schema.get("items")):
            cleaned["items"] = self.clean(schema["items"], depth)
        elif cleaned.get("type") == "array":
            cleaned["items"] = {}
        if is_object(schema.get("contains")) and "minContains" not in schema:
            cleaned["contains"] = self.clean(schema["contains"], depth)

    def _clean_or_bool(self, schema: Any, depth: int) -> Schema | bool:
        return schema if isinstance(schema, bool) else self.clean(schema, depth)
