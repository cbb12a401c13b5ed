"""A schema whose references expand too far is refused before a validator spends seconds on it."""

from datetime import UTC, datetime

import pytest
from cpu_bounds import check_cpu_time

from aguila.chat.json_schema import find_problem, problem_with
from aguila.client.interrupts import resume_entries
from aguila.codec import Notice
from aguila.protocol import Interrupt

LEVELS = 26


def chain(part: dict, **root) -> dict:
    """Definitions that each refer twice to the next one."""
    return {
        "$defs": {f"d{i}": part(i + 1) for i in range(LEVELS)} | {f"d{LEVELS}": {"type": "string"}},
        "$ref": "#/$defs/d0",
        **root,
    }


BOMBS = {
    "allOf": chain(lambda i: {"allOf": [{"$ref": f"#/$defs/d{i}"}] * 2}),
    "anyOf and not": chain(lambda i: {"anyOf": [{"not": {"$ref": f"#/$defs/d{i}"}}], "$ref": f"#/$defs/d{i}"}),
    "anchors": {
        "$ref": "#a0",
        "$defs": {
            str(i): {"$anchor": f"a{i}", "allOf": [{"$ref": f"#a{i + 1}"}] * 2 if i < LEVELS else []}
            for i in range(LEVELS + 1)
        },
    },
    "ids": {
        "$id": "http://x/root",
        "$ref": "a0",
        "$defs": {
            str(i): {"$id": f"http://x/a{i}", "oneOf": [{"$ref": f"a{i + 1}"}] * 2 if i < LEVELS else [{}]}
            for i in range(LEVELS + 1)
        },
    },
    "cycles": {
        "$ref": "#/$defs/n0",
        "$defs": {f"n{i}": {"allOf": [{"$ref": f"#/$defs/n{j}"} for j in range(12) if j != i]} for i in range(12)},
    },
    "one id": {"$ref": "a", "$defs": {str(i): {"$id": "a", "$ref": "a"} for i in range(2_000)}},
    "below a property": {"properties": {"a": chain(lambda i: {"allOf": [{"$ref": f"#/properties/a/$defs/d{i}"}] * 2})}},
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_expands_too_far_is_refused_in_bounded_time(name):
    def check() -> None:
        with pytest.raises(ValueError, match="expand to more than 50000 parts"):
            find_problem("x", BOMBS[name])

    check_cpu_time(check, 0.5)


def test_a_client_answers_without_the_check_and_says_so():
    notices: list[Notice] = []
    interrupt = Interrupt(id="i", reason="input_required", response_schema=BOMBS["allOf"])

    def answer() -> None:
        assert resume_entries([interrupt], {"i": "x"}, datetime.now(UTC), warn=notices.append)[0].payload == "x"

    check_cpu_time(answer, 0.5)
    assert "expand to more than" in notices[0].message


def test_large_and_recursive_schemas_are_used():
    node = {"anyOf": [{"$ref": f"#/$defs/kind{i}"} for i in range(30)]}
    kinds = {
        f"kind{i}": {
            "type": "object",
            "properties": {"kind": {"const": i}, "left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}},
            "required": ["kind"],
        }
        for i in range(30)
    }
    schema = {"$defs": {"node": node, **kinds}, "$ref": "#/$defs/node"}
    assert problem_with({"kind": 1, "left": {"kind": 2}}, schema) is None
    assert problem_with({"kind": 1, "left": {"kind": 99}}, schema) is not None
    properties = {f"p{i}": {"type": "string", "minLength": 1} for i in range(3_000)}
    assert problem_with({"p2": ""}, {"properties": properties}) is not None
