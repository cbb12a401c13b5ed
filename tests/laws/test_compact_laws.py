"""Laws of compaction, over random valid streams."""

from collections import Counter

from builders import ignore
from hypothesis import given, settings
from hypothesis import strategies as st
from streams.random_streams import streams

from aguila.errors import SequenceError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    EventType,
    FunctionCall,
    MessagesSnapshotEvent,
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
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
    replace,
)
from aguila.stream.chunks import expand_chunks
from aguila.stream.compact import compact
from aguila.stream.lineage import Lineage
from aguila.stream.reducer import reduce
from aguila.stream.verification.verifier import verify


@settings(max_examples=250, deadline=None)
@given(streams(120))
def test_a_compacted_stream_means_the_same(stream):
    compacted = compact(stream, warn=ignore)
    assert reduce(compacted, warn=ignore) == reduce(stream, warn=ignore)


@settings(max_examples=150, deadline=None)
@given(streams(), st.dictionaries(st.sampled_from(["a", "b", "list"]), st.integers() | st.just([])))
def test_a_compacted_log_means_the_same_from_any_state_it_was_given(stream, state):
    compacted = compact(stream, state=state, warn=ignore)
    assert reduce(compacted, state=state, warn=ignore) == reduce(stream, state=state, warn=ignore)


@settings(max_examples=150, deadline=None)
@given(streams(), st.dictionaries(st.sampled_from(["a", "b", "list"]), st.integers() | st.just([])))
def test_a_compacted_log_means_the_same_from_any_state_if_it_was_given_none(stream, state):
    compacted = compact(stream, warn=ignore)
    assert reduce(compacted, state=state, warn=ignore).state == reduce(stream, state=state, warn=ignore).state


STATES = st.none() | st.dictionaries(st.sampled_from(["a", "b", "list"]), st.integers(0, 2) | st.just([]), max_size=2)


def holds(log, state=None):
    """Check the laws of compaction for a log that may have branches."""
    known = {} if state is None else {"state": state}
    compacted = compact(log, warn=ignore, **known)
    assert compact(compacted, warn=ignore, **known) == compacted
    assert reduce(compacted, warn=ignore, **known) == reduce(log, warn=ignore, **known)
    before, after = Lineage(log, warn=ignore), Lineage(compacted, warn=ignore)
    assert [run.run_id for run in before.runs] == [run.run_id for run in after.runs]
    for run in before.runs:
        meant = before.reduce_along(run.run_id, warn=ignore, **known)
        assert after.reduce_along(run.run_id, warn=ignore, **known) == meant


@settings(max_examples=300, deadline=None)
@given(streams(120), st.lists(STATES, max_size=8), STATES)
def test_it_means_the_same_along_every_branch_and_in_a_row(log, states, state):
    given = iter(states)
    for at, event in enumerate(log):
        if isinstance(event, RunStartedEvent) and (echo := next(given, None)) is not None:
            sent = event.input or RunAgentInput(thread_id="thread", run_id=event.run_id, messages=[])
            log[at] = replace(event, input=replace(sent, state=echo))
    holds(log, state)


# Few ids and few words, so that everything meets everything. Whatever the verifier takes, in any order.
IDS, TAGS = ("a", "b"), (None, "s")
CALL = ToolCall(id="a", function=FunctionCall(name="f", arguments=""))
MESSAGES = [
    *(UserMessage(id=id, content="u") for id in IDS),
    AssistantMessage(id="a", content="x", tool_calls=[CALL]),
    AssistantMessage(id="b", tool_calls=[CALL]),
    *(ToolMessage(id=id, content="t", tool_call_id="a") for id in IDS),
]
ADD = {"op": "add", "path": "/x", "value": 1}
WORDS = [
    *(replace(chunk, subagent_run_id=tag) for tag in TAGS for chunk in (
        TextMessageChunkEvent(message_id="a", delta="1"),
        TextMessageChunkEvent(message_id="b", delta="2"),
        ReasoningMessageChunkEvent(message_id="a", delta="3"),
        ReasoningMessageChunkEvent(delta="4"),
        ToolCallChunkEvent(tool_call_id="a", tool_call_name="f", parent_message_id="b", delta="5"),
        CustomEvent(name="n", value=None),
        StateDeltaEvent(delta=[ADD]),
        StateDeltaEvent(delta=[{"op": "replace", "path": "/x", "value": 2}]),
        ActivitySnapshotEvent(message_id="a", activity_type="t", content={}),
    )),
    *(word for id in IDS for word in (
        TextMessageStartEvent(message_id=id),
        TextMessageContentEvent(message_id=id, delta="6"),
        TextMessageEndEvent(message_id=id, metadata={"k": 1}),
        ReasoningMessageStartEvent(message_id=id),
        ReasoningMessageContentEvent(message_id=id, delta="7"),
        ReasoningMessageEndEvent(message_id=id),
        ToolCallStartEvent(tool_call_id=id, tool_call_name="f"),
        ToolCallStartEvent(tool_call_id=id, tool_call_name="f", parent_message_id="a"),
        ToolCallArgsEvent(tool_call_id=id, delta="8"),
        ToolCallEndEvent(tool_call_id=id),
        ToolCallResultEvent(message_id=id, tool_call_id="a", content="9"),
        ActivitySnapshotEvent(message_id=id, activity_type="t", content={"n": 0}, replace=False),
        ActivityDeltaEvent(message_id=id, activity_type="t", patch=[ADD]),
    )),
    StateSnapshotEvent(snapshot={}),
    MessagesSnapshotEvent(messages=[]),
    MessagesSnapshotEvent(messages=MESSAGES[2:3]),
]  # fmt: skip
BEGIN, FINISH, FAIL = "begin", "finish", "fail"


@st.composite
def logs(draw):
    log, count = [], 0
    for word in draw(st.lists(st.sampled_from([*WORDS, *[BEGIN] * 4, *[FINISH] * 8, FAIL]), max_size=40)):
        if word is BEGIN or count == 0:
            parent = draw(st.sampled_from([None, *(f"r{i}" for i in range(count))]))
            messages = draw(st.lists(st.sampled_from(MESSAGES), max_size=2))
            state = draw(st.sampled_from([None, {}, {"x": 3}]))
            echo = RunAgentInput(thread_id="t", run_id=f"r{count}", messages=messages, state=state)
            event = RunStartedEvent(thread_id="t", run_id=f"r{count}", parent_run_id=parent, input=echo)
        elif word is FINISH:
            event = RunFinishedEvent(thread_id="t", run_id=f"r{count - 1}")
        else:
            event = RunErrorEvent(message="no") if word is FAIL else word
        try:
            verify([*log, event])
        except SequenceError:
            continue
        log.append(event)
        count += isinstance(event, RunStartedEvent)
    return log


@settings(max_examples=600, deadline=None)
@given(logs(), st.sampled_from([None, {}, {"x": 0}]))
def test_few_ids_in_any_order_keep_their_meaning_on_every_branch(log, state):
    holds(log, state)
    verify(compact(log, warn=ignore))


@settings(max_examples=150, deadline=None)
@given(streams(120))
def test_compacting_twice_changes_nothing(stream):
    compacted = compact(stream, warn=ignore)
    assert compact(compacted, warn=ignore) == compacted


@settings(max_examples=150, deadline=None)
@given(streams(120))
def test_a_valid_stream_stays_valid(stream):
    verify(compact(stream, warn=ignore))


@settings(max_examples=150, deadline=None)
@given(streams())
def test_it_is_never_longer_than_the_long_spelling(stream):
    assert len(compact(stream, warn=ignore)) <= len(list(expand_chunks(stream)))


@settings(max_examples=100, deadline=None)
@given(streams(), st.integers(0, 80))
def test_a_compacted_beginning_can_be_continued_by_the_rest(stream, cut):
    compacted = [*compact(stream[:cut], warn=ignore), *stream[cut:]]
    verify(compacted)
    assert reduce(compacted, warn=ignore) == reduce(stream, warn=ignore)


UNTOUCHED = {
    EventType.RUN_FINISHED,
    EventType.RUN_ERROR,
    EventType.STEP_STARTED,
    EventType.STEP_FINISHED,
    EventType.REASONING_START,
    EventType.REASONING_END,
    EventType.REASONING_ENCRYPTED_VALUE,
    EventType.TOOL_CALL_RESULT,
    EventType.MESSAGES_SNAPSHOT,
    EventType.SUBAGENT_STARTED,
    EventType.SUBAGENT_FINISHED,
    EventType.SUBAGENT_ERROR,
    EventType.RAW,
    EventType.CUSTOM,
}


@settings(max_examples=150, deadline=None)
@given(streams())
def test_everything_else_stays_as_it_was_and_in_order(stream):
    compacted = compact(stream, warn=ignore)
    assert [e for e in compacted if e.type in UNTOUCHED] == [e for e in stream if e.type in UNTOUCHED]


def finished_runs(stream):
    run = []
    for event in stream:
        if isinstance(event, RunStartedEvent):
            run = []
        run.append(event)
        if isinstance(event, RunFinishedEvent):
            yield run


@settings(max_examples=200, deadline=None)
@given(streams(150, collisions=False, without=("failures", "messages_snapshot")))
def test_a_finished_run_has_at_most_three_events_per_item(stream):
    for run in finished_runs(compact(stream, warn=ignore)):
        starts, contents, ends = Counter(), Counter(), Counter()
        openers = {}
        for event in run:
            kind, _, part = event.type.rpartition("_")
            if kind not in ("TEXT_MESSAGE", "REASONING_MESSAGE", "TOOL_CALL") or part == "RESULT":
                continue
            key = (kind, event.tool_call_id if kind == "TOOL_CALL" else event.message_id)
            if part == "START":
                openers.setdefault(key, set()).add(
                    tuple(getattr(event, f, None) for f in ("role", "name", "tool_call_name", "parent_message_id"))
                )
                starts[key] += 1
            elif part == "END":
                ends[key] += 1
            else:
                contents[key] += 1
        for key, words in openers.items():
            # An item opened again in other words is, to the compactor, another one.
            if len(words) == 1:
                assert (starts[key], ends[key]) == (1, 1)
                assert contents[key] <= 1
