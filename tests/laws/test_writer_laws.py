"""Laws of writing: whatever calls an EventWriter gets, its events are legal; chunked and long spellings agree."""

import itertools

import pytest
from builders import RUN_FINISHED
from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.errors import IllegalStep, SequenceError
from aguila.protocol import (
    AssistantMessage,
    CustomEvent,
    Interrupt,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.chunks import expand_chunks
from aguila.stream.verification.verifier import verify
from aguila.stream.writer import EventWriter

# Few ids, so that steps collide: most calls are illegal at the time.
ids = st.sampled_from(["", "a", "b"])
tags = st.sampled_from([None, None, "a", "b"])
some_id = st.none() | ids
state = st.recursive(st.integers(0, 2) | st.none(), lambda s: st.dictionaries(ids, s, max_size=2), max_leaves=4)


def method_call(name, *args, **kwargs):
    return st.tuples(st.just(name), st.tuples(*args), st.fixed_dictionaries(kwargs))


def emit(cls, **fields):
    return st.builds(cls, **fields).map(lambda event: ("emit", (event,), {}))


tagged = {"subagent_run_id": tags}
vocabulary = st.one_of(
    method_call("start_text", some_id, role=st.sampled_from([None, "user"]), subagent=tags),
    method_call("write_text", ids, st.just("x")),
    method_call("end_text", ids),
    method_call("start_tool_call", st.just("f"), some_id, parent_message_id=some_id, subagent=tags),
    method_call("write_tool_args", ids, st.just("x")),
    method_call("end_tool_call", ids),
    method_call("tool_result", ids, st.just("x"), message_id=some_id, subagent=tags),
    method_call("start_reasoning", some_id, subagent=tags),
    method_call("end_reasoning", ids),
    method_call("start_reasoning_message", some_id, subagent=tags),
    method_call("write_reasoning", ids, st.just("x")),
    method_call("end_reasoning_message", ids),
    method_call("encrypted_value", st.sampled_from(["message", "tool-call"]), ids, st.just("v"), subagent=tags),
    method_call("start_step", ids, subagent=tags),
    method_call("finish_step", ids, subagent=tags),
    method_call("start_subagent", st.just("n"), some_id, parent_subagent_run_id=some_id),
    method_call("finish_subagent", ids),
    method_call("fail_subagent", ids, st.just("x")),
    method_call("set_state", state),
    method_call("patch_state", st.just([{"op": "add", "path": "/a", "value": 1}])),
    method_call(
        "messages_snapshot", st.lists(ids.map(lambda i: AssistantMessage(id=i)), max_size=2), metadata=st.none()
    ),
    method_call(
        "activity_snapshot", st.just("t"), st.just({}), some_id, subagent=tags, replace=st.sampled_from([None, False])
    ),
    method_call("activity_delta", ids, st.just([]), subagent=tags),
    method_call("custom", st.just("n"), st.none(), subagent=tags),
    method_call("raw", st.just(1)),
    method_call("close_open_items"),
)
emitted = st.one_of(
    emit(TextMessageChunkEvent, message_id=some_id, delta=st.none() | st.just("x"), **tagged),
    emit(ToolCallChunkEvent, tool_call_id=some_id, tool_call_name=st.sampled_from([None, "f"]), **tagged),
    emit(ReasoningMessageChunkEvent, message_id=some_id, delta=st.just("x"), **tagged),
    emit(TextMessageStartEvent, message_id=ids, **tagged),
    emit(TextMessageContentEvent, message_id=ids, delta=st.just("x"), **tagged),
    emit(TextMessageEndEvent, message_id=ids, **tagged),
    emit(ToolCallStartEvent, tool_call_id=ids, tool_call_name=st.just("f"), parent_message_id=some_id, **tagged),
    emit(ToolCallEndEvent, tool_call_id=ids, **tagged),
    emit(ToolCallResultEvent, message_id=ids, tool_call_id=ids, content=st.just(""), **tagged),
    emit(StepStartedEvent, step_name=ids, **tagged),
    emit(SubagentStartedEvent, subagent_run_id=ids, name=st.just("n")),
    emit(SubagentFinishedEvent, subagent_run_id=ids),
    emit(StateSnapshotEvent, snapshot=state),
    emit(StateDeltaEvent, delta=st.just([{"op": "add", "path": "/b", "value": 1}])),
    emit(CustomEvent, name=st.just("n"), value=st.none(), **tagged),
    emit(RunStartedEvent, thread_id=st.just("t"), run_id=st.sampled_from(["r", "x"])),
)
endings = st.one_of(
    method_call("finish", st.none() | st.just({"x": 1})),
    method_call(
        "interrupt", st.lists(st.builds(Interrupt, id=ids, reason=st.just("x"), subagent_run_id=tags), max_size=2)
    ),
    method_call("cancel"),
    method_call("fail", st.just("x")),
    emit(RunFinishedEvent, thread_id=st.just("t"), run_id=st.sampled_from(["r", "x"])),
    emit(RunErrorEvent, message=st.just("x")),
)
rarely_an_ending = st.integers(0, 19).flatmap(lambda n: endings if n == 0 else vocabulary if n < 13 else emitted)


def attempt(writer, step):
    name, args, kwargs = step
    try:
        return getattr(writer, name)(*args, **kwargs)
    except IllegalStep:
        return []


def new_writer():
    counter = itertools.count()
    return EventWriter("t", "r", new_id=lambda: f"new-{next(counter)}")


@settings(max_examples=400, deadline=None)
@given(st.lists(rarely_an_ending, max_size=40), endings)
def test_whatever_is_asked_what_is_written_passes_the_verifier_with_a_producer_s_duties(steps, ending):
    writer = new_writer()
    events = writer.start()
    for step in [*steps, ending]:
        events += attempt(writer, step)
    if not writer.is_finished:  # the ending was one of the illegal ones
        events += writer.finish()
    assert verify(events, producer=True) == ("finished", [])
    assert [e.type.value in ("RUN_FINISHED", "RUN_ERROR") for e in events].count(True) == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(vocabulary, emitted), max_size=30), st.sampled_from(["finish", "cancel", "interrupt"]))
def test_ending_a_run_in_order_always_closes_everything(steps, ending):
    writer = new_writer()
    writer.start()
    for step in steps:
        attempt(writer, step)
    getattr(writer, ending)(*([[Interrupt(id="i", reason="x")]] if ending == "interrupt" else []))
    assert writer.open_items == []
    assert writer.is_finished


@settings(max_examples=300, deadline=None)
@given(st.lists(rarely_an_ending, max_size=40))
def test_a_refused_step_leaves_no_trace(steps):
    """The same steps without the refused ones write the same events."""
    now = [0]
    bold, cautious = (EventWriter("t", "r", new_id=lambda: f"new-{now[0]}") for _ in range(2))
    assert bold.start() == cautious.start()
    for now[0], (name, args, kwargs) in enumerate(steps):
        try:
            written = getattr(bold, name)(*args, **kwargs)
        except IllegalStep:
            continue
        assert getattr(cautious, name)(*args, **kwargs) == written
    assert bold.open_items == cautious.open_items
    assert bold.state == cautious.state
    assert bold.pending_tool_call_ids == cautious.pending_tool_call_ids


# Chunked and unchunked spellings

KINDS = {
    "text": (
        lambda **f: TextMessageChunkEvent(message_id="m", role="user", name="N", **f),
        TextMessageStartEvent(message_id="m", role="user", name="N"),
        lambda delta: TextMessageContentEvent(message_id="m", delta=delta),
        TextMessageEndEvent(message_id="m"),
    ),
    "tool": (
        lambda **f: ToolCallChunkEvent(tool_call_id="m", tool_call_name="f", parent_message_id="p", **f),
        ToolCallStartEvent(tool_call_id="m", tool_call_name="f", parent_message_id="p"),
        lambda delta: ToolCallArgsEvent(tool_call_id="m", delta=delta),
        ToolCallEndEvent(tool_call_id="m"),
    ),
    "reasoning": (
        lambda **f: ReasoningMessageChunkEvent(message_id="m", **f),
        ReasoningMessageStartEvent(message_id="m"),
        lambda delta: ReasoningMessageContentEvent(message_id="m", delta=delta),
        ReasoningMessageEndEvent(message_id="m"),
    ),
}
BARE = {"text": TextMessageChunkEvent, "tool": ToolCallChunkEvent, "reasoning": ReasoningMessageChunkEvent}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=3), max_size=6), st.data())
def test_chunked_and_long_spellings_of_an_item_are_the_same_stream(kind, deltas, data):
    chunk, start, content, end = KINDS[kind]
    finish = RUN_FINISHED
    # later chunks may repeat what the first one said, or leave it out
    chunks = [chunk()] + [(chunk if data.draw(st.booleans()) else BARE[kind])(delta=delta) for delta in deltas]
    assert list(expand_chunks([*chunks, finish])) == [start, *map(content, deltas), end, finish]


@settings(max_examples=300, deadline=None)
@given(st.lists(emitted.map(lambda step: step[1][0]), max_size=30))
def test_expanding_twice_changes_nothing(events):
    try:
        once = list(expand_chunks(events))
    except SequenceError:
        return
    assert list(expand_chunks(once)) == once
