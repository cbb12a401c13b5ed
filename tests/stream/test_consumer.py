"""``consume`` takes raw objects, JSON, and typed events of any origin."""

from __future__ import annotations

import ag_ui.core
import pytest
from builders import RUN_FINISHED, RUN_STARTED, UNVERSIONED_RUN_STARTED

from aguila.codec import encode
from aguila.errors import DecodeError, SequenceError, StreamTruncated
from aguila.protocol import (
    ReasoningMessage,
    RunStartedEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from aguila.protocol.legacy import (
    ThinkingEndEvent,
    ThinkingStartEvent,
    ThinkingTextMessageContentEvent,
    ThinkingTextMessageEndEvent,
    ThinkingTextMessageStartEvent,
)
from aguila.stream import Consumer, consume

TEXT = [
    TextMessageStartEvent(message_id="m"),
    TextMessageContentEvent(message_id="m", delta="Hi"),
    TextMessageEndEvent(message_id="m"),
]


def quiet(notice):
    pass


def test_typed_events_their_json_and_their_objects_mean_the_same():
    stream = [RUN_STARTED, *TEXT, RUN_FINISHED]
    typed = consume(stream)
    assert [message.content for message in typed.messages] == ["Hi"]
    assert consume([encode(event) for event in stream]) == typed
    assert consume([encode(event).decode() for event in stream]) == typed


def test_retired_events_pass_the_compatibility_boundary_typed_or_not_era_2():
    thinking = [
        ThinkingStartEvent(),
        ThinkingTextMessageStartEvent(),
        ThinkingTextMessageContentEvent(delta="hm"),
        ThinkingTextMessageEndEvent(),
        ThinkingEndEvent(),
    ]
    (message,) = consume([RUN_STARTED, *thinking, RUN_FINISHED], warn=quiet).messages
    assert isinstance(message, ReasoningMessage)
    assert message.content == "hm"


def test_official_events_are_read_as_ours():
    official = [
        ag_ui.core.RunStartedEvent(thread_id="t", run_id="r", protocol_version="1.0"),
        ag_ui.core.TextMessageStartEvent(message_id="m"),
        ag_ui.core.TextMessageContentEvent(message_id="m", delta="Hi"),
        ag_ui.core.TextMessageEndEvent(message_id="m"),
        ag_ui.core.RunFinishedEvent(thread_id="t", run_id="r"),
    ]
    assert [message.content for message in consume(official).messages] == ["Hi"]


@pytest.mark.parametrize("thing", [None, 5, ["x"]])
def test_what_is_no_event_is_refused_as_such_and_not_for_its_place_env_1(thing):
    with pytest.raises(DecodeError) as refused:
        consume([thing])
    assert refused.value.rule == "ENV-1"


def test_an_error_says_where_and_keeps_what_was_delivered_life_21():
    with pytest.raises(SequenceError) as refused:
        consume([RUN_STARTED, *TEXT, TextMessageEndEvent(message_id="m")])
    assert refused.value.index == 4
    assert [message.content for message in refused.value.conversation.messages] == ["Hi"]


def test_a_stream_that_ends_before_its_run_is_no_success_trn_7():
    with pytest.raises(StreamTruncated) as cut:
        consume([RUN_STARTED, *TEXT])
    assert [message.content for message in cut.value.conversation.messages] == ["Hi"]


def test_no_state_is_an_empty_object_and_null_is_a_state():
    assert consume([RUN_STARTED, RUN_FINISHED]).state == {}
    assert consume([RUN_STARTED, RUN_FINISHED], state=None).state is None
    assert consume([RUN_STARTED, StateSnapshotEvent(snapshot=None), RUN_FINISHED]).state is None


@pytest.mark.parametrize(
    ("declared", "rule"), [("1.2", "VER-7"), ("1.10", "VER-7"), ("2.0", "VER-7"), ("1", "VER-4"), ("draft", "VER-4")]
)
def test_an_unknown_version_makes_a_notice_and_changes_nothing(declared, rule):
    notices = []
    consume([RunStartedEvent(thread_id="t", run_id="r", protocol_version=declared), RUN_FINISHED], warn=notices.append)
    assert [notice.rule for notice in notices] == [rule]


@pytest.mark.parametrize("declared", [None, "1.1", "1.0", "0.9", "01.1"])
def test_our_version_and_older_ones_are_quiet(declared):
    notices = []
    consume([RunStartedEvent(thread_id="t", run_id="r", protocol_version=declared), RUN_FINISHED], warn=notices.append)
    assert notices == []


def test_the_consumer_delivers_event_by_event():
    consumer = Consumer()
    assert consumer.feed(UNVERSIONED_RUN_STARTED) == [RunStartedEvent(thread_id="t", run_id="r")]
    chunk = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Hi"}
    assert [event.type for event in consumer.feed(chunk)] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    assert [event.type for event in consumer.feed(RUN_FINISHED)] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert consumer.close().messages == consumer.conversation.messages
