"""Events that compaction joins and keeps, and its losses (the table in its docstring)."""

import pytest
from builders import RUN_FINISHED, RUN_STARTED, user

from aguila.errors import SequenceError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    UserMessage,
    replace,
)
from aguila.stream.compact import compact
from aguila.stream.lineage import Lineage
from aguila.stream.reducer import reduce
from aguila.stream.verification.verifier import verify

OPEN = TextMessageStartEvent(message_id="m")
CLOSE = TextMessageEndEvent(message_id="m")


def text_content(delta, id="m", **fields):
    return TextMessageContentEvent(message_id=id, delta=delta, **fields)


def custom(name="n"):
    return CustomEvent(name=name, value=None)


def add(path, value=1, **fields):
    return StateDeltaEvent(delta=[{"op": "add", "path": path, "value": value}], **fields)


def inside(*events, **kwargs):
    """Return the compacted events of a finished run, without its boundaries."""
    stream = [RUN_STARTED, *events, RUN_FINISHED]
    compacted = compact(stream, **kwargs)
    verify(compacted)
    assert reduce(compacted, warn=lambda _: None) == reduce(stream, warn=lambda _: None)
    assert (compacted[0], compacted[-1]) == (RUN_STARTED, RUN_FINISHED)
    return compacted[1:-1]


# items


def test_a_message_is_a_start_one_content_and_an_end():
    assert inside(OPEN, text_content("Hel"), text_content("l"), text_content("o"), CLOSE) == [
        OPEN,
        text_content("Hello"),
        CLOSE,
    ]


def test_reasoning_and_arguments_are_joined_alike():
    think = [ReasoningMessageContentEvent(message_id="r", delta=d) for d in ("a", "b", "ab")]
    events = [ReasoningMessageStartEvent(message_id="r"), *think[:2], ReasoningMessageEndEvent(message_id="r")]
    assert inside(*events) == [events[0], think[2], events[3]]
    args = [ToolCallArgsEvent(tool_call_id="c", delta=d) for d in ("a", "b", "ab")]
    start = ToolCallStartEvent(tool_call_id="c", tool_call_name="f")
    end = ToolCallEndEvent(tool_call_id="c")
    result = ToolCallResultEvent(message_id="t", tool_call_id="c", content="")
    assert inside(start, *args[:2], end, result) == [start, args[2], end, result]


def test_a_message_without_content_gets_none():
    assert inside(OPEN, CLOSE) == [OPEN, CLOSE]
    assert inside(OPEN, text_content(""), CLOSE) == [OPEN, text_content(""), CLOSE]


def test_halves_of_a_character_are_joined():
    assert inside(OPEN, text_content("\ud83d"), text_content("\ude42"), CLOSE) == [OPEN, text_content("🙂"), CLOSE]


def test_other_events_stay_in_place_between_start_and_end():
    raw = RawEvent(event=1)
    events = inside(custom("0"), OPEN, text_content("a"), custom("1"), text_content("b"), raw, CLOSE, custom("2"))
    assert events == [custom("0"), OPEN, text_content("ab"), custom("1"), raw, CLOSE, custom("2")]


def test_interleaved_messages_are_each_joined():
    other = [TextMessageStartEvent(message_id="n"), TextMessageEndEvent(message_id="n")]
    events = inside(
        OPEN,
        other[0],
        text_content("a"),
        text_content("1", "n"),
        text_content("b"),
        text_content("2", "n"),
        other[1],
        CLOSE,
    )
    assert events == [OPEN, other[0], text_content("ab"), text_content("12", "n"), other[1], CLOSE]


def test_a_message_opened_again_in_the_same_words_is_one_item():
    assert inside(OPEN, text_content("a"), CLOSE, custom(), OPEN, text_content("b"), CLOSE) == [
        OPEN,
        text_content("ab"),
        custom(),
        CLOSE,
    ]


def test_a_call_opened_again_under_another_name_stays_two():
    start = ToolCallStartEvent(tool_call_id="c", tool_call_name="f")
    args, end = ToolCallArgsEvent(tool_call_id="c", delta="x"), ToolCallEndEvent(tool_call_id="c")
    events = [start, args, end, replace(start, tool_call_name="g"), args, end]
    assert inside(*events) == events


def test_chunks_become_start_content_and_end():
    chunk = TextMessageChunkEvent(message_id="m", delta="a")
    assert inside(chunk, chunk) == [replace(OPEN, role="assistant"), text_content("aa"), CLOSE]


def test_a_chunk_that_cannot_be_expanded_is_an_error_chk_3():
    with pytest.raises(SequenceError):
        compact([RUN_STARTED, TextMessageChunkEvent(delta="x")])


# metadata


def test_metadata_goes_onto_the_start_meta_4():
    events = inside(
        replace(OPEN, metadata={"a": 1, "b": 1}),
        text_content("x", metadata={"b": 2}),
        text_content("y", metadata={"c": 3}),
        replace(CLOSE, metadata={"c": 4}),
    )
    assert events == [replace(OPEN, metadata={"a": 1, "b": 2, "c": 4}), text_content("xy"), CLOSE]


def test_after_a_snapshot_metadata_goes_onto_what_follows_it():
    snapshot = MessagesSnapshotEvent(messages=[AssistantMessage(id="m", content="new")])
    events = inside(
        OPEN,
        text_content("a", metadata={"k": 1}),
        text_content("b"),
        snapshot,
        text_content("c"),
        text_content("d", metadata={"k": 2}),
        replace(CLOSE, metadata={"j": 3}),
    )
    assert events == [
        replace(OPEN, metadata={"k": 1}),
        text_content("ab"),
        snapshot,
        text_content("cd", metadata={"k": 2, "j": 3}),
        CLOSE,
    ]


# what separates


def test_a_snapshot_separates_what_came_before_from_what_came_after():
    snapshot = MessagesSnapshotEvent(messages=[AssistantMessage(id="m", content="new")])
    assert inside(OPEN, text_content("a"), snapshot, text_content("b"), CLOSE) == [
        OPEN,
        text_content("a"),
        snapshot,
        text_content("b"),
        CLOSE,
    ]
    again = [OPEN, text_content("a"), CLOSE, snapshot, OPEN, text_content("b"), CLOSE]
    assert inside(*again) == again


def test_text_and_reasoning_of_one_message_stay_in_order():
    think = ReasoningMessageContentEvent(message_id="m", delta="t")
    events = [OPEN, ReasoningMessageStartEvent(message_id="m"), text_content("a"), think, text_content("b"), think]
    events += [CLOSE, ReasoningMessageEndEvent(message_id="m")]
    assert inside(*events) == events


def test_an_activity_that_takes_a_messages_place_separates():
    show = ActivitySnapshotEvent(message_id="m", activity_type="plan", content={})
    events = [OPEN, text_content("a", metadata={"k": 1}), show, text_content("b", metadata={"k": 2}), CLOSE]
    left = inside(*events, warn=lambda _: None)
    assert left == [
        replace(OPEN, metadata={"k": 1}),
        text_content("a"),
        show,
        text_content("b", metadata={"k": 2}),
        CLOSE,
    ]


# unfinished and failed


def test_an_unfinished_item_stays_exactly_as_it_is():
    stream = [
        RUN_STARTED,
        OPEN,
        text_content("a"),
        CLOSE,
        OPEN,
        text_content("b"),
        text_content("c", metadata={"k": 1}),
    ]
    assert compact(stream) == stream


def test_an_unfinished_chunked_item_stays_in_chunks_so_that_it_can_go_on():
    first = TextMessageChunkEvent(message_id="a", delta="1")
    second = TextMessageChunkEvent(message_id="b", delta="2")
    more = TextMessageChunkEvent(delta="3")
    stream = [RUN_STARTED, first, replace(first, message_id=None), second, more]
    compacted = compact(stream)
    assert compacted == [
        RUN_STARTED,
        TextMessageStartEvent(message_id="a", role="assistant"),
        text_content("11", "a"),
        TextMessageEndEvent(message_id="a"),
        second,
        more,
    ]
    assert reduce([*compacted, more]) == reduce([*stream, more])


def test_finished_items_of_an_open_run_are_joined():
    assert compact([RUN_STARTED, OPEN, text_content("a"), text_content("b"), CLOSE]) == [
        RUN_STARTED,
        OPEN,
        text_content("ab"),
        CLOSE,
    ]


@pytest.mark.parametrize("end", [[RunErrorEvent(message="no")], [RUN_FINISHED, RunErrorEvent(message="late")]])
def test_a_failed_run_stays_exactly_as_it_is(end):
    echo = RunAgentInput(thread_id="t", run_id="r", messages=[UserMessage(id="u", content="")])
    first = [replace(RUN_STARTED, input=echo), RUN_FINISHED]
    failed = [
        replace(RUN_STARTED, run_id="r2", input=echo),
        OPEN,
        text_content("a"),
        text_content("b"),
        CLOSE,
        add("/a"),
        add("/b"),
    ]
    failed += [TextMessageChunkEvent(message_id="c", delta="x"), *end]
    assert compact([*first, *failed], state={}) == [*first, *failed]


def test_many_runs_keep_their_boundaries_and_parents():
    stream = []
    for i in range(3):
        stream += [
            replace(RUN_STARTED, run_id=f"r{i}", parent_run_id="r0"),
            OPEN,
            text_content("a"),
            text_content("b"),
            CLOSE,
        ]
        stream.append(replace(RUN_FINISHED, run_id=f"r{i}"))
    compacted = compact(stream)
    assert len(compacted) == 15
    assert [e for e in compacted if e.type.startswith("RUN_")] == [e for e in stream if e.type.startswith("RUN_")]


# state


def test_a_snapshot_and_its_deltas_become_one_snapshot_where_the_last_was():
    snapshot = StateSnapshotEvent(snapshot={})
    assert inside(snapshot, custom(), add("/a"), add("/b"), custom()) == [
        custom(),
        StateSnapshotEvent(snapshot={"a": 1, "b": 1}),
        custom(),
    ]


def test_a_snapshot_spends_everything_before_it_snap_1():
    snapshot = StateSnapshotEvent(snapshot=None)
    assert inside(add("/a"), StateSnapshotEvent(snapshot=1, subagent_run_id="s"), snapshot) == [snapshot]


def test_deltas_are_joined_where_the_state_is_known_and_never_become_a_snapshot():
    joined = StateDeltaEvent(delta=[*add("/a").delta, *add("/b").delta])
    assert inside(add("/a"), add("/b"), state={}) == [joined]
    first = [RUN_STARTED, StateSnapshotEvent(snapshot={}), RUN_FINISHED]
    assert compact([*first, RUN_STARTED, add("/a"), add("/b"), RUN_FINISHED]) == [
        *first,
        RUN_STARTED,
        joined,
        RUN_FINISHED,
    ]


def test_deltas_that_apply_to_any_object_are_joined_where_the_state_is_not_known():
    assert inside(add("/a"), add("/a/b")) == [add("/a"), add("/a/b")]
    assert inside(add("/a"), add("/b")) == [StateDeltaEvent(delta=[*add("/a").delta, *add("/b").delta])]


def test_deltas_stay_apart_where_an_unknown_state_may_be_a_list_or_is_used_as_a_whole():
    for events in ([add("/0"), add("/7")], [add("/-"), add("/7")], [add("/a"), add("")]):
        assert inside(*events) == events


def test_a_delta_that_fails_keeps_to_itself_where_no_snapshot_makes_it_certain():
    wrong = add("/x/y")
    events = inside(add("/a"), wrong, add("/b"), add("/c"), state={})
    assert events == [add("/a"), wrong, StateDeltaEvent(delta=[*add("/b").delta, *add("/c").delta])]


def test_a_delta_that_certainly_fails_goes_with_a_notice():
    notices = []
    events = inside(StateSnapshotEvent(snapshot={}), add("/x/y"), add("/a"), warn=notices.append)
    assert events == [StateSnapshotEvent(snapshot={"a": 1})]
    assert [n.rule for n in notices] == ["SNAP-9"]


def test_the_state_is_not_known_where_the_application_changed_it_between_runs():
    first = [RUN_STARTED, StateSnapshotEvent(snapshot={"n": 1}), RUN_FINISHED]
    echo = RunAgentInput(thread_id="t", run_id="r", messages=[], state={"n": True})
    second = [replace(RUN_STARTED, input=echo), add("/a"), add("/b"), RUN_FINISHED]
    assert compact([*first, *second]) == [*first, *second]
    same = replace(RUN_STARTED, input=replace(echo, state={"n": 1}))
    assert len(compact([*first, same, *second[1:]])) == 6


def test_state_events_of_different_owners_are_not_joined():
    events = [add("/a"), add("/b", subagent_run_id="s"), add("/c", subagent_run_id="")]
    assert inside(*events, state={}) == events


def test_a_known_state_survives_a_failed_run():
    failed = [RUN_STARTED, StateSnapshotEvent(snapshot={}), RunErrorEvent(message="no")]
    assert len(compact([*failed, RUN_STARTED, add("/a"), add("/b"), RUN_FINISHED])) == 6


# activities


def test_an_activity_is_one_snapshot_where_it_was_first_shown():
    show = ActivitySnapshotEvent(message_id="p", activity_type="plan", content={"n": 1}, metadata={"a": 1})
    change = ActivityDeltaEvent(
        message_id="p", activity_type="chart", patch=[{"op": "replace", "path": "/n", "value": 2}], metadata={"b": 2}
    )
    wrong = replace(change, patch=[{"op": "remove", "path": "/x"}], metadata={"c": 3})
    ignored = replace(show, replace=False, content={}, metadata={"d": 4}, subagent_run_id="s")
    notices = []
    assert inside(show, OPEN, change, wrong, ignored, CLOSE, warn=notices.append) == [
        replace(show, content={"n": 2}, activity_type="chart", metadata={"a": 1, "b": 2, "c": 3, "d": 4}),
        OPEN,
        CLOSE,
    ]
    assert [n.rule for n in notices] == ["SNAP-9"]
    later = replace(show, content={"z": 0})
    assert inside(show, custom(), later) == [later, custom()]


def test_an_activity_shown_by_another_owner_is_shown_again_act_5():
    show = ActivitySnapshotEvent(message_id="p", activity_type="plan", content={"n": 1})
    events = [show, replace(show, subagent_run_id="s")]
    assert inside(*events) == events


def test_changes_to_an_activity_of_an_earlier_run_stay_apart():
    show = ActivitySnapshotEvent(message_id="p", activity_type="plan", content={"n": 1})
    change = ActivityDeltaEvent(message_id="p", activity_type="plan", patch=[])
    stream = [RUN_STARTED, show, RUN_FINISHED, RUN_STARTED, change, change, RUN_FINISHED]
    assert compact(stream) == stream


def test_an_activity_shown_again_after_a_snapshot_stays():
    show = ActivitySnapshotEvent(message_id="p", activity_type="plan", content={"n": 1})
    held = ActivityMessage(id="p", activity_type="plan", content={})
    events = [show, MessagesSnapshotEvent(messages=[held]), show]
    assert inside(*events) == events


# the echoed input


def begin(*messages, **fields):
    return replace(RUN_STARTED, input=RunAgentInput(thread_id="t", run_id="r", messages=list(messages)), **fields)


def test_the_echo_loses_the_messages_that_the_stream_has_brought():
    stream = [begin(user("a")), OPEN, CLOSE, RUN_FINISHED, begin(user("a"), user("m"), user("b")), RUN_FINISHED]
    assert compact(stream) == [begin(user("a")), OPEN, CLOSE, RUN_FINISHED, begin(user("b")), RUN_FINISHED]


def test_the_echo_keeps_a_message_that_a_snapshot_has_dropped():
    stream = [begin(user("a")), MessagesSnapshotEvent(messages=[]), RUN_FINISHED, begin(user("a")), RUN_FINISHED]
    assert compact(stream) == stream


def test_the_echo_keeps_a_message_that_says_whose_an_item_is():
    mine = AssistantMessage(id="m", content="x", subagent_run_id="s")
    first = [begin(mine), RUN_FINISHED]
    grow = [OPEN, text_content("a", subagent_run_id="s"), CLOSE]
    assert compact([*first, begin(mine), *grow, RUN_FINISHED]) == [*first, begin(mine), *grow, RUN_FINISHED]
    assert compact([*first, begin(mine), RUN_FINISHED]) == [*first, begin(), RUN_FINISHED]


# branches


def check_compaction(log, **options):
    """Compact a log; check that it means the same as a whole and along every branch. Return the result."""
    compacted = compact(log, warn=lambda _: None)
    assert compact(compacted, warn=lambda _: None) == compacted
    verify(compacted)
    assert reduce(compacted, warn=lambda _: None, **options) == reduce(log, warn=lambda _: None, **options)
    for run in Lineage(log).runs:
        before, after = (
            Lineage(events).reduce_along(run.run_id, warn=lambda _: None, **options) for events in (log, compacted)
        )
        assert before == after
    return compacted


def branch(run_id, parent, *events, messages=(), state=None):
    echo = RunAgentInput(thread_id="t", run_id=run_id, messages=list(messages), state=state)
    begin = RunStartedEvent(thread_id="t", run_id=run_id, parent_run_id=parent, input=echo)
    return [begin, *events, RunFinishedEvent(thread_id="t", run_id=run_id)]


def write(id, delta="x"):
    return [TextMessageStartEvent(message_id=id), text_content(delta, id), TextMessageEndEvent(message_id=id)]


def test_the_echo_keeps_all_messages_from_the_first_branch_on():
    asked = [user("u1"), AssistantMessage(id="a1", content="x"), user("u2")]
    log = [
        *branch("r0", None, *write("a1"), messages=asked[:1]),
        *branch("r1", "r0", *write("a2"), messages=asked),
        *branch("r2", "r0", *write("a3"), messages=asked),
        *branch("r3", None, *write("a4"), messages=[*asked, AssistantMessage(id="a3", content="x"), user("u3")]),
    ]
    compacted = check_compaction(log)
    assert [m.id for m in Lineage(compacted).reduce_along("r2").messages] == ["u1", "a1", "u2", "a3"]
    echoes = [[m.id for m in e.input.messages] for e in compacted if isinstance(e, RunStartedEvent)]
    assert echoes == [["u1"], ["u2"], ["u1", "a1", "u2"], ["u1", "a1", "u2", "a3", "u3"]]


def test_on_a_branch_deltas_are_joined_after_a_snapshot():
    change = StateDeltaEvent(delta=[{"op": "replace", "path": "/x", "value": 2}])
    first = [*branch("r0", None, StateSnapshotEvent(snapshot={})), *branch("r1", "r0", add("/x"))]
    apart = check_compaction([*first, *branch("r2", "r0", change, add("/y"))])
    assert Lineage(apart).reduce_along("r2", warn=lambda _: None).state == {"y": 1}
    joined = branch("r2", "r0", StateSnapshotEvent(snapshot={}), add("/y"), add("/z"))
    assert len(check_compaction([*first, *joined])) == len([*first, 0, 0, 0])


def test_deltas_stay_apart_where_only_another_branch_knows_the_state():
    root = StateDeltaEvent(delta=[{"op": "replace", "path": "", "value": {}}])
    log = [
        *branch("r0", None),
        *branch("r1", "r0", StateSnapshotEvent(snapshot={})),
        *branch("r2", "r0", add("/y"), root),
    ]
    assert check_compaction(log, state=5) == log


def test_a_message_that_only_another_branch_still_has_after_a_snapshot_is_not_joined_across_a_call():
    think = [ReasoningMessageStartEvent(message_id="m"), ReasoningMessageEndEvent(message_id="m")]
    call = [
        ToolCallStartEvent(tool_call_id="c", tool_call_name="f", parent_message_id="m"),
        ToolCallEndEvent(tool_call_id="c"),
    ]
    heard_or_not = [OPEN, MessagesSnapshotEvent(messages=[]), text_content("x"), *call, text_content("y"), CLOSE]
    log = [*branch("r0", None), *branch("r1", "r0", *think), *branch("r2", "r0", *heard_or_not)]
    assert check_compaction(log) == log


def test_a_message_that_is_a_tool_message_on_its_branch_is_not_joined_across_a_call():
    result = ToolCallResultEvent(message_id="m", tool_call_id="other", content="")
    call = [ToolCallStartEvent(tool_call_id="m", tool_call_name="f"), ToolCallEndEvent(tool_call_id="m")]
    log = [
        *branch("r0", None),
        *branch("r1", "r0", *write("m")),
        *branch("r2", "r0", result, OPEN, text_content("x"), *call, text_content("y"), CLOSE),
    ]
    assert check_compaction(log) == log


def test_an_end_from_outside_its_lane_leaves_the_chunks_of_an_item_as_they_are():
    chunk = ReasoningMessageChunkEvent(message_id="a", delta="1", subagent_run_id="s")
    ended = [ReasoningMessageEndEvent(message_id="a"), ReasoningMessageStartEvent(message_id="a")]
    stream = [RUN_STARTED, chunk, *ended, replace(chunk, delta="2")]
    assert check_compaction(stream) == stream
    more = [replace(chunk, delta="3"), CustomEvent(name="n", value=1, subagent_run_id="s")]
    assert len(check_compaction([*stream, *more])) == 8


def test_a_run_that_was_cut_off_in_chunks_ends_where_its_branch_does():
    chunk = ToolCallChunkEvent(tool_call_id="c", tool_call_name="f", delta="{")
    log = [
        replace(RUN_STARTED, run_id="r0"),
        chunk,
        chunk,
        replace(RUN_STARTED, run_id="r1", parent_run_id="r0"),
        RUN_FINISHED,
    ]
    compacted = compact(log)
    assert Lineage(compacted).reduce_along("r0") == Lineage(log).reduce_along("r0")
    assert reduce(compacted) == reduce(log)


# losses


def test_a_delta_alone_keeps_its_envelope_and_joined_ones_lose_it():
    alone = text_content("a", timestamp=1, raw_event="raw", subagent_run_id="s")
    opened = replace(OPEN, subagent_run_id="s", timestamp=0, raw_event="0")
    closed = replace(CLOSE, timestamp=9, raw_event="9")
    assert inside(opened, alone, closed) == [opened, alone, closed]
    joined = text_content("ab", timestamp=1, subagent_run_id="s")
    assert inside(opened, alone, text_content("b", timestamp=2, raw_event="x"), closed) == [opened, joined, closed]


def test_a_folded_state_event_has_the_last_timestamp_and_all_metadata():
    snapshot = StateSnapshotEvent(snapshot={}, timestamp=1, raw_event="x", metadata={"a": 1, "b": 1})
    spent = add("/z", metadata={"z": 0})
    folded = inside(spent, snapshot, add("/a", timestamp=2, metadata={"b": 2}))
    assert folded == [StateSnapshotEvent(snapshot={"a": 1}, timestamp=2, metadata={"z": 0, "a": 1, "b": 2})]
    deltas = inside(add("/a", timestamp=1, raw_event="x", metadata={"a": 1}), add("/b", timestamp=2), state={})
    assert deltas == [StateDeltaEvent(delta=[*add("/a").delta, *add("/b").delta], timestamp=2, metadata={"a": 1})]


def test_steps_stay():
    events = [StepStartedEvent(step_name="s"), StepFinishedEvent(step_name="s")]
    assert inside(*events) == events


def test_the_events_given_are_not_changed():
    delta = add("/a")
    compact([RUN_STARTED, delta, add("/b"), add("/c"), RUN_FINISHED], state={})
    assert delta == add("/a")
