"""What a producer owes besides: only with ``producer=True`` (AMB-4)."""

import pytest

from aguila.errors import SequenceError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    FunctionCall,
    Interrupt,
    MessagesSnapshotEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    SubagentStartedEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    UserMessage,
)
from aguila.stream.rules import PRODUCER_RULES
from aguila.stream.verifier import Verifier, verify


def start(run_id="r", thread_id="t", **more):
    return RunStartedEvent(thread_id=thread_id, run_id=run_id, **{"protocol_version": "1.1", **more})


def finish(run_id="r", thread_id="t", **more):
    return RunFinishedEvent(thread_id=thread_id, run_id=run_id, **more)


def text(message_id="m", **more):
    return [TextMessageStartEvent(message_id=message_id, **more), TextMessageEndEvent(message_id=message_id)]


def call(call_id="c", name="f", **more):
    return [
        ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, **more),
        ToolCallEndEvent(tool_call_id=call_id),
    ]


def answer(call_id="c", message_id="o"):
    return ToolCallResultEvent(message_id=message_id, tool_call_id=call_id, content="")


def activity(message_id="x", **more):
    return ActivitySnapshotEvent(message_id=message_id, activity_type="t", content={}, **more)


def patch(message_id="x"):
    return ActivityDeltaEvent(message_id=message_id, activity_type="t", patch=[])


def snapshot(*messages):
    return MessagesSnapshotEvent(messages=list(messages))


def echo(*messages, run_id="r", thread_id="t"):
    return start(input=RunAgentInput(thread_id=thread_id, run_id=run_id, messages=list(messages)))


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
TAGGED_CALL = call(parent_message_id="m", subagent_run_id="a")
SEALED = AssistantMessage(id="m", encrypted_value_type="v")
SEALED_CALL = AssistantMessage(
    id="m",
    tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments=""), encrypted_value_type="v")],
)
CALLER = AssistantMessage(
    id="m", tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments=""))], subagent_run_id="a"
)

BROKEN = [
    ("VER-2", [start(protocol_version=None), finish()]),
    ("VER-3", [start(protocol_version="draft"), finish()]),
    ("VER-3", [start(protocol_version="1.0.0"), finish()]),
    ("VER-3", [start(protocol_version="1." + "9" * 5000), finish()]),
    ("IN-3", [start(), finish(thread_id="other")]),
    ("IN-3", [start(), finish(run_id="other")]),
    ("IN-3", [start(), finish(), start("r2", "other"), finish("r2", "other")]),
    ("IN-3", [echo(thread_id="other"), finish()]),
    ("IN-3", [echo(run_id="other"), finish()]),
    ("ENV-11", [start(), finish(), start(), finish()]),
    ("ENV-12", [start(), *text(), *thinking("m"), finish()]),
    ("ENV-12", [start(), *thinking("m"), *text(), finish()]),
    ("ENV-12", [start(), *text(), *call(), answer(message_id="m"), finish()]),
    ("ENV-12", [start(), *call(), answer(), answer(), finish()]),
    ("ENV-12", [start(), *text(), activity("m"), finish()]),
    ("ENV-12", [start(), activity("m"), finish(), start("r2"), *text(), finish("r2")]),
    ("ENV-12", [start(), snapshot(USER, USER), finish()]),
    ("TXT-3", [start(), *text(), *text(role="user"), finish()]),
    ("TXT-3", [start(), *text(role="user"), *text(), finish()]),
    ("TXT-3", [start(), *text(name="Ann"), *text(name="Bob"), finish()]),
    ("TXT-3", [start(), *text(subagent_run_id="a"), *text(), finish()]),
    ("TXT-3", [start(), *text(), finish(), start("r2"), *text(subagent_run_id="a"), finish("r2")]),
    ("TXT-3", [echo(USER), *text(), finish()]),
    ("TOOL-4", [start(), *call(), *call(name="g"), finish()]),
    ("TOOL-4", [start(), *call(), *call(parent_message_id="m"), finish()]),
    ("TOOL-4", [start(), *call(subagent_run_id="a"), *call(), finish()]),
    ("TOOL-4", [start(), snapshot(CALLER), finish(), start("r2"), *call(name="g", subagent_run_id="a"), finish("r2")]),
    ("TOOL-2", [start(), *text(), finish(), start("r2"), *TAGGED_CALL, finish("r2")]),
    ("FT-3", [start(), *call(), finish(outcome=pending())]),
    ("FT-3", [start(), *call(), answer(), finish(outcome=pending("c"))]),
    ("FT-3", [start(), *call(), finish(outcome=pending("c", "c"))]),
    ("FT-3", [start(), *call(), finish(), start("r2"), finish("r2", outcome=pending("c"))]),
    ("INT-1", [start(), finish(outcome=interrupts())]),
    ("INT-3", [start(), finish(outcome=interrupts("i", "j", "i"))]),
    ("ACT-8", [start(), patch(), finish()]),
    ("ACT-8", [start(), activity(), snapshot(ANOTHER), patch(), finish()]),
    ("ACT-6", [start(), activity(subagent_run_id="a"), activity(replace=False), finish()]),
    ("ENC-6", [start(), snapshot(SEALED), finish()]),
    ("ENC-6", [start(), snapshot(SEALED_CALL), finish()]),
    ("SUB-3", [start(), TAGGED, ANNOUNCED, FAILED]),
    ("TRN-3", [start()]),
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
    "two runs of one thread": [start(), finish(), start("r2"), RunErrorEvent(message="x")],
    "a message opened again as it was": [start(), *text(role="user", name="A"), *text(role="user"), finish()],
    "a message opened again in a later run": [start(), *text(), finish(), start("r2"), *text(), finish("r2")],
    "a call opened again": [start(), *call(parent_message_id="m"), *call(), answer(), finish()],
    "a call inheriting its message's owner, twice": [
        start(), *text(subagent_run_id="a"), *call(parent_message_id="m"), *call(parent_message_id="m"), finish(),
    ],
    "a message restated by a snapshot": [start(), *text(), snapshot(AssistantMessage(id="m")), *text(), finish()],
    "pending calls, listed": [start(), *call("c"), *call("d"), answer("c"), finish(outcome=pending("d"))],
    "pending calls in any order": [start(), *call("c"), *call("d"), finish(outcome=pending("d", "c"))],
    "pending calls, not listed": [start(), *call(), finish(outcome=RunFinishedSuccessOutcome())],
    "a cancelled run with a call": [start(), *call(), finish(outcome=RunFinishedCancelledOutcome())],
    "an empty list where nothing is pending": [start(), finish(outcome=pending())],
    "a patch of an activity from a snapshot of messages": [
        start(), snapshot(ACTIVITY), patch(), finish(),
    ],
    "a patch of an activity from the input": [
        echo(ACTIVITY), patch(), finish(),
    ],
    "a patch of an activity of an earlier run": [start(), activity(), finish(), start("r2"), patch(), finish("r2")],
    "an activity replaced by another owner": [start(), activity(subagent_run_id="a"), activity(), finish()],
    "interrupt ids used in two runs": [
        start(), finish(outcome=interrupts("i")), start("r2"), finish("r2", outcome=interrupts("i")),
    ],
    "a value with its type": [
        start(), snapshot(AssistantMessage(id="m", encrypted_value="v", encrypted_value_type="x")), finish(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_a_producer_that_keeps_its_duties_is_left_alone(case):
    assert verify(KEPT[case], producer=True) == ("finished", [])


def test_a_consumer_s_rule_comes_before_a_producer_s_duty():
    verifier = Verifier(producer=True)
    verifier.feed(start())
    verifier.feed(text()[0])
    with pytest.raises(SequenceError) as caught:
        verifier.feed(TextMessageStartEvent(message_id="m", role="user"))
    assert caught.value.rule == "STR-1"
