"""The runs of a conversation, and its views."""

import pytest
from builders import run_finished, run_started, tool_call, tool_result

from aguila.protocol import (
    AssistantMessage,
    CustomEvent,
    FunctionCall,
    Interrupt,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguila.stream.conversation import ConversationRun
from aguila.stream.reducer import Reducer, reduce
from aguila.stream.usage import aggregate_token_usage

QUESTION = Interrupt(id="i", reason="confirm")


def pending(*events, **kwargs):
    return [call.id for call in reduce(events, **kwargs).pending_tool_calls]


# history (LIFE)


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (None, "success"),
        (RunFinishedSuccessOutcome(), "success"),
        (RunFinishedCancelledOutcome(), "cancelled"),
        (RunFinishedInterruptOutcome(interrupts=[QUESTION]), "interrupt"),
    ],
)
def test_a_finished_run_has_its_outcome_life_3(outcome, name):
    conversation = reduce([run_started(parent_run_id="p"), run_finished(outcome=outcome, result=0)])
    assert conversation.runs == [
        ConversationRun(
            run_id="r",
            thread_id="t",
            parent_run_id="p",
            outcome=name,
            result=0,
            interrupts=[QUESTION] if name == "interrupt" else [],
        )
    ]
    assert not conversation.is_running
    assert conversation.run_error is None


def test_a_run_that_is_open_has_no_outcome():
    conversation = reduce([run_started()])
    assert conversation.is_running
    assert conversation.last_run == ConversationRun(run_id="r", thread_id="t")
    assert conversation.thread_id == "t"


def test_a_conversation_without_runs_says_so():
    conversation = reduce([])
    assert (conversation.runs, conversation.last_run, conversation.is_running) == ([], None, False)
    assert (conversation.thread_id, conversation.run_error, conversation.usage) == (None, None, [])
    assert conversation.pending_tool_calls == []


def test_a_failed_run_keeps_what_it_delivered_life_21():
    error = RunErrorEvent(message="no", code="E")
    conversation = reduce([run_started(), TextMessageStartEvent(message_id="m"), error])
    assert conversation.run_error == error
    assert conversation.runs[0].outcome == "error"
    assert [m.id for m in conversation.messages] == ["m"]


def test_a_late_error_makes_a_finished_run_a_failed_one_life_15():
    error = RunErrorEvent(message="late")
    (run,) = reduce([run_started(), run_finished(result=1, usage=[TokenUsage(input_tokens=1)]), error]).runs
    assert (run.outcome, run.result, run.error) == ("error", 1, error)
    assert run.usage == [TokenUsage(input_tokens=1)]


def test_the_next_run_forgets_the_error_of_the_last_and_the_history_does_not():
    conversation = reduce([RunErrorEvent(message="refused"), run_started()])
    assert conversation.run_error is None
    assert [(run.run_id, run.outcome) for run in conversation.runs] == [(None, "error"), ("r", None)]


def test_messages_and_state_persist_across_runs_life_18():
    stream = [run_started("1"), TextMessageStartEvent(message_id="m"), TextMessageEndEvent(message_id="m")]
    stream += [StateSnapshotEvent(snapshot=1), run_finished("1"), run_started("2")]
    conversation = reduce(stream)
    assert (len(conversation.messages), conversation.state, len(conversation.runs)) == (1, 1, 2)


def test_the_echoed_input_brings_the_messages_that_are_not_held_and_no_others():
    held = UserMessage(id="a", content="mine")
    echo = RunAgentInput(
        thread_id="t",
        run_id="r",
        state={"theirs": 1},
        messages=[UserMessage(id="a", content="theirs"), UserMessage(id="b", content="new")],
    )
    conversation = reduce([run_started(input=echo)], messages=[held])
    assert conversation.messages == [held, UserMessage(id="b", content="new")]
    assert conversation.state == {}


def test_events_about_unknown_items_change_nothing():
    reducer = Reducer()
    before = reducer.conversation
    reducer.feed(CustomEvent(name="n", value=1))
    assert reducer.conversation is before


# interrupts (INT)


@pytest.mark.parametrize("outcome", [None, RunFinishedCancelledOutcome()])
def test_interrupts_stay_open_until_a_run_finishes_without_one_int_7(outcome):
    stream = [
        run_started("1"),
        run_finished("1", outcome=RunFinishedInterruptOutcome(interrupts=[QUESTION])),
        run_started("2"),
    ]
    assert reduce(stream).interrupts == [QUESTION]
    assert reduce([*stream, run_finished("2", outcome=outcome)]).interrupts == []


def test_a_run_that_fails_leaves_interrupts_open():
    stream = [run_started("1"), run_finished("1", outcome=RunFinishedInterruptOutcome(interrupts=[QUESTION]))]
    assert reduce([*stream, RunErrorEvent(message="late")]).interrupts == [QUESTION]
    assert reduce([*stream, run_started("2"), RunErrorEvent(message="no")]).interrupts == [QUESTION]


# pending calls (FT)


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        RunFinishedSuccessOutcome(),
        RunFinishedSuccessOutcome(pending_tool_call_ids=[]),
        RunFinishedInterruptOutcome(interrupts=[QUESTION]),
    ],
)
def test_pending_calls_are_those_started_and_not_answered_ft_4(outcome):
    stream = [
        run_started(),
        *tool_call("a", "{}"),
        *tool_call("b", "{}"),
        *tool_call("c", "{}"),
        tool_result("b", "answer-b"),
        run_finished(outcome=outcome),
    ]
    assert pending(*stream) == ["a", "c"]


def test_pending_calls_are_the_calls_themselves():
    (only,) = reduce([run_started(), *tool_call("a", "{}"), run_finished()]).pending_tool_calls
    assert only == ToolCall(id="a", function=FunctionCall(name="f", arguments="{}"))


def test_the_producers_list_counts_if_it_says_anything_ft_3():
    outcome = RunFinishedSuccessOutcome(pending_tool_call_ids=["b"])
    assert pending(run_started(), *tool_call("a", "{}"), *tool_call("b", "{}"), run_finished(outcome=outcome)) == ["b"]


def test_a_call_cut_off_in_its_arguments_is_not_pending_tool_3():
    assert pending(run_started(), *tool_call("a", "{}"), *tool_call("b", "{}")[:-1], RunErrorEvent(message="no")) == [
        "a"
    ]


def test_calls_of_earlier_runs_are_not_pending():
    assert pending(
        run_started("1"),
        *tool_call("a", "{}"),
        run_finished("1"),
        run_started("2"),
        *tool_call("b", "{}"),
        run_finished("2"),
    ) == ["b"]


def test_a_call_started_again_after_its_answer_is_answered():
    assert (
        pending(
            run_started(), *tool_call("a", "{}"), tool_result("a", "answer-a"), *tool_call("a", "{}"), run_finished()
        )
        == []
    )


def test_a_call_answered_before_its_start_is_answered_ft_3():
    made = AssistantMessage(id="c", tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))])
    events = [
        run_started(),
        tool_result("c", "answer-c"),
        *tool_call("c", "{}"),
        MessagesSnapshotEvent(messages=[made]),
        run_finished(),
    ]
    assert pending(*events) == []
    assert reduce(events).runs[0].calls == {"c": "answered"}


def test_a_tool_message_answers_a_pending_call_ft_5():
    reducer = Reducer()
    for event in (run_started(), *tool_call("a", "{}"), *tool_call("b", "{}"), run_finished()):
        reducer.feed(event)
    reducer.add_messages([ToolMessage(id="x", tool_call_id="a", content="done")])
    assert [call.id for call in reducer.conversation.pending_tool_calls] == ["b"]


# usage (USE)


def test_usage_adds_up_per_provider_and_model_and_unknown_is_not_zero_use_5():
    entries = [
        TokenUsage(provider="a b", model="c", input_tokens=1),
        TokenUsage(provider="a", model="b c", input_tokens=0),
        TokenUsage(provider="a b", model="c", input_tokens=2, reasoning_tokens=3),
        TokenUsage(model="c", output_tokens=5),
    ]
    assert aggregate_token_usage(entries) == [
        TokenUsage(provider="a b", model="c", input_tokens=3, reasoning_tokens=3),
        TokenUsage(provider="a", model="b c", input_tokens=0),
        TokenUsage(model="c", output_tokens=5),
    ]


def test_usage_is_that_of_all_runs_use_1():
    stream = [
        run_started("1"),
        run_finished("1", usage=[TokenUsage(model="m", output_tokens=1)]),
        run_started("2"),
        RunErrorEvent(message="no", usage=[TokenUsage(model="m", output_tokens=2)]),
    ]
    assert reduce(stream).usage == [TokenUsage(model="m", output_tokens=3)]


def test_the_usage_of_a_late_error_is_the_runs():
    stream = [run_started(), run_finished(usage=[TokenUsage(output_tokens=1)])]
    stream.append(RunErrorEvent(message="no", usage=[TokenUsage(output_tokens=2)]))
    assert reduce(stream).usage == [TokenUsage(output_tokens=2)]


# views


def test_a_view_never_changes():
    reducer = Reducer()
    stream = [run_started(), *tool_call("a", "{}"), TextMessageStartEvent(message_id="m", metadata={"k": 0})]
    for event in stream:
        reducer.feed(event)
    view = reducer.conversation
    copy = repr(view)
    later = [
        TextMessageContentEvent(message_id="m", delta="x", metadata={"k": 1}),
        *tool_call("a", "{}"),
        tool_result("a", "answer-a"),
        StateSnapshotEvent(snapshot=1),
        run_finished(outcome=RunFinishedInterruptOutcome(interrupts=[QUESTION])),
        run_started("2"),
    ]
    for event in later:
        reducer.feed(event)
        assert reducer.conversation is not view
        assert repr(view) == copy


def test_a_view_shares_the_messages_that_did_not_change():
    reducer = Reducer([UserMessage(id="u", content="x")])
    reducer.feed(TextMessageStartEvent(message_id="m"))
    before = reducer.conversation
    reducer.feed(TextMessageContentEvent(message_id="m", delta="x"))
    after = reducer.conversation
    assert after.messages[0] is before.messages[0]
    assert (before.messages[1].content, after.messages[1].content) == ("", "x")


def test_a_view_taken_twice_is_the_same_view():
    reducer = Reducer()
    reducer.feed(run_started())
    assert reducer.conversation is reducer.conversation


def test_a_single_message_can_be_looked_at_without_a_view():
    reducer = Reducer()
    reducer.feed(TextMessageStartEvent(message_id="m"))
    reducer.conversation  # noqa: B018
    reducer.feed(TextMessageContentEvent(message_id="m", delta="x"))
    expected = AssistantMessage(id="m", content="x")
    assert reducer.get_message("m") == expected
    assert reducer.conversation.messages == [expected]
    assert (reducer.get_message("n"), reducer.get_role("n"), reducer.get_role("m")) == (None, None, "assistant")


def test_messages_given_twice_under_one_id_count_once(caplog):
    given = [UserMessage(id="a", content="1"), UserMessage(id="b", content=""), UserMessage(id="a", content="2")]
    assert [(m.id, m.content) for m in reduce([], messages=given).messages] == [("a", "2"), ("b", "")]
    assert "ENV-12" in caplog.text
