"""What the reader refuses, drops and passes on, given bytes that our encoder never writes."""

from __future__ import annotations

from typing import Any

import pytest
from streams.protobuf_bytes import base, field, framed, number, read, varint

from aguila.codec.protobuf import ProtobufDecoder, decode_frame
from aguila.errors import DecodeError
from aguila.protocol import (
    AssistantMessage,
    CustomEvent,
    MessagesSnapshotEvent,
    RunErrorEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    ToolCallResultEvent,
)

CONTENT = field(2, base(1), field(2, "m"), field(3, "hello"))
HELLO = TextMessageContentEvent(message_id="m", delta="hello")
NULL = number(1, 0)


def value(text: str) -> bytes:
    return field(3, text)


# The envelope


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(number(99, 1), id="an unknown number alone"),
        pytest.param(field(99, b"\xff"), id="an unknown arm that holds no message"),
        pytest.param(varint(99 << 3 | 5) + b"1234", id="an unknown fixed field alone"),
        pytest.param(b"\xff\xff\xff", id="a tag cut off"),
        pytest.param(b"\x02\x00", id="field number 0"),
        pytest.param(b"\x0e\x00", id="wire type 6"),
        pytest.param(b"\x0c", id="a group that ends only"),
        pytest.param(varint(99 << 3 | 3), id="a group without end"),
        pytest.param(varint(99 << 3 | 3) + varint(98 << 3 | 4), id="groups that overlap"),
        pytest.param(varint(99 << 3 | 3) * 200 + varint(99 << 3 | 4) * 200, id="a tower of groups"),
        pytest.param(b"\x12\x05ab", id="a length beyond the end"),
        pytest.param(number(2, 1), id="a known arm as a number"),
        pytest.param(field(2, b"\xff\xff"), id="a known arm that holds no message"),
        pytest.param(field(2, base(1), field(2, b"\xff\xfe")), id="a string that is not UTF-8"),
        pytest.param(varint(2 << 3 | 2) + b"\xff" * 10 + b"\x01", id="a length of eleven bytes"),
    ],
)
def test_bytes_that_are_no_event_are_fatal_pb_7(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        read(body)
    assert caught.value.rule == "PB-7"
    assert caught.value.index == 0


def test_two_different_arms_are_fatal_and_the_last_does_not_win() -> None:
    with pytest.raises(DecodeError, match="fields 2 and 3"):
        read(CONTENT + field(3, base(2), field(2, "m")))


def test_a_second_arm_hidden_by_an_overlong_tag_is_fatal() -> None:
    arm_3 = field(3, base(2))
    with pytest.raises(DecodeError, match="fields 2 and 3"):
        read(CONTENT + b"\x9a\x80\x80\x80\x00" + arm_3[1:])
    with pytest.raises(DecodeError, match="beyond 32 bits"):
        read(CONTENT + b"\x9a\x80\x80\x80\x80\x01" + arm_3[1:])


def test_occurrences_of_one_arm_merge() -> None:
    body = field(2, base(1), field(2, "first")) + field(2, field(2, "m"), field(3, "hello"))
    assert read(body) == ([HELLO], [])


def test_occurrences_of_one_arm_that_are_no_messages_alone_do_not_become_one_together() -> None:
    payload = base(1) + field(2, "m") + field(3, "hello")
    with pytest.raises(DecodeError, match="occurrences"):
        read(field(2, payload[:6]) + field(2, payload[6:]))


def test_an_arm_that_is_a_number_is_no_event_but_still_a_second_arm() -> None:
    assert read(CONTENT + number(2, 1)) == ([HELLO], [])
    with pytest.raises(DecodeError, match="fields 2 and 3"):
        read(CONTENT + number(3, 1))


def test_occurrences_of_one_open_value_merge() -> None:
    def one(key: str, text: str) -> bytes:
        return field(2, field(5, field(1, field(1, key), field(2, value(text)))))

    events, _ = read(field(7, base(6), one("a", "1"), one("b", "2")))
    assert events == [StateSnapshotEvent(snapshot={"a": "1", "b": "2"})]


def test_unknown_fields_beside_an_arm_are_ignored() -> None:
    group = varint(50 << 3 | 3) + number(1, 7) + field(2, "x") + varint(50 << 3 | 4)
    fixed = varint(60 << 3 | 1) + b"12345678" + varint(61 << 3 | 5) + b"1234"
    assert read(field(99, b"\xff") + number(98, 1) + CONTENT + group + fixed) == ([HELLO], [])


def test_unknown_fields_inside_an_event_vanish_pb_12() -> None:
    assert read(field(2, base(1), field(2, "m"), field(3, "hello"), field(77, "later"))) == ([HELLO], [])


@pytest.mark.parametrize("payload", [b"", base(99), field(9, "x") + number(3, 1)])
def test_an_arm_of_a_later_version_is_dropped_with_a_notice_pb_11(payload: bytes) -> None:
    events, notices = read(field(40, payload))
    assert events == []
    assert [notice.rule for notice in notices] == ["PB-11"]
    assert "40" in notices[0].message


def test_the_stream_goes_on_after_an_arm_of_a_later_version_pb_11() -> None:
    decoder = ProtobufDecoder(warn=lambda notice: None)
    assert decoder.feed(framed(field(40, "")) + framed(CONTENT)) == [HELLO]


# The base


def test_an_event_without_base_is_fatal() -> None:
    with pytest.raises(DecodeError, match="without base_event"):
        read(field(2, field(2, "m"), field(3, "hello")))


@pytest.mark.parametrize(("number_", "name"), [(2, "TEXT_MESSAGE_END"), (0, "TEXT_MESSAGE_START"), (99, "99")])
def test_a_base_that_contradicts_the_arm_is_fatal_and_names_both(number_: int, name: str) -> None:
    with pytest.raises(DecodeError, match=f"TEXT_MESSAGE_CONTENT event with the base_event of {name}") as caught:
        read(field(2, base(number_), field(2, "m"), field(3, "hello")))
    assert caught.value.path == "/type"


def test_arm_and_type_number_are_taken_from_the_ledger_where_they_do_not_follow_each_other() -> None:
    assert decode_frame(field(19, base(16))) == {"type": "SUBAGENT_STARTED", "subagentRunId": "", "name": ""}
    assert decode_frame(field(17, base(19))) == {"type": "TEXT_MESSAGE_CHUNK"}


@pytest.mark.parametrize("timestamp", [2**53, -(2**53), 2**63 - 1])
def test_a_timestamp_that_not_every_peer_can_hold_is_fatal_env_2(timestamp: int) -> None:
    with pytest.raises(DecodeError) as caught:
        read(field(2, base(1, number(2, timestamp)), field(2, "m"), field(3, "hello")))
    assert caught.value.path == "/timestamp"


def test_the_largest_timestamp_is_read() -> None:
    ((event,), _) = read(field(2, base(1, number(2, 1 - 2**53)), field(2, "m"), field(3, "hello")))
    assert event.timestamp == 1 - 2**53


def test_a_count_beyond_what_every_peer_can_hold_is_fatal() -> None:
    with pytest.raises(DecodeError) as caught:
        read(field(14, base(13), field(3, "m"), field(4, number(3, 2**53))))
    assert caught.value.path == "/usage/0/inputTokens"


def test_missing_required_strings_read_as_empty_pb_12() -> None:
    assert read(field(2, base(1))) == ([TextMessageContentEvent(message_id="", delta="")], [])


# Messages


def message(role: str, *more: bytes) -> bytes:
    return field(9, base(8), field(2, field(1, "1"), field(2, role), *more))


TEXT, PARTS, ACTIVITY = field(3, "text"), field(8, field(1, field(1, "part"))), field(13)


@pytest.mark.parametrize(
    ("role", "carrier"),
    [
        *[(role, PARTS) for role in ("developer", "system", "assistant", "activity", "reasoning")],
        *[(role, ACTIVITY) for role in ("developer", "system", "assistant", "user", "tool", "reasoning")],
        ("activity", TEXT),
        *[(role, TEXT + PARTS) for role in ("user", "tool", "assistant", "narrator")],
        ("activity", TEXT + ACTIVITY),
        ("narrator", PARTS + ACTIVITY),
    ],
)
def test_content_in_two_slots_or_in_one_that_the_role_does_not_use_is_fatal(role: str, carrier: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        read(message(role, carrier))
    assert caught.value.path == "/messages/0/content"
    assert caught.value.rule == "PB-7"


@pytest.mark.parametrize(
    ("carrier", "content"), [(TEXT, "text"), (PARTS, [{"type": "text", "text": "part"}]), (ACTIVITY, {})]
)
def test_a_message_of_an_unknown_role_is_passed_on_as_it_came_for_enforcement_to_drop(
    carrier: bytes, content: Any
) -> None:
    raw = decode_frame(message("narrator", carrier, field(4, "n")))
    assert raw is not None
    assert raw["messages"] == [{"id": "1", "role": "narrator", "name": "n", "content": content}]
    events, notices = read(message("narrator", carrier))
    assert events == [MessagesSnapshotEvent(messages=[])]
    assert [notice.path for notice in notices] == ["/messages/0"]


def test_a_member_that_a_role_does_not_have_is_passed_on_for_enforcement_to_strip() -> None:
    events, notices = read(message("assistant", TEXT, field(7, "error")))
    assert events == [MessagesSnapshotEvent(messages=[AssistantMessage(id="1", content="text")])]
    assert [(notice.rule, notice.path) for notice in notices] == [("PROC-3", "/messages/0/error")]


@pytest.mark.parametrize(("role", "more"), [("user", b""), ("tool", field(6, "c"))])
def test_no_content_reads_as_no_parts_where_parts_are_possible(role: str, more: bytes) -> None:
    raw = decode_frame(message(role, more))
    assert raw is not None
    assert raw["messages"][0]["content"] == []


def test_a_tool_call_without_a_function_is_fatal_as_in_json() -> None:
    with pytest.raises(DecodeError) as caught:
        read(message("assistant", field(5, field(1, "c"), field(2, "function"))))
    assert caught.value.path == "/messages/0/toolCalls/0/function"


# Parts and sources

IMAGE = field(2, field(1, field(2, field(1, "https://example.org"))))


def result(*parts: bytes) -> bytes:
    return field(22, base(21), field(3, "m"), field(4, "c"), *[field(7, part) for part in parts])


def test_a_tool_result_with_text_and_parts_is_fatal() -> None:
    with pytest.raises(DecodeError) as caught:
        read(field(22, base(21), field(5, ""), field(7, field(1, field(1, "part")))))
    assert caught.value.path == "/content"


def test_a_part_with_two_arms_is_fatal() -> None:
    with pytest.raises(DecodeError, match="text and image") as caught:
        read(result(field(1, field(1, "a")), field(1, field(1, "a")) + IMAGE))
    assert caught.value.path == "/content/1"


def test_a_source_with_two_arms_is_fatal() -> None:
    two = field(1, field(1, "aGk=")) + field(2, field(1, "https://example.org"))
    with pytest.raises(DecodeError, match="data and url") as caught:
        read(result(field(2, field(1, two))))
    assert caught.value.path == "/content/0/source"


@pytest.mark.parametrize("part", [b"", field(9, field(1, "hologram"))])
def test_a_part_of_an_unknown_kind_is_dropped_with_a_notice(part: bytes) -> None:
    events, notices = read(result(field(1, field(1, "a")), part, IMAGE))
    (event,) = events
    assert isinstance(event, ToolCallResultEvent)
    assert [item.type for item in event.content] == ["text", "image"]  # type: ignore[union-attr]
    assert [(notice.rule, notice.path, notice.event_type) for notice in notices] == [
        ("PROC-4", "/content/1", "TOOL_CALL_RESULT")
    ]


@pytest.mark.parametrize("source", [b"", field(9, field(1, "tape"))])
def test_a_part_whose_source_is_of_an_unknown_kind_is_dropped_with_a_notice_amb_2(source: bytes) -> None:
    events, notices = read(result(field(3, field(1, source), field(3, "id"))))
    assert events == [ToolCallResultEvent(message_id="m", tool_call_id="c", content=[])]
    assert [(notice.rule, notice.path) for notice in notices] == [("PROC-4", "/content/0")]


def test_the_notice_for_a_part_of_a_message_has_the_path_of_json() -> None:
    _, notices = read(message("user", field(8, b"")))
    assert [notice.path for notice in notices] == ["/messages/0/content/0"]


def test_a_part_without_a_source_is_fatal_as_in_json() -> None:
    with pytest.raises(DecodeError) as caught:
        read(result(field(2, field(3, "id"))))
    assert caught.value.path == "/content/0/source"


# Outcomes and patches


def finished(*more: bytes) -> bytes:
    return field(13, base(12), field(2, "t"), field(3, "r"), *more)


INTERRUPT = field(6, field(1, "i"), field(2, "why"))


@pytest.mark.parametrize(
    ("more", "members"),
    [
        (b"", {}),
        (field(5, "success"), {"outcome": {"type": "success"}}),
        (field(5, "success") + field(8, "c"), {"outcome": {"type": "success", "pendingToolCallIds": ["c"]}}),
        (field(5, "interrupt"), {"outcome": {"type": "interrupt", "interrupts": []}}),
        (field(5, "paused"), {"outcome": {"type": "paused"}}),
        (
            field(5, "success") + INTERRUPT,
            {"outcome": {"type": "success", "interrupts": [{"id": "i", "reason": "why"}]}},
        ),
        (INTERRUPT, {"interrupts": [{"id": "i", "reason": "why"}]}),
        (field(8, "c"), {"pendingToolCallIds": ["c"]}),
    ],
)
def test_whatever_came_of_an_outcome_is_rebuilt_as_json_pb_10(more: bytes, members: dict[str, Any]) -> None:
    assert decode_frame(finished(more)) == {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", **members}


def test_an_interrupt_outcome_without_interrupts_is_fatal_as_in_json() -> None:
    with pytest.raises(DecodeError) as caught:
        read(finished(field(5, "interrupt")))
    assert caught.value.path == "/outcome/interrupts"


def test_a_subagent_outcome_is_rebuilt_too() -> None:
    raw = decode_frame(field(20, base(17), field(4, "later"), field(5, "i1"), field(5, "i2")))
    assert raw == {
        "type": "SUBAGENT_FINISHED",
        "subagentRunId": "",
        "outcome": {"type": "later", "interruptIds": ["i1", "i2"]},
    }


def test_an_unknown_patch_operation_travels_as_its_number_and_is_dropped_by_enforcement() -> None:
    body = field(8, base(7), field(2, number(1, 17), field(2, "/a")), field(2, number(1, 1), field(2, "/b")))
    raw = decode_frame(body)
    assert raw is not None
    assert raw["delta"][0] == {"op": "17", "path": "/a"}
    events, notices = read(body)
    assert events == [StateDeltaEvent(delta=[{"op": "remove", "path": "/b"}])]
    assert [notice.path for notice in notices] == ["/delta/0"]


def test_an_operation_without_bytes_for_op_is_an_add() -> None:
    events, _ = read(field(8, base(7), field(2, field(2, "/a"), field(4, NULL))))
    assert events == [StateDeltaEvent(delta=[{"op": "add", "path": "/a", "value": None}])]


def test_an_operation_without_a_value_is_fatal_as_in_json_snap_8() -> None:
    with pytest.raises(DecodeError):
        read(field(8, base(7), field(2, field(2, "/a"))))


def test_empty_lists_read_as_absent_or_empty_as_the_table_of_losses_says() -> None:
    assert read(field(14, base(13), field(3, "m"))) == ([RunErrorEvent(message="m")], [])
    assert decode_frame(field(12, base(11), field(5))) == {
        "type": "RUN_STARTED",
        "threadId": "",
        "runId": "",
        "input": {"threadId": "", "runId": "", "messages": []},
    }


def test_a_required_value_that_is_absent_is_fatal_as_in_json() -> None:
    with pytest.raises(DecodeError) as caught:
        read(field(11, base(10), field(2, "n")))
    assert caught.value.path == "/value"


def test_a_required_null_is_a_value_env_7() -> None:
    assert read(field(11, base(10), field(2, "n"), field(3, NULL))) == ([CustomEvent(name="n", value=None)], [])
