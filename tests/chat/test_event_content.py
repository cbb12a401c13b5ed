"""Events as chat contents, and the properties that travel with messages."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from builders import UNVERSIONED_RUN_STARTED
from hypothesis import given, settings

from aguila.chat import (
    ApprovalRequestContent,
    ApprovalResponseContent,
    ChatMessage,
    DataContent,
    FunctionCallContent,
    InterruptRequestContent,
    InterruptResponseContent,
    TextContent,
    UriContent,
    as_response_contents,
    as_resume_entries,
    event_content,
)
from aguila.chat.interrupts import read_answer, read_interrupt, write_answer, write_interrupt
from aguila.codec import encode, encode_event
from aguila.errors import DecodeError
from aguila.protocol import CustomEvent, Event, Interrupt, MessagesSnapshotEvent, ResumeEntry, UserMessage, replace
from aguila.protocol.legacy import LegacyEvent, MetaEvent, ThinkingStartEvent, ThinkingTextMessageContentEvent
from aguila.stream import consume
from aguila.testing import strategies as agui


@settings(max_examples=150, deadline=None)
@given(agui.events())
def test_any_event_goes_into_a_content_and_comes_out_the_same(event: Event) -> None:
    content = event_content.create(event)
    assert event_content.is_event(content)
    assert content.media_type == f"application/ag-ui.{event.type.lower()}+json"
    assert content.data == encode_event(event)
    assert event_content.try_get(content) == with_written_content(event)


def with_written_content(event: Event) -> Event:
    """A user message without parts is written with an empty text."""
    if not isinstance(event, MessagesSnapshotEvent):
        return event
    messages = [replace(m, content="") if isinstance(m, UserMessage) and not m.content else m for m in event.messages]
    return replace(event, messages=messages)


def test_every_type_has_a_media_type_of_its_own() -> None:
    assert len({cls.type for cls in get_args(Event)}) == 31
    assert event_content.create(CustomEvent(name="x", value=1)).media_type == "application/ag-ui.custom+json"


@pytest.mark.parametrize(
    "content",
    [
        DataContent(b"{}", "application/json"),
        DataContent(b"{}", "application/ag-ui+json"),
        DataContent(b"{}", None),
        DataContent(b"{}"),
        UriContent("https://example.com/a"),
        TextContent("x"),
        "text",
        None,
    ],
)
def test_another_type_or_none_gives_none(content: Any) -> None:
    assert event_content.try_get(content) is None
    assert not event_content.is_event(content)


def test_an_event_content_is_recognised_without_the_suffix_json() -> None:
    event = CustomEvent(name="x", value=1)
    content = DataContent(encode(event), "application/ag-ui.custom")
    assert event_content.is_event(content)
    assert event_content.try_get(content) == event


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"type":"CUSTOM"}',
        b'{"type":"RAW","event":1}',
        b'{"type":"NEW_THING"}',
        b"\xff",
    ],
)
def test_a_malformed_body_is_a_decode_error(body: bytes) -> None:
    content = DataContent(body, "application/ag-ui.custom+json")
    assert event_content.is_event(content)
    with pytest.raises(DecodeError):
        event_content.try_get(content)


def test_a_media_type_is_read_in_any_case_and_with_parameters() -> None:
    content = DataContent(b'{"type":"CUSTOM","name":"x","value":1}', "Application/AG-UI.Custom+JSON; charset=utf-8")
    assert event_content.try_get(content) == CustomEvent(name="x", value=1)


@pytest.mark.parametrize(
    "event",
    [
        ThinkingStartEvent(title="Herons"),
        ThinkingTextMessageContentEvent(message_id="th-1", delta="Grey?"),
        MetaEvent(meta_type="thumbs_up", payload={"message": "m-1"}),
    ],
)
def test_a_retired_event_comes_out_as_it_went_in(event: LegacyEvent) -> None:
    content = event_content.create(event)
    assert content.media_type == f"application/ag-ui.{event.type.lower()}+json"
    assert event_content.try_get(content) == event


def test_a_content_of_a_retired_type_with_another_event_is_a_decode_error() -> None:
    content = DataContent(b'{"type":"CUSTOM","name":"x","value":1}', "application/ag-ui.meta+json")
    with pytest.raises(DecodeError):
        event_content.try_get(content)


# questions and answers


@settings(max_examples=150, deadline=None)
@given(agui.interrupts())
def test_an_interrupt_goes_there_and_back(interrupt: Interrupt) -> None:
    assert write_interrupt(read_interrupt(interrupt, {})) == interrupt


def test_an_interrupt_that_gates_a_call_asks_for_approval_of_it() -> None:
    call = FunctionCallContent("c", "pay", "{}")
    gate = Interrupt(id="i", reason="tool_call", tool_call_id="c")
    assert read_interrupt(gate, {"c": call}) == ApprovalRequestContent("i", call)
    assert read_interrupt(gate, {}) == ApprovalRequestContent("i", FunctionCallContent("c", ""))
    other = Interrupt(id="i", reason="confirmation", tool_call_id="c")
    assert read_interrupt(other, {"c": call}) == InterruptRequestContent("i", "confirmation", tool_call_id="c")


@settings(max_examples=150, deadline=None)
@given(agui.resume_entries())
def test_an_answer_goes_there_and_back(entry: ResumeEntry) -> None:
    assert write_answer(read_answer(entry)) == entry


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"approved": True}, ApprovalResponseContent("i", True)),
        ({"accepted": False, "reason": "no"}, ApprovalResponseContent("i", False, reason="no")),
        ({"approved": True, "editedArgs": {"a": 1}}, ApprovalResponseContent("i", True, edited_arguments={"a": 1})),
        ({"approved": True, "editedArgs": 3}, InterruptResponseContent("i", {"approved": True, "editedArgs": 3})),
        ({"approved": "yes"}, InterruptResponseContent("i", {"approved": "yes"})),
        (
            {"approved": True, "amount": 5},
            ApprovalResponseContent("i", True, additional_properties={"ag_ui_payload": {"amount": 5}}),
        ),
        ("blue", InterruptResponseContent("i", "blue")),
        (None, InterruptResponseContent("i")),
    ],
)
def test_an_answer_is_an_approval_if_it_says_yes_or_no_and_goes_back_as_it_came(payload: Any, expected: Any) -> None:
    entry = ResumeEntry(interrupt_id="i", status="resolved", payload=payload)
    found = read_answer(entry)
    assert found == expected
    if payload is None or "accepted" not in payload:  # an older spelling, read and not written
        assert write_answer(found) == entry


@pytest.mark.parametrize("more", [{}, {"reason": "human_approval"}])
def test_an_approval_of_an_older_peer_names_a_call_that_was_not_shown(more: dict[str, str]) -> None:
    raw = {"id": "i", **more, "payload": {"functionName": "pay", "functionArguments": {"amount": 5}}}
    events = [
        UNVERSIONED_RUN_STARTED,
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": "interrupt", "interrupt": raw},
    ]
    [interrupt] = consume(events, compat="wide").interrupts
    request = read_interrupt(interrupt, {})
    assert isinstance(request, ApprovalRequestContent)
    assert (request.call.name, request.call.parsed_arguments) == ("pay", {"amount": 5})


def test_the_answers_in_chat_messages_are_the_entries_of_the_next_run() -> None:
    question = ApprovalRequestContent("i1", FunctionCallContent("c", "pay"))
    other = InterruptRequestContent("i2")
    messages = [
        ChatMessage("user", [question.answer(False, reason="too much")]),
        ChatMessage("user", [TextContent("hm"), other.give_up()]),
        ChatMessage(
            "user", [question.answer(True, edited_arguments={"eur": 1}), InterruptRequestContent("i3").answer([])]
        ),
    ]
    entries = as_resume_entries(messages)
    assert as_response_contents(entries) == [
        ApprovalResponseContent("i1", True, edited_arguments={"eur": 1}),
        InterruptResponseContent("i2", status="cancelled"),
        InterruptResponseContent("i3", []),
    ]
    assert as_response_contents(None) == []
    assert entries == [
        ResumeEntry(interrupt_id="i1", status="resolved", payload={"approved": True, "editedArgs": {"eur": 1}}),
        ResumeEntry(interrupt_id="i2", status="cancelled"),
        ResumeEntry(interrupt_id="i3", status="resolved", payload=[]),
    ]
