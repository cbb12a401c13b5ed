"""The official JavaScript schemas (``@ag-ui/core/schemas``): they accept our documents, and we read theirs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from processes.node import run_node
from streams.vectors import INVALID, VALID, Vector

import aguila.protocol as protocol
from aguila.codec import decode, encode
from aguila.errors import DecodeError
from aguila.testing import strategies

ABSTRACT = {protocol.BaseEvent, protocol.AttributableEvent, protocol.BaseMessage, protocol.BinaryInputContent}
STRUCTS = sorted(
    {cls for cls in vars(protocol).values() if isinstance(cls, type) and issubclass(cls, msgspec.Struct)} - ABSTRACT,
    key=lambda cls: cls.__name__,
)
EXAMPLES = 15


@dataclass
class Case:
    """A document for Node, and the answer of Node."""

    schema: str
    document: str
    origin: Any
    ok: bool = False
    written: str = ""
    error: str = ""


def answered(cases: list[Case]) -> list[Case]:
    """Answer all cases with one Node process."""
    lines = [json.dumps({"schema": case.schema, "document": case.document}) for case in cases]
    # not splitlines: JavaScript writes U+2028 as it is (PY-2)
    answers = run_node("validate.mjs", "\n".join(lines)).rstrip("\n").split("\n")
    assert len(answers) == len(cases)
    for case, answer in zip(cases, answers, strict=True):
        said = json.loads(answer)
        case.ok, case.written, case.error = said["ok"], said.get("written", ""), said.get("error", "")
    return cases


def examples_of(cls: type[msgspec.Struct]) -> list[Any]:
    examples: list[Any] = []

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(strategies.for_type(cls))
    def collect(obj: Any) -> None:
        examples.append(obj)

    collect()
    return examples


@pytest.fixture(scope="module")
def generated() -> list[Case]:
    return answered([Case(cls.__name__, encode(obj).decode(), obj) for cls in STRUCTS for obj in examples_of(cls)])


@pytest.fixture(scope="module")
def judged() -> dict[int, Case]:
    """The vectors, by the identity of each."""
    cases = [
        Case("Event" if vector.read_as == "patch" else vector.read_as, json.dumps(vector.wire), vector)
        for vector in VALID + INVALID
    ]
    return {id(case.origin): case for case in answered(cases)}


def test_the_schemas_accept_everything_we_write(generated: list[Case]) -> None:
    assert {case.schema for case in generated} == {cls.__name__ for cls in STRUCTS}
    assert len(generated) > 10 * len(STRUCTS)
    assert [(case.schema, case.document, case.error) for case in generated if not case.ok] == []


def test_we_read_what_javascript_writes_as_an_equal_object(generated: list[Case]) -> None:
    for case in generated:
        ours = decode(case.written, type(case.origin), strict=True)
        assert as_javascript(ours) == as_javascript(with_empty_lists(decode(case.document, type(case.origin))))


def with_empty_lists(obj: Any) -> Any:
    """``obj`` as their schema reads an input: absent tools and context are empty lists (IN-9)."""
    if isinstance(obj, protocol.RunAgentInput):
        return protocol.replace(obj, tools=obj.tools or [], context=obj.context or [])
    if isinstance(obj, protocol.RunStartedEvent) and obj.input is not None:
        return protocol.replace(obj, input=with_empty_lists(obj.input))
    return obj


def as_javascript(value: Any) -> Any:
    """``value`` with every number a double: JavaScript has no other, and writes 2.0**60 as 1152921504606847000."""
    if isinstance(value, msgspec.Struct):
        return as_javascript(msgspec.to_builtins(value))
    if isinstance(value, dict):
        return {key: as_javascript(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_javascript(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def has_an_unknown_member(vector: Vector) -> bool:
    """Return whether the only fault is an undescribed member: these schemas accept such members."""
    with pytest.raises(DecodeError) as refusal:
        decode(json.dumps(vector.wire), vector.type, strict=True)
    return refusal.value.message == "unknown member"


def test_the_schemas_agree_on_every_valid_document(judged: dict[int, Case]) -> None:
    assert [(str(vector), judged[id(vector)].error) for vector in VALID if not judged[id(vector)].ok] == []


# The JavaScript package speaks 1.0, so the member that 1.1 added is unknown to it; and its input state is any JSON,
# a whole null included, where the specification omits it (ENV-6, AMB-13).
ALSO_ACCEPTED = {
    ("ReasoningEncryptedValueEvent", "/encryptedValueType"),
    ("ReasoningMessage", "/encryptedValueType"),
    ("RunAgentInput", "/state"),
}


def test_the_schemas_refuse_every_invalid_document_but_those_with_an_unknown_member(judged: dict[int, Case]) -> None:
    accepted = [vector for vector in INVALID if judged[id(vector)].ok]
    described = [vector for vector in accepted if not has_an_unknown_member(vector)]
    assert {(vector.definition, vector.path) for vector in described} == ALSO_ACCEPTED
    assert len(accepted) - len(described) == sum(map(has_an_unknown_member, INVALID)) > 50
