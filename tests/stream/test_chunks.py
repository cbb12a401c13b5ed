"""Chunk expansion: lanes, conflicts, closings, and what a chunk's own members end up on (CHK)."""

import pytest
from builders import RUN_FINISHED

from aguila.errors import SequenceError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    CustomEvent,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.protocol import TextMessageChunkEvent as Text
from aguila.protocol import ToolCallChunkEvent as Tool
from aguila.stream.chunks import ChunkExpander, expand_chunks

START = TextMessageStartEvent(message_id="m", role="assistant")
END = TextMessageEndEvent(message_id="m")


def expand(*events):
    return list(expand_chunks(events))


def rejection(*events):
    """Return the error of the last event; those before it are accepted."""
    expander = ChunkExpander()
    for event in events[:-1]:
        expander.feed(event)
    with pytest.raises(SequenceError) as caught:
        expander.feed(events[-1])
    assert caught.value.index == len(events) - 1
    assert caught.value.event is events[-1]
    return caught.value


def text_content(message_id, delta):
    return TextMessageContentEvent(message_id=message_id, delta=delta)


# What a chunk becomes


def test_a_stream_without_chunks_passes_untouched():
    events = [START, text_content("m", "a"), END, CustomEvent(name="n", value=1)]
    assert expand(*events) == events


def test_the_first_text_chunk_opens_and_later_ones_may_say_nothing_but_text():
    assert expand(Text(message_id="m", delta="a"), Text(delta="b")) == [
        START,
        text_content("m", "a"),
        text_content("m", "b"),
    ]


def test_a_tool_chunk_opens_a_call_on_its_parent():
    assert expand(Tool(tool_call_id="c", tool_call_name="f", parent_message_id="m", delta="{")) == [
        ToolCallStartEvent(tool_call_id="c", tool_call_name="f", parent_message_id="m"),
        ToolCallArgsEvent(tool_call_id="c", delta="{"),
    ]


def test_a_reasoning_chunk_opens_a_reasoning_message_with_its_fixed_role():
    events = expand(ReasoningMessageChunkEvent(message_id="r", delta="hm"))
    assert events == [
        ReasoningMessageStartEvent(message_id="r", role="reasoning"),
        ReasoningMessageContentEvent(message_id="r", delta="hm"),
    ]


def test_role_and_name_of_the_opener_are_kept():
    assert expand(Text(message_id="m", role="user", name="Ann")) == [
        TextMessageStartEvent(message_id="m", role="user", name="Ann")
    ]


def test_an_opener_without_delta_is_only_a_start():
    assert expand(Text(message_id="m")) == [START]


def test_an_empty_delta_is_a_delta():
    assert expand(Text(message_id="m", delta="")) == [START, text_content("m", "")]


def test_an_empty_id_is_an_id():
    assert expand(Text(message_id="", delta="a"), Text(message_id="", delta="b"))[1:] == [
        text_content("", "a"),
        text_content("", "b"),
    ]


def test_metadata_is_on_start_and_content_and_never_on_the_end_of_the_item_before_CHK_10():
    events = expand(Text(message_id="m"), Text(message_id="n", delta="x", metadata={"k": None}))
    assert events == [
        START,
        END,
        TextMessageStartEvent(message_id="n", role="assistant", metadata={"k": None}),
        TextMessageContentEvent(message_id="n", delta="x", metadata={"k": None}),
    ]


def test_a_continuation_with_only_metadata_reaches_the_item_on_an_empty_delta_CHK_10():
    assert expand(Text(message_id="m"), Text(metadata={"finish": "stop"})) == [
        START,
        TextMessageContentEvent(message_id="m", delta="", metadata={"finish": "stop"}),
    ]


def test_a_continuation_with_nothing_becomes_nothing():
    assert expand(Text(message_id="m"), Text(), Text(message_id="m", role="assistant")) == [START]


@pytest.mark.parametrize("first", [True, False])
def test_the_raw_event_rides_on_the_content_only_and_makes_one_if_need_be(first):
    chunks = [Text(message_id="m", raw_event={"x": 1})] if first else [Text(message_id="m"), Text(raw_event={"x": 1})]
    assert expand(*chunks) == [START, TextMessageContentEvent(message_id="m", delta="", raw_event={"x": 1})]


def test_the_timestamp_of_a_chunk_is_kept_and_the_end_it_causes_has_none():
    events = expand(Text(message_id="m", delta="a", timestamp=1), Text(message_id="n", delta="b", timestamp=2))
    assert [(e.type.value.rsplit("_", 1)[1], e.timestamp) for e in events] == [
        ("START", 1), ("CONTENT", 1), ("END", None), ("START", 2), ("CONTENT", 2),
    ]  # fmt: skip


def test_the_end_of_the_stream_invents_no_end():
    expander = ChunkExpander()
    expander.feed(Text(message_id="m", delta="a"))
    assert expander.close() == []
    assert expander.feed(CustomEvent(name="n", value=1)) == (CustomEvent(name="n", value=1),)


# Fields of the first chunk, and repeated fields


@pytest.mark.parametrize(
    ("chunk", "missing"),
    [
        (Text(delta="a"), "messageId"),
        (Text(delta="a", subagent_run_id="s"), "messageId"),
        (ReasoningMessageChunkEvent(delta="a"), "messageId"),
        (Tool(delta="a"), "toolCallId and toolCallName"),
        (Tool(tool_call_id="c", delta="a"), "toolCallName"),
        (Tool(tool_call_name="f", delta="a"), "toolCallId"),
    ],
)
def test_a_first_chunk_without_its_id_or_name_is_refused_CHK_3(chunk, missing):
    error = rejection(chunk)
    assert error.rule == "CHK-3"
    assert missing in error.message


def test_a_chunk_of_another_kind_does_not_continue_and_so_must_name_its_item_CHK_3():
    assert rejection(Text(message_id="m"), ReasoningMessageChunkEvent(delta="a")).rule == "CHK-3"


def test_a_refused_chunk_leaves_the_open_item_open():
    expander = ChunkExpander()
    expander.feed(Text(message_id="m"))
    with pytest.raises(SequenceError):
        expander.feed(Tool(tool_call_id="c"))
    assert expander.feed(Text(delta="a")) == (text_content("m", "a"),)


def test_repeating_what_the_opener_said_is_fine_CHK_5():
    events = expand(
        Text(message_id="m", role="user", name="Ann"), Text(message_id="m", role="user", name="Ann", delta="a")
    )
    assert events[1:] == [text_content("m", "a")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Text(message_id="m", role="user"), Text(role="assistant")),
        (Text(message_id="m"), Text(role="user")),
        (Text(message_id="m", name="Ann"), Text(name="Bob")),
        (Text(message_id="m"), Text(name="Bob")),
        (Tool(tool_call_id="c", tool_call_name="f"), Tool(tool_call_name="g")),
        (Tool(tool_call_id="c", tool_call_name="f", parent_message_id="m"), Tool(parent_message_id="n")),
        (Tool(tool_call_id="c", tool_call_name="f"), Tool(parent_message_id="n")),
    ],
)
def test_a_repeat_that_contradicts_the_opener_is_refused_also_where_the_opener_had_none_CHK_5(first, second):
    assert rejection(first, second).rule == "CHK-5"


def test_a_role_left_out_by_the_opener_may_be_said_as_what_it_means_CHK_5():
    assert expand(Text(message_id="m"), Text(role="assistant", delta="a")) == [START, text_content("m", "a")]


# Lanes


def test_another_id_closes_the_item_of_the_lane_and_opens_a_new_one_CHK_4():
    assert expand(Text(message_id="m"), Text(message_id="n")) == [
        START,
        END,
        TextMessageStartEvent(message_id="n", role="assistant"),
    ]


def test_a_chunk_of_another_kind_closes_the_item_of_the_lane_CHK_6():
    assert expand(Text(message_id="m"), Tool(tool_call_id="c", tool_call_name="f"))[1] == END


def test_subagents_have_lanes_of_their_own_and_the_empty_id_is_one_of_them_CHK_6():
    lanes = [None, "", "s"]
    opened = [Text(message_id=f"m-{lane}", subagent_run_id=lane) for lane in lanes]
    more = [Text(delta="x", subagent_run_id=lane) for lane in ("", "s")]
    assert expand(*opened, *more, Text(delta="x"))[3:] == [
        TextMessageContentEvent(message_id="m-", delta="x", subagent_run_id=""),
        TextMessageContentEvent(message_id="m-s", delta="x", subagent_run_id="s"),
        text_content("m-None", "x"),
    ]


def test_a_named_id_is_continued_where_it_is_open_with_the_opener_s_tag_CHK_8():
    events = expand(Text(message_id="m", subagent_run_id="s"), Text(message_id="n"), Text(message_id="m", delta="x"))
    assert events[-1] == TextMessageContentEvent(message_id="m", delta="x", subagent_run_id="s")


@pytest.mark.parametrize("owner", [None, "t", ""])
def test_a_tag_that_disagrees_with_the_lane_of_the_named_id_is_refused_CHK_8(owner):
    assert (
        rejection(Text(message_id="m", subagent_run_id=owner), Text(message_id="m", subagent_run_id="s")).rule
        == "CHK-8"
    )


def test_without_id_and_tag_the_parent_s_item_is_meant_before_any_other_CHK_8():
    events = expand(Text(message_id="a", subagent_run_id="s"), Text(message_id="b"), Text(delta="x"))
    assert events[-1] == text_content("b", "x")


def test_without_id_and_tag_the_only_open_item_of_the_kind_is_meant_CHK_8():
    events = expand(
        Text(message_id="a", subagent_run_id="s"),
        Tool(tool_call_id="c", tool_call_name="f", subagent_run_id="t"),
        Tool(tool_call_id="d", tool_call_name="f"),
        Text(delta="x"),
    )
    assert events[-1] == TextMessageContentEvent(message_id="a", delta="x", subagent_run_id="s")


def test_without_id_and_tag_several_candidates_are_ambiguous_CHK_8():
    error = rejection(
        Text(message_id="a", subagent_run_id="s"), Text(message_id="b", subagent_run_id="t"), Text(delta="x")
    )
    assert error.rule == "CHK-8"
    assert "'s'" in error.message
    assert "'t'" in error.message


def test_interleaving_two_ids_in_one_lane_closes_and_reopens_each_time():
    kinds = [e.type.value for e in expand(*(Text(message_id=i, delta="x") for i in "abab"))]
    assert kinds.count("TEXT_MESSAGE_START") == 4
    assert kinds.count("TEXT_MESSAGE_END") == 3


# What ends an item (CHK-7)

OWN_LANE = [
    TextMessageStartEvent(message_id="x"),
    TextMessageContentEvent(message_id="x", delta=""),
    TextMessageEndEvent(message_id="x"),
    ToolCallStartEvent(tool_call_id="x", tool_call_name="f"),
    ToolCallArgsEvent(tool_call_id="x", delta=""),
    ToolCallEndEvent(tool_call_id="x"),
    ToolCallResultEvent(message_id="x", tool_call_id="x", content=""),
    ReasoningStartEvent(message_id="x"),
    ReasoningEndEvent(message_id="x"),
    ReasoningMessageStartEvent(message_id="x"),
    ReasoningMessageContentEvent(message_id="x", delta=""),
    ReasoningMessageEndEvent(message_id="x"),
    StepStartedEvent(step_name="x"),
    StepFinishedEvent(step_name="x"),
    StateSnapshotEvent(snapshot=None),
    StateDeltaEvent(delta=[]),
    CustomEvent(name="x", value=None),
]
EVERY_LANE = [
    RunStartedEvent(thread_id="t", run_id="r"),
    RUN_FINISHED,
    RunErrorEvent(message="x"),
    MessagesSnapshotEvent(messages=[]),
]
NO_LANE = [
    RawEvent(event=1),
    ActivitySnapshotEvent(message_id="x", activity_type="t", content={}),
    ActivityDeltaEvent(message_id="x", activity_type="t", patch=[]),
    ReasoningEncryptedValueEvent(subtype="message", entity_id="x", encrypted_value="v"),
    SubagentStartedEvent(subagent_run_id="s", name="n"),
]
TWO_LANES = [Text(message_id="m"), Text(message_id="n", subagent_run_id="s")]
END_OF_S = TextMessageEndEvent(message_id="n", subagent_run_id="s")


def by_type(event):
    return event.type.value


@pytest.mark.parametrize("event", OWN_LANE, ids=by_type)
def test_an_event_of_the_lane_ends_its_item_and_no_other_CHK_7(event):
    assert expand(*TWO_LANES, event)[2:] == [END, event]


@pytest.mark.parametrize("event", EVERY_LANE, ids=by_type)
def test_the_boundaries_of_a_run_and_a_snapshot_end_every_item_in_opening_order_CHK_7(event):
    assert expand(*TWO_LANES, event)[2:] == [END, END_OF_S, event]


def test_a_lane_that_was_reopened_counts_as_opened_last_CHK_7():
    again = TextMessageEndEvent(message_id="m2")
    assert expand(*TWO_LANES, Text(message_id="m2"), EVERY_LANE[0])[-3:] == [END_OF_S, again, EVERY_LANE[0]]


@pytest.mark.parametrize("event", NO_LANE, ids=by_type)
def test_passthrough_activities_and_announcements_end_nothing_CHK_7(event):
    assert expand(*TWO_LANES, event)[2:] == [event]


@pytest.mark.parametrize(
    "event", [SubagentFinishedEvent(subagent_run_id="s"), SubagentErrorEvent(subagent_run_id="s", message="x")]
)
def test_the_end_of_a_subagent_ends_its_item_first_CHK_9(event):
    assert expand(*TWO_LANES, event)[2:] == [END_OF_S, event]


def test_after_an_ending_event_an_id_reopens_the_item_and_no_id_is_refused_CHK_2():
    custom = CustomEvent(name="x", value=None)
    assert expand(Text(message_id="m"), custom, Text(message_id="m", delta="a"))[-2:] == [START, text_content("m", "a")]
    assert rejection(Text(message_id="m"), custom, Text(delta="a")).rule == "CHK-3"


def test_a_tool_call_is_reopened_only_with_its_name():
    custom = CustomEvent(name="x", value=None)
    first = Tool(tool_call_id="c", tool_call_name="f")
    assert rejection(first, custom, Tool(tool_call_id="c", delta="a")).rule == "CHK-3"


def test_an_error_names_fields_as_the_wire_does_CHK_5():
    error = rejection(Tool(tool_call_id="c", tool_call_name="f"), Tool(parent_message_id="n"))
    assert "parentMessageId 'n'" in error.message


def test_an_error_names_a_few_of_many_lanes_CHK_8():
    opened = [Text(message_id=f"m{i}", subagent_run_id=f"s{i}") for i in range(100)]
    error = rejection(*opened, Text(delta="a"))
    assert (error.rule, "'s4' and 95 more" in error.message) == ("CHK-8", True)


def test_an_item_of_the_agent_itself_is_continued_without_a_tag_CHK_8():
    assert "omit its tag" in rejection(Text(message_id="m"), Text(message_id="m", subagent_run_id="s")).message


class Compared(str):
    """An id that counts how often it is compared."""

    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Compared.count += 1
        return str.__eq__(self, other)


def test_finding_a_lane_takes_no_longer_where_many_are_open():
    Compared.count = 0
    lanes = 500
    chunks = [Text(message_id=Compared(f"m{i}"), subagent_run_id=f"s{i}") for i in range(lanes)]
    chunks += [Text(message_id=Compared(f"m{i}"), delta="x") for i in range(lanes)]
    assert [event.subagent_run_id for event in expand(*chunks)] == [f"s{i}" for i in range(lanes)] * 2
    assert Compared.count < 20 * lanes


@pytest.mark.parametrize(
    "event",
    [
        Text(message_id="m", delta="a"),
        Text(message_id="other", delta="a"),
        Text(message_id="new", subagent_run_id="new"),
        Tool(tool_call_id="c", tool_call_name="f", subagent_run_id="s"),
        CustomEvent(name="x", value=None),
        CustomEvent(name="x", value=None, subagent_run_id="elsewhere"),
        RawEvent(event=1),
        RUN_FINISHED,
    ],
)
@pytest.mark.parametrize("before", [[], [CustomEvent(name="x", value=None)], [RawEvent(event=1)]])
def test_an_event_that_is_taken_back_was_never_there(event, before):
    fresh, expander = ChunkExpander(), ChunkExpander()
    for earlier in (*TWO_LANES, Text(message_id="third", subagent_run_id="t"), *before):
        assert fresh.feed(earlier) == expander.feed(earlier)
    saved = expander.save()
    expander.feed(event)
    expander.restore(saved)
    for later in (Text(message_id="third", delta="x"), Tool(tool_call_id="c", tool_call_name="f"), RUN_FINISHED):
        assert fresh.feed(later) == expander.feed(later)
    assert not expander.lanes
