"""The sequence rules a consumer must hold a stream to, row by row (LIFE, STR, RSN, STEP, SUB)."""

import pytest
from builders import RUN_FINISHED, RUN_STARTED, messages_snapshot

from aguila.errors import SequenceError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    FunctionCall,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.verification.rules import ITEMS, STEP, TEXT, RunState
from aguila.stream.verification.verifier import Verifier, verify

ERROR = RunErrorEvent(message="boom")
CUSTOM = CustomEvent(name="n", value=None)


def text(message_id="m", tag=None):
    return TextMessageStartEvent(message_id=message_id, subagent_run_id=tag)


def text_content(message_id="m", tag=None):
    return TextMessageContentEvent(message_id=message_id, delta="x", subagent_run_id=tag)


def end(message_id="m", tag=None):
    return TextMessageEndEvent(message_id=message_id, subagent_run_id=tag)


def start_call(call_id="c", tag=None, parent=None):
    return ToolCallStartEvent(tool_call_id=call_id, tool_call_name="f", parent_message_id=parent, subagent_run_id=tag)


def args(call_id="c", tag=None):
    return ToolCallArgsEvent(tool_call_id=call_id, delta="x", subagent_run_id=tag)


def end_call(call_id="c", tag=None):
    return ToolCallEndEvent(tool_call_id=call_id, subagent_run_id=tag)


def span(span_id="r", tag=None):
    return ReasoningStartEvent(message_id=span_id, subagent_run_id=tag)


def end_span(span_id="r", tag=None):
    return ReasoningEndEvent(message_id=span_id, subagent_run_id=tag)


def think(message_id="r", tag=None):
    return ReasoningMessageStartEvent(message_id=message_id, subagent_run_id=tag)


def thought(message_id="r", tag=None):
    return ReasoningMessageContentEvent(message_id=message_id, delta="x", subagent_run_id=tag)


def end_think(message_id="r", tag=None):
    return ReasoningMessageEndEvent(message_id=message_id, subagent_run_id=tag)


def step(name="s", tag=None):
    return StepStartedEvent(step_name=name, subagent_run_id=tag)


def end_step(name="s", tag=None):
    return StepFinishedEvent(step_name=name, subagent_run_id=tag)


def sub(run_id="a", parent=None):
    return SubagentStartedEvent(subagent_run_id=run_id, name="n", parent_subagent_run_id=parent)


def end_sub(run_id="a"):
    return SubagentFinishedEvent(subagent_run_id=run_id)


def seal(subtype, entity_id, tag):
    return ReasoningEncryptedValueEvent(subtype=subtype, entity_id=entity_id, encrypted_value="v", subagent_run_id=tag)


def activity(message_id="x", tag=None, replace=None):
    return ActivitySnapshotEvent(
        message_id=message_id, activity_type="t", content={}, replace=replace, subagent_run_id=tag
    )


def patch(message_id="x", tag=None):
    return ActivityDeltaEvent(message_id=message_id, activity_type="t", patch=[], subagent_run_id=tag)


def result(message_id="o", call_id="c", tag=None):
    return ToolCallResultEvent(message_id=message_id, tool_call_id=call_id, content="", subagent_run_id=tag)


def assert_accepted(*events):
    verdict = verify(events)
    assert verdict.findings == []
    return verdict.end


def assert_refused(rule, *events):
    """Assert that the last event is refused by this rule, and that all before it are accepted."""
    verifier = Verifier()
    for event in events[:-1]:
        verifier.feed(event)
    before = (verifier.run_state, verifier.open_items)
    with pytest.raises(SequenceError) as caught:
        verifier.feed(events[-1])
    assert caught.value.rule == rule
    assert caught.value.index == len(events) - 1
    assert caught.value.event is events[-1]
    assert (verifier.run_state, verifier.open_items) == before, "a refused event changes nothing"
    return caught.value


# Runs


@pytest.mark.parametrize(
    "events", [[RUN_STARTED, RUN_FINISHED], [ERROR], [RUN_STARTED, ERROR], [RUN_STARTED, RUN_FINISHED, ERROR]]
)
def test_a_stream_begins_with_a_start_or_an_error_and_ends_with_a_terminal_event(events):
    assert assert_accepted(*events) == "finished"


@pytest.mark.parametrize("event", [RUN_FINISHED, CUSTOM, text(), text_content(), StateSnapshotEvent(snapshot=1)])
def test_nothing_else_comes_first_LIFE_1(event):
    assert "RUN_STARTED" in assert_refused("LIFE-1", event).message


def test_runs_do_not_nest_LIFE_17():
    assert_refused("LIFE-17", RUN_STARTED, RUN_STARTED)


@pytest.mark.parametrize("event", [RUN_FINISHED, CUSTOM, end(), RawEvent(event=1)])
def test_after_a_finished_run_only_a_new_run_or_a_late_error_may_come_LIFE_15(event):
    assert_refused("LIFE-15", RUN_STARTED, RUN_FINISHED, event)


@pytest.mark.parametrize("event", [RUN_FINISHED, ERROR, CUSTOM, text_content()])
@pytest.mark.parametrize("failed", [[ERROR], [RUN_STARTED, ERROR], [RUN_STARTED, RUN_FINISHED, ERROR]])
def test_after_a_failed_run_only_a_new_run_may_come_LIFE_16(failed, event):
    assert_refused("LIFE-16", *failed, event)


@pytest.mark.parametrize(
    "earlier", [[RUN_STARTED, RUN_FINISHED], [RUN_STARTED, text(), ERROR], [ERROR], [RUN_STARTED, RUN_FINISHED, ERROR]]
)
def test_a_new_run_may_follow_a_closed_one_and_knows_nothing_of_what_that_had_open_LIFE_20(earlier):
    assert assert_accepted(*earlier, RUN_STARTED, text("m", "a"), end(), RUN_FINISHED) == "finished"


def test_an_error_ends_whatever_is_open_LIFE_13():
    assert assert_accepted(RUN_STARTED, text(), start_call(), step(), sub(), span(), think(), ERROR) == "finished"


def test_ids_of_the_boundaries_are_not_the_consumer_s_business_AMB_4():
    assert assert_accepted(RUN_STARTED, RunFinishedEvent(thread_id="other", run_id="other")) == "finished"


@pytest.mark.parametrize(
    "events", [[], [RUN_STARTED], [RUN_STARTED, text(), end()], [RUN_STARTED, RUN_FINISHED, RUN_STARTED]]
)
def test_a_stream_without_its_last_terminal_event_is_truncated_and_no_violation_AMB_5(events):
    assert assert_accepted(*events) == "truncated"


# Items, as rows of the table: opener, content and closer of each kind with its own id

ROWS = {
    "text message": (text(), [text_content()], [end()]),
    "tool call": (start_call(), [args()], [end_call()]),
    "reasoning message": (think(), [thought()], [end_think()]),
    "reasoning span": (span(), [], [end_span()]),
    "step": (step(), [], [end_step()]),
    "subagent": (sub(), [], [end_sub(), SubagentErrorEvent(subagent_run_id="a", message="x")]),
}
RULES = {
    "text message": ("STR-1", "STR-2", "STR-3"),
    "tool call": ("STR-1", "STR-2", "STR-3"),
    "reasoning message": ("RSN-4", "RSN-4", "RSN-4"),
    "reasoning span": ("RSN-1", "RSN-1", "RSN-1"),
    "step": ("STEP-1", "STEP-1", "STEP-2"),
    "subagent": ("SUB-3", "SUB-4", "SUB-14"),
}
every_item = pytest.mark.parametrize("noun", [item.noun for item in ITEMS])


@every_item
def test_an_item_is_opened_continued_and_closed(noun):
    opener, content, closers = ROWS[noun]
    for closer in closers:
        assert assert_accepted(RUN_STARTED, opener, *content, *content, closer, RUN_FINISHED) == "finished"


@every_item
def test_an_item_is_not_opened_while_it_is_open(noun):
    opener, _, _ = ROWS[noun]
    assert_refused(RULES[noun][0], RUN_STARTED, opener, opener)


@every_item
def test_an_item_that_is_not_open_is_neither_continued_nor_closed(noun):
    opener, content, closers = ROWS[noun]
    for event in (*content, *closers):
        assert_refused(RULES[noun][1], RUN_STARTED, event)
        assert_refused(RULES[noun][1], RUN_STARTED, opener, closers[0], event)


@every_item
def test_an_item_is_closed_before_the_run_finishes(noun):
    opener, _, closers = ROWS[noun]
    error = assert_refused(RULES[noun][2], RUN_STARTED, opener, RUN_FINISHED)
    assert closers[0].type.value in error.message, "the message says what to send"


@every_item
def test_a_closed_item_may_be_opened_again_unless_it_is_a_subagent_SUB_2(noun):
    opener, content, closers = ROWS[noun]
    if noun == "subagent":
        assert_refused("SUB-2", RUN_STARTED, opener, closers[0], opener)
    else:
        assert_accepted(RUN_STARTED, opener, closers[0], opener, *content, closers[0], RUN_FINISHED)


def test_the_empty_id_is_an_id_like_any_other():
    assert_accepted(
        RUN_STARTED,
        text(""),
        text_content(""),
        end(""),
        sub(""),
        text("m", ""),
        text_content("m", ""),
        end("m", ""),
        end_sub(""),
        RUN_FINISHED,
    )
    assert_refused("STR-2", RUN_STARTED, text("m"), text_content(""))
    assert_refused("SUB-8", RUN_STARTED, text("m"), text_content("m", ""))


def test_items_of_all_kinds_overlap_freely_and_ids_are_unique_per_kind_only_STR_5():
    assert_accepted(
        RUN_STARTED,
        text("i"),
        start_call("i"),
        span("i"),
        think("i"),
        step("i"),
        sub("i"),
        StateDeltaEvent(delta=[]),
        CUSTOM,
        RawEvent(event=1),
        messages_snapshot(),
        text_content("i"),
        args("i"),
        end_span("i"),
        thought("i"),
        end_sub("i"),
        end_step("i"),
        end("i"),
        end_think("i"),
        end_call("i"),
        RUN_FINISHED,
    )


def test_a_reasoning_message_needs_no_span_RSN_2():
    assert_accepted(
        RUN_STARTED, think(), thought(), end_think(), span(), think(), end_span(), end_think(), RUN_FINISHED
    )


# Steps


def test_a_step_is_open_once_per_owner_STEP_4():
    assert_accepted(
        RUN_STARTED, step(), step(tag="a"), step(tag=""), end_step(tag="a"), end_step(), end_step(tag=""), RUN_FINISHED
    )


@pytest.mark.parametrize(("started", "finished"), [("a", None), (None, "a"), ("a", "b"), ("", None)])
def test_a_step_is_finished_by_the_owner_who_started_it_STEP_4(started, finished):
    assert_refused("STEP-4", RUN_STARTED, step(tag=started), end_step(tag=finished))


# Tool calls


def test_a_tool_result_needs_no_call_and_may_repeat_and_may_come_while_the_call_is_open():
    assert_accepted(RUN_STARTED, result(), start_call(), result(), end_call(), result("p"), RUN_FINISHED)


def test_an_unknown_parent_message_is_accepted():
    assert_accepted(RUN_STARTED, start_call(parent="nobody", tag="a"), end_call(), RUN_FINISHED)


def test_a_call_has_the_owner_of_the_message_that_carries_it_TOOL_2():
    assert_accepted(RUN_STARTED, text("m", "a"), start_call("c", "a", "m"), end_call("c", "a"), end(), RUN_FINISHED)
    assert_refused("TOOL-2", RUN_STARTED, text("m", "a"), start_call("c", "b", "m"))
    assert_refused("TOOL-2", RUN_STARTED, text("m"), end(), start_call("c", "b", "m"))


def test_a_call_without_a_tag_inherits_the_owner_of_its_message_SUB_10():
    inherited = [RUN_STARTED, text("m", "a"), start_call("c", None, "m")]
    assert_accepted(*inherited, args("c", "a"), end_call("c", "a"), end(), RUN_FINISHED)
    assert_refused("SUB-8", *inherited, args("c", "b"))


def test_a_call_does_not_move_to_a_message_of_another_owner_SUB_10():
    assert_refused(
        "SUB-10", RUN_STARTED, text("m", "a"), start_call("c", "b"), end_call("c"), start_call("c", None, "m")
    )


def test_a_call_opened_again_keeps_its_owner_SUB_8():
    assert_refused("SUB-8", RUN_STARTED, start_call("c", "a"), end_call("c"), start_call("c", "b"))


# Attribution


@pytest.mark.parametrize(
    ("opener", "continuations"),
    [
        (text, (text_content, end)),
        (start_call, (args, end_call)),
        (span, (end_span,)),
        (think, (thought, end_think)),
        (activity, (patch,)),
    ],
)
@pytest.mark.parametrize("owner", [None, "a"])
def test_a_continuation_has_its_opener_s_tag_or_none_SUB_8_SUB_9(opener, continuations, owner):
    for continuation in continuations:
        assert_refused("SUB-8", RUN_STARTED, opener(tag=owner), continuation(tag="b"))
        for tag in {None, owner}:
            verifier = Verifier()
            for event in (RUN_STARTED, opener(tag=owner), continuation(tag=tag)):
                verifier.feed(event)


@pytest.mark.parametrize(("opener", "closer"), [(text, end), (think, end_think), (span, end_span)])
def test_an_owner_is_remembered_after_the_close_and_the_first_one_stands_SUB_8(opener, closer):
    assert_refused("SUB-8", RUN_STARTED, opener(tag="a"), closer(), opener(tag="b"))
    assert_accepted(RUN_STARTED, opener(tag="a"), closer(), opener(), closer(tag="a"), RUN_FINISHED)


def test_a_span_and_a_reasoning_message_with_one_id_have_one_owner():
    assert_refused("SUB-8", RUN_STARTED, span("r", "a"), think("r", "b"))


def test_an_encrypted_value_is_tagged_as_what_it_belongs_to_SUB_8():
    history = [RUN_STARTED, text("m", "a"), end(), start_call("c", "a"), end_call(), think("r", "a"), end_think()]
    for subtype, entity in [("message", "m"), ("message", "r"), ("tool-call", "c")]:
        assert_refused("SUB-8", *history, seal(subtype, entity, "b"))
        assert_accepted(*history, seal(subtype, entity, "a"), seal(subtype, entity, None), RUN_FINISHED)
    assert_accepted(*history, seal("message", "nobody", "z"), seal("tool-call", "m", "z"), RUN_FINISHED)


def test_the_message_bucket_comes_before_the_reasoning_bucket_for_an_encrypted_value():
    assert_refused("SUB-8", RUN_STARTED, text("i", "a"), think("i", "b"), seal("message", "i", "b"))


def test_a_tool_result_takes_its_message_id_over_whoever_had_it():
    assert_refused("SUB-8", RUN_STARTED, text("m", "a"), result("m", tag="b"), text_content("m", "a"))


def test_an_activity_patch_needs_no_snapshot_but_the_right_owner_SUB_8():
    assert_accepted(RUN_STARTED, patch(tag="a"), RUN_FINISHED)


def test_a_replacing_activity_snapshot_is_owned_anew_and_one_that_does_not_replace_is_not_ACT_5():
    assert_accepted(RUN_STARTED, activity(tag="a"), activity(tag="b"), patch(tag="b"), RUN_FINISHED)
    assert_refused("SUB-8", RUN_STARTED, activity(tag="a"), activity(tag="b", replace=False), patch(tag="b"))
    assert_accepted(RUN_STARTED, activity(tag="a", replace=False), patch(tag="a"), RUN_FINISHED)


MESSAGES = [
    AssistantMessage(
        id="m", subagent_run_id="a", tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments=""))]
    ),
    ReasoningMessage(id="r", content="", subagent_run_id="a"),
    ActivityMessage(id="x", activity_type="t", content={}, subagent_run_id="a"),
]


@pytest.mark.parametrize("event", [text("m", "b"), start_call("c", "b"), think("r", "b"), patch("x", "b")])
def test_a_snapshot_and_an_echoed_input_say_who_owns_what(event):
    assert_refused("SUB-8", RUN_STARTED, messages_snapshot(*MESSAGES), event)
    echo = RunStartedEvent(thread_id="t", run_id="r", input=RunAgentInput(thread_id="t", run_id="r", messages=MESSAGES))
    assert_refused("SUB-8", echo, event)


def test_a_snapshot_overrules_what_was_known_and_opens_and_closes_nothing():
    assert_refused("SUB-8", RUN_STARTED, text("m", "b"), messages_snapshot(*MESSAGES), text_content("m", "b"))
    assert_accepted(
        RUN_STARTED, text("m", "b"), messages_snapshot(*MESSAGES), text_content("m", "a"), end("m"), RUN_FINISHED
    )
    assert_refused("STR-2", RUN_STARTED, messages_snapshot(*MESSAGES), text_content("m"))


@pytest.mark.parametrize(
    "event", [StateSnapshotEvent(snapshot=1, subagent_run_id="z"), CustomEvent(name="n", value=1, subagent_run_id="z")]
)
def test_a_tag_on_an_event_that_builds_nothing_is_provenance_only_SUB_5(event):
    assert_accepted(RUN_STARTED, event, RUN_FINISHED)


# Subagents


def test_a_subagent_names_a_parent_that_was_announced_in_this_run_SUB_11():
    assert_accepted(
        RUN_STARTED, sub("a"), sub("b", "a"), end_sub("a"), sub("c", "a"), end_sub("b"), end_sub("c"), RUN_FINISHED
    )
    assert_refused("SUB-11", RUN_STARTED, sub("b", "a"))
    assert_refused("SUB-11", RUN_STARTED, sub("a", "a"))
    assert_refused("SUB-11", RUN_STARTED, sub("a"), end_sub("a"), RUN_FINISHED, RUN_STARTED, sub("b", "a"))


def test_a_subagent_s_id_may_come_back_in_a_later_run_SUB_2():
    assert_accepted(RUN_STARTED, sub(), end_sub(), RUN_FINISHED, RUN_STARTED, sub(), end_sub(), RUN_FINISHED)


def test_a_subagent_may_end_before_its_items_and_its_children():
    assert_accepted(
        RUN_STARTED,
        sub("a"),
        sub("b", "a"),
        text("m", "a"),
        step("s", "a"),
        end_sub("a"),
        text_content("m", "a"),
        end("m"),
        end_step("s", "a"),
        end_sub("b"),
        CustomEvent(name="n", value=1, subagent_run_id="a"),
        RUN_FINISHED,
    )


# The machine


def test_collecting_goes_on_after_a_violation_and_reports_each_once():
    verdict = verify(
        [
            text_content(),
            RUN_STARTED,
            text_content(),
            text(),
            text(),
            text_content(),
            end(tag="z"),
            step(),
            RUN_FINISHED,
            CUSTOM,
            ERROR,
        ],
        collect=True,
    )
    assert [(e.index, e.rule) for e in verdict.findings] == [
        (0, "LIFE-1"),
        (0, "STR-2"),
        (1, "LIFE-17"),
        (2, "STR-2"),
        (4, "STR-1"),
        (6, "SUB-8"),
        (8, "STEP-2"),
        (9, "LIFE-15"),
    ]
    assert verdict.end == "finished"


def test_collecting_a_stream_that_lost_its_start_finds_that_once():
    assert [e.rule for e in verify([text(), text_content(), end(), RUN_FINISHED], collect=True).findings] == ["LIFE-1"]
    assert [e.rule for e in verify([RUN_FINISHED], collect=True).findings] == ["LIFE-1"]


def test_verify_expands_chunks_and_counts_the_events_it_was_given():
    chunk = TextMessageChunkEvent(message_id="m", delta="x")
    assert verify([RUN_STARTED, chunk, chunk, RUN_FINISHED]).end == "finished"
    with pytest.raises(SequenceError) as caught:
        verify([RUN_STARTED, chunk, end()])
    assert (caught.value.rule, caught.value.index) == ("STR-2", 2)
    bad = TextMessageChunkEvent(delta="x")
    assert [(e.rule, e.index) for e in verify([RUN_STARTED, bad, RUN_FINISHED, CUSTOM], collect=True).findings] == [
        ("CHK-3", 1),
        ("LIFE-15", 3),
    ]


def test_a_chunk_fed_to_the_verifier_itself_is_let_through_but_only_in_a_run():
    chunk = TextMessageChunkEvent(message_id="m", delta="x")
    assert_refused("LIFE-1", chunk)
    verifier = Verifier()
    verifier.feed(RUN_STARTED)
    verifier.feed(chunk)
    assert verifier.open_items == []


def test_what_is_open_is_listed_in_the_order_to_close_it():
    verifier = Verifier()
    for event in (
        RUN_STARTED,
        sub("a"),
        sub("b", "a"),
        step(tag="a"),
        span(),
        think(),
        start_call(),
        text("m"),
        text("n", "a"),
    ):
        verifier.feed(event)
    assert [(o.item.noun, o.id, o.owner) for o in verifier.open_items] == [
        ("text message", "n", "a"),
        ("text message", "m", None),
        ("tool call", "c", None),
        ("reasoning message", "r", None),
        ("reasoning span", "r", None),
        ("step", "s", "a"),
        ("subagent", "b", None),
        ("subagent", "a", None),
    ]
    assert verifier.is_open(TEXT, "m")
    assert not verifier.is_open(TEXT, "x")
    assert verifier.is_open(STEP, "s", "a")
    assert not verifier.is_open(STEP, "s")
    assert verifier.run_state is RunState.OPEN


@pytest.mark.parametrize("last", [RUN_FINISHED, ERROR])
def test_nothing_is_open_after_the_end_of_a_run(last):
    verifier = Verifier(collect=True)
    for event in (RUN_STARTED, text(), sub(), last):
        verifier.feed(event)
    assert verifier.open_items == []


def test_the_advice_about_a_wrong_tag_fits_its_owner_SUB_8():
    assert "send it without a tag" in assert_refused("SUB-8", RUN_STARTED, text("m"), text_content("m", "b")).message
    assert (
        "with that tag or none" in assert_refused("SUB-8", RUN_STARTED, text("m", "a"), text_content("m", "b")).message
    )


def test_an_error_shows_its_rule_and_place():
    error = assert_refused("STR-2", RUN_STARTED, text_content("m"))
    assert repr(error).startswith("SequenceError(")
    assert repr(error).endswith("rule='STR-2', index=1)")


def test_a_thousand_items_of_a_kind_may_be_open_at_once() -> None:
    verifier = Verifier()
    verifier.feed(RunStartedEvent(thread_id="t", run_id="r"))
    for i in range(1_000):
        verifier.feed(ToolCallStartEvent(tool_call_id=f"c{i}", tool_call_name="f"))
    one_more = ToolCallStartEvent(tool_call_id="one more", tool_call_name="f")
    with pytest.raises(SequenceError) as caught:
        verifier.feed(one_more)
    assert caught.value.rule == "limit-open"
    verifier.feed(ToolCallEndEvent(tool_call_id="c0"))
    verifier.feed(one_more)
