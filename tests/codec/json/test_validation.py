"""The receiver's rules (PROC): every row of the verdict table that can be judged from one event, and the positions."""

import json

import pytest
from builders import run_finished_json, user_json

from aguila.codec import EventDecoder, decode, decode_event, encode
from aguila.errors import DecodeError
from aguila.protocol import Message, MessagesSnapshotEvent, RunAgentInput, UserMessage

START = {"type": "TEXT_MESSAGE_START", "messageId": "m"}
IMAGE = {"type": "image", "source": {"type": "url", "value": "http://x"}}
INTERRUPT = {"id": "i", "reason": "why"}


def receive(raw):
    """Return the event (or None) and its notices as (rule, path), without compatibility rules."""
    notices = []
    event = decode_event(json.dumps(raw), compat="off", warn=notices.append)
    return event, [(notice.rule, notice.path) for notice in notices]


def kept(raw):
    """Check that an event arrives unchanged, without a notice."""
    event, notices = receive(raw)
    assert notices == []
    assert event is not None
    return event


def refusal(raw, **options):
    with pytest.raises(DecodeError) as caught:
        decode_event(json.dumps(raw), compat="off", **options)
    return caught.value.rule, caught.value.path


def snapshot(*messages):
    return {"type": "MESSAGES_SNAPSHOT", "messages": list(messages)}


def patch(*operations):
    return {"type": "STATE_DELTA", "delta": list(operations)}


# Unknown: stripped by position, with a notice


def test_an_unknown_event_is_dropped_proc_3():
    assert receive({"type": "BRAND_NEW", "x": 1}) == (None, [("PROC-3", "/type")])


def test_the_notice_of_a_dropped_event_names_its_type():
    notices = []
    decode_event(b'{"type":"BRAND_NEW"}', warn=notices.append)
    assert notices[0].event_type == "BRAND_NEW"
    assert "BRAND_NEW" in str(notices[0])


def test_an_unknown_member_is_stripped_at_any_depth_proc_3():
    event, notices = receive({**START, "extra": 1})
    assert event == kept(START)
    assert notices == [("PROC-3", "/extra")]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "", "strict": True}}
    event, notices = receive(snapshot({"id": "a", "role": "assistant", "toolCalls": [call]}))
    assert notices == [("PROC-3", "/messages/0/toolCalls/0/function/strict")]
    assert event.messages[0].tool_calls[0].function.name == "f"


def test_paths_in_notices_are_escaped_pointers():
    assert receive({**START, "a/b~c": 1})[1] == [("PROC-3", "/a~1b~0c")]


@pytest.mark.parametrize("name", ["toString", "constructor", "__class__", "__init__", "message_id"])
def test_names_that_mean_something_to_a_language_are_unknown_members_too(name):
    assert receive({**START, name: 1})[1] == [("PROC-3", f"/{name}")]


@pytest.mark.parametrize("type_", ["RUN_STARTED", "RUN_FINISHED"])
def test_attribution_of_a_run_scoped_event_is_an_unknown_member_env_5(type_):
    assert receive({**run_finished_json(), "type": type_, "subagentRunId": "s"})[1] == [("PROC-3", "/subagentRunId")]


def test_an_unknown_outcome_goes_and_the_event_stays_life_7():
    event, notices = receive({**run_finished_json(), "outcome": {"type": "paused", "until": 5}})
    assert event.outcome is None
    assert notices == [("PROC-3", "/outcome")]


def test_a_success_that_carries_interrupts_loses_them_and_the_other_way_round():
    event, notices = receive({**run_finished_json(), "outcome": {"type": "success", "interrupts": [INTERRUPT]}})
    assert event.outcome.type == "success"
    assert notices == [("PROC-3", "/outcome/interrupts")]
    event, notices = receive(
        {**run_finished_json(), "outcome": {"type": "interrupt", "interrupts": [INTERRUPT], "pendingToolCallIds": []}}
    )
    assert len(event.outcome.interrupts) == 1
    assert notices == [("PROC-3", "/outcome/pendingToolCallIds")]


def test_an_unknown_part_is_dropped_from_its_list():
    event, notices = receive(snapshot(user_json("u", [{"type": "text", "text": "a"}, {"type": "hologram"}, IMAGE])))
    assert [part.type for part in event.messages[0].content] == ["text", "image"]
    assert notices == [("PROC-3", "/messages/0/content/1")]


def test_a_part_with_an_unknown_source_is_dropped_whole_amb_2():
    event, notices = receive(snapshot(user_json("u", [{**IMAGE, "source": {"type": "torrent"}, "oops": 1}])))
    assert event.messages[0].content == []
    assert notices == [("PROC-3", "/messages/0/content/0")]  # its members get no notices of their own


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"id": "a", "content": "x"}, "/messages/0/role"),
        ({"id": "a", "content": "x", "role": None}, "/messages/0/role"),
        ({"id": "a", "content": "x", "role": 5}, "/messages/0/role"),
        (user_json("a", [{"text": "x"}]), "/messages/0/content/0/type"),
        (user_json("a", [{**IMAGE, "source": {"value": "x"}}]), "/messages/0/content/0/source/type"),
    ],
)
def test_a_message_part_or_source_without_its_kind_is_refused_with_its_path_amb_3(message, path):
    assert refusal(snapshot(message)) == ("AMB-3", path)


def test_an_outcome_without_a_usable_type_is_removed_amb_3():
    event, notices = receive({**run_finished_json(), "outcome": {"type": 5}})
    assert (event.outcome, notices) == (None, [("PROC-3", "/outcome")])


def test_a_message_with_an_unknown_role_is_dropped_from_its_list():
    narrated = {"id": "a", "content": "x", "role": "narrator"}
    event, notices = receive(snapshot(narrated, {"id": "b", "role": "user", "content": "y"}))
    assert event == MessagesSnapshotEvent(messages=[UserMessage(id="b", content="y")])
    assert notices == [("PROC-3", "/messages/0")]


def test_an_unknown_role_of_a_streamed_message_is_stripped_amb_1():
    event, notices = receive({**START, "role": "narrator"})
    assert event == kept(START)
    assert notices == [("PROC-3", "/role")]


def test_an_unknown_value_in_a_required_place_takes_the_event_along_proc_4():
    raw = {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "diagram", "entityId": "e", "encryptedValue": "v"}
    assert receive(raw) == (None, [("PROC-4", "/subtype")])


def test_a_nested_unknown_climbs_to_the_first_place_that_can_lose_it_proc_4():
    run_input = {"threadId": "t", "runId": "r", "messages": [user_json("u", [{**IMAGE, "source": {"type": "new"}}])]}
    event, notices = receive({**run_finished_json(), "type": "RUN_STARTED", "input": run_input})
    assert event.input.messages[0].content == []
    assert notices == [("PROC-3", "/input/messages/0/content/0")]


def test_an_unknown_patch_operation_is_dropped_and_the_rest_stays_snap_8():
    event, notices = receive(patch({"op": "merge", "path": 5}, {"op": "remove", "path": "/a"}))
    assert event.delta == [{"op": "remove", "path": "/a"}]
    assert notices == [("SNAP-8", "/delta/0")]


# Malformed: fatal


@pytest.mark.parametrize("outcome", [[], [{"type": "success"}], "success", 5, True])
def test_an_outcome_that_is_no_object_is_fatal(outcome):
    assert refusal({**run_finished_json(), "outcome": outcome}) == ("PROC-2", "/outcome")


def test_an_interrupt_outcome_without_interrupts_is_fatal():
    path = "/outcome/interrupts"
    assert refusal({**run_finished_json(), "outcome": {"type": "interrupt", "interrupts": []}}) == ("PROC-2", path)
    assert refusal({**run_finished_json(), "outcome": {"type": "interrupt"}}) == ("PROC-2", path)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "assistant"}, "/role"),
        ({"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "", "role": "user"}, "/role"),
        (
            snapshot({"id": "a", "role": "assistant", "toolCalls": [{"id": "c", "type": "macro", "function": {}}]}),
            "/messages/0/toolCalls/0/type",
        ),
    ],
)
def test_a_wrong_value_where_there_is_only_one_is_fatal(raw, path):
    assert refusal(raw) == ("PROC-2", path)


def test_a_reasoning_message_must_say_its_role_rsn_3():
    assert refusal({"type": "REASONING_MESSAGE_START", "messageId": "m"}) == ("RSN-3", "/role")
    assert refusal({"type": "REASONING_MESSAGE_START", "messageId": "m"}, strict=True) == ("RSN-3", "/role")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"messageId": 5}, "/messageId"),
        ({"messageId": ["m"]}, "/messageId"),
        ({"messageId": True}, "/messageId"),
        ({"role": 5}, "/role"),
        ({"role": ["user"]}, "/role"),
        ({"metadata": []}, "/metadata"),
        ({"metadata": "x"}, "/metadata"),
        ({"timestamp": "5"}, "/timestamp"),
        ({"timestamp": True}, "/timestamp"),
        ({"timestamp": 5.5}, "/timestamp"),
        ({"timestamp": 2**53}, "/timestamp"),
        ({"timestamp": -(2**53)}, "/timestamp"),
        ({"timestamp": float(2**53)}, "/timestamp"),
        ({"timestamp": 1e300}, "/timestamp"),
        ({"timestamp": 10**40}, "/timestamp"),
    ],
)
def test_a_described_member_with_a_wrong_value_is_fatal_proc_2(change, path):
    assert refusal({**START, **change}) == ("PROC-2", path)
    assert refusal({**START, **change, "unknown": 1}) == ("PROC-2", path)  # also next to something to strip


def test_a_missing_required_member_is_fatal():
    assert refusal({"type": "TEXT_MESSAGE_START"}) == ("PROC-2", "/messageId")


@pytest.mark.parametrize("usage", [{"inputTokens": -1}, {"totalTokens": 1.5}, {"outputTokens": 2**53}])
def test_a_count_that_is_negative_broken_or_too_large_is_fatal(usage):
    [(name, _)] = usage.items()
    assert refusal({**run_finished_json(), "usage": [usage]}) == ("PROC-2", f"/usage/0/{name}")


@pytest.mark.parametrize("name", ["role", "name", "subagentRunId", "timestamp", "rawEvent", "metadata"])
def test_a_null_in_an_optional_place_is_fatal_env_6(name):
    assert refusal({**START, name: None}) == ("ENV-6", f"/{name}")
    assert refusal({**START, name: None}, strict=True) == ("ENV-6", f"/{name}")


@pytest.mark.parametrize("element", ["x", None, 5, []])
def test_an_element_that_is_no_object_is_fatal(element):
    for raw, path in (
        (snapshot(element), "/messages/0"),
        (snapshot(user_json("u", [element])), "/messages/0/content/0"),
    ):
        assert refusal(raw) == ("PROC-2", path)
    assert refusal(patch(element)) == ("SNAP-8", "/delta/0")


@pytest.mark.parametrize(
    ("operation", "rule", "path"),
    [
        ({"op": "add", "path": "/a"}, "SNAP-8", "/delta/0/value"),
        ({"op": "replace", "path": "/a"}, "SNAP-8", "/delta/0/value"),
        ({"op": "test", "path": "/a"}, "SNAP-8", "/delta/0/value"),
        ({"op": "move", "path": "/a"}, "SNAP-8", "/delta/0/from"),
        ({"op": "copy", "path": "/a", "from": 5}, "SNAP-8", "/delta/0/from"),
        ({"op": "remove"}, "SNAP-8", "/delta/0/path"),
        ({"op": "remove", "path": None}, "SNAP-8", "/delta/0/path"),
        ({"path": "/a"}, "SNAP-8", "/delta/0/op"),
        ({"op": 5, "path": "/a"}, "SNAP-8", "/delta/0/op"),
        ({"op": "remove", "path": "a"}, "SNAP-7", "/delta/0/path"),
        ({"op": "add", "path": "/a~2", "value": 1}, "SNAP-7", "/delta/0/path"),
        ({"op": "move", "path": "/a", "from": "~"}, "SNAP-7", "/delta/0/from"),
    ],
)
def test_a_malformed_patch_operation_is_fatal(operation, rule, path):
    assert refusal(patch(operation)) == (rule, path)
    assert refusal(patch(operation), strict=True) == (rule, path)
    activity = {"type": "ACTIVITY_DELTA", "messageId": "m", "activityType": "a", "patch": [operation]}
    assert refusal(activity) == (rule, path.replace("/delta", "/patch"))


@pytest.mark.parametrize("delta", [{}, "x", 5])
def test_a_patch_that_is_no_array_is_fatal(delta):
    assert refusal({"type": "STATE_DELTA", "delta": delta}) == ("PROC-2", "/delta")


@pytest.mark.parametrize("raw", [{}, {"type": ""}, {"type": 5}, {"type": None}, {"type": ["RUN_ERROR"]}])
def test_an_object_without_a_type_is_no_event_env_1(raw):
    assert refusal(raw) == ("ENV-1", "/type")


# Kept


def test_nulls_that_are_data_are_kept_in_silence_env_7_env_8():
    assert kept({"type": "STATE_SNAPSHOT", "snapshot": None}).snapshot is None
    assert kept({"type": "CUSTOM", "name": "n", "value": None}).value is None
    assert kept({"type": "RAW", "event": None}).event is None
    assert kept({**START, "metadata": {"k": None}}).metadata == {"k": None}
    assert kept(patch({"op": "add", "path": "/a", "value": None})).delta[0]["value"] is None
    content = {"type": "ACTIVITY_SNAPSHOT", "messageId": "m", "activityType": "a", "content": {"x": None}}
    assert kept(content).content == {"x": None}


def test_a_required_payload_must_be_there_even_if_it_may_be_null():
    assert refusal({"type": "STATE_SNAPSHOT"}) == ("PROC-2", "/snapshot")
    assert refusal({"type": "CUSTOM", "name": "n"}) == ("PROC-2", "/value")
    assert refusal({"type": "RAW"}) == ("PROC-2", "/event")


def test_open_objects_keep_undescribed_members_proc_5():
    strange = {"type": "NEW", "role": "narrator", "nested": [{"a": None}, 1.5, "x"]}
    assert kept({**START, "metadata": strange}).metadata == strange
    assert kept({**START, "rawEvent": strange}).raw_event == strange
    assert kept({"type": "STATE_SNAPSHOT", "snapshot": strange}).snapshot == strange
    assert kept({"type": "CUSTOM", "name": "n", "value": strange}).value == strange
    assert kept({"type": "RAW", "event": strange}).event == strange
    interrupt = {**INTERRUPT, "responseSchema": strange, "metadata": strange}
    outcome = kept(
        {**run_finished_json(), "result": strange, "outcome": {"type": "interrupt", "interrupts": [interrupt]}}
    ).outcome
    assert outcome.interrupts[0].response_schema == strange
    part = {**IMAGE, "metadata": strange}
    assert kept(snapshot(user_json("u", [part]))).messages[0].content[0].metadata == strange


def test_open_objects_stay_untouched_when_something_else_is_stripped():
    strange = {"type": "NEW", "n": None, "f": 5.0}
    event, notices = receive({**START, "metadata": strange, "rawEvent": strange, "extra": 1})
    assert event.metadata == strange
    assert event.raw_event == strange
    assert isinstance(event.metadata["f"], float)
    assert notices == [("PROC-3", "/extra")]


def test_patch_operations_keep_members_of_their_own_proc_5_snap_6():
    operation = {"op": "remove", "path": "/a", "value": 1, "why": {"x": None}}
    assert kept(patch(operation)).delta == [operation]


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "CUSTOM", "name": "anything", "value": 1},
        {"type": "RUN_ERROR", "message": "m", "code": "anything"},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "m", "activityType": "anything", "content": {}},
        {**run_finished_json(), "outcome": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "anything"}]}},
        {
            "type": "REASONING_ENCRYPTED_VALUE",
            "subtype": "message",
            "entityId": "e",
            "encryptedValue": "v",
            "encryptedValueType": "anything",
        },
    ],
)
def test_open_strings_are_kept_in_silence(raw):
    assert json.loads(encode(kept(raw))) == raw


def test_empty_strings_are_values_env_14():
    event = kept({"type": "TEXT_MESSAGE_CONTENT", "messageId": "", "delta": "", "subagentRunId": ""})
    assert (event.message_id, event.delta, event.subagent_run_id) == ("", "", "")


@pytest.mark.parametrize("timestamp", [5, 5.0, 5e3, -5.0, 2**53 - 1, float(2**53 - 1)])
def test_an_integral_number_is_an_integer_however_it_is_written_py_5(timestamp):
    event = kept({**START, "timestamp": timestamp})
    assert event.timestamp == timestamp
    assert isinstance(event.timestamp, int)


def test_five_point_zero_is_an_integer_in_strict_mode_too():
    event = decode_event(b'{"type":"RUN_ERROR","message":"m","timestamp":5.0}', strict=True)
    assert event.timestamp == 5


# Strict: the schema


@pytest.mark.parametrize(
    ("raw", "rule", "path"),
    [
        ({"type": "NEW"}, "PROC-3", "/type"),
        ({**START, "extra": 1}, "PROC-3", "/extra"),
        ({**START, "role": "narrator"}, "PROC-3", "/role"),
        ({**run_finished_json(), "outcome": {"type": "paused"}}, "PROC-3", "/outcome"),
        (snapshot({"id": "a", "role": "new"}), "PROC-3", "/messages/0"),
        (patch({"op": "merge"}), "SNAP-8", "/delta/0"),
        (
            {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "new", "entityId": "e", "encryptedValue": "v"},
            "PROC-4",
            "/subtype",
        ),
    ],
)
def test_strict_mode_refuses_what_a_receiver_would_strip(raw, rule, path):
    assert refusal(raw, strict=True) == (rule, path)


# Documents


def test_an_unknown_resume_status_is_refused_and_never_dropped_amb_9():
    raw = {"threadId": "t", "runId": "r", "messages": [], "resume": [{"interruptId": "i", "status": "maybe"}]}
    with pytest.raises(DecodeError) as caught:
        decode(json.dumps(raw), RunAgentInput)
    assert caught.value.rule == "AMB-9"


def test_a_document_of_no_known_kind_is_refused():
    with pytest.raises(DecodeError) as caught:
        decode(b'{"id":"m","role":"narrator"}', Message)
    assert caught.value.rule == "PROC-4"


def test_an_input_is_stripped_like_an_event_in_14():
    notices = []
    raw = {"threadId": "t", "runId": "r", "messages": [{"id": "x", "role": "new"}], "extra": 1, "state": {"a": None}}
    run_input = decode(json.dumps(raw), RunAgentInput, warn=notices.append)
    assert run_input == RunAgentInput(thread_id="t", run_id="r", messages=[], state={"a": None})
    assert [(n.rule, n.path) for n in notices] == [("PROC-3", "/messages/0"), ("PROC-3", "/extra")]


def test_what_is_fed_is_never_changed():
    raw = {**START, "extra": 1, "metadata": {"k": 5.0}}
    before = json.dumps(raw)
    EventDecoder(warn=lambda _: None).feed(raw)
    assert json.dumps(raw) == before


def test_a_null_is_a_missing_value_where_one_is_required_and_a_null_where_none_is_needed():
    assert refusal({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": None}) == ("PROC-2", "/delta")
    assert refusal({"type": "REASONING_MESSAGE_START", "messageId": "m", "role": None}) == ("PROC-2", "/role")
    nested = {
        "type": "RUN_STARTED",
        "threadId": "t",
        "runId": "r",
        "input": {"threadId": "t", "runId": "r", "messages": []},
    }
    nested["input"]["messages"] = [{"id": "m", "role": "user", "content": "x", "name": None}]
    assert refusal(nested) == ("ENV-6", "/input/messages/0/name")
    nested["input"]["messages"] = [{"id": "m", "role": "user", "content": None}]
    assert refusal(nested) == ("PROC-2", "/input/messages/0/content")
