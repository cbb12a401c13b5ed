"""A cleaned schema accepts all that the tool's own accepts: jsonschema-rs is the judge of both."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import jsonschema_rs
import pytest
from cpu_bounds import check_cpu_time
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from models.request_checkers import check_gemini_schema, check_root_schema

from aguila.errors import RunFailed
from aguila.protocol import Tool
from aguila.providers import FunctionTool, anthropic, gemini, openai_chat, openai_responses
from aguila.providers._request.prompt import Prompt
from aguila.providers._request.schemas.gemini import gemini_schema
from aguila.providers._request.schemas.standard import standard_schema

CLEANERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], list[str]]]] = {
    "openai": (standard_schema, check_root_schema),
    "anthropic": (lambda schema: standard_schema(schema, property_name=anthropic.PROPERTY_NAME), check_root_schema),
    "gemini": (gemini_schema, check_gemini_schema),
}

EXAMPLES = 400
NAMES = ["a", "b", "kind", "x-1", "n p", "ü"]
VALUES: list[Any] = [
    "x",
    "r",
    "",
    1,
    2,
    3,
    1.5,
    0,
    -1,
    True,
    False,
    None,
    [],
    [1, "x"],
    ["x"],
    {},
    {"a": 1},
    {"b": "x"},
]
LEAVES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "number", "minimum": 1, "exclusiveMaximum": 3},
        {"type": ["integer", "null"]},
        {"type": "boolean"},
        {"type": "array"},
        {"type": "object"},
        {"type": "null"},
        {"type": "string", "minLength": 1, "pattern": "^[a-z]"},
        {"enum": ["r", None, 1]},
        {"enum": [1, 2]},
        {"type": "integer", "enum": [1, 2]},
        {"enum": [[1, "x"], {"a": 1}, True]},
        {"const": "x"},
        {"const": 3},
        {"const": None},
        {"$ref": "#/$defs/node"},
        {"$ref": "#/definitions/leaf", "description": "d"},
        {"$ref": "#/$defs/loop"},
        {"not": {"type": "string"}},
        {"not": {"enum": ["x"], "x-hint": 1}},
        {"not": {"type": "integer", "unknownKeyword": 1}},
        True,
        {},
    ]
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    required = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    objects = st.fixed_dictionaries(
        {"properties": named},
        optional={
            "type": st.just("object"),
            "required": required,
            "additionalProperties": st.just(False) | inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^x", "p$", "."]), inner, max_size=1),
            "minProperties": st.integers(0, 1),
            "propertyNames": st.just({"maxLength": 5}),
            "anyOf": st.lists(st.fixed_dictionaries({"required": required}), min_size=1, max_size=2),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner | st.just(False),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "minContains": st.just(0),
            "minItems": st.integers(0, 2),
            "uniqueItems": st.just(True),
        },
    )
    combined = st.builds(
        lambda kind, choices, more: {kind: choices, **(more if isinstance(more, dict) else {})},
        st.sampled_from(["anyOf", "oneOf", "allOf"]),
        st.lists(inner, min_size=1, max_size=3),
        st.just({}) | inner,
    )
    return objects | objects | arrays | combined


NODE = {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}, "b": {"type": "integer"}}, "required": ["b"]}
SHARED: dict[str, Any] = {
    "$defs": {"node": NODE, "loop": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/loop"}]}},
    "definitions": {"leaf": {"type": "string", "enum": ["x", "r"]}},
}
INNER = st.recursive(LEAVES, larger, max_leaves=8)
OBJECTS = st.fixed_dictionaries({"properties": st.fixed_dictionaries({"v": INNER}), "required": st.just(["v"])})
SCHEMAS = (OBJECTS | OBJECTS | INNER).map(lambda one: {**one, **SHARED} if isinstance(one, dict) else {})


def guess(draw: st.DrawFn, schema: Any, depth: int = 0) -> Any:
    """Return a value that may well be valid: it follows the schema now and then."""
    if not isinstance(schema, dict) or depth > 5 or draw(st.integers(0, 7)) == 0:
        return draw(st.sampled_from(VALUES))
    for kind in ("anyOf", "oneOf", "allOf"):
        if kind in schema and draw(st.booleans()):
            return guess(draw, draw(st.sampled_from(schema[kind])), depth + 1)
    if "$ref" in schema:
        where, name = schema["$ref"].split("/")[1:]
        return guess(draw, SHARED[where][name], depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "properties" in schema or schema.get("type") == "object":
        found = {
            name: guess(draw, one, depth + 1)
            for name, one in schema.get("properties", {}).items()
            if name in schema.get("required", ()) or draw(st.booleans())
        }
        if draw(st.integers(0, 2)) == 0:
            found[draw(st.sampled_from(NAMES))] = draw(st.sampled_from(VALUES))
        return found
    if schema.get("type") == "array":
        prefix = [guess(draw, one, depth + 1) for one in schema.get("prefixItems", ())]
        return prefix + [guess(draw, schema.get("items"), depth + 1) for _ in range(draw(st.integers(0, 2)))]
    fitting = {"string": "x", "integer": 2, "number": 1, "boolean": True, "null": None}
    type_ = schema.get("type")
    return fitting.get(type_ if isinstance(type_, str) else "integer", draw(st.sampled_from(VALUES)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    schema = draw(SCHEMAS)
    objects = [guess(draw, schema) for _ in range(6)]
    return schema, [one for one in objects if isinstance(one, dict)]


@pytest.mark.parametrize("provider", CLEANERS)
def test_what_a_tool_accepts_its_cleaned_schema_accepts(provider: str) -> None:
    clean, check = CLEANERS[provider]
    seen: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(cases())
    def holds(case: tuple[Any, list[Any]]) -> None:
        schema, values = case
        own = jsonschema_rs.validator_for(schema)
        cleaned = clean(schema)
        assert check(cleaned) == []
        judge = jsonschema_rs.validator_for(cleaned)
        for value in values:
            if own.is_valid(value):
                seen["accepted"] += 1
                assert judge.is_valid(value), (schema, cleaned, value)
            else:
                seen["still refused"] += not judge.is_valid(value)

    holds()
    assert seen["accepted"] > 300, seen
    assert seen["still refused"] > 100, seen  # a cleaner that leaves everything out would prove nothing


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def save(
    value: Any,
    items: list,  # type: ignore[type-arg]
    level: Literal[1, 2],
    mode: Literal["a", None],
    mixed: Literal["x", 3],
    urgency: Level,
    pair: tuple[int, str],
    count: int | None = None,
) -> str:
    """Save."""
    return "saved"


def test_gemini_receives_the_types_of_a_tool() -> None:
    made = gemini_schema(FunctionTool(save).declaration.parameters)
    own = made["properties"]
    assert check_gemini_schema(made) == []
    assert own["level"] == {"type": "integer", "enum": [1, 2]}
    assert own["mode"] == {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}
    assert own["mixed"] == {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "integer", "enum": [3]}]}
    assert own["value"] == {}
    assert own["items"] == {"type": "array", "items": {}}
    assert [one["type"] for one in own["pair"]["prefixItems"]] == ["integer", "string"]
    judge = jsonschema_rs.validator_for(made)
    good = {"value": {"a": 1}, "items": [1], "level": 1, "mode": None, "mixed": 3, "urgency": 2, "pair": [1, "a"]}
    assert judge.is_valid(good)
    assert not judge.is_valid({**good, "level": "1"})


@pytest.mark.parametrize("provider", CLEANERS)
def test_a_combination_at_the_root_becomes_an_object_with_all_properties(provider: str) -> None:
    clean, _ = CLEANERS[provider]
    circle = {"properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]}
    square = {"properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]}
    closed = [{"type": "object", "additionalProperties": False, **one} for one in (circle, square)]
    made = clean({"oneOf": [{"$ref": "#/$defs/circle"}, closed[1]], "$defs": {"circle": closed[0]}})
    assert list(made["properties"]) == ["kind", "radius", "side"]
    assert made["required"] == ["kind"]
    assert made["properties"]["radius"] == {"type": "number"}
    assert made["additionalProperties"] is False
    open_ended = clean({"anyOf": [circle, square]})  # a square may have a radius of its own, of any type
    assert jsonschema_rs.validator_for(open_ended).is_valid({"kind": "square", "side": 1, "radius": "none"})


def bomb(levels: int, part: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return a schema of two kilobytes whose definitions each use the next one twice."""
    definitions = {f"d{i}": part({"$ref": f"#/$defs/d{i + 1}"}) for i in range(levels)}
    return {
        "$defs": {**definitions, f"d{levels}": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "properties": {"b": {"allOf": [{"$ref": "#/$defs/d0"}]}},
        "$ref": "#/$defs/d0",
    }


BOMBS: dict[str, dict[str, Any]] = {
    "allOf": bomb(26, lambda next_: {"allOf": [next_, next_]}),
    "anyOf": bomb(26, lambda next_: {"anyOf": [next_, {"anyOf": [next_, {"type": "object"}]}]}),
    "cycles": {
        "$defs": {f"n{i}": {"allOf": [{"$ref": f"#/$defs/n{j}"} for j in range(12) if j != i]} for i in range(12)},
        "$ref": "#/$defs/n0",
    },
    "many long branches": {
        "anyOf": [{"properties": {"a": {"enum": ["x" * 40] * 20 + [i]}}} for i in range(1_000)],
    },
    "deep patterns": {
        "properties": {"a": {"pattern": "(" * 5_000 + ")" * 5_000}, "b": {"pattern": "a{%s}" % ("9" * 30)}}
    },
}


@pytest.mark.parametrize("provider", CLEANERS)
@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_expands_too_far_is_refused_in_bounded_time(name: str, provider: str) -> None:
    clean, _ = CLEANERS[provider]
    is_refused = name not in ("deep patterns", "many long branches")

    def check() -> None:
        with pytest.raises(RunFailed, match="more than 20000 parts") if is_refused else nullcontext():
            clean(BOMBS[name])

    check_cpu_time(check, 1.0)


def test_the_tools_of_a_request_share_one_budget() -> None:
    tools = [Tool(name=f"t{i}", description="", parameters=bomb(6, lambda n: {"allOf": [n, n]})) for i in range(1_000)]
    prompt = Prompt(messages=[], tools=tools)
    for module in (anthropic, gemini, openai_chat, openai_responses):
        with pytest.raises(RunFailed, match="expand to more than 20000 parts"):
            module.request(prompt, model="m")
