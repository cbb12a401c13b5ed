"""The rules of producers, checked only with ``producer=True`` (AMB-4)."""

import pytest
from builders import messages_snapshot, run_finished, run_started, text_message, tool_call, tool_result

from aguila.errors import SequenceError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    FunctionCall,
    Interrupt,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    SubagentStartedEvent,
    TextMessageStartEvent,
    ToolCall,
    UserMessage,
)
from aguila.stream.verification.rules import PRODUCER_RULES
from aguila.stream.verification.verifier import Verifier, verify


def activity(message_id="x", **more):
    return ActivitySnapshotEvent(message_id=message_id, activity_type="t", content={}, **more)


def patch(message_id="x"):
    return ActivityDeltaEvent(message_id=message_id, activity_type="t", patch=[])


def echo(*messages, run_id="r", thread_id="t"):
    return run_started(input=RunAgentInput(thread_id=thread_id, run_id=run_id, messages=list(messages)))


def interrupts(*ids):
    return RunFinishedInterruptOutcome(interrupts=[Interrupt(id=id, reason="x") for id in ids])


def pending(*ids):
    return RunFinishedSuccessOutcome(pending_tool_call_ids=list(ids))


def thinking(message_id):
    return [ReasoningMessageStartEvent(message_id=message_id), ReasoningMessageEndEvent(message_id=message_id)]


USER = UserMessage(id="m", content="")
ACTIVITY = ActivityMessage(id="x", activity_type="t", content={})
ANOTHER = ActivityMessage(id="y", activity_type="t", content={})
TAGGED = CustomEvent(name="n", value=1, subagent_run_id="a")
ANNOUNCED = SubagentStartedEvent(subagent_run_id="a", name="n")
FAILED = RunErrorEvent(message="x")
TAGGED_CALL = tool_call(parent_message_id="m", subagent_run_id="a")
SEALED = AssistantMessage(id="m", encrypted_value_type="v")
SEALED_CALL = AssistantMessage(
    id="m",
    tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments=""), encrypted_value_type="v")],
)
CALLER = AssistantMessage(
    id="m", tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments=""))], subagent_run_id="a"
)

BROKEN = [
    ("VER-2", [run_started(protocol_version=None), run_finished()]),
    ("VER-3", [run_started(protocol_version="draft"), run_finished()]),
    ("VER-3", [run_started(protocol_version="1.0.0"), run_finished()]),
    ("VER-3", [run_started(protocol_version="1." + "9" * 5000), run_finished()]),
    ("IN-3", [run_started(), run_finished(thread_id="other")]),
    ("IN-3", [run_started(), run_finished(run_id="other")]),
    ("IN-3", [run_started(), run_finished(), run_started("r2", "other"), run_finished("r2", "other")]),
    ("IN-3", [echo(thread_id="other"), run_finished()]),
    ("IN-3", [echo(run_id="other"), run_finished()]),
    ("ENV-11", [run_started(), run_finished(), run_started(), run_finished()]),
    ("ENV-12", [run_started(), *text_message(), *thinking("m"), run_finished()]),
    ("ENV-12", [run_started(), *thinking("m"), *text_message(), run_finished()]),
    ("ENV-12", [run_started(), *text_message(), *tool_call(), tool_result(message_id="m"), run_finished()]),
    ("ENV-12", [run_started(), *tool_call(), tool_result(), tool_result(), run_finished()]),
    ("ENV-12", [run_started(), *text_message(), activity("m"), run_finished()]),
    ("ENV-12", [run_started(), activity("m"), run_finished(), run_started("r2"), *text_message(), run_finished("r2")]),
    ("ENV-12", [run_started(), messages_snapshot(USER, USER), run_finished()]),
    ("TXT-3", [run_started(), *text_message(), *text_message(role="user"), run_finished()]),
    ("TXT-3", [run_started(), *text_message(role="user"), *text_message(), run_finished()]),
    ("TXT-3", [run_started(), *text_message(name="Ann"), *text_message(name="Bob"), run_finished()]),
    ("TXT-3", [run_started(), *text_message(subagent_run_id="a"), *text_message(), run_finished()]),
    (
        "TXT-3",
        [
            run_started(),
            *text_message(),
            run_finished(),
            run_started("r2"),
            *text_message(subagent_run_id="a"),
            run_finished("r2"),
        ],
    ),
    ("TXT-3", [echo(USER), *text_message(), run_finished()]),
    ("TOOL-4", [run_started(), *tool_call(), *tool_call(name="g"), run_finished()]),
    ("TOOL-4", [run_started(), *tool_call(), *tool_call(parent_message_id="m"), run_finished()]),
    ("TOOL-4", [run_started(), *tool_call(subagent_run_id="a"), *tool_call(), run_finished()]),
    (
        "TOOL-4",
        [
            run_started(),
            messages_snapshot(CALLER),
            run_finished(),
            run_started("r2"),
            *tool_call(name="g", subagent_run_id="a"),
            run_finished("r2"),
        ],
    ),
    ("TOOL-2", [run_started(), *text_message(), run_finished(), run_started("r2"), *TAGGED_CALL, run_finished("r2")]),
    ("FT-3", [run_started(), *tool_call(), run_finished(outcome=pending())]),
    ("FT-3", [run_started(), *tool_call(), tool_result(), run_finished(outcome=pending("c"))]),
    ("FT-3", [run_started(), *tool_call(), run_finished(outcome=pending("c", "c"))]),
    (
        "FT-3",
        [run_started(), *tool_call(), run_finished(), run_started("r2"), run_finished("r2", outcome=pending("c"))],
    ),
    ("INT-1", [run_started(), run_finished(outcome=interrupts())]),
    ("INT-3", [run_started(), run_finished(outcome=interrupts("i", "j", "i"))]),
    ("ACT-8", [run_started(), patch(), run_finished()]),
    ("ACT-8", [run_started(), activity(), messages_snapshot(ANOTHER), patch(), run_finished()]),
    ("ACT-6", [run_started(), activity(subagent_run_id="a"), activity(replace=False), run_finished()]),
    ("ENC-6", [run_started(), messages_snapshot(SEALED), run_finished()]),
    ("ENC-6", [run_started(), messages_snapshot(SEALED_CALL), run_finished()]),
    ("SUB-3", [run_started(), TAGGED, ANNOUNCED, FAILED]),
    ("TRN-3", [run_started()]),
    ("TRN-3", []),
]


@pytest.mark.parametrize(("rule", "events"), BROKEN, ids=[f"{rule}-{i}" for i, (rule, _) in enumerate(BROKEN)])
def test_a_broken_duty_is_found_with_producer_and_is_no_concern_of_a_consumer(rule, events):
    assert verify(events).findings == []
    with pytest.raises(SequenceError) as caught:
        verify(events, producer=True)
    assert caught.value.rule == rule
    assert rule in {error.rule for error in verify(events, producer=True, collect=True).findings}


def test_every_duty_in_the_table_is_broken_by_some_stream_here():
    assert {rule for rule, _ in BROKEN} == set(PRODUCER_RULES)


KEPT = {
    "two runs of one thread": [run_started(), run_finished(), run_started("r2"), RunErrorEvent(message="x")],
    "a message opened again as it was": [
        run_started(),
        *text_message(role="user", name="A"),
        *text_message(role="user"),
        run_finished(),
    ],
    "a message opened again in a later run": [
        run_started(),
        *text_message(),
        run_finished(),
        run_started("r2"),
        *text_message(),
        run_finished("r2"),
    ],
    "a call opened again": [
        run_started(),
        *tool_call(parent_message_id="m"),
        *tool_call(),
        tool_result(),
        run_finished(),
    ],
    "a call inheriting its message's owner, twice": [
        run_started(),
        *text_message(subagent_run_id="a"),
        *tool_call(parent_message_id="m"),
        *tool_call(parent_message_id="m"),
        run_finished(),
    ],
    "a message restated by a snapshot": [
        run_started(),
        *text_message(),
        messages_snapshot(AssistantMessage(id="m")),
        *text_message(),
        run_finished(),
    ],
    "pending calls, listed": [
        run_started(),
        *tool_call("c"),
        *tool_call("d"),
        tool_result("c"),
        run_finished(outcome=pending("d")),
    ],
    "pending calls in any order": [
        run_started(),
        *tool_call("c"),
        *tool_call("d"),
        run_finished(outcome=pending("d", "c")),
    ],
    "pending calls, not listed": [run_started(), *tool_call(), run_finished(outcome=RunFinishedSuccessOutcome())],
    "a cancelled run with a call": [run_started(), *tool_call(), run_finished(outcome=RunFinishedCancelledOutcome())],
    "an empty list where nothing is pending": [run_started(), run_finished(outcome=pending())],
    "a patch of an activity from a snapshot of messages": [
        run_started(),
        messages_snapshot(ACTIVITY),
        patch(),
        run_finished(),
    ],
    "a patch of an activity from the input": [
        echo(ACTIVITY),
        patch(),
        run_finished(),
    ],
    "a patch of an activity of an earlier run": [
        run_started(),
        activity(),
        run_finished(),
        run_started("r2"),
        patch(),
        run_finished("r2"),
    ],
    "an activity replaced by another owner": [run_started(), activity(subagent_run_id="a"), activity(), run_finished()],
    "interrupt ids used in two runs": [
        run_started(),
        run_finished(outcome=interrupts("i")),
        run_started("r2"),
        run_finished("r2", outcome=interrupts("i")),
    ],
    "a value with its type": [
        run_started(),
        messages_snapshot(AssistantMessage(id="m", encrypted_value="v", encrypted_value_type="x")),
        run_finished(),
    ],
}


@pytest.mark.parametrize("case", KEPT)
def test_a_producer_that_keeps_its_duties_is_left_alone(case):
    assert verify(KEPT[case], producer=True) == ("finished", [])


def test_a_consumer_s_rule_comes_before_a_producer_s_duty():
    verifier = Verifier(producer=True)
    verifier.feed(run_started())
    verifier.feed(text_message()[0])
    with pytest.raises(SequenceError) as caught:
        verifier.feed(TextMessageStartEvent(message_id="m", role="user"))
    assert caught.value.rule == "STR-1"
