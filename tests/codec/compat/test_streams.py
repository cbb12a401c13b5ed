"""Compatibility rules over whole streams and documents: their memory, their combinations, and what they leave alone."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from builders import UNVERSIONED_RUN_STARTED, run_finished_json, user_json
from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.codec import EventDecoder, Notice, decode, encode
from aguila.codec.compat import Compat, Level
from aguila.errors import DecodeError
from aguila.protocol import ActivitySnapshotEvent, ContentPart, Message, RunAgentInput, RunStartedEvent
from aguila.testing import strategies

THINKING = [
    {"type": "THINKING_START"},
    {"type": "THINKING_TEXT_MESSAGE_START"},
    {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "a"},
    {"type": "THINKING_TEXT_MESSAGE_END"},
    {"type": "THINKING_TEXT_MESSAGE_START"},
    {"type": "THINKING_TEXT_MESSAGE_END"},
    {"type": "THINKING_END"},
]


def read(events: list[Any], level: Level = "standard", **options: Any) -> tuple[list[dict[str, Any]], list[Notice]]:
    notices: list[Notice] = []
    decoder = EventDecoder(compat=level, warn=notices.append, **options)
    decoded = [event for raw in events for event in decoder.feed(json.dumps(raw))]
    return [json.loads(encode(event)) for event in decoded], notices


def binary(**members: Any) -> dict[str, Any]:
    return {"type": "binary", **members}


def image(value: str = "QUJD", **members: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "data", "value": value, "mimeType": "image/png"}, **members}


# what rules remember


def test_a_span_of_thinking_and_its_messages_each_keep_one_id_era_2() -> None:
    events, notices = read([UNVERSIONED_RUN_STARTED, *THINKING])
    assert [event.get("messageId") for event in events[1:]] == [
        "r-reasoning-1",
        "r-reasoning-2",
        "r-reasoning-2",
        "r-reasoning-2",
        "r-reasoning-3",
        "r-reasoning-3",
        "r-reasoning-1",
    ]
    assert [notice.rule for notice in notices] == ["thinking-events"]


def test_ids_of_thinking_stay_unique_over_the_runs_of_a_stream() -> None:
    again = [{**UNVERSIONED_RUN_STARTED, "runId": "r"}, *THINKING]
    events, _ = read([UNVERSIONED_RUN_STARTED, *THINKING, run_finished_json(), *again])
    starts = [e["messageId"] for e in events if e["type"] in ("REASONING_START", "REASONING_MESSAGE_START")]
    assert len(starts) == len(set(starts)) == 6


def test_ids_come_from_new_id_where_it_is_given() -> None:
    ids = count()
    events, _ = read([UNVERSIONED_RUN_STARTED, *THINKING[:3]], new_id=lambda: f"id-{next(ids)}")
    assert [event.get("messageId") for event in events[1:]] == ["id-0", "id-1", "id-1"]


def test_thinking_that_goes_on_without_a_start_gets_an_id_and_a_notice_of_its_own_era_2() -> None:
    events, notices = read([UNVERSIONED_RUN_STARTED, *THINKING[2:4], {"type": "THINKING_END"}])
    assert [event["messageId"] for event in events[1:]] == ["r-reasoning-1", "r-reasoning-1", "r-reasoning-2"]
    assert [notice.message for notice in notices] == [
        "THINKING_* is read as REASONING_*",
        "thinking continues that was never started",
    ]


def test_a_new_run_does_not_continue_the_thinking_of_the_last() -> None:
    events, _ = read(
        [
            UNVERSIONED_RUN_STARTED,
            *THINKING[:2],
            {"type": "RUN_ERROR", "message": "x"},
            {**UNVERSIONED_RUN_STARTED, "runId": "r2"},
            THINKING[2],
        ]
    )
    assert events[-1]["messageId"] == "r2-reasoning-3"


def test_a_step_that_ends_by_id_ends_the_name_that_it_started_row_1() -> None:
    events, _ = read(
        [
            UNVERSIONED_RUN_STARTED,
            {"type": "STEP_STARTED", "stepId": "1", "stepName": "plan"},
            {"type": "STEP_STARTED", "stepId": "2", "stepName": "act", "parentStepId": "1"},
            {"type": "STEP_FINISHED", "stepId": "2", "status": "skipped"},
            {"type": "STEP_FINISHED", "stepId": "1", "status": "completed"},
        ]
    )
    assert [event["stepName"] for event in events[1:]] == ["plan", "act", "act", "plan"]
    assert events[3]["metadata"] == {"aguila": {"stepId": "2", "status": "skipped"}}


def test_a_step_of_an_earlier_run_is_forgotten() -> None:
    started = {"type": "STEP_STARTED", "stepId": "1", "stepName": "plan"}
    error = {"type": "RUN_ERROR", "message": "x"}
    events, _ = read(
        [
            UNVERSIONED_RUN_STARTED,
            started,
            error,
            {**UNVERSIONED_RUN_STARTED, "runId": "r2"},
            {"type": "STEP_FINISHED", "stepId": "1"},
        ]
    )
    assert events[-1]["stepName"] == "1"


@pytest.mark.parametrize(
    "snapshot",
    [
        {"type": "ACTIVITY_SNAPSHOT", "activityId": "a", "activityType": "PLAN", "state": {}},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "PLAN", "content": {}},
    ],
    ids=["old", "today's"],
)
def test_a_change_of_an_activity_has_the_type_of_its_snapshot_row_3(snapshot: dict[str, Any]) -> None:
    events, _ = read([UNVERSIONED_RUN_STARTED, snapshot, {"type": "ACTIVITY_DELTA", "activityId": "a", "delta": []}])
    assert events[-1] == {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "PLAN", "patch": []}


def test_a_patch_of_a_state_that_is_no_object_applies_to_that_state_row_3() -> None:
    snapshot = {"type": "ACTIVITY_SNAPSHOT", "activityId": "a", "activityType": "PLAN"}
    delta = {"type": "ACTIVITY_DELTA", "activityId": "a"}
    patch = [
        {"op": "replace", "path": "/0", "value": "x"},
        {"op": "move", "from": "/0", "path": "/1"},
        {"op": "replace", "path": "", "value": 1},
    ]
    events, _ = read(
        [
            UNVERSIONED_RUN_STARTED,
            {**snapshot, "state": ["a", "b"]},
            {**delta, "delta": patch},
            {**snapshot, "state": {"n": 1}},
            {**delta, "delta": patch[:1]},
        ]
    )
    assert events[1]["content"] == {"value": ["a", "b"]}
    assert events[2]["patch"] == [
        {"op": "replace", "path": "/value/0", "value": "x"},
        {"op": "move", "from": "/value/0", "path": "/value/1"},
        {"op": "replace", "path": "/value", "value": 1},
    ]
    assert events[4]["patch"] == patch[:1]


def test_observe_is_enough_to_know_the_run_and_its_activities() -> None:
    compat = Compat("standard", [].append)
    for event in (
        RunStartedEvent(thread_id="t", run_id="seen"),
        ActivitySnapshotEvent(message_id="a", activity_type="PLAN", content={}),
    ):
        assert event.__class__ in Compat.OBSERVED
        compat.observe(event)
    assert compat.upgrade({"type": "THINKING_START"})[0]["messageId"] == "seen-reasoning-1"
    assert compat.upgrade({"type": "ACTIVITY_DELTA", "activityId": "a"})[0]["activityType"] == "PLAN"


META = {"type": "META", "metaType": "thumbs_up", "payload": {"by": None}, "timestamp": 9}


def test_meta_is_raw_within_a_run_and_stays_meta_outside_row_23() -> None:
    events, notices = read([META, UNVERSIONED_RUN_STARTED, META, run_finished_json(), META, META])
    assert events == [
        META,
        UNVERSIONED_RUN_STARTED,
        {
            "type": "RAW",
            "event": {"type": "META", "metaType": "thumbs_up", "payload": {"by": None}},
            "source": "meta",
            "timestamp": 9,
        },
        run_finished_json(),
        META,
        META,
    ]
    assert [notice.rule for notice in notices] == ["meta-event"]


# what rules combine to


def test_old_shapes_within_one_event_are_all_read_in_one_pass() -> None:
    events, notices = read(
        [
            {
                **UNVERSIONED_RUN_STARTED,
                "rawEvent": None,
                "input": {
                    "threadId": "t",
                    "runId": "r",
                    "state": None,
                    "forwardedProps": None,
                    "messages": [
                        user_json("m", [{"type": "Text", "text": "x"}, binary(mimeType="image/png", data="QUJD")])
                    ],
                    "resume": {"id": "i", "value": None},
                },
            }
        ]
    )
    assert events == [
        {
            **UNVERSIONED_RUN_STARTED,
            "input": {
                "threadId": "t",
                "runId": "r",
                "messages": [user_json("m", [{"type": "text", "text": "x"}, image()])],
                "resume": [{"interruptId": "i", "status": "resolved"}],
            },
        }
    ]
    assert {notice.rule for notice in notices} == {
        "null-raw-event",
        "null-state",
        "null-forwarded-props",
        "part-type-case",
        "binary-part",
        "single-resume-object",
        "resume-aliases",
        "null-resume-payload",
        "resume-status",
    }


def test_wide_reads_old_shapes_in_snake_case() -> None:
    events, _ = read(
        [
            {"type": "RUN_STARTED", "thread_id": "t", "run_id": "r", "timestamp": "1970-01-01T00:00:01"},
            {"type": "STEP_STARTED", "step_id": "1", "step_name": "plan", "parent_step_id": None},
            {"type": "STEP_FINISHED", "step_id": "1"},
            {"type": "ACTIVITY_SNAPSHOT", "activity_id": "a", "activity_type": "P", "state": {"in_side": None}},
            {"type": "MESSAGES_SNAPSHOT", "messages": [user_json("m", [binary(mime_type="image/png", data="QUJD")])]},
            {"type": "REASONING_START", "message_id": "s", "encrypted_content": "x", "raw_event": None},
            {"type": "REASONING_MESSAGE_CHUNK", "message_id": "s", "delta": ""},
            {"type": "THINKING_TEXT_MESSAGE_START", "message_id": "m"},
            {"type": "META", "meta_type": "x"},
        ],
        "wide",
    )
    assert events == [
        {**UNVERSIONED_RUN_STARTED, "timestamp": 1000},
        {"type": "STEP_STARTED", "stepName": "plan", "metadata": {"aguila": {"stepId": "1"}}},
        {"type": "STEP_FINISHED", "stepName": "plan", "metadata": {"aguila": {"stepId": "1"}}},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "P", "content": {"in_side": None}},
        {"type": "MESSAGES_SNAPSHOT", "messages": [user_json("m", [image()])]},
        {"type": "REASONING_START", "messageId": "s"},
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "s", "delta": ""},
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "s", "encryptedValue": "x"},
        {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning"},
        {"type": "RAW", "event": {"type": "META", "metaType": "x"}, "source": "meta"},
    ]


def test_an_attachment_sent_both_ways_arrives_once_era_3() -> None:
    named = image(metadata={"filename": "a.png"})
    parts = [
        binary(mimeType="image/png", data="QUJD"),  # repeats what follows
        named,
        binary(mimeType="image/png", data="QUJD", filename="a.png"),  # repeats what came before
        binary(mimeType="image/png", data="QUJD", filename="b.png"),  # another name: another attachment
        binary(mimeType="image/png", data="REVG"),
        binary(mimeType="image/png", data="REVG"),  # two old parts are never each other's twins
    ]
    events, notices = read(
        [UNVERSIONED_RUN_STARTED, {"type": "MESSAGES_SNAPSHOT", "messages": [user_json("m", [*parts])]}]
    )
    assert events[1]["messages"][0]["content"] == [
        named,
        image(metadata={"filename": "b.png"}),
        image("REVG"),
        image("REVG"),
    ]
    assert [(notice.rule, notice.path) for notice in notices] == [
        ("binary-part", "/messages/0/content/0"),
        ("binary-part", "/messages/0/content/1"),
    ]


def test_a_history_without_ids_gets_the_same_ids_each_time_row_17() -> None:
    messages = [{"role": "user", "content": "a"}, {"id": None, "role": "assistant", "content": "b"}]
    first = Compat("wide", [].append).upgrade_document(messages, "Message[]")
    assert [message["id"] for message in first] == ["legacy-message-1", "legacy-message-2"]
    grown = [*first, {"role": "user", "content": "c"}]
    again = Compat("wide", [].append).upgrade_document(grown, "Message[]")
    assert [message["id"] for message in again] == ["legacy-message-1", "legacy-message-2", "legacy-message-3"]


def test_messages_that_arrive_one_by_one_get_different_ids() -> None:
    compat = Compat("wide", [].append)
    ids = [compat.upgrade_document({"role": "user", "content": "x"}, "Message")["id"] for _ in range(2)]
    assert ids == ["legacy-message-1", "legacy-message-2"]


# what rules leave alone (VER-14): all of it is for enforcement to strip or to refuse


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "STEP_FINISHED", "stepId": 5, "status": "completed"},
        {"type": "STEP_STARTED", "stepName": "s", "status": "no id: not the old shape"},
        {"type": "ACTIVITY_SNAPSHOT", "activityId": 5, "activityType": "P", "state": {}},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "m", "activityType": "P", "content": 5},
        {"type": "REASONING_START", "messageId": "m", "encryptedContent": 5},
        {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "user"},
        {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": None},
        {**run_finished_json(), "outcome": "paused"},
        {**run_finished_json(), "outcome": []},
        {**run_finished_json(), "outcome": {"type": "success"}, "interrupt": {"id": "i"}},
        {**run_finished_json(), "outcome": {"type": "interrupt", "interrupts": [{"id": "i"}]}},
        {"type": "TEXT_MESSAGE_END", "messageId": "m", "timestamp": "soon"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": None},
        {"type": "SOMETHING_NEW", "thread_id": None},
        {"type": 5},
        {},
        {"type": "MESSAGES_SNAPSHOT", "messages": [user_json("m", [binary(data="QUJD")])]},
        {"type": "MESSAGES_SNAPSHOT", "messages": [user_json("m", [binary(mimeType=5, data="QUJD")])]},
        {"type": "MESSAGES_SNAPSHOT", "messages": [user_json("m", [binary(mimeType="image/png", data=5, url="u")])]},
        {"type": "MESSAGES_SNAPSHOT", "messages": [user_json("m", [binary(mimeType="image/png")])]},
        {"type": "MESSAGES_SNAPSHOT", "messages": [user_json("m", [binary(mimeType="image/png", data="", url="")])]},
        {
            "type": "MESSAGES_SNAPSHOT",
            "messages": [user_json("m", [5, None, {"type": ["text"]}, {"type": "Hologram"}])],
        },
        {"type": "MESSAGES_SNAPSHOT", "messages": {"id": "m"}},
        {"type": "STATE_SNAPSHOT", "snapshot": {"type": "binary", "mimeType": "a/b", "data": "x", "raw_event": None}},
    ],
    ids=lambda raw: json.dumps(raw)[:60],
)
def test_what_is_malformed_or_opaque_is_not_touched_even_at_the_widest(raw: dict[str, Any]) -> None:
    notices: list[Notice] = []
    assert Compat("wide", notices.append).upgrade(raw) == [raw]
    assert notices == []


@pytest.mark.parametrize("beside", [{}, {"interrupts": []}, {"interrupt": None}, {"interrupt": "x"}])
def test_the_outcome_interrupt_without_an_interrupt_is_an_error_that_names_it_int_1(beside: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match="needs the interrupt") as refused:
        read([UNVERSIONED_RUN_STARTED, {**run_finished_json(), "outcome": "interrupt", **beside}])
    assert refused.value.path == "/interrupt"


@pytest.mark.parametrize(
    ("member", "event"),
    [
        ("code", {"type": "SUBAGENT_ERROR", "subagentRunId": "s", "message": "m"}),
        ("parentRunId", {**UNVERSIONED_RUN_STARTED, "input": {"threadId": "t", "runId": "r", "messages": []}}),
    ],
)
def test_the_nulls_beyond_era_5_are_for_run_error_and_run_started_alone(member: str, event: dict[str, Any]) -> None:
    within = {**event["input"], member: None} if "input" in event else None
    raw = {**event, member: None} if within is None else {**event, "input": within}
    with pytest.raises(DecodeError) as refused:
        read([raw])
    assert refused.value.path.endswith(f"/{member}")


def test_malformed_metadata_is_not_replaced_by_what_a_rule_keeps() -> None:
    raw = {"type": "STEP_STARTED", "stepId": "1", "stepName": "s", "metadata": "m"}
    with pytest.raises(DecodeError) as refused:
        read([UNVERSIONED_RUN_STARTED, raw])
    assert refused.value.path == "/metadata"


@pytest.mark.parametrize("member", ["metadata", "timestamp", "name", "role", "subagentRunId"])
def test_other_nulls_are_fatal_in_the_standard_level_era_5(member: str) -> None:
    raw = {"type": "TEXT_MESSAGE_START", "messageId": "m", member: None}
    with pytest.raises(DecodeError) as refused:
        read([UNVERSIONED_RUN_STARTED, raw])
    assert refused.value.path == f"/{member}"
    events, _ = read([UNVERSIONED_RUN_STARTED, raw], "wide")
    assert events[1] == {"type": "TEXT_MESSAGE_START", "messageId": "m"}


def test_a_null_that_is_data_stays_at_every_level_env_7_env_8() -> None:
    raw = [
        UNVERSIONED_RUN_STARTED,
        {"type": "STATE_SNAPSHOT", "snapshot": None},
        {"type": "RAW", "event": None, "metadata": {"k": None}},
        {"type": "CUSTOM", "name": "n", "value": None},
    ]
    events, notices = read([*raw, {"type": "CUSTOM", "name": "n", "value": None, "rawEvent": None}], "wide")
    assert events == [*raw, raw[-1]]
    assert [notice.rule for notice in notices] == ["null-raw-event"]


def test_a_null_of_a_text_part_is_fatal_where_that_of_a_media_part_is_not_era_5() -> None:
    document = json.dumps(user_json("m", [{"type": "text", "text": "x", "metadata": None}]))
    with pytest.raises(DecodeError):
        decode(document, type=Message, warn=[].append)
    assert decode(document, type=Message, compat="wide", warn=[].append) is not None


@pytest.mark.parametrize(
    "kind", ["NoSuchType", "PROTOCOL_VERSION", "replace", "Role", "RunStartedEvent", "NoSuchType[]"]
)
def test_a_document_of_another_kind_is_given_back(kind: str) -> None:
    raw = {"thread_id": None}
    assert Compat("wide", [].append).upgrade_document(raw, kind) is raw


# laws


@given(st.lists(strategies.events(), max_size=5))
@settings(max_examples=100, deadline=None)
def test_no_rule_touches_a_valid_event(events: list[Any]) -> None:
    notices: list[Notice] = []
    compat = Compat("wide", notices.append)
    for event in events:
        raw = json.loads(encode(event))
        upgraded = compat.upgrade(raw)
        assert len(upgraded) == 1
        assert upgraded[0] is raw
    assert notices == []


DOCUMENTS: list[tuple[str, Any]] = [
    ("RunAgentInput", RunAgentInput),
    ("Message", Message),
    ("ContentPart", ContentPart),
]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_rule_touches_a_valid_document(data: st.DataObject) -> None:
    kind, type_ = data.draw(st.sampled_from(DOCUMENTS))
    raw = json.loads(encode(data.draw(strategies.for_type(type_))))
    notices: list[Notice] = []
    assert Compat("wide", notices.append).upgrade_document(raw, kind) is raw
    assert notices == []


NAMES = st.sampled_from(
    (
        *("type", "id", "messageId", "message_id", "role", "content", "metadata", "outcome", "interrupt", "interrupts"),
        *("resume", "messages", "input", "stepId", "activityId", "state", "mimeType", "data", "url", "timestamp"),
        *("value", "reason", "payload", "encryptedContent"),
    )
)
WORDS = st.sampled_from(
    (
        *("RUN_STARTED", "RUN_FINISHED", "THINKING_START", "THINKING_TEXT_MESSAGE_END", "META", "MESSAGES_SNAPSHOT"),
        *("STEP_STARTED", "STEP_FINISHED", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_START"),
        *("binary", "Text", "user", "interrupt", "success", ""),
    )
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(NAMES, ANYTHING, max_size=6), max_size=4))
@settings(max_examples=250, deadline=None)
def test_whatever_arrives_no_rule_changes_its_input_or_fails_otherwise(raws: list[dict[str, Any]]) -> None:
    compat = Compat("wide", [].append)
    for raw in raws:
        before = json.dumps(raw)
        with suppress(DecodeError):
            for event in compat.upgrade(raw):
                assert isinstance(event, dict)
        with suppress(DecodeError):
            compat.upgrade_document(raw, "RunAgentInput")
        assert json.dumps(raw) == before
