"""Laws of compaction, over random valid streams."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from streams import streams

from aguila.protocol import (
    EventType,
    RunFinishedEvent,
    RunStartedEvent,
)
from aguila.stream.chunks import expand_chunks
from aguila.stream.compact import compact
from aguila.stream.reduce import reduce
from aguila.stream.verify import verify


def ignore(notice):
    pass


@settings(max_examples=250, deadline=None)
@given(streams(120))
def test_a_compacted_stream_means_the_same(stream):
    compacted = compact(stream, warn=ignore)
    assert reduce(compacted, warn=ignore) == reduce(stream, warn=ignore)


@settings(max_examples=150, deadline=None)
@given(streams(), st.dictionaries(st.sampled_from(["a", "b", "list"]), st.integers() | st.just([])))
def test_it_means_the_same_from_any_state_it_was_told(stream, state):
    compacted = compact(stream, state=state, warn=ignore)
    assert reduce(compacted, state=state, warn=ignore) == reduce(stream, state=state, warn=ignore)


@settings(max_examples=150, deadline=None)
@given(streams(), st.dictionaries(st.sampled_from(["a", "b", "list"]), st.integers() | st.just([])))
def test_it_means_the_same_from_any_state_if_it_was_told_none(stream, state):
    compacted = compact(stream, warn=ignore)
    assert reduce(compacted, state=state, warn=ignore).state == reduce(stream, state=state, warn=ignore).state


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
