"""Strict decoding accepts exactly the schema: our own documents for every definition, each with its verdict."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from streams.vectors import INVALID, VALID, Vector

import aguila.protocol
from aguila.codec import Notice, decode, encode
from aguila.errors import DecodeError

ABSTRACT = {"BaseEvent", "AttributableEvent", "BaseMessage", "BinaryInputContent"}
DEFINITIONS = {
    name
    for name in aguila.protocol.__all__
    if name not in ABSTRACT
    and isinstance(cls := getattr(aguila.protocol, name), type)
    and cls.__name__ == name
    and (issubclass(cls, msgspec.Struct) or name.endswith("Operation"))
}


def written(vector: Vector) -> bytes:
    return json.dumps(vector.wire).encode()


def same_json(a: Any, b: Any) -> bool:
    """Equality of JSON values: 1 and 1.0 are one number, 1 and true are not."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and a == b


@pytest.mark.parametrize("vector", VALID, ids=str)
def test_a_valid_document_is_accepted_and_written_back_as_it_was(vector: Vector) -> None:
    decoded = decode(written(vector), vector.type, strict=True)
    if vector.read_as != "patch":
        assert type(decoded).__name__ == vector.definition
    expected = vector.wire
    if vector.definition == "UserMessage" and expected["content"] == []:
        expected = {**expected, "content": ""}  # document 000 writes no content as an empty string
    assert same_json(json.loads(encode(decoded)), expected)


@pytest.mark.parametrize("vector", VALID, ids=str)
def test_a_valid_document_reads_the_same_by_the_receivers_rules_and_without_a_notice(vector: Vector) -> None:
    notices: list[Notice] = []
    tolerant = decode(written(vector), vector.type, warn=notices.append)
    assert tolerant == decode(written(vector), vector.type, strict=True)
    assert notices == []


@pytest.mark.parametrize("vector", INVALID, ids=str)
def test_an_invalid_document_is_refused_with_the_rule_it_breaks_and_the_path_to_it(vector: Vector) -> None:
    with pytest.raises(DecodeError) as refusal:
        decode(written(vector), vector.type, strict=True)
    assert (refusal.value.rule, refusal.value.path) == (vector.rule, vector.pointer)


def test_every_definition_has_at_least_three_documents_of_each_verdict() -> None:
    valid = Counter(vector.definition for vector in VALID)
    invalid = Counter(vector.definition for vector in INVALID)
    assert set(valid) == set(invalid) == DEFINITIONS
    assert {name for name in DEFINITIONS if valid[name] < 3 or invalid[name] < 3} == set()
