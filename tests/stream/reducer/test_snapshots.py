"""What snapshots, patches and activities do."""

import pytest
from builders import messages_snapshot, user

from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    FunctionCall,
    ReasoningMessage,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
)
from aguila.stream.reducer import Reducer, reduce


class Notices(list):
    def __call__(self, notice):
        self.append(notice)

    @property
    def rules(self):
        return [notice.rule for notice in self]


@pytest.fixture
def notices():
    return Notices()


def activity(id, type="plan", **fields):
    return ActivityMessage(id=id, activity_type=type, content={"n": 1}, **fields)


def thought(id, content="hm"):
    return ReasoningMessage(id=id, content=content)


# state (STATE, SNAP)


def test_the_state_is_an_empty_object_until_it_is_set_snap_4():
    assert reduce([]).state == {}
    assert reduce([], state=None).state is None


@pytest.mark.parametrize("value", [None, 0, "", False, [], {"a": None}])
def test_a_state_snapshot_replaces_whatever_it_is_state_1(value):
    conversation = reduce([StateSnapshotEvent(snapshot=value)], state={"old": 1})
    assert conversation.state == value
    assert type(conversation.state) is type(value)


def test_a_state_delta_changes_the_state_and_no_view_of_it_snap_3():
    reducer = Reducer(state={"a": [1], "b": {}})
    before = reducer.conversation.state
    reducer.feed(StateDeltaEvent(delta=[{"op": "add", "path": "/a/-", "value": 2}], subagent_run_id="s"))
    assert before == {"a": [1], "b": {}}
    assert reducer.state == {"a": [1, 2], "b": {}}
    assert reducer.state["b"] is before["b"]


def test_a_delta_that_fails_half_way_changes_nothing_and_is_noticed_snap_9(notices):
    delta = [{"op": "add", "path": "/a", "value": 1}, {"op": "test", "path": "/a", "value": True}]
    stream = [StateDeltaEvent(delta=delta), StateDeltaEvent(delta=[{"op": "add", "path": "/b", "value": 2}])]
    assert reduce(stream, warn=notices).state == {"b": 2}
    assert notices.rules == ["SNAP-9"]
    assert notices[0].event_type == "STATE_DELTA"


# MESSAGES_SNAPSHOT (MSGS)


def test_a_snapshot_replaces_in_place_drops_and_appends_msgs_1():
    held = [user("a", "old"), user("b", "old"), user("c", "old")]
    stream = [messages_snapshot(user("d", "new"), user("c", "new"), user("a", "new"))]
    assert reduce(stream, messages=held).messages == [user("a", "new"), user("c", "new"), user("d", "new")]


def test_a_snapshot_replaces_a_message_whole_enc_3():
    held = UserMessage(id="a", content="x", metadata={"k": 1}, encrypted_value="v")
    assert reduce([messages_snapshot(user("a", "y"), metadata={"lost": 1})], messages=[held]).messages == [
        user("a", "y")
    ]


def test_reasoning_and_activities_outlive_a_snapshot_that_has_none_msgs_2():
    held = [user("a", "old"), thought("r"), activity("p")]
    assert reduce([messages_snapshot()], messages=held).messages == [thought("r"), activity("p")]


@pytest.mark.parametrize(
    ("restated", "left"),
    [(thought("r2"), ["p", "r2"]), (activity("p2"), ["r", "p2"])],
)
def test_a_snapshot_with_one_of_them_covers_all_of_its_kind_msgs_3(restated, left):
    conversation = reduce([messages_snapshot(restated)], messages=[thought("r"), activity("p")])
    assert [m.id for m in conversation.messages] == left


@pytest.mark.parametrize(
    ("scope", "left"),
    [
        ({}, ["plan", "chart"]),
        ({"authoritativeActivityTypes": None}, []),
        ({"authoritativeActivityTypes": ["plan"]}, ["chart"]),
        ({"authoritativeActivityTypes": []}, ["plan", "chart"]),
        ({"authoritativeActivityTypes": ["plan", 1]}, ["plan", "chart"]),
        ({"authoritativeActivityTypes": "plan"}, ["plan", "chart"]),
        ("no object", ["plan", "chart"]),
        (None, ["plan", "chart"]),
    ],
)
def test_a_snapshot_may_narrow_the_activities_it_covers(scope, left):
    held = [activity("plan", "plan"), activity("chart", "chart")]
    stream = [messages_snapshot(metadata={"@ag-ui/client": scope})]
    assert [m.id for m in reduce(stream, messages=held).messages] == left


def test_a_scope_that_names_no_type_keeps_activities_even_from_a_snapshot_that_has_some():
    stream = [messages_snapshot(activity("new"), metadata={"@ag-ui/client": {"authoritativeActivityTypes": []}})]
    assert [m.id for m in reduce(stream, messages=[activity("old")]).messages] == ["old", "new"]


def test_of_two_messages_with_one_id_in_a_snapshot_the_later_counts_env_12(notices):
    stream = [messages_snapshot(user("a", "1"), user("b", "old"), user("a", "2"))]
    assert reduce(stream, warn=notices).messages == [user("a", "2"), user("b", "old")]
    assert notices.rules == ["ENV-12"]


def test_a_snapshot_may_change_the_role_of_a_message_in_its_place():
    held = [user("a", "old"), user("b", "old")]
    assert [m.role for m in reduce([messages_snapshot(thought("a"), user("b", "old"))], messages=held).messages] == [
        "reasoning",
        "user",
    ]


def test_messages_that_share_an_id_are_restated_each_by_its_role():
    result = ToolMessage(id="m", tool_call_id="c", content="1")
    assistant = AssistantMessage(id="m", content="a")
    new = [ToolMessage(id="m", tool_call_id="c", content="2"), AssistantMessage(id="m", content="b")]
    assert reduce([messages_snapshot(*new)], messages=[assistant, result]).messages == [new[1], new[0]]


def test_a_restated_message_and_its_calls_can_go_on():
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments="{"))
    stream = [
        messages_snapshot(AssistantMessage(id="m", content="a", tool_calls=[call])),
        TextMessageStartEvent(message_id="m"),
        TextMessageContentEvent(message_id="m", delta="b"),
        ToolCallStartEvent(tool_call_id="c", tool_call_name="f"),
        ToolCallArgsEvent(tool_call_id="c", delta="}"),
        ToolCallResultEvent(message_id="t", tool_call_id="c", content=""),
    ]
    message, result = reduce(stream).messages
    assert (message.content, message.tool_calls[0].function.arguments, result.id) == ("ab", "{}", "t")


def test_a_message_growing_through_a_snapshot_that_does_not_name_it_keeps_its_text():
    reducer = Reducer([thought("r", "")])
    reducer.feed(TextMessageContentEvent(message_id="r", delta="a"))
    reducer.feed(messages_snapshot(user("u", "old")))
    reducer.feed(TextMessageContentEvent(message_id="r", delta="b"))
    assert reducer.conversation.messages == [thought("r", "ab"), user("u", "old")]


# activities (ACT)


def show(id="p", type="plan", content=None, **fields):
    return ActivitySnapshotEvent(
        message_id=id, activity_type=type, content={"n": 1} if content is None else content, **fields
    )


def change(*patch, id="p", type="plan", **fields):
    return ActivityDeltaEvent(message_id=id, activity_type=type, patch=list(patch), **fields)


def test_the_first_snapshot_creates_the_activity_where_it_arrives_act_2():
    stream = [show(subagent_run_id="s", metadata={"k": 1}, replace=False), TextMessageStartEvent(message_id="m")]
    conversation = reduce(stream, messages=[user("a", "old")])
    assert conversation.messages[1] == activity("p", subagent_run_id="s", metadata={"k": 1})
    assert conversation.messages[2].id == "m"


def test_a_later_snapshot_replaces_all_but_metadata_and_place_act_3_act_5():
    stream = [
        show(subagent_run_id="s", metadata={"a": 1, "b": 1}),
        TextMessageStartEvent(message_id="m"),
        show(type="chart", content={"z": 0}, metadata={"b": 2}),
    ]
    message = reduce(stream).messages[0]
    assert message == ActivityMessage(id="p", activity_type="chart", content={"z": 0}, metadata={"a": 1, "b": 2})


def test_replace_false_leaves_an_activity_but_merges_metadata_act_4():
    stream = [show(), show(type="chart", content={}, subagent_run_id="s", metadata={"k": 1}, replace=False)]
    assert reduce(stream).messages == [activity("p", metadata={"k": 1})]


def test_an_activity_takes_the_place_of_another_message_of_its_id_with_a_notice(notices):
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments=""))
    held = [AssistantMessage(id="p", tool_calls=[call], metadata={"lost": 1}), user("u", "old")]
    stream = [show(), ToolCallResultEvent(message_id="t", tool_call_id="c", content="")]
    conversation = reduce(stream, messages=held, warn=notices)
    assert [(m.id, m.role, m.metadata) for m in conversation.messages] == [
        ("p", "activity", None),
        ("u", "user", None),
        ("t", "tool", None),
    ]
    assert notices.rules == ["ENV-12"]


def test_a_call_that_two_messages_make_is_still_made_when_one_becomes_an_activity():
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments=""))
    held = [AssistantMessage(id="p", tool_calls=[call]), AssistantMessage(id="q", tool_calls=[call]), user("u", "old")]
    stream = [show(), ToolCallResultEvent(message_id="t", tool_call_id="c", content="")]
    conversation = reduce(stream, messages=held, warn=lambda _: None)
    assert [m.id for m in conversation.messages] == ["p", "q", "t", "u"]


def test_an_answer_that_became_an_activity_ends_the_row_of_answers():
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments=""))
    held = [AssistantMessage(id="m", tool_calls=[call]), user("u", "old")]
    stream = [
        ToolCallResultEvent(message_id="t1", tool_call_id="c", content=""),
        ToolCallResultEvent(message_id="t2", tool_call_id="c", content=""),
        show(id="t1"),
        ToolCallResultEvent(message_id="t3", tool_call_id="c", content=""),
    ]
    conversation = reduce(stream, messages=held, warn=lambda _: None)
    assert [m.id for m in conversation.messages] == ["m", "t3", "t1", "t2", "u"]


def test_replace_false_on_another_message_changes_nothing_and_is_noticed(notices):
    assert reduce([show(id="u", replace=False)], messages=[user("u", "old")], warn=notices).messages == [
        user("u", "old")
    ]
    assert notices.rules == ["ENV-12"]


def test_a_delta_changes_content_and_type_act_7():
    stream = [show(), change({"op": "replace", "path": "/n", "value": 2}, type="chart", metadata={"k": 1})]
    (message,) = reduce(stream).messages
    assert message == ActivityMessage(id="p", activity_type="chart", content={"n": 2}, metadata={"k": 1})


def test_a_delta_that_fails_keeps_content_and_type_but_merges_metadata_act_10(notices):
    stream = [show(), change({"op": "remove", "path": "/x"}, type="chart", metadata={"k": 1})]
    assert reduce(stream, warn=notices).messages == [activity("p", metadata={"k": 1})]
    assert notices.rules == ["SNAP-9"]


def test_a_delta_that_leaves_no_object_fails_act_8(notices):
    assert reduce([show(), change({"op": "replace", "path": "", "value": 1})], warn=notices).messages == [activity("p")]
    assert notices.rules == ["ACT-8"]


@pytest.mark.parametrize("id", ["nobody", "u"])
def test_a_delta_for_what_is_no_activity_is_skipped_with_a_notice_act_9(notices, id):
    stream = [change({"op": "add", "path": "/x", "value": 1}, id=id, metadata={"k": 1})]
    assert reduce(stream, messages=[user("u", "old")], warn=notices).messages == [user("u", "old")]
    assert notices.rules == ["ACT-9"]
