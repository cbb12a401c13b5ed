"""Streams in the dialects of clients that know less: what becomes several events, and what is dropped together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import RUN_FINISHED, RUN_STARTED

from aguila.codec import encode
from aguila.codec.dialects import CURRENT, UNDECLARED, Translator, dialect_of, is_translation_of
from aguila.protocol import (
    DataSource,
    Event,
    FileSource,
    ImagePart,
    ReasoningEndEvent,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
)


def translate(version: str, *events: Event) -> list[dict[str, Any]]:
    translator = Translator(dialect_of(version), warn=lambda _: None)
    return [json.loads(encode(one)) for event in events for one in translator.feed(event)]


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        ("0.0.1", "0.0.35"), ("0.0.39", "0.0.35"), ("0.0.40", "0.0.40"), ("0.0.41", "0.0.41"),
        ("0.0.44", "0.0.41"), ("0.0.58", "0.0.57"), ("0.1.22", "0.0.59"),
        ("0.9", "0.0.59"), ("1.0", "1.0"), ("1.1", "1.1"), ("1.2", "1.1"), ("1.0.0", "1.1"), ("draft", "1.1"),
    ],
)  # fmt: skip
def test_a_declared_version_has_the_dialect_of_its_generation(declared: str, name: str) -> None:
    assert dialect_of(declared).name == name


def test_no_declared_version_is_the_undeclared_dialect() -> None:
    assert dialect_of(None) is UNDECLARED
    assert Translator(CURRENT).feed(RUN_STARTED) == [RUN_STARTED]


def test_reasoning_is_thinking_for_0_0_40_one_span_and_one_message_at_a_time() -> None:
    told = translate(
        "0.0.40",
        RUN_STARTED,
        ReasoningStartEvent(message_id="s"),
        ReasoningMessageStartEvent(message_id="a"),
        ReasoningMessageStartEvent(message_id="b"),
        ReasoningMessageContentEvent(message_id="a", delta="one"),
        ReasoningMessageContentEvent(message_id="b", delta=""),
        ReasoningMessageEndEvent(message_id="a"),
        ReasoningMessageEndEvent(message_id="b"),
        ReasoningEndEvent(message_id="s"),
        ReasoningMessageChunkEvent(message_id="c", delta="two"),
        ReasoningMessageChunkEvent(delta="three"),
        RUN_FINISHED,
    )
    kinds = [event["type"].removeprefix("THINKING_") for event in told[1:-1]]
    message = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    assert kinds == ["START", *message, "TEXT_MESSAGE_END", "END", "START", *message, "TEXT_MESSAGE_CONTENT",
                     "TEXT_MESSAGE_END", "END"]  # fmt: skip
    assert [event["delta"] for event in told if "delta" in event] == ["one", "two", "three"]


def test_0_0_35_knows_assistants_only() -> None:
    told = translate(
        "0.0.35",
        RUN_STARTED,
        TextMessageStartEvent(message_id="a"),
        TextMessageStartEvent(message_id="u", role="user"),
        TextMessageContentEvent(message_id="u", delta="hidden"),
        TextMessageContentEvent(message_id="a", delta="shown"),
        TextMessageEndEvent(message_id="u"),
        TextMessageEndEvent(message_id="a"),
        TextMessageChunkEvent(message_id="v", role="system", delta="hidden"),
        TextMessageChunkEvent(delta="hidden"),
        TextMessageChunkEvent(message_id="b", delta="shown"),
        ReasoningMessageChunkEvent(message_id="c", delta="hidden"),
        RUN_FINISHED,
    )
    assert [event["delta"] for event in told if "delta" in event] == ["shown", "shown"]
    assert [event["messageId"] for event in told if "messageId" in event] == ["a", "a", "a", "b"]
    assert told[1]["role"] == "assistant"


@pytest.mark.parametrize("version", ["0.0.45", "0.0.47"])
def test_empty_deltas_are_dropped_where_they_are_refused(version: str) -> None:
    event = TextMessageContentEvent(message_id="m", delta="")
    assert translate(version, event) == []
    assert len(translate("0.0.50", event)) == 1


PICTURE = ImagePart(source=DataSource(value="QUJD", mime_type="image/png"))
UPLOAD = ImagePart(source=FileSource(value="f1", provider="aguila", mime_type="image/png"))
PARTS = [TextPart(text="See"), PICTURE, UPLOAD]


@pytest.mark.parametrize(
    ("content", "is_ours"),
    [
        ("See\n[image: image/png]\n[image: image/png]", True),
        ("See\n[image: image/png]\n[image: image/png, http://h/files/f1]", True),
        ("See\n[image: image/png]\n[image: image/png, http://h/files/f2]", False),
        ("See\n[image: image/png]", False),
        ("see\n[image: image/png]\n[image: image/png]", False),
        ([TextPart(text="See"), PICTURE, TextPart(text="[image: image/png]")], True),
        ([TextPart(text="See"), PICTURE], False),
        ([TextPart(text="See"), UPLOAD, PICTURE], False),
    ],
)
def test_what_a_dialect_wrote_is_recognised_and_nothing_else(content: Any, is_ours: bool) -> None:
    assert is_translation_of(content, PARTS) is is_ours
