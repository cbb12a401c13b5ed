"""Every type of the protocol reads back as it was written."""

from __future__ import annotations

import json
from typing import Any, get_args

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

import aguila.protocol as protocol
from aguila.codec import Notice, decode, encode
from aguila.protocol import (
    CustomEvent,
    Event,
    Message,
    MessagesSnapshotEvent,
    RawEvent,
    RunAgentInput,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextPart,
    UserMessage,
    is_plain_text,
    replace,
)
from aguila.testing import strategies

ABSTRACT = {protocol.BaseEvent, protocol.AttributableEvent, protocol.BaseMessage, protocol.BinaryInputContent}
STRUCTS = sorted(
    {cls for cls in vars(protocol).values() if isinstance(cls, type) and issubclass(cls, msgspec.Struct)} - ABSTRACT,
    key=lambda cls: cls.__name__,
)
BRIEFLY = settings(max_examples=20, deadline=None)


def as_written(obj: Any) -> Any:
    """Return ``obj`` as it is encoded: a user's single plain text part, and no part, become a string."""
    if isinstance(obj, UserMessage) and obj.content == []:
        return replace(obj, content="")
    if isinstance(obj, UserMessage) and is_plain_text(obj.content):
        part = obj.content[0]
        assert isinstance(part, TextPart)
        return replace(obj, content=part.text)
    if isinstance(obj, (RunAgentInput, MessagesSnapshotEvent)):
        return replace(obj, messages=[as_written(message) for message in obj.messages])
    if isinstance(obj, RunStartedEvent) and obj.input is not None:
        return replace(obj, input=as_written(obj.input))
    return obj


def is_identical(a: Any, b: Any) -> bool:
    """Equality that tells 1 from 1.0 and from True, which ``==`` does not."""
    if isinstance(a, msgspec.Struct):
        return type(a) is type(b) and all(is_identical(getattr(a, f), getattr(b, f)) for f in a.__struct_fields__)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(is_identical(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(is_identical, a, b))
    return type(a) is type(b) and a == b


def assert_written_members(obj: Any, wire: Any) -> None:
    """Assert that all members with a value are encoded, required ones even as null, and no others."""
    expected = set()
    for field in msgspec.structs.fields(type(obj)):
        value = getattr(obj, field.name)
        if field.required or value is not None:
            expected.add(field.encode_name)
            check(value, wire[field.encode_name])
    tag_field = type(obj).__struct_config__.tag_field
    if tag_field is not None:
        expected.add(tag_field)
        assert wire[tag_field] == type(obj).__struct_config__.tag
    assert set(wire) == expected


def check(value: Any, wire: Any) -> None:
    if isinstance(value, msgspec.Struct):
        assert_written_members(value, wire)
    elif isinstance(value, list):
        assert len(value) == len(wire)
        for item, written in zip(value, wire, strict=True):
            check(item, written)
    else:
        assert is_identical(value, wire)


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_an_object_reads_back_as_it_was_written(cls: type[msgspec.Struct]) -> None:
    @BRIEFLY
    @given(strategies.for_type(cls))
    def law(obj: Any) -> None:
        data = encode(obj)
        notices: list[Notice] = []
        expected = as_written(obj)
        assert is_identical(decode(data, cls, strict=True), expected)
        assert is_identical(decode(data, cls, warn=notices.append), expected)
        assert notices == []
        assert encode(expected) == data

    law()


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_absent_members_are_not_written_and_required_nulls_are(cls: type[msgspec.Struct]) -> None:
    @settings(max_examples=10, deadline=None)
    @given(strategies.for_type(cls))
    def law(obj: Any) -> None:
        assert_written_members(as_written(obj), json.loads(encode(obj)))

    law()


@settings(max_examples=100, deadline=None)
@given(strategies.events())
def test_an_event_reads_back_as_an_event(event: Event) -> None:
    assert is_identical(decode(encode(event)), as_written(event))
    assert is_identical(decode(encode(event).decode(), strict=True), as_written(event))


@settings(max_examples=50, deadline=None)
@given(st.lists(strategies.events(), max_size=5))
def test_a_list_of_events_reads_back(events: list[Event]) -> None:
    assert is_identical(decode(encode(events), list[Event], strict=True), [as_written(event) for event in events])


@settings(max_examples=50, deadline=None)
@given(st.lists(strategies.messages(), max_size=4))
def test_a_list_of_messages_reads_back(messages: list[Message]) -> None:
    assert is_identical(
        decode(encode(messages), list[Message], strict=True), [as_written(message) for message in messages]
    )


@settings(max_examples=100, deadline=None)
@given(strategies.json_values())
def test_plain_json_is_written_as_json(value: Any) -> None:
    assert is_identical(json.loads(encode(value)), value)


@settings(max_examples=100, deadline=None)
@given(strategies.events(TextMessageContentEvent, CustomEvent, StateDeltaEvent, surrogates=True))
def test_half_a_character_survives_the_round_trip(event: Event) -> None:
    assert is_identical(decode(encode(event), warn=[].append), event)


@pytest.mark.parametrize(
    "event", [StateSnapshotEvent(snapshot=None), RawEvent(event=None), CustomEvent(name="n", value=None)], ids=repr
)
def test_a_required_null_is_written(event: Event) -> None:
    assert None in json.loads(encode(event)).values()
    assert decode(encode(event), strict=True) == event


def test_a_users_only_plain_text_part_is_written_as_a_string_wherever_the_message_is() -> None:
    message = UserMessage(id="m", content=[TextPart(text="hi")])
    wire = {"role": "user", "id": "m", "content": "hi"}
    run = RunAgentInput(thread_id="t", run_id="r", messages=[message])
    assert json.loads(encode(message)) == wire
    assert json.loads(encode([message])) == [wire]
    assert json.loads(encode(run))["messages"] == [wire]
    assert json.loads(encode(MessagesSnapshotEvent(messages=[message])))["messages"] == [wire]
    started = RunStartedEvent(thread_id="t", run_id="r", input=run)
    assert json.loads(encode(started))["input"]["messages"] == [wire]
    assert json.loads(encode([started]))[0]["input"]["messages"] == [wire]


def test_the_strategies_cover_every_member_of_the_unions() -> None:
    assert set(get_args(Event)) | set(get_args(Message)) <= set(STRUCTS)
