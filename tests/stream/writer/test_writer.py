"""EventWriter: what it writes, what it refuses, and that a refusal changes nothing."""

import itertools

import pytest
from builders import RUN_STARTED

from aguila.errors import AguilaError, EncodeError, IllegalStep
from aguila.protocol import (
    ActivityDeltaEvent,
    AssistantMessage,
    CustomEvent,
    Interrupt,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEncryptedValueEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuspendedOutcome,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallChunkEvent,
)
from aguila.stream.verification.verifier import verify
from aguila.stream.writer import EventWriter


class Written:
    """A writer and all its events."""

    def __init__(self, **options):
        counter = itertools.count(1)
        self.writer = EventWriter("t", "r", new_id=lambda: f"id-{next(counter)}", **options)
        self.events = []

    def __getattr__(self, name):
        def write(*args, **kwargs):
            events = getattr(self.writer, name)(*args, **kwargs)
            self.events += events
            return events

        return write

    def refuses(self, rule, name, *args, **kwargs):
        before = (self.writer.open_items, self.writer.state, self.writer.pending_tool_call_ids, self.writer.is_open)
        with pytest.raises(IllegalStep) as caught:
            getattr(self.writer, name)(*args, **kwargs)
        assert caught.value.rule == rule
        after = (self.writer.open_items, self.writer.state, self.writer.pending_tool_call_ids, self.writer.is_open)
        assert after == before, "a refused step changes nothing"

    @property
    def types(self):
        return [event.type.value for event in self.events]


@pytest.fixture
def run():
    """A started run; at the end, its events must pass the verifier with the rules for producers."""
    run = Written()
    run.start()
    yield run
    if run.writer.is_open:
        run.finish()
    assert verify(run.events, producer=True) == ("finished", [])


def types(events):
    return [event.type.value for event in events]


# The run


def test_the_start_declares_our_version_and_echoes_the_input_VER_2():
    given = RunAgentInput(thread_id="t", run_id="r", messages=[], state={"n": 1})
    run = Written(input=given, parent_run_id="p")
    assert not run.writer.is_open
    assert run.start() == [
        RunStartedEvent(thread_id="t", run_id="r", protocol_version="1.1", parent_run_id="p", input=given)
    ]
    assert run.writer.is_open
    assert run.writer.state == {"n": 1}, "deltas are against the input's state (IN-11)"


def test_events_carry_the_time_if_there_is_a_clock():
    ticks = itertools.count(100)
    run = Written(now=lambda: next(ticks))
    run.start()
    run.start_text("m")
    run.emit(CustomEvent(name="n", value=1, timestamp=7))
    run.finish()
    assert [event.timestamp for event in run.events] == [100, 101, 7, 102, 103]


def test_nothing_can_be_written_before_the_start_but_a_failure_LIFE_1():
    run = Written()
    run.refuses("LIFE-1", "start_text")
    run.refuses("LIFE-1", "finish")
    run.refuses("LIFE-1", "set_state", {"a": 1})
    assert run.fail("no") == [RunErrorEvent(message="no")]
    assert verify(run.events, producer=True) == ("finished", [])


def test_a_run_is_started_once_LIFE_17(run):
    run.refuses("LIFE-17", "start")


@pytest.mark.parametrize("ending", ["finish", "cancel", "fail"])
def test_after_its_end_a_run_writes_nothing_more(run, ending):
    getattr(run, ending)(*(["x"] if ending == "fail" else []))
    assert run.writer.is_finished
    assert not run.writer.is_open
    rule = "LIFE-16" if ending == "fail" else "LIFE-15"
    for step in (["finish"], ["cancel"], ["fail", "x"], ["start_text"], ["set_state", {"a": 1}], ["custom", "n", 1]):
        run.refuses(rule, *step)
    run.refuses(rule, "emit", TextMessageChunkEvent(message_id="m", delta="x"))
    assert run.close_open_items() == []


def test_finishing_reports_result_and_usage_and_success(run):
    usage = [TokenUsage(model="m", input_tokens=1)]
    assert run.finish({"x": 1}, usage=usage) == [
        RunFinishedEvent(thread_id="t", run_id="r", result={"x": 1}, usage=usage, outcome=RunFinishedSuccessOutcome())
    ]


def test_finishing_lists_exactly_the_unanswered_calls_in_call_order_FT_3(run):
    for name in ("b", "a", "c"):
        run.start_tool_call("f", name)
        run.end_tool_call(name)
    run.tool_result("a", "done")
    assert run.writer.pending_tool_call_ids == ["b", "c"]
    assert run.finish()[-1].outcome.pending_tool_call_ids == ["b", "c"]


def test_finishing_closes_contents_before_what_holds_them_and_subagents_innermost_first(run):
    run.start_subagent("outer", "a")
    run.start_subagent("inner", "b", parent_subagent_run_id="a")
    run.start_step("s", subagent="a")
    run.start_reasoning("r")
    run.start_reasoning_message("r")
    run.start_text("m", subagent="b")
    run.start_tool_call("f", "c", parent_message_id="m")
    closed = run.finish()
    assert types(closed) == [
        "TEXT_MESSAGE_END",
        "TOOL_CALL_END",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "STEP_FINISHED",
        "SUBAGENT_FINISHED",
        "SUBAGENT_FINISHED",
        "RUN_FINISHED",
    ]
    assert [getattr(event, "subagent_run_id", None) for event in closed] == ["b", None, None, None, "a", "b", "a", None]


def test_an_interrupt_suspends_open_subagents_with_the_questions_they_raised_SUB_7(run):
    run.start_subagent("one", "a")
    run.start_subagent("two", "b")
    asked = [Interrupt(id="i", reason="x", subagent_run_id="a"), Interrupt(id="j", reason="x")]
    assert run.interrupt(asked) == [
        SubagentFinishedEvent(subagent_run_id="b", outcome=SubagentFinishedSuspendedOutcome()),
        SubagentFinishedEvent(subagent_run_id="a", outcome=SubagentFinishedSuspendedOutcome(interrupt_ids=["i"])),
        RunFinishedEvent(thread_id="t", run_id="r", outcome=RunFinishedInterruptOutcome(interrupts=asked)),
    ]


def test_an_interrupt_asks_something_and_every_question_has_its_own_id_INT_1_INT_3(run):
    run.start_text("m")
    run.refuses("INT-1", "interrupt", [])
    run.refuses("INT-3", "interrupt", [Interrupt(id="i", reason="x"), Interrupt(id="i", reason="y")])


def test_a_cancelled_run_is_neither_success_nor_failure_and_its_subagents_end_in_error_LIFE_8(run):
    run.start_subagent("one", "a")
    run.start_tool_call("f", "c")
    call_end, subagent_end, end = run.cancel()
    assert call_end.tool_call_id == "c"
    assert isinstance(subagent_end, SubagentErrorEvent)
    assert subagent_end.code == "cancelled"
    assert end.outcome == RunFinishedCancelledOutcome()


def test_a_failure_closes_nothing_LIFE_13(run):
    run.start_text("m")
    run.start_step("s")
    assert run.fail("boom", "internal") == [RunErrorEvent(message="boom", code="internal")]
    assert run.writer.open_items == []


def test_what_is_open_can_be_closed_on_demand(run):
    run.start_text("m")
    run.start_step("s")
    assert types(run.close_open_items()) == ["TEXT_MESSAGE_END", "STEP_FINISHED"]
    assert run.close_open_items() == []
    run.start_text("m")


# Items


def test_ids_are_minted_where_none_is_given(run):
    made = [run.start_text()[-1].message_id, run.start_tool_call("f")[-1].tool_call_id]
    made += [run.start_reasoning()[-1].message_id, run.start_reasoning_message()[-1].message_id]
    made += [run.start_subagent("n")[-1].subagent_run_id, run.activity_snapshot("t", {})[-1].message_id]
    made += [run.tool_result(made[1], "")[-1].message_id]
    assert made == [f"id-{i}" for i in range(1, 8)]


def test_an_empty_id_is_given_and_not_minted(run):
    assert run.start_text("")[-1].message_id == ""
    assert run.write_text("", "")[-1] == TextMessageContentEvent(message_id="", delta="")


def test_continuations_carry_their_opener_s_tag(run):
    run.start_text("m", subagent="a")
    run.start_tool_call("f", "c", subagent="a")
    run.start_reasoning("r", subagent="a")
    run.start_reasoning_message("r", subagent="a")
    tagged = run.write_text("m", "x") + run.end_text("m") + run.write_tool_args("c", "x") + run.end_tool_call("c")
    tagged += run.write_reasoning("r", "x") + run.end_reasoning_message("r") + run.end_reasoning("r")
    assert {event.subagent_run_id for event in tagged} == {"a"}


def test_an_item_that_a_snapshot_gave_to_another_owner_is_closed_without_a_tag(run):
    run.start_text("m", subagent="a")
    run.messages_snapshot([AssistantMessage(id="m", content="")])
    assert run.write_text("m", "x")[-1].subagent_run_id is None
    assert run.finish()[0] == TextMessageEndEvent(message_id="m")


@pytest.mark.parametrize(
    ("rule", "steps"),
    [
        ("STR-1", [["start_text", "m"], ["start_text", "m"]]),
        ("STR-2", [["write_text", "m", "x"]]),
        ("STR-2", [["end_tool_call", "c"]]),
        ("RSN-4", [["write_reasoning", "r", "x"]]),
        ("RSN-1", [["end_reasoning", "r"]]),
        ("STEP-1", [["start_step", "s"], ["start_step", "s"]]),
        ("SUB-4", [["finish_subagent", "a"]]),
        ("SUB-4", [["fail_subagent", "a", "x"]]),
        ("SUB-2", [["start_subagent", "n", "a"], ["finish_subagent", "a"], ["start_subagent", "n", "a"]]),
        ("ENV-12", [["start_text", "m"], ["activity_snapshot", "t", {}, "m"]]),
        ("ACT-8", [["activity_delta", "x", []]]),
        ("SNAP-8", [["patch_state", [{"op": "remove"}]]]),
        ("SNAP-8", [["emit", StateDeltaEvent(delta=[{"op": "grow", "path": ""}])]]),
        ("SNAP-9", [["patch_state", [{"op": "remove", "path": "/nothing"}]]]),
    ],
)
def test_an_illegal_step_is_refused_by_its_rule(run, rule, steps):
    for step in steps[:-1]:
        getattr(run, step[0])(*step[1:])
    run.refuses(rule, *steps[-1])


def test_the_end_of_a_subagent_closes_what_it_left_open_and_nothing_else(run):
    run.start_subagent("n", "a")
    run.start_subagent("child", "b", parent_subagent_run_id="a")
    run.start_text("mine")
    run.start_text("its", subagent="a")
    run.start_step("s", subagent="a")
    assert run.finish_subagent("a", {"ok": True}) == [
        TextMessageEndEvent(message_id="its", subagent_run_id="a"),
        run.events[-2],
        SubagentFinishedEvent(subagent_run_id="a", result={"ok": True}),
    ]
    assert run.events[-2].step_name == "s"
    assert [item.id for item in run.writer.open_items] == ["mine", "b"]


def test_a_subagent_may_fail_without_the_run(run):
    run.start_subagent("n", "a")
    run.emit(TextMessageChunkEvent(message_id="m", delta="x", subagent_run_id="a"))
    assert run.fail_subagent("a", "boom", "c") == [
        TextMessageEndEvent(message_id="m", subagent_run_id="a"),
        SubagentErrorEvent(subagent_run_id="a", message="boom", code="c"),
    ]
    assert run.writer.is_open


def test_encrypted_values_custom_and_raw_events(run):
    assert run.encrypted_value("message", "m", "v", value_type="x.y") == [
        ReasoningEncryptedValueEvent(subtype="message", entity_id="m", encrypted_value="v", encrypted_value_type="x.y")
    ]
    assert run.custom("n", None) == [CustomEvent(name="n", value=None)]
    assert run.raw({"a": 1}, source="s") == [RawEvent(event={"a": 1}, source="s")]


def test_an_activity_keeps_its_type_unless_another_is_given_ACT_7(run):
    run.activity_snapshot("plan", {"n": 1}, "x")
    operation = {"op": "replace", "path": "/n", "value": 2}
    assert run.activity_delta("x", [operation]) == [
        ActivityDeltaEvent(message_id="x", activity_type="plan", patch=[operation])
    ]
    assert run.activity_delta("x", [], activity_type="other")[0].activity_type == "other"
    assert run.activity_delta("x", [])[0].activity_type == "other"


# State


def test_a_change_of_state_is_a_delta_and_no_change_is_no_event(run):
    assert run.set_state({"count": 1}) == [StateDeltaEvent(delta=[{"op": "add", "path": "/count", "value": 1}])]
    assert run.set_state({"count": 1}) == []
    assert run.set_state({"count": True})[0].delta == [{"op": "replace", "path": "/count", "value": True}]


@pytest.mark.parametrize("state", [None, 0, "", [], [1], "text"])
def test_a_state_of_another_kind_is_a_snapshot(run, state):
    assert run.set_state(state) == [StateSnapshotEvent(snapshot=state)]
    assert run.set_state(state) == []
    assert run.writer.state == state


def test_what_was_sent_does_not_change_when_the_agent_changes_its_state_in_place(run):
    state = {"list": [1], "keep": "x" * 200}
    run.set_state(state)
    state["list"].append(2)
    assert run.writer.state["list"] == [1]
    assert run.set_state(state) == [StateDeltaEvent(delta=[{"op": "add", "path": "/list/1", "value": 2}])]
    nested = {"deep": []}
    run.patch_state([{"op": "add", "path": "/nested", "value": nested}])
    nested["deep"].append(1)
    assert run.writer.state["nested"] == {"deep": []}


def test_the_given_state_is_not_held_either():
    state = {"list": []}
    run = Written(state=state)
    run.start()
    state["list"].append(1)
    assert run.set_state(state) == [StateDeltaEvent(delta=[{"op": "add", "path": "/list/0", "value": 1}])]


@pytest.mark.parametrize(
    ("value", "path"),
    [(object(), ""), (float("nan"), ""), ({1: 2}, ""), ([float("inf")], "/0"), ({"b/c": {2}}, "/b~1c")],
)
def test_a_state_that_is_not_json_is_refused_with_a_pointer_to_what_is_wrong(run, value, path):
    before = run.writer.state
    with pytest.raises(EncodeError) as caught:
        run.set_state({"keep": "x" * 100, "a": value})
    assert caught.value.path == f"/a{path}"
    with pytest.raises(EncodeError) as caught:
        run.custom("n", {"a": value})
    assert caught.value.path == f"/a{path}"
    assert run.writer.state == before


def test_emitted_state_is_what_later_changes_are_measured_against(run):
    run.emit(StateSnapshotEvent(snapshot={"a": 1, "b": 2}))
    run.emit(StateDeltaEvent(delta=[{"op": "remove", "path": "/b"}]))
    assert run.writer.state == {"a": 1}
    assert run.set_state({"a": 1}) == []
    run.refuses("SNAP-9", "emit", StateDeltaEvent(delta=[{"op": "remove", "path": "/b"}]))


# Ready-made events


def test_emitted_chunks_are_written_in_the_long_spelling(run):
    run.emit(TextMessageChunkEvent(message_id="m", delta="a"))
    run.emit(TextMessageChunkEvent(delta="b"))
    run.emit(ToolCallChunkEvent(tool_call_id="c", tool_call_name="f", delta="{}"))
    run.finish()
    assert run.types[1:] == [
        "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
        "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED",
    ]  # fmt: skip


def test_a_change_of_state_by_the_handle_does_not_end_a_chunked_message_but_an_emitted_one_does_CHK_7(run):
    run.emit(TextMessageChunkEvent(message_id="m", delta="a"))
    run.set_state({"n": 1})
    assert run.emit(TextMessageChunkEvent(delta="b")) == [TextMessageContentEvent(message_id="m", delta="b")]
    run.emit(StateDeltaEvent(delta=[]))
    run.refuses("CHK-3", "emit", TextMessageChunkEvent(delta="c"))


def test_a_chunked_message_is_not_ended_by_name_CHK_2(run):
    run.emit(TextMessageChunkEvent(message_id="m", delta="a"))
    run.refuses("STR-2", "end_text", "m")
    run.emit(TextMessageChunkEvent(delta="b"))


def test_a_refused_event_that_would_have_ended_a_chunked_message_leaves_it_open(run):
    run.start_tool_call("f", "c")
    run.emit(TextMessageChunkEvent(message_id="m", delta="a"))
    run.refuses("STR-1", "emit", ToolCallChunkEvent(tool_call_id="c", tool_call_name="f"))
    run.refuses("STR-1", "start_tool_call", "f", "c")
    assert run.emit(TextMessageChunkEvent(delta="b")) == [TextMessageContentEvent(message_id="m", delta="b")]
    run.finish()
    assert run.types.count("TEXT_MESSAGE_END") == 1


def test_closing_on_demand_also_ends_chunked_messages_for_good(run):
    run.emit(TextMessageChunkEvent(message_id="m", delta="a"))
    assert run.close_open_items() == [TextMessageEndEvent(message_id="m")]
    assert types(run.custom("n", 1)) == ["CUSTOM"]


def test_an_agent_s_own_start_is_taken_only_first_and_only_with_this_run_s_ids_IN_3():
    started = RunStartedEvent(thread_id="t", run_id="r", protocol_version="0.9")
    run = Written()
    run.refuses("IN-3", "emit", RunStartedEvent(thread_id="t", run_id="other"))
    assert run.emit(started) == [RUN_STARTED]
    assert run.emit(started) == [], "again, before anything else, it adds nothing"
    run.custom("n", 1)
    run.refuses("LIFE-17", "emit", started)


def test_an_agent_s_own_finish_closes_what_is_open_and_lists_the_calls_left_FT_3(run):
    run.start_tool_call("f", "c")
    end, finished = run.emit(RunFinishedEvent(thread_id="t", run_id="r", result=1))
    assert end.tool_call_id == "c"
    assert finished.result == 1
    assert finished.outcome == RunFinishedSuccessOutcome(pending_tool_call_ids=["c"])


@pytest.mark.parametrize(
    ("rule", "event"),
    [
        ("IN-3", RunFinishedEvent(thread_id="t", run_id="other")),
        ("IN-3", RunFinishedEvent(thread_id="other", run_id="r")),
        (
            "FT-3",
            RunFinishedEvent(thread_id="t", run_id="r", outcome=RunFinishedSuccessOutcome(pending_tool_call_ids=["x"])),
        ),
    ],
)
def test_an_agent_s_own_finish_that_is_wrong_closes_nothing(run, rule, event):
    run.start_text("m")
    run.refuses(rule, "emit", event)
    run.write_text("m", "still open")


def test_an_agent_s_own_error_ends_the_run(run):
    run.start_text("m")
    assert run.emit(RunErrorEvent(message="x")) == [RunErrorEvent(message="x")]
    assert run.writer.is_finished


def test_emitting_an_event_that_must_not_come_is_a_local_error_with_its_rule(run):
    run.refuses("STR-2", "emit", TextMessageContentEvent(message_id="m", delta="x"))
    run.emit(TextMessageStartEvent(message_id="m"))


def test_a_refused_event_leaves_chunked_items_as_they_were_and_in_their_order(run):
    for name in "abc":
        run.emit(TextMessageChunkEvent(message_id=name, delta="x", subagent_run_id=name))
    run.emit(ToolCallChunkEvent(tool_call_id="call", tool_call_name="f"))
    run.start_text("open", subagent="d")
    run.refuses("STR-1", "emit", TextMessageStartEvent(message_id="open", subagent_run_id="b"))  # would end b's item
    run.refuses("STR-1", "emit", TextMessageChunkEvent(message_id="open", subagent_run_id="a"))
    twice = [AssistantMessage(id="n", content=""), AssistantMessage(id="n", content="")]
    run.refuses("ENV-12", "emit", MessagesSnapshotEvent(messages=twice))  # would end them all
    for name in "abc":
        assert run.emit(TextMessageChunkEvent(subagent_run_id=name, delta="y")) == [
            TextMessageContentEvent(message_id=name, delta="y", subagent_run_id=name)
        ]
    ended = run.emit(MessagesSnapshotEvent(messages=[]))
    assert [getattr(event, "message_id", None) for event in ended] == ["a", "b", "c", None, None]
    assert [item.id for item in run.writer.open_items] == ["open"]


@pytest.mark.parametrize("max_size", [None, 10_000])
def test_a_prepared_state_event_is_written_as_any_other(max_size):
    writer = EventWriter("t", "r", new_id=lambda: "id", state={"n": 1}, max_size=max_size)
    writer.start()
    snapshot = StateSnapshotEvent(snapshot={"list": [1]})
    writer.prepare(snapshot)
    snapshot.snapshot["list"].append(2)  # after it was copied
    assert writer.emit(snapshot) == [snapshot]
    assert writer.state == {"list": [1]}
    delta = StateDeltaEvent(delta=[{"op": "add", "path": "/list/-", "value": {"a": []}}])
    writer.prepare(delta)
    assert writer.emit(delta) == [delta]
    assert writer.state == {"list": [1, {"a": []}]}
    assert writer.state["list"][1] is not delta.delta[0]["value"]


def test_a_state_that_changed_after_an_event_was_prepared_is_not_lost():
    writer = EventWriter("t", "r", new_id=lambda: "id", state={"n": 1}, max_size=10_000)
    writer.start()
    delta = StateDeltaEvent(delta=[{"op": "add", "path": "/a", "value": 1}])
    writer.prepare(delta)
    writer.set_state({"n": 2})
    writer.emit(delta)
    assert writer.state == {"n": 2, "a": 1}
    for event, error in [
        (StateDeltaEvent(delta=[{"op": "remove", "path": "/missing"}]), "does not apply"),
        (StateSnapshotEvent(snapshot={"x": {1}}), "set is not JSON"),
    ]:
        writer.prepare(event)
        with pytest.raises(AguilaError, match=error):
            writer.emit(event)
    assert writer.state == {"n": 2, "a": 1}
