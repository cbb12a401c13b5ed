"""Protobuf frames: written, split, refused and cut off."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from streams.protobuf_bytes import base, field, framed, number

from aguila.codec.notices import Notice
from aguila.codec.protobuf import OversizedFrame, ProtobufDecoder, ProtobufEncoder, ProtobufFrames, decode_frame
from aguila.errors import DecodeError, EncodeError, StreamTruncated
from aguila.protocol import (
    AssistantMessage,
    CustomEvent,
    Event,
    FunctionCall,
    MessagesSnapshotEvent,
    RunErrorEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    TextPart,
    TokenUsage,
    ToolCall,
    ToolCallResultEvent,
    UserMessage,
)
from aguila.protocol.legacy import BinaryInputContent, ThinkingStartEvent

HELLO = TextMessageContentEvent(message_id="m", delta="Hello")
START = TextMessageStartEvent(message_id="m")


def test_a_frame_is_a_big_endian_length_and_an_event_pb_4() -> None:
    assert ProtobufEncoder().encode(START) == bytes.fromhex("000000070a050a0012016d")


def test_type_zero_takes_no_bytes_but_the_base_is_there() -> None:
    assert ProtobufDecoder().feed(bytes.fromhex("000000070a050a0012016d")) == [START]


def test_a_small_timestamp_on_the_event_of_type_zero_is_read() -> None:
    event = TextMessageStartEvent(message_id="m", timestamp=5)
    assert ProtobufDecoder().feed(ProtobufEncoder().encode(event)) == [event]


def test_the_same_event_gives_the_same_bytes() -> None:
    event = StateSnapshotEvent(snapshot={"b": 1, "a": {"d": 1, "c": 2}}, metadata={"z": 1, "y": 2})
    assert ProtobufEncoder().encode(event) == ProtobufEncoder().encode(event)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 1000])
def test_frames_are_read_however_the_bytes_are_cut_pb_5(size: int) -> None:
    stream = ProtobufEncoder().encode(START) + ProtobufEncoder().encode(HELLO) * 3
    decoder = ProtobufDecoder()
    events: list[Event] = []
    for at in range(0, len(stream), size):
        events += decoder.feed(stream[at : at + size])
    decoder.close()
    assert events == [START, HELLO, HELLO, HELLO]


def test_a_stream_that_ends_within_a_frame_is_truncated_and_says_how_far_pb_6() -> None:
    decoder = ProtobufDecoder()
    frame = ProtobufEncoder().encode(HELLO)
    assert decoder.feed(frame + frame[:6]) == [HELLO]
    with pytest.raises(StreamTruncated, match="6 bytes"):
        decoder.close()


def test_a_stream_that_ends_within_a_length_is_truncated_pb_6() -> None:
    decoder = ProtobufDecoder()
    assert decoder.feed(b"\x00\x00") == []
    with pytest.raises(StreamTruncated, match="2 bytes"):
        decoder.close()


def test_an_empty_stream_is_no_error_of_the_frames() -> None:
    assert ProtobufDecoder().close() == []


def test_a_frame_beyond_the_limit_is_refused_on_its_length_alone() -> None:
    decoder = ProtobufDecoder(max_size=100)
    with pytest.raises(DecodeError) as caught:
        decoder.feed((97).to_bytes(4, "big"))
    assert caught.value.index == 0
    assert caught.value.rule == "limit-size"


def test_the_limit_counts_the_length_too_and_is_itself_allowed() -> None:
    frame = ProtobufEncoder().encode(HELLO)
    assert ProtobufDecoder(max_size=len(frame)).feed(frame) == [HELLO]
    with pytest.raises(DecodeError):
        ProtobufDecoder(max_size=len(frame) - 1).feed(frame)


def test_the_default_limit_is_that_of_the_published_clients() -> None:
    assert ProtobufFrames().feed((10 * 1024 * 1024 - 4).to_bytes(4, "big")) == []
    with pytest.raises(OversizedFrame):
        ProtobufFrames().feed((10 * 1024 * 1024 - 3).to_bytes(4, "big"))


def test_an_event_within_the_limit_is_not_refused_for_its_length_as_json() -> None:
    event = TextMessageContentEvent(message_id="m", delta="\x01" * 500)
    frame = ProtobufEncoder().encode(event)
    assert ProtobufDecoder(max_size=len(frame)).feed(frame) == [event]


def test_an_empty_frame_is_no_event_pb_7() -> None:
    with pytest.raises(DecodeError) as caught:
        ProtobufDecoder().feed(b"\x00\x00\x00\x00")
    assert caught.value.rule == "PB-7"


def test_what_came_before_an_error_is_delivered_first_and_the_error_stays() -> None:
    decoder = ProtobufDecoder()
    good = ProtobufEncoder().encode(HELLO)
    assert decoder.feed(good + good + framed(b"\x08\x01") + good) == [HELLO, HELLO]
    assert decoder.error is not None
    for _ in range(2):
        with pytest.raises(DecodeError) as caught:
            decoder.feed(good)
        assert caught.value.index == 2
    with pytest.raises(DecodeError):
        decoder.close()


def test_an_error_with_nothing_before_it_is_raised_at_once() -> None:
    decoder = ProtobufDecoder()
    decoder.feed(ProtobufEncoder().encode(HELLO))
    with pytest.raises(DecodeError) as caught:
        decoder.feed(framed(b"\xff"))
    assert caught.value.index == 1


def test_what_came_before_an_oversized_frame_is_delivered_first() -> None:
    decoder = ProtobufDecoder(max_size=64)
    good = ProtobufEncoder().encode(HELLO)
    assert decoder.feed(good + b"\xff\xff\xff\xff") == [HELLO]
    with pytest.raises(OversizedFrame) as caught:
        decoder.close()
    assert caught.value.index == 1


def test_dropped_frames_count_in_the_index_of_an_error() -> None:
    decoder = ProtobufDecoder(warn=lambda notice: None)
    with pytest.raises(DecodeError) as caught:
        decoder.feed(framed(field(99, "")) + framed(field(1, base(0, number(2, 2**60)))))
    assert caught.value.index == 1


def test_the_verdict_is_that_of_json_unknown_outcome_and_all_pb_10() -> None:
    notices: list[Notice] = []
    body = field(13, base(12), field(2, "t"), field(3, "r"), field(5, "paused"))
    (event,) = ProtobufDecoder(warn=notices.append).feed(framed(body))
    assert event.outcome is None  # type: ignore[union-attr]
    assert [(notice.rule, notice.path) for notice in notices] == [("PROC-3", "/outcome")]


def test_strict_refuses_what_the_receiver_rules_strip() -> None:
    body = field(13, base(12), field(2, "t"), field(3, "r"), field(5, "paused"))
    with pytest.raises(DecodeError):
        ProtobufDecoder(strict=True).feed(framed(body))


def test_the_raw_stage_gives_the_json_object_before_any_verdict() -> None:
    body = field(13, base(12), field(2, "t"), field(3, "r"), field(5, "paused"))
    assert decode_frame(body) == {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": {"type": "paused"}}


def test_the_default_receiver_of_notices_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aguila"):
        assert decode_frame(field(99, "")) is None
    assert "PB-11" in caplog.text


# What cannot be written


@pytest.mark.parametrize("thing", [ThinkingStartEvent(), UserMessage(id="1", content="x"), None, {"type": "CUSTOM"}])
def test_what_is_no_event_of_the_protocol_is_refused(thing: object) -> None:
    with pytest.raises(EncodeError, match="is not an event"):
        ProtobufEncoder().encode(thing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (TextMessageContentEvent(message_id="m", delta="\ud800"), "/delta"),
        (CustomEvent(name="n", value={"a": [{"b~/c": "\udfff"}]}), "/value/a/0/b~0~1c"),
        (CustomEvent(name="n", value={"a": {"\ud800": 1}}), "/value/a"),
        (RunErrorEvent(message="m", metadata={"x": "\ud800"}), "/metadata/x"),
        (MessagesSnapshotEvent(messages=[UserMessage(id="\ud800", content="")]), "/messages/0/id"),
        (
            MessagesSnapshotEvent(
                messages=[
                    AssistantMessage(
                        id="1", tool_calls=[ToolCall(id="c", function=FunctionCall(name="n", arguments="\ud800"))]
                    )
                ]
            ),
            "/messages/0/toolCalls/0/function/arguments",
        ),
        (StateSnapshotEvent(snapshot=[1, float("nan")]), "/snapshot/1"),
        (StateSnapshotEvent(snapshot={"a": float("-inf")}), "/snapshot/a"),
        (StateSnapshotEvent(snapshot=10**400), "/snapshot"),
        (CustomEvent(name="n", value={"a": object()}), ""),
        (StateDeltaEvent(delta=[{"op": "add", "path": "/a", "value": 1}, {"op": "merge", "path": ""}]), "/delta/1/op"),
        (StateDeltaEvent(delta=[{"op": "remove"}]), "/delta/0/path"),
        (RunErrorEvent(message="m", timestamp=2**53), "/timestamp"),
        (RunErrorEvent(message="m", usage=[TokenUsage(), TokenUsage(input_tokens=-1)]), "/usage/1/inputTokens"),
        (
            ToolCallResultEvent(
                message_id="m",
                tool_call_id="c",
                content=[TextPart(text=""), BinaryInputContent(mime_type="a/b", data="")],  # type: ignore[list-item]
            ),
            "/content/1",
        ),
    ],
)
def test_what_the_wire_cannot_carry_is_refused_with_its_path(event: Event, path: str) -> None:
    with pytest.raises(EncodeError) as caught:
        ProtobufEncoder().encode(event)
    assert caught.value.path == path


def test_a_value_of_the_wrong_type_is_refused_and_named() -> None:
    with pytest.raises(EncodeError, match="delta"):
        ProtobufEncoder().encode(TextMessageContentEvent(message_id="m", delta=5))  # type: ignore[arg-type]


def test_an_integer_that_no_double_holds_is_written_as_the_nearest_with_a_notice_pb_12() -> None:
    notices: list[Notice] = []
    frame = ProtobufEncoder(warn=notices.append).encode(StateSnapshotEvent(snapshot={"id": 2**53 + 1, "ok": 2**60}))
    assert [notice.rule for notice in notices] == ["PB-12"]
    assert "9007199254740993" not in notices[0].message  # the content of a state must not be logged
    (event,) = ProtobufDecoder().feed(frame)
    assert event == StateSnapshotEvent(snapshot={"id": float(2**53), "ok": 2.0**60})


def test_a_user_message_of_one_plain_text_part_is_written_as_a_string() -> None:
    event = MessagesSnapshotEvent(messages=[UserMessage(id="1", content=[TextPart(text="hi")])])
    assert ProtobufDecoder().feed(ProtobufEncoder().encode(event)) == [
        MessagesSnapshotEvent(messages=[UserMessage(id="1", content="hi")])
    ]


# The extra


def test_importing_the_codec_does_not_import_protobuf_and_without_it_the_error_names_the_extra() -> None:
    script = """
import sys
import aguila.codec, aguila.codec.protobuf, aguila.codec.negotiate
assert not [name for name in sys.modules if name.startswith("google")], "imported too early"
sys.modules["google"] = sys.modules["google.protobuf"] = None
from aguila.errors import MissingExtra
for use in (
    aguila.codec.protobuf.ProtobufEncoder,
    aguila.codec.protobuf.ProtobufDecoder,
    lambda: aguila.codec.protobuf.decode_frame(b""),
):
    try:
        use()
    except MissingExtra as error:
        assert "aguila[protobuf]" in str(error)
    else:
        raise AssertionError("no MissingExtra")
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_a_started_run_with_an_empty_input_keeps_the_input() -> None:
    (event,) = ProtobufDecoder().feed(framed(field(12, base(11), field(5))))
    assert isinstance(event, RunStartedEvent)
    assert event.input is not None
    assert event.input.messages == []
