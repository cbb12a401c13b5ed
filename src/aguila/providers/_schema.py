"""Layer: providers. Schemas of tools, cleaned to what each provider accepts.

Below: nothing. Above: ``request`` of every provider. Tools come from front ends and generators that write whatever
JSON Schema allows; providers take a part of it and refuse the whole request for the rest. What is left out makes a
schema wider, never narrower: a tool checks its own arguments.
"""

from __future__ import annotations

import re
from typing import Any

from aguila.codec.values import is_array, is_object

Schema = dict[str, Any]

_DEEPEST = 40
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_PLAIN = frozenset(
    {"title", "description", "default", "examples", "const", "format", "pattern", "minLength", "maxLength", "minimum"}
    | {"maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"}
    | {"minProperties", "maxProperties"}
)
_NOT_AT_THE_ROOT = ("anyOf", "oneOf", "allOf", "not", "enum", "const")
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/]+)\Z")


def standard_schema(parameters: Any, *, property_name: str | None = None) -> Schema:
    """A JSON Schema of an object, for OpenAI and Anthropic: known keywords only, references that resolve.

    ``property_name`` is a pattern; properties whose names do not match are left out.
    """
    root = parameters if is_object(parameters) else {}
    cleaned = _Standard(root, property_name).clean(_dereferenced_root(root), 0)
    for keyword in _NOT_AT_THE_ROOT:
        cleaned.pop(keyword, None)
    cleaned["type"] = "object"
    cleaned.setdefault("properties", {})
    return cleaned


def _dereferenced_root(root: Schema) -> Schema:
    reference = root.get("$ref")
    target = None if not isinstance(reference, str) else _target(root, reference)
    return root if target is None else {**root, **target}


def _target(root: Schema, reference: str) -> Schema | None:
    match = _REFERENCE.match(reference)
    if match is None:
        return None
    definitions = root.get(match[1])
    target = definitions.get(match[2].replace("~1", "/").replace("~0", "~")) if is_object(definitions) else None
    return target if is_object(target) else None


class _Standard:
    def __init__(self, root: Schema, property_name: str | None) -> None:
        self._root = root
        self._property_name = None if property_name is None else re.compile(rf"{property_name}\Z")

    def clean(self, schema: Any, depth: int) -> Schema:
        if not is_object(schema) or depth > _DEEPEST:
            return {}  # true, and what is no schema: anything goes
        cleaned: Schema = {name: value for name, value in schema.items() if name in _PLAIN and value is not None}
        self._clean_type(schema, cleaned)
        for name in _ONE:
            if name in schema:
                value = schema[name]
                cleaned[name] = value if isinstance(value, bool) else self.clean(value, depth + 1)
        for name in _MANY:
            if is_array(schema.get(name)) and schema[name]:
                cleaned[name] = [self.clean(one, depth + 1) for one in schema[name]]
        for name in _NAMED:
            if is_object(schema.get(name)):
                cleaned[name] = {
                    key: self.clean(one, depth + 1)
                    for key, one in schema[name].items()
                    if name != "properties" or self._property_name is None or self._property_name.match(key)
                }
        reference = schema.get("$ref")
        if isinstance(reference, str) and _target(self._root, reference) is not None:
            cleaned["$ref"] = reference
        if is_array(schema.get("required")):
            known = cleaned.get("properties", {})
            required = [name for name in schema["required"] if isinstance(name, str) and name in known]
            if required:
                cleaned["required"] = list(dict.fromkeys(required))
        items = cleaned.get("items")
        if cleaned.get("type") == "array" and not is_object(items):
            cleaned["items"] = {}
        elif isinstance(items, bool):
            del cleaned["items"]
        return cleaned

    def _clean_type(self, schema: Schema, cleaned: Schema) -> None:
        type_: Any = schema.get("type")
        if isinstance(type_, str) and type_ in _TYPES:
            cleaned["type"] = type_
        elif is_array(type_):
            known = list(dict.fromkeys([one for one in type_ if isinstance(one, str) and one in _TYPES]))
            if known:
                cleaned["type"] = known
        if is_array(schema.get("enum")) and schema["enum"]:
            cleaned["enum"] = schema["enum"]


# Gemini takes the subset of OpenAPI 3.0 that its Schema type has, without references.

_GEMINI_FORMATS = {
    "STRING": {"enum", "date-time"},
    "INTEGER": {"int32", "int64"},
    "NUMBER": {"float", "double"},
}
_GEMINI_PLAIN: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "title": str,
    "description": str,
    "pattern": str,
    "minLength": int,
    "maxLength": int,
    "minimum": (int, float),
    "maximum": (int, float),
    "minItems": int,
    "maxItems": int,
    "minProperties": int,
    "maxProperties": int,
}


def gemini_schema(parameters: Any) -> Schema | None:
    """The schema of an object as Gemini's ``Schema``; None if the object has no properties, which is to be left out."""
    root = parameters if is_object(parameters) else {}
    schema = _Gemini(root).convert(root, (), 0)
    if not schema.get("properties"):
        return None
    return {name: value for name, value in schema.items() if name not in ("anyOf", "enum")} | {"type": "OBJECT"}


class _Gemini:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def convert(self, schema: Any, within: tuple[str, ...], depth: int) -> Schema:
        if not is_object(schema) or depth > _DEEPEST:
            return {"type": "STRING"}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = _target(self._root, reference)
            if target is None or reference in within:
                return {"type": "OBJECT"}  # it knows no recursion
            schema = {**target, **{name: value for name, value in schema.items() if name != "$ref"}}
            within = (*within, reference)
        schema = self._merged(schema)
        choices, nullable = self._choices(schema)
        made: Schema = {
            name: schema[name]
            for name, type_ in _GEMINI_PLAIN.items()
            if isinstance(schema.get(name), type_) and not isinstance(schema.get(name), bool)
        }
        if nullable:
            made["nullable"] = True
        if len(choices) == 1 and choices[0] is not schema:
            return self.convert(choices[0], within, depth + 1) | made
        if len(choices) > 1:
            made["anyOf"] = [self.convert(choice, within, depth + 1) for choice in choices]
            return made
        self._add_type(schema, made, within, depth)
        return made

    def _merged(self, schema: Schema) -> Schema:
        merged = dict(schema)
        for part in schema.get("allOf") or () if is_array(schema.get("allOf")) else ():
            target = (
                _target(self._root, part["$ref"]) if is_object(part) and isinstance(part.get("$ref"), str) else part
            )
            if is_object(target):
                properties = {**_object(merged.get("properties")), **_object(target.get("properties"))}
                required = [*_array(merged.get("required")), *_array(target.get("required"))]
                merged = {**target, **merged}
                if properties:
                    merged |= {"properties": properties, "required": required}
        merged.pop("allOf", None)
        return merged

    def _choices(self, schema: Schema) -> tuple[list[Any], bool]:
        """The alternatives, without null, and whether null is one; the schema itself if it has no alternatives."""
        type_ = schema.get("type")
        if is_array(type_):
            kinds = [one for one in dict.fromkeys(str(one) for one in type_) if one in _TYPES and one != "null"]
            rest = {name: value for name, value in schema.items() if name != "type"}
            return [{**rest, "type": kind} for kind in kinds] or [rest], "null" in type_
        for name in ("anyOf", "oneOf"):
            if is_array(schema.get(name)) and schema[name]:
                choices = [one for one in schema[name] if not (is_object(one) and one.get("type") == "null")]
                return choices or [{"type": "string"}], len(choices) < len(schema[name])
        return [schema], schema.get("nullable") is True

    def _add_type(self, schema: Schema, made: Schema, within: tuple[str, ...], depth: int) -> None:
        type_ = schema.get("type")
        if not isinstance(type_, str) or type_ not in _TYPES or type_ == "null":
            type_ = "object" if "properties" in schema else "array" if "items" in schema else "string"
        made["type"] = type_.upper()
        if type_ == "object":
            properties = _object(schema.get("properties"))
            if properties:
                made["properties"] = {name: self.convert(one, within, depth + 1) for name, one in properties.items()}
            required = [name for name in dict.fromkeys(map(str, _array(schema.get("required")))) if name in properties]
            if required:
                made["required"] = required
        elif type_ == "array":
            made["items"] = self.convert(schema.get("items"), within, depth + 1)
        elif type_ == "string":
            values = [schema["const"]] if "const" in schema else _array(schema.get("enum"))
            texts = [value for value in values if isinstance(value, str) and value != ""]
            if texts:
                made["enum"] = texts
        if schema.get("format") in _GEMINI_FORMATS.get(made["type"], ()):
            made["format"] = schema["format"]


def _object(value: Any) -> Schema:
    return value if is_object(value) else {}


def _array(value: Any) -> list[Any]:
    return value if is_array(value) else []
