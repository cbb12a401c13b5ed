"""The official Python models accept our documents, and we read theirs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from functools import cache
from typing import Any

import ag_ui.core
import msgspec
import pytest
from ag_ui.encoder import EventEncoder
from hypothesis import given, settings
from pydantic import BaseModel, TypeAdapter, ValidationError
from streams.vectors import INVALID, VALID, Vector

import aguila.protocol as protocol
from aguila.codec import Notice, decode, encode
from aguila.codec.official import from_official, is_official, to_official
from aguila.errors import DecodeError, EncodeError, MissingExtra
from aguila.protocol import Event, EventType, legacy
from aguila.testing import strategies

ABSTRACT = {protocol.BaseEvent, protocol.AttributableEvent, protocol.BaseMessage, protocol.BinaryInputContent}
STRUCTS = sorted(
    {cls for cls in vars(protocol).values() if isinstance(cls, type) and issubclass(cls, msgspec.Struct)} - ABSTRACT,
    key=lambda cls: cls.__name__,
)
BRIEFLY = settings(max_examples=15, deadline=None)


@cache
def official(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(getattr(ag_ui.core, name))


def accepted_officially(vector: Vector) -> bool:
    name = "Event" if vector.read_as == "patch" else vector.read_as
    try:
        official(name).validate_json(json.dumps(vector.wire))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_the_official_models_accept_what_we_write(cls: type[msgspec.Struct]) -> None:
    @BRIEFLY
    @given(strategies.for_type(cls))
    def law(obj: Any) -> None:
        model = official(cls.__name__).validate_json(encode(obj))
        assert type(model).__name__ == cls.__name__
        # and they read it completely: encoded again by them, it is the same document
        assert json.loads(model.model_dump_json(by_alias=True)) == json.loads(encode(obj))

    law()


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_we_read_what_the_official_models_write(cls: type[msgspec.Struct]) -> None:
    @BRIEFLY
    @given(strategies.for_type(cls))
    def law(obj: Any) -> None:
        model = to_official(obj)
        for exclude_none in (False, True):
            written = model.model_dump_json(by_alias=True, exclude_none=exclude_none)
            if exclude_none and json.loads(written) != json.loads(model.model_dump_json(by_alias=True)):
                continue  # exclude_none removed a required null or one inside a value (PY-7): another document
            assert decode(written, cls, strict=True) == obj

    law()


@settings(max_examples=200, deadline=None)
@given(strategies.events())
def test_we_read_what_the_official_encoder_sends(event: Event) -> None:
    frame = EventEncoder().encode(to_official(event))
    assert decode(frame.removeprefix("data: ").strip("\n"), strict=True) == event


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_objects_convert_both_ways(cls: type[msgspec.Struct]) -> None:
    @BRIEFLY
    @given(strategies.for_type(cls))
    def law(obj: Any) -> None:
        model = to_official(obj)
        assert type(model) is getattr(ag_ui.core, cls.__name__)
        assert is_official(model)
        assert not is_official(obj)
        notices: list[Notice] = []
        assert from_official(model, warn=notices.append) == obj
        assert notices == []

    law()


@settings(max_examples=50, deadline=None)
@given(strategies.patch_operations())
def test_patch_operations_convert_both_ways_with_members_of_their_own(operation: dict[str, Any]) -> None:
    model = to_official(operation)
    assert type(model).__name__.lower() == operation["op"] + "operation"
    assert is_official(model)
    assert from_official(model) == operation


@settings(max_examples=50, deadline=None)
@given(strategies.binary_contents())
def test_the_retired_binary_part_converts_both_ways(part: legacy.BinaryInputContent) -> None:
    model = to_official(part)
    assert type(model) is ag_ui.core.BinaryInputContent
    assert from_official(model) == part


@pytest.mark.parametrize("vector", VALID, ids=str)
def test_the_official_models_accept_every_valid_document(vector: Vector) -> None:
    assert accepted_officially(vector)


# What the official models make of documents that the schema refuses: coerced scalars, and constants implied.
COERCED = {
    ("ActivitySnapshotEvent", "1 is no boolean"),
    ("ActivitySnapshotEvent", "a word is no boolean"),
    ("ExecutionCapabilities", "true is no integer"),
    ("MultimodalInputCapabilities", "1 is no boolean"),
    ("ReasoningCapabilities", "a word is no boolean"),
    ("RunStartedEvent", "digits in a string are no integer"),
    ("RunStartedEvent", "true is no integer"),
    ("StateCapabilities", "0 is no boolean"),
    ("TokenUsage", "digits in a string are no integer"),
    ("TokenUsage", "true is no integer"),
    ("ToolCallEndEvent", "false is no integer"),
    ("ToolsCapabilities", "a word is no boolean"),
    ("TransportCapabilities", "1 is no boolean"),
}
IMPLIED = {
    ("AssistantMessage", "a call says its type"),
    ("ReasoningMessageStartEvent", "the role is required (RSN-3)"),
    ("ToolCall", "a call says its type"),
}


def test_the_official_models_accept_unknown_members_optional_nulls_coercions_and_implied_constants() -> None:
    """Where the two differ, named: our strict mode refuses every one of these documents."""
    accepted = [vector for vector in INVALID if accepted_officially(vector)]
    unknown = {str(v) for v in accepted if refusal_of(v).message == "unknown member"}
    nulls = {str(v) for v in accepted if v.rule == "ENV-6"}
    assert unknown == {str(v) for v in INVALID if refusal_of(v).message == "unknown member"}
    assert nulls == {str(v) for v in INVALID if v.rule == "ENV-6" and is_optional(v)}
    rest = {(v.definition, v.why) for v in accepted if str(v) not in unknown | nulls}
    assert rest == COERCED | IMPLIED
    assert min(len(unknown), len(nulls)) > 50


def refusal_of(vector: Vector) -> DecodeError:
    with pytest.raises(DecodeError) as refusal:
        decode(json.dumps(vector.wire), vector.type, strict=True)
    return refusal.value


def is_optional(vector: Vector) -> bool:
    """Return whether the document is accepted once the null that it is refused for is left out."""
    *above, member = vector.pointer.split("/")[1:]
    document = json.loads(json.dumps(vector.wire))
    holder = document
    for token in above:
        holder = holder[int(token)] if isinstance(holder, list) else holder[token]
    if isinstance(holder, list):
        return False
    del holder[member]
    try:
        decode(json.dumps(document), vector.type, strict=True)
    except DecodeError:
        return False
    return True


def test_event_types_convert_both_ways() -> None:
    assert to_official(EventType.RAW) is ag_ui.core.EventType.RAW
    assert from_official(ag_ui.core.EventType.RAW) is EventType.RAW


def test_every_official_model_converts_and_nothing_of_ours_is_left_out() -> None:
    models = {
        name
        for name in ag_ui.core.__all__
        if isinstance(cls := getattr(ag_ui.core, name), type) and issubclass(cls, BaseModel)
    }
    assert models - {"BaseEvent", "BaseMessage", "BinaryInputContent"} == {
        name for name in models if getattr(protocol, name) in STRUCTS
    }
    assert {cls.__name__ for cls in STRUCTS} <= models


def test_required_nulls_survive_and_optional_ones_vanish() -> None:
    core = ag_ui.core
    assert from_official(core.CustomEvent(name="n", value=None)) == protocol.CustomEvent(name="n", value=None)
    assert from_official(core.RawEvent(event=None, source=None)) == protocol.RawEvent(event=None)
    assert from_official(core.StateSnapshotEvent(snapshot={"a": None, "b": [None]})).snapshot == {
        "a": None,
        "b": [None],
    }
    assert to_official(protocol.StateSnapshotEvent(snapshot=None)).snapshot is None
    delta = core.StateDeltaEvent(delta=[{"op": "add", "path": "/a", "value": None}])
    assert from_official(delta).delta == [{"op": "add", "path": "/a", "value": None}]
    metadata = core.UserMessage(id="m", role="user", content="x", name=None, metadata={"k": None})
    assert from_official(metadata) == protocol.UserMessage(id="m", content="x", metadata={"k": None})


def test_a_base_object_becomes_the_type_it_says_it_is() -> None:
    event = ag_ui.core.BaseEvent(type=ag_ui.core.EventType.STEP_STARTED, stepName="s")
    assert from_official(event) == protocol.StepStartedEvent(step_name="s")
    message = ag_ui.core.BaseMessage(id="m", role="system", content="x")
    assert from_official(message) == protocol.SystemMessage(id="m", content="x")


def test_a_subclass_of_an_official_model_becomes_the_protocol_type_and_its_own_members_are_reported() -> None:
    class Tick(ag_ui.core.CustomEvent):
        pace: int

    notices: list[Notice] = []
    tick = Tick(name="tick", value=1, pace=2)
    assert is_official(tick)
    assert from_official(tick, warn=notices.append) == protocol.CustomEvent(name="tick", value=1)
    assert [(notice.rule, notice.path) for notice in notices] == [("PROC-3", "/pace")]


def test_unknown_members_are_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aguila"):
        assert from_official(ag_ui.core.Context(description="d", value="v", weight=1)) == protocol.Context(
            description="d", value="v"
        )
    assert "/weight" in caplog.text


def test_the_type_of_an_encrypted_value_survives_in_its_wire_spelling() -> None:
    message = protocol.ReasoningMessage(id="m", content="", encrypted_value="x", encrypted_value_type="acme/t")
    model = to_official(message)
    assert model.encryptedValueType == "acme/t"
    assert from_official(model) == message

    snake = ag_ui.core.ReasoningMessage(
        id="m", role="reasoning", content="", encrypted_value="x", encrypted_value_type="acme/t"
    )
    notices: list[Notice] = []
    assert from_official(snake, warn=notices.append).encrypted_value_type is None
    assert [notice.path for notice in notices] == ["/encrypted_value_type"]


def test_an_official_object_that_the_schema_refuses_is_refused() -> None:
    # their models allow any string as a pointer
    delta = ag_ui.core.StateDeltaEvent(delta=[{"op": "remove", "path": "/a"}])
    delta.delta[0].path = "a"
    with pytest.raises(DecodeError) as refusal:
        from_official(delta)
    assert (refusal.value.rule, refusal.value.path) == ("SNAP-7", "/delta/0/path")


def test_an_official_object_without_a_json_form_cannot_be_converted() -> None:
    with pytest.raises(EncodeError, match="RawEvent has no JSON form"):
        from_official(ag_ui.core.RawEvent(event=object()))


def test_nan_is_refused_and_not_turned_into_null() -> None:
    with pytest.raises(EncodeError) as refusal:
        from_official(ag_ui.core.CustomEvent(name="n", value={"a": [float("nan")]}))
    assert refusal.value.path == "/value/a/0"


def test_only_protocol_objects_convert() -> None:
    with pytest.raises(TypeError, match="not an object of ag_ui"):
        from_official(protocol.TextPart(text="x"))
    with pytest.raises(TypeError, match="not a protocol object"):
        to_official("x")
    with pytest.raises(EncodeError, match="no ThinkingStartEvent"):
        to_official(legacy.ThinkingStartEvent())
    with pytest.raises(EncodeError, match="delta"):
        to_official(protocol.TextMessageContentEvent(message_id="m", delta=5))  # type: ignore[arg-type]
    with pytest.raises(EncodeError):
        to_official({"op": "rename", "path": "/a"})


def test_without_the_official_package_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["ag_ui"] = None
from aguila.codec.official import is_official, to_official
from aguila.errors import MissingExtra
from aguila.protocol import TextPart
assert not is_official(TextPart(text=""))
try:
    to_official(TextPart(text=""))
except MissingExtra as error:
    print(error.extra, error.package)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["official", "ag-ui-protocol"]
    assert issubclass(MissingExtra, ImportError)
