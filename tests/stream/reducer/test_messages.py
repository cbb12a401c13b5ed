"""What text, reasoning, tool-call and encrypted-value events do to messages."""

import pytest
from builders import text_message, tool_call, tool_result

from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    FunctionCall,
    MessagesSnapshotEvent,
    ReasoningEncryptedValueEvent,
    ReasoningMessage,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    SystemMessage,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
)
from aguila.stream.reducer import Reducer, reduce
from aguila.stream.reducer.message_builder import join_deltas


class Notices(list):
    def __call__(self, notice):
        self.append(notice)

    @property
    def rules(self):
        return [notice.rule for notice in self]


@pytest.fixture
def notices():
    return Notices()


def call_in_message(id, name="f", arguments="", **fields):
    return ToolCall(id=id, function=FunctionCall(name=name, arguments=arguments), **fields)


# text (TXT)


def test_a_text_message_is_its_deltas_joined_in_order():
    assert reduce(text_message("m", "Hel", "", "lo")).messages == [AssistantMessage(id="m", content="Hello")]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({}, AssistantMessage(id="m", content="x")),
        ({"role": "user", "name": "Ann"}, UserMessage(id="m", content="x", name="Ann")),
        ({"role": "system"}, SystemMessage(id="m", content="x")),
        ({"subagent_run_id": ""}, AssistantMessage(id="m", content="x", subagent_run_id="")),
    ],
)
def test_the_start_says_role_name_and_owner_txt_2(start, message):
    assert reduce(text_message("m", "x", **start)).messages == [message]


def test_a_message_without_content_is_the_empty_string_str_4():
    assert reduce(text_message("m")).messages == [AssistantMessage(id="m", content="")]


def test_reopening_a_message_appends_and_established_fields_stand_txt_3():
    stream = [
        *text_message("m", "a", role="user", name="Ann"),
        *text_message("n"),
        *text_message("m", "b", role="assistant", name="Bob"),
    ]
    assert reduce(stream).messages[0] == UserMessage(id="m", content="ab", name="Ann")


def test_interleaved_messages_keep_the_order_of_their_starts_str_5():
    stream = [
        TextMessageStartEvent(message_id="a"),
        TextMessageStartEvent(message_id="b"),
        TextMessageContentEvent(message_id="b", delta="2"),
        TextMessageContentEvent(message_id="a", delta="1"),
    ]
    assert [(m.id, m.content) for m in reduce(stream).messages] == [("a", "1"), ("b", "2")]


def test_text_for_a_message_of_parts_goes_into_its_last_text_part_txt_3():
    held = UserMessage(id="m", content=[TextPart(text="a", id="p")])
    assert reduce(text_message("m", "b", "c"), messages=[held]).messages[0].content == [TextPart(text="abc", id="p")]
    assert reduce(text_message("m", "b"), messages=[UserMessage(id="m", content=[])]).messages[0].content == [
        TextPart(text="b")
    ]
    assert reduce(text_message("m", ""), messages=[UserMessage(id="m", content=[])]).messages[0].content == []


def test_text_for_a_message_that_only_made_calls_gives_it_content():
    stream = [*tool_call("c", parent_message_id="m"), TextMessageStartEvent(message_id="m")]
    assert reduce(stream).messages[0].content is None
    assert reduce([*stream, TextMessageContentEvent(message_id="m", delta="")]).messages[0].content == ""


def test_text_for_an_activity_is_ignored_with_a_notice(notices):
    held = ActivityMessage(id="m", activity_type="plan", content={})
    stream = text_message("m", "x", metadata={"k": 1})
    assert reduce(stream, messages=[held], warn=notices).messages == [held]
    assert notices.rules == ["TXT-3"] * 3


def test_text_for_a_message_that_a_snapshot_dropped_is_noticed_and_lost(notices):
    start, content, end = text_message("m", "x")
    conversation = reduce([start, MessagesSnapshotEvent(messages=[]), content, end], warn=notices)
    assert conversation.messages == []
    assert notices.rules == ["STR-2", "STR-2"]


# surrogate halves


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        (["\ud83d", "\ude42"], "🙂"),
        (["a\ud83d", "", "\ude42b"], "a🙂b"),
        (["\ud83d", "x", "\ude42"], "\ud83dx\ude42"),
        (["\ude42", "\ud83d"], "\ude42\ud83d"),
        (["\ufeffä", "\ud83d\ude42"], "\ufeffä🙂"),
    ],
)
def test_halves_of_a_character_that_meet_become_it(deltas, expected):
    assert reduce(text_message("m", *deltas)).messages[0].content == expected
    assert reduce(tool_call("c", *deltas)).messages[0].tool_calls[0].function.arguments == expected
    assert join_deltas("", deltas) == expected


def test_surrogate_halves_are_joined_also_if_the_message_was_read_in_between():
    reducer = Reducer()
    for event in text_message("m", "é\ud83d", "\ude42"):
        reducer.feed(event)
        seen = reducer.conversation
    assert seen.messages[0].content == "é🙂"


# chunks


@pytest.mark.parametrize(
    "chunk",
    [
        TextMessageChunkEvent(message_id="m", delta="x"),
        ToolCallChunkEvent(tool_call_id="c", tool_call_name="f"),
        ReasoningMessageChunkEvent(message_id="m"),
    ],
)
def test_a_reducer_refuses_a_chunk_and_reduce_expands_it_chk_1(chunk):
    with pytest.raises(TypeError, match="CHK-1"):
        Reducer().feed(chunk)
    assert len(reduce([chunk]).messages) == 1


# reasoning (RSN)


def test_reasoning_messages_grow_like_text_rsn():
    stream = [
        ReasoningMessageStartEvent(message_id="r", subagent_run_id="s", metadata={"a": 1}),
        ReasoningMessageContentEvent(message_id="r", delta="hm", metadata={"b": 2}),
        ReasoningMessageContentEvent(message_id="r", delta="m"),
        ReasoningMessageEndEvent(message_id="r", metadata={"a": 3}),
    ]
    expected = ReasoningMessage(id="r", content="hmm", subagent_run_id="s", metadata={"a": 3, "b": 2})
    assert reduce(stream).messages == [expected]


def test_a_reasoning_message_can_be_reopened():
    chunks = [
        ReasoningMessageChunkEvent(message_id="r", delta="a"),
        ReasoningMessageChunkEvent(message_id="s", delta="b"),
        ReasoningMessageChunkEvent(message_id="r", delta="c"),
    ]
    assert [m.content for m in reduce(chunks).messages] == ["ac", "b"]


# metadata (META)


def test_metadata_merges_shallowly_and_the_last_write_wins_meta_4():
    stream = [
        TextMessageStartEvent(message_id="m", metadata={"a": {"x": 1}, "b": 1}),
        TextMessageContentEvent(message_id="m", delta="", metadata={"a": {"y": 2}, "c": None}),
        TextMessageEndEvent(message_id="m", metadata={"b": [2]}),
    ]
    assert reduce(stream).messages[0].metadata == {"a": {"y": 2}, "b": [2], "c": None}


def test_metadata_of_a_call_is_the_calls_and_not_its_messages_meta_5():
    stream = [
        ToolCallStartEvent(tool_call_id="c", tool_call_name="f", metadata={"a": 1}),
        ToolCallArgsEvent(tool_call_id="c", delta="{}", metadata={"b": 2}),
        ToolCallEndEvent(tool_call_id="c", metadata={"a": 3}),
        tool_result("c", "t", "done", metadata={"d": 4}),
    ]
    host, result = reduce(stream).messages
    assert (host.metadata, host.tool_calls[0].metadata, result.metadata) == (None, {"a": 3, "b": 2}, {"d": 4})


def test_the_metadata_of_an_event_is_never_changed():
    first, second = {"a": 1}, {"a": 2}
    reduce(
        [TextMessageStartEvent(message_id="m", metadata=first), TextMessageEndEvent(message_id="m", metadata=second)]
    )
    reduce(
        [
            *text_message("m"),
            TextMessageEndEvent(message_id="m", metadata=first),
            TextMessageEndEvent(message_id="m", metadata=second),
        ]
    )
    assert (first, second) == ({"a": 1}, {"a": 2})


# tool calls (TOOL)


def test_a_call_joins_the_assistant_message_it_names_tool():
    stream = [*text_message("m", "look", subagent_run_id="s"), *tool_call("c", '{"q"', ":1}", parent_message_id="m")]
    expected = AssistantMessage(
        id="m", content="look", subagent_run_id="s", tool_calls=[call_in_message("c", arguments='{"q":1}')]
    )
    assert reduce(stream).messages == [expected]


@pytest.mark.parametrize("parent", [None, ""])
def test_a_call_without_a_parent_gets_a_message_of_its_own_id(parent):
    stream = tool_call("c", parent_message_id=parent, subagent_run_id="s")
    expected = AssistantMessage(id="c", subagent_run_id="s", tool_calls=[call_in_message("c")])
    assert reduce(stream).messages == [expected]


def test_a_call_with_an_unknown_parent_creates_it_and_others_join():
    stream = [*tool_call("c", parent_message_id="m"), *tool_call("d", parent_message_id="m")]
    assert reduce(stream).messages == [
        AssistantMessage(id="m", tool_calls=[call_in_message("c"), call_in_message("d")])
    ]


def test_a_call_of_a_parent_that_makes_no_calls_gets_its_own_message(notices):
    conversation = reduce([*text_message("m", role="user"), *tool_call("c", parent_message_id="m")], warn=notices)
    assert [m.id for m in conversation.messages] == ["m", "c"]
    assert notices.rules == ["TOOL-2"]


def test_a_call_that_shares_its_id_with_an_assistant_message_joins_it():
    assert reduce([*text_message("x", "hi"), *tool_call("x")]).messages == [
        AssistantMessage(id="x", content="hi", tool_calls=[call_in_message("x")])
    ]


def test_a_call_that_shares_its_id_with_another_message_stands_beside_it(notices):
    conversation = reduce([*text_message("x", "hi", role="user"), *tool_call("x", "{}")], warn=notices)
    assert conversation.messages == [
        UserMessage(id="x", content="hi"),
        AssistantMessage(id="x", tool_calls=[call_in_message("x", arguments="{}")]),
    ]
    assert notices.rules == ["ENV-12"]


def test_starting_a_call_again_keeps_one_call_and_appends_tool_4(notices):
    conversation = reduce([*tool_call("c", "a"), *tool_call("c", "b", metadata={"k": 1})], warn=notices)
    assert conversation.messages[0].tool_calls == [call_in_message("c", arguments="ab", metadata={"k": 1})]
    assert notices == []


def test_starting_a_call_again_under_another_name_renames_it_with_a_notice_tool_4(notices):
    conversation = reduce([*tool_call("c", "a"), *tool_call("c", name="find")], warn=notices)
    assert conversation.messages[0].tool_calls == [call_in_message("c", name="find", arguments="a")]
    assert notices.rules == ["TOOL-4"]


def test_a_call_of_the_history_can_go_on():
    held = AssistantMessage(id="m", tool_calls=[call_in_message("c", arguments="{"), call_in_message("d")])
    conversation = reduce(tool_call("c", "}"), messages=[held])
    assert conversation.messages == [
        AssistantMessage(id="m", tool_calls=[call_in_message("c", arguments="{}"), call_in_message("d")])
    ]


def test_arguments_for_a_call_that_is_gone_are_noticed(notices):
    start, args, end = tool_call("c", "x")
    conversation = reduce([start, MessagesSnapshotEvent(messages=[]), args, end], warn=notices)
    assert conversation.messages == []
    assert notices.rules == ["STR-2", "STR-2"]


def test_an_answer_stands_after_its_call_and_the_answers_already_there_tool_5():
    stream = [
        *tool_call("c", parent_message_id="m"),
        *tool_call("d", parent_message_id="m"),
        *text_message("n"),
        tool_result("c", "t1", "done"),
        tool_result("d", "t2", "done"),
    ]
    assert [m.id for m in reduce(stream).messages] == ["m", "t1", "t2", "n"]


def test_an_answer_to_no_call_is_appended_tool_5():
    parts = [TextPart(text="x")]
    stream = [*text_message("m"), tool_result("c", "t", parts, subagent_run_id="s")]
    assert reduce(stream).messages[1] == ToolMessage(id="t", tool_call_id="c", content=parts, subagent_run_id="s")


def test_answers_follow_answers_that_came_by_themselves():
    stream = [
        *tool_call("c"),
        tool_result("unknown", "t0", "done"),
        tool_result("c", "t1", "done"),
        *text_message("m"),
        tool_result("c", "t2", "done"),
    ]
    assert [m.id for m in reduce(stream).messages] == ["c", "t0", "t1", "t2", "m"]


def test_an_answer_delivered_again_replaces_the_first_in_its_place():
    stream = [
        *tool_call("c"),
        tool_result("c", "t", "one", metadata={"a": 1}),
        *text_message("m"),
        tool_result("c", "t", "two", metadata={"b": 2}, subagent_run_id="s"),
    ]
    messages = reduce(stream).messages
    assert [m.id for m in messages] == ["c", "t", "m"]
    expected = ToolMessage(id="t", tool_call_id="c", content="two", metadata={"a": 1, "b": 2}, subagent_run_id="s")
    assert messages[1] == expected


def test_an_answer_that_shares_its_id_with_another_message_replaces_nothing_env_12(notices):
    stream = [
        *text_message("m", "hi"),
        *tool_call("c", parent_message_id="m"),
        tool_result("c", "m", "one"),
        tool_result("c", "m", "two"),
        *text_message("m", "!"),
    ]
    conversation = reduce(stream, warn=notices)
    assert conversation.messages == [
        AssistantMessage(id="m", content="hi!", tool_calls=[call_in_message("c")]),
        ToolMessage(id="m", tool_call_id="c", content="two"),
    ]
    assert notices.rules == ["ENV-12"]


def test_ten_thousand_answers_find_their_calls():
    count = 10_000
    stream = [event for i in range(count) for event in tool_call(f"c{i}")]
    stream += [tool_result(f"c{i}", f"t{i}", "done") for i in range(count)]
    ids = [m.id for m in reduce(stream).messages]
    assert ids == [id for i in range(count) for id in (f"c{i}", f"t{i}")]


# encrypted values (ENC)


def seal(subtype, id, value="v", type=None):
    return ReasoningEncryptedValueEvent(
        subtype=subtype, entity_id=id, encrypted_value=value, encrypted_value_type=type, metadata={"lost": 1}
    )


def test_an_encrypted_value_is_kept_with_its_message_or_call_enc_1():
    stream = [
        *text_message("x", "hi"),
        *tool_call("c", parent_message_id="x"),
        seal("message", "x", "m", "vendor.a"),
        seal("tool-call", "c", "t"),
    ]
    (message,) = reduce(stream).messages
    assert (message.encrypted_value, message.encrypted_value_type) == ("m", "vendor.a")
    assert message.tool_calls == [call_in_message("c", encrypted_value="t")]
    assert message.metadata is None


def test_a_new_value_without_a_type_removes_the_old_type_enc_5():
    stream = [*text_message("x"), *tool_call("c", parent_message_id="x")]
    for subtype, id in (("message", "x"), ("tool-call", "c")):
        stream += [seal(subtype, id, "1", "vendor.a"), seal(subtype, id, "2")]
    (message,) = reduce(stream).messages
    for sealed in (message, message.tool_calls[0]):
        assert (sealed.encrypted_value, sealed.encrypted_value_type) == ("2", None)


@pytest.mark.parametrize(("subtype", "id"), [("message", "nobody"), ("message", "act"), ("tool-call", "x")])
def test_a_value_that_nothing_can_hold_is_noticed_enc_9(notices, subtype, id):
    held = [ActivityMessage(id="act", activity_type="plan", content={}), UserMessage(id="x", content="")]
    assert reduce([seal(subtype, id)], messages=held, warn=notices).messages == held
    assert notices.rules == ["ENC-9"]
    assert notices[0].path == "/entityId"
