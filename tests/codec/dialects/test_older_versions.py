"""Events for older peers: only what they know, a notice for what is left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import RUN_FINISHED, user
from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.codec import Notice, encode
from aguila.codec.compat import Compat
from aguila.codec.dialects import Translator, dialect_of, downgrade_input, strip_subagents
from aguila.protocol import (
    AssistantMessage,
    ContentPart,
    DataSource,
    DocumentPart,
    Event,
    FileSource,
    FunctionCall,
    ImagePart,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    ReasoningEncryptedValueEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextPart,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
)
from aguila.protocol.legacy import BinaryInputContent
from aguila.testing import strategies

IMAGE = ImagePart(source=UrlSource(value="https://x.test/cat.png", mime_type="image/png"))
OLD = ["0.0.39", "0.0.47", "0.0.57", "0.1.22", "1.0"]


def run_input(*messages: Message, **members: Any) -> RunAgentInput:
    return RunAgentInput(thread_id="t", run_id="r", messages=list(messages), **members)


def downgrade_event(event: Event, peer: str | None, warn: Any) -> Event | None:
    """Return one event for a client that declared this version; None if there is nothing to send."""
    written = Translator(dialect_of("1.1" if peer is None else peer), warn=warn).feed(event)
    assert len(written) <= 1
    return written[0] if written else None


def sent(input: RunAgentInput, peer: str) -> tuple[dict[str, Any], list[str]]:
    notices: list[Notice] = []
    downgraded = downgrade_input(input, peer, notices.append)
    assert all(notice.rule == "VER-16" and peer in notice.message for notice in notices)
    return json.loads(encode(downgraded)), [notice.path for notice in notices]


# who is old


@pytest.mark.parametrize(
    "peer", [None, "1.1", "1.10", "2.0", "draft", "", "1", "1.0.0.0", "\u0660.\u0660", "9" * 5000 + ".0"]
)
def test_an_undeclared_version_is_never_guessed_downward_ver_4_ver_11(peer: str | None) -> None:
    everything = run_input(
        user("u", [IMAGE]), AssistantMessage(id="a", subagent_run_id="s"), protocol_version="1.1", parent_run_id="p"
    )
    event = ReasoningEncryptedValueEvent(
        subtype="message", entity_id="a", encrypted_value="v", encrypted_value_type="x", subagent_run_id="s"
    )
    assert downgrade_input(everything, peer, pytest.fail) is everything
    assert downgrade_event(event, peer, pytest.fail) is event


@pytest.mark.parametrize("peer", OLD)
def test_what_an_old_peer_knows_is_not_copied(peer: str) -> None:
    plain = run_input(UserMessage(id="u", content="hi"), AssistantMessage(id="a", content="ho"))
    assert downgrade_input(plain, peer, pytest.fail) is plain
    event = TextMessageContentEvent(message_id="m", delta="x")
    assert downgrade_event(event, peer, pytest.fail) is event


# inputs


@pytest.mark.parametrize("peer", ["0.0.39", "0.0.57", "0.1.22"])
def test_a_peer_from_before_versions_receives_no_version_ver_1(peer: str) -> None:
    wire, lost = sent(run_input(protocol_version="1.1"), peer)
    assert wire == {"threadId": "t", "runId": "r", "messages": []}
    assert lost == []


def test_a_peer_of_1_0_receives_our_version_ver_5() -> None:
    assert sent(run_input(protocol_version="1.1"), "1.0")[0]["protocolVersion"] == "1.1"


def test_up_to_0_0_39_parts_are_flattened_to_text_era_4() -> None:
    picture = DocumentPart(source=FileSource(value="f"))
    wire, lost = sent(
        run_input(user("u", [TextPart(text="What "), IMAGE, TextPart(text="is this?"), picture, IMAGE])), "0.0.39"
    )
    assert wire["messages"] == [{"id": "u", "role": "user", "content": "What is this?"}]
    assert lost == ["/messages/0/content"]


def test_up_to_0_0_39_a_notice_names_each_kind_that_is_lost() -> None:
    notices: list[Notice] = []
    downgrade_input(run_input(user("u", [IMAGE, DocumentPart(source=FileSource(value="f"))])), "0.0.39", notices.append)
    assert "document, image" in notices[0].message


def test_up_to_0_0_39_absent_content_is_an_empty_string_and_nothing_else_ver_13() -> None:
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))
    wire, lost = sent(run_input(AssistantMessage(id="a", tool_calls=[call]), user("u", [])), "0.0.39")
    assert [message["content"] for message in wire["messages"]] == ["", ""]
    assert lost == []


def test_up_to_0_0_39_a_run_has_no_parent() -> None:
    wire, lost = sent(run_input(parent_run_id="p"), "0.0.39")
    assert "parentRunId" not in wire
    assert lost == ["/parentRunId"]
    assert sent(run_input(parent_run_id="p"), "0.0.40")[0]["parentRunId"] == "p"


def test_up_to_0_0_47_every_file_is_a_binary_part() -> None:
    parts = (
        TextPart(text="See"),
        ImagePart(source=DataSource(value="QUJD", mime_type="image/png"), metadata={"filename": "a.png"}),
        IMAGE,
        DocumentPart(source=FileSource(value="file-1", mime_type="application/pdf")),
    )
    wire, lost = sent(run_input(user("u", [*parts])), "0.0.47")
    assert wire["messages"][0]["content"] == [
        {"type": "text", "text": "See"},
        {"type": "binary", "mimeType": "image/png", "data": "QUJD", "filename": "a.png"},
        {"type": "binary", "mimeType": "image/png", "url": "https://x.test/cat.png"},
        {"type": "binary", "mimeType": "application/pdf", "id": "file-1"},
    ]
    assert lost == []
    assert sent(run_input(user("u", [*parts[:3]])), "0.0.48")[0]["messages"][0]["content"][2]["type"] == "image"


@pytest.mark.parametrize(
    ("part", "lost"),
    [
        (ImagePart(source=UrlSource(value="u")), ["type"]),
        (ImagePart(source=UrlSource(value="u", mime_type="application/pdf")), ["type"]),
        (DocumentPart(source=UrlSource(value="u", mime_type="image")), []),
        (ImagePart(source=DataSource(value="", mime_type="image/png"), metadata={}), []),
        (ImagePart(source=DataSource(value="", mime_type="image/png"), metadata={"filename": 5}), ["metadata"]),
        (
            ImagePart(source=DataSource(value="", mime_type="image/png"), metadata={"filename": "f", "alt": "x"}),
            ["metadata"],
        ),
        (ImagePart(source=DataSource(value="", mime_type="image/png"), metadata=["x"], id="p"), ["metadata"]),
    ],
)
def test_up_to_0_0_47_what_a_binary_part_cannot_hold_is_reported(part: ContentPart, lost: list[str]) -> None:
    assert sent(run_input(user("u", [part])), "0.0.47")[1] == [f"/messages/0/content/0/{name}" for name in lost]


def test_up_to_0_0_57_there_are_no_subagents_no_file_sources_and_no_parts_in_tool_messages() -> None:
    handle = DocumentPart(source=FileSource(value="f"))
    wire, lost = sent(
        run_input(
            AssistantMessage(id="a", content="x", subagent_run_id=""),
            user("u", [TextPart(text="t"), handle, IMAGE]),
            ToolMessage(id="o", tool_call_id="c", content=[TextPart(text="2"), IMAGE]),
        ),
        "0.0.57",
    )
    assert wire["messages"] == [
        {"id": "a", "role": "assistant", "content": "x"},
        {"id": "u", "role": "user", "content": [{"type": "text", "text": "t"}, json.loads(encode(IMAGE))]},
        {"id": "o", "role": "tool", "toolCallId": "c", "content": "2"},
    ]
    assert lost == ["/messages/1/content/1", "/messages/2/content"]


def test_what_goes_to_a_0_0_47_peer_comes_back_as_it_was() -> None:
    parts = (TextPart(text="See"), IMAGE, DocumentPart(source=FileSource(value="f", mime_type="a/b")))
    wire, _ = sent(run_input(user("u", [*parts])), "0.0.47")
    upgraded = Compat("standard", [].append).upgrade_document(wire["messages"], "Message[]")
    assert upgraded == json.loads(encode([user("u", [*parts])]))


@pytest.mark.parametrize("peer", ["0.0.39", "0.0.47", "0.0.57"])
def test_a_binary_part_for_a_known_old_peer_is_no_obstacle(peer: str) -> None:
    binary: Any = BinaryInputContent(mime_type="image/png", data="QUJD")
    content = sent(run_input(user("u", [binary, TextPart(text="t")])), peer)[0]["messages"][0]["content"]
    assert content == ("t" if peer == "0.0.39" else [json.loads(encode(binary)), {"type": "text", "text": "t"}])


# 1.0 and what it does not know of 1.1


def sealed(**members: Any) -> AssistantMessage:
    call = ToolCall(
        id="c", function=FunctionCall(name="f", arguments=""), encrypted_value="v", encrypted_value_type="x/y"
    )
    return AssistantMessage(id="a", content="x", tool_calls=[call], **members)


def test_a_1_0_peer_gets_encrypted_values_without_their_type_chg_1() -> None:
    wire, lost = sent(run_input(sealed(encrypted_value="w", encrypted_value_type="x/z")), "1.0")
    assert wire["messages"][0]["encryptedValue"] == "w"
    assert wire["messages"][0]["toolCalls"][0]["encryptedValue"] == "v"
    assert "encryptedValueType" not in json.dumps(wire)
    assert lost == ["/messages/0/encryptedValueType", "/messages/0/toolCalls"]


def test_events_for_a_1_0_peer_say_so_when_the_type_is_lost() -> None:
    notices: list[Notice] = []
    event = ReasoningEncryptedValueEvent(
        subtype="message", entity_id="m", encrypted_value="v", encrypted_value_type="x"
    )
    downgraded = downgrade_event(event, "1.0", notices.append)
    assert downgraded == ReasoningEncryptedValueEvent(subtype="message", entity_id="m", encrypted_value="v")
    snapshot = downgrade_event(MessagesSnapshotEvent(messages=[sealed()]), "1.0", notices.append)
    assert b"encryptedValueType" not in encode(snapshot)
    assert [(n.rule, n.event_type, n.path) for n in notices] == [
        ("VER-16", "REASONING_ENCRYPTED_VALUE", "/encryptedValueType"),
        ("VER-16", "MESSAGES_SNAPSHOT", "/messages/0/toolCalls"),
    ]


@pytest.mark.parametrize(
    ("declared", "peer", "told"),
    [
        ("1.1", "1.0", "1.0"),
        ("1.0", "1.0", "1.0"),
        ("0.9", "1.0", "0.9"),
        (None, "1.0", None),
        ("1.1", "0.0.57", None),
        ("draft", "1.0", "1.0"),
    ],
)
def test_a_run_declares_what_the_peer_is_sent_ver_9(declared: str | None, peer: str, told: str | None) -> None:
    event = RunStartedEvent(thread_id="t", run_id="r", protocol_version=declared)
    downgraded = downgrade_event(event, peer, pytest.fail)
    assert isinstance(downgraded, RunStartedEvent)
    assert downgraded.protocol_version == told


def test_the_echo_of_an_input_is_downgraded_with_its_run() -> None:
    notices: list[Notice] = []
    event = RunStartedEvent(thread_id="t", run_id="r", input=run_input(user("u", [IMAGE]), protocol_version="1.1"))
    downgraded = downgrade_event(event, "0.0.39", notices.append)
    assert json.loads(encode(downgraded))["input"] == {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "u", "role": "user", "content": "[image: image/png, https://x.test/cat.png]"}],
        "tools": [],
        "context": [],
    }
    assert [(notice.path, notice.event_type) for notice in notices] == [("/input/messages/0/content", "RUN_STARTED")]


# subagents


@pytest.mark.parametrize(
    "event",
    [
        SubagentStartedEvent(subagent_run_id="s", name="n"),
        SubagentFinishedEvent(subagent_run_id="s"),
        SubagentErrorEvent(subagent_run_id="s", message="m"),
    ],
)
def test_subagent_events_are_dropped_with_a_notice_era_4(event: Event) -> None:
    for drop in (lambda warn: strip_subagents(event, warn), lambda warn: downgrade_event(event, "0.0.57", warn)):
        notices: list[Notice] = []
        assert drop(notices.append) is None
        assert [(notice.rule, notice.event_type) for notice in notices] == [("VER-16", event.type)]
        assert f"dropping {event.type}" in notices[0].message


def test_attribution_goes_silently_wherever_it_is_ver_15() -> None:
    message = AssistantMessage(id="a", content="x", subagent_run_id="s")
    events: list[Event] = [
        TextMessageContentEvent(message_id="m", delta="x", subagent_run_id=""),
        MessagesSnapshotEvent(messages=[message]),
        RunStartedEvent(thread_id="t", run_id="r", input=run_input(message)),
        RunFinishedEvent(
            thread_id="t",
            run_id="r",
            outcome=RunFinishedInterruptOutcome(interrupts=[Interrupt(id="i", reason="q", subagent_run_id="s")]),
        ),
    ]
    for event in events:
        stripped = strip_subagents(event, pytest.fail)
        assert b"subagentRunId" in encode(event)
        assert b"subagentRunId" not in encode(stripped)


def test_what_is_opaque_is_not_entered() -> None:
    event = TextMessageContentEvent(message_id="m", delta="x", metadata={"subagentRunId": "s"})
    assert strip_subagents(event, pytest.fail) is event


@pytest.mark.parametrize(
    "event",
    [
        RunErrorEvent(message="x"),
        RunStartedEvent(thread_id="t", run_id="r"),
        RunStartedEvent(thread_id="t", run_id="r", input=run_input(user("u", [IMAGE]))),
        RUN_FINISHED,
        RunFinishedEvent(
            thread_id="t",
            run_id="r",
            outcome=RunFinishedInterruptOutcome(interrupts=[Interrupt(id="i", reason="q")]),
        ),
        MessagesSnapshotEvent(messages=[user("u", [IMAGE])]),
    ],
    ids=lambda event: event.type,
)
def test_an_event_without_subagents_is_given_back(event: Event) -> None:
    assert strip_subagents(event, pytest.fail) is event


# laws


@given(strategies.events(), st.sampled_from(OLD))
@settings(max_examples=100, deadline=None)
def test_a_downgrade_of_a_downgrade_changes_nothing_more(event: Event, peer: str) -> None:
    once = downgrade_event(event, peer, lambda _: None)
    if once is not None:
        assert downgrade_event(once, peer, pytest.fail) is once


@given(strategies.run_agent_inputs(), st.sampled_from(OLD))
@settings(max_examples=60, deadline=None)
def test_a_downgrade_changes_no_id_and_no_order_ver_12(input: RunAgentInput, peer: str) -> None:
    downgraded = downgrade_input(input, peer, lambda _: None)
    assert (downgraded.thread_id, downgraded.run_id) == (input.thread_id, input.run_id)
    assert [(m.id, m.role) for m in downgraded.messages] == [(m.id, m.role) for m in input.messages]
    assert downgrade_input(downgraded, peer, pytest.fail) is downgraded
