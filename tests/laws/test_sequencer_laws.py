"""One text and one tool call at a time: a legal stream stays legal, and every reader ends with the same messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from builders import RUN_FINISHED, RUN_STARTED
from hypothesis import given, settings
from hypothesis import strategies as st
from streams.random_streams import streams

from aguila.codec import decode_event, encode_event
from aguila.codec.dialects import CURRENT
from aguila.errors import SequenceError
from aguila.protocol import (
    Event,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from aguila.server.http.frames import SSEFraming
from aguila.server.http.sequencer import Sequencer
from aguila.store import Batch
from aguila.stream import expand_chunks, reduce, verify

BOUNDS = st.sampled_from([0, 150, 600, 5_000, 1_000_000])
SEQUENCED = msgspec.structs.replace(CURRENT, name="sequenced", parallel_items=False)
TOKEN = "x7Qd_0aZ"
STARTS = (TextMessageStartEvent, ToolCallStartEvent)
DELTAS = (TextMessageContentEvent, ToolCallArgsEvent)
ENDS = (TextMessageEndEvent, ToolCallEndEvent)
ITEMS = (*STARTS, *DELTAS, *ENDS)


class Frame(NamedTuple):
    id: str | None
    event: Event


def log_of(stream: Sequence[Event]) -> list[Event]:
    """Return the events of a stream as a log has them, up to the end of the last run."""
    events = [decode_event(encode_event(event), strict=True) for event in expand_chunks(stream)]
    found = [event for event in events if event is not None]
    if found and not isinstance(found[-1], RunErrorEvent | RunFinishedEvent):
        found.append(RunErrorEvent(message="cut"))
    return found


def framing(bound: int) -> SSEFraming:
    framing = SSEFraming(SEQUENCED)
    framing.sequencer = Sequencer(bound)
    return framing


def frames_of(events: Sequence[Event], framing: SSEFraming, pieces: int = 1, after: int = 0) -> list[Frame]:
    """Send the events of a log after a cursor, in batches."""
    found: list[Frame] = []
    lines = [encode_event(event) for event in events]
    for at in range(after, len(lines), pieces):
        body = framing.frame_batch(at + 1, lines[at : at + pieces], TOKEN)
        for block in body.split(b"\n\n")[:-1]:
            *head, data = block.split(b"\n")
            event = decode_event(data.removeprefix(b"data: "), strict=True)
            assert event is not None
            found.append(Frame(head[0].removeprefix(b"id: ").decode() if head else None, event))
    return found


def sent(events: Sequence[Event], bound: int, pieces: int = 1) -> list[Event]:
    return [frame.event for frame in frames_of(events, framing(bound), pieces)]


def resumed(events: Sequence[Event], cursor: str, bound: int, pieces: int) -> list[Frame]:
    """Send what a reader gets that resumes with a cursor."""
    base, _, skip = cursor.partition(".")
    number, _, token = base.partition("-")
    assert token == TOKEN
    other = framing(bound)
    lines = [encode_event(event) for event in events]
    other.observe(Batch(1, tuple(lines[: int(number)]), token=TOKEN))
    assert other.sequencer is not None
    other.sequencer.resume(int(skip or 0))
    return frames_of(events, other, pieces, int(number))


def most_open(events: Sequence[Any]) -> tuple[int, int]:
    """Return how many texts, and how many calls, are open at once."""
    texts: set[str] = set()
    calls: set[str] = set()
    most = (0, 0)
    for event in events:
        if isinstance(event, RunStartedEvent | RunErrorEvent | RunFinishedEvent):
            texts.clear()
            calls.clear()
        elif isinstance(event, TextMessageStartEvent):
            texts.add(event.message_id)
        elif isinstance(event, TextMessageEndEvent):
            texts.discard(event.message_id)
        elif isinstance(event, ToolCallStartEvent):
            calls.add(event.tool_call_id)
        elif isinstance(event, ToolCallEndEvent):
            calls.discard(event.tool_call_id)
        most = (max(most[0], len(texts)), max(most[1], len(calls)))
    return most


def outcome_of(events: Sequence[Event]) -> tuple[Any, ...]:
    """Return what a user sees in the end. A call that was closed early, of a run that failed, counts as complete."""
    conversation = reduce(events)
    return (
        conversation.messages,
        conversation.state,
        conversation.interrupts,
        [one.outcome for one in conversation.runs],
    )


def is_owed(events: Sequence[Event]) -> bool:
    try:
        verify(events, producer=True)
    except SequenceError:
        return False
    return True


@settings(max_examples=300, deadline=None)
@given(streams(collisions=False), BOUNDS, st.integers(1, 4))
def test_a_legal_stream_stays_legal_and_has_one_text_and_one_call_open(
    stream: list[Event], bound: int, pieces: int
) -> None:
    events = log_of(stream)
    found = sent(events, bound, pieces)
    assert max(most_open(found)) <= 1
    verify(found)
    if is_owed(events):
        verify(found, producer=True)


@settings(max_examples=300, deadline=None)
@given(streams(collisions=False, without=["messages_snapshot"]), BOUNDS)
def test_the_conversation_is_the_same(stream: list[Event], bound: int) -> None:
    events = log_of(stream)
    found = sent(events, bound)
    assert outcome_of(found) == outcome_of(events)
    # every event is sent once, and those of other kinds, and of each item, in their order
    assert [one for one in found if not isinstance(one, ITEMS)] == [one for one in events if not isinstance(one, ITEMS)]
    assert deltas_of(found) == deltas_of(events)


@settings(max_examples=300, deadline=None)
@given(streams(collisions=False, without=["messages_snapshot"]), BOUNDS, st.integers(1, 4), st.data())
def test_a_reader_that_is_cut_off_after_any_frame_gets_the_rest(
    stream: list[Event], bound: int, pieces: int, data: st.DataObject
) -> None:
    events = log_of(stream)
    frames = frames_of(events, framing(bound), pieces)
    places = [at for at, frame in enumerate(frames) if frame.id is not None]
    cut = data.draw(st.sampled_from(places))
    before, cursor = frames[: cut + 1], frames[cut].id
    assert cursor is not None
    rest = resumed(events, cursor, bound, data.draw(st.integers(1, 4)))
    assert [frame.event for frame in [*before, *rest]] == [frame.event for frame in frames]


@settings(max_examples=200, deadline=None)
@given(streams(collisions=False, without=["messages_snapshot"]), BOUNDS, st.data())
def test_no_cursor_is_ahead_of_what_was_sent(stream: list[Event], bound: int, data: st.DataObject) -> None:
    """A reader of the log itself that continues from the id of a frame misses no delta."""
    events = log_of(stream)
    frames = frames_of(events, framing(bound))
    cut = data.draw(st.integers(0, len(frames) - 1))
    cursor = next((frame.id for frame in reversed(frames[: cut + 1]) if frame.id is not None), "0-")
    rest = events[int(cursor.partition("-")[0]) :]
    has = deltas_of([frame.event for frame in frames[: cut + 1]])
    for item, deltas in deltas_of(events).items():
        missing = deltas[len(has.get(item, [])) :]
        found = deltas_of(rest).get(item, [])  # some of them may have been sent, too
        assert found[len(found) - len(missing) :] == missing


def deltas_of(events: Sequence[Event]) -> dict[str, list[Event]]:
    deltas: dict[str, list[Event]] = {}
    for event in events:
        if isinstance(event, TextMessageContentEvent):
            deltas.setdefault(f"text {event.message_id}", []).append(event)
        elif isinstance(event, ToolCallArgsEvent):
            deltas.setdefault(f"call {event.tool_call_id}", []).append(event)
    return deltas


def interleaved(steps: Sequence[tuple[int, str]]) -> list[Event]:
    """Return a run of writers, each of which writes texts or calls, one after the other."""
    events: list[Event] = [RUN_STARTED]
    generations: dict[int, int] = {}
    open_items: dict[int, str] = {}

    def end(writer: int) -> Event:
        item = open_items.pop(writer)
        return TextMessageEndEvent(message_id=item) if writer % 2 else ToolCallEndEvent(tool_call_id=item)

    for number, (writer, step) in enumerate(steps):
        if writer not in open_items:
            generations[writer] = generations.get(writer, 0) + 1
            item = open_items[writer] = f"{writer}-{generations[writer]}"
            events.append(
                TextMessageStartEvent(message_id=item, role="assistant")
                if writer % 2
                else ToolCallStartEvent(tool_call_id=item, tool_call_name="look")
            )
        item = open_items[writer]
        if step == "end":
            events.append(end(writer))
        else:
            delta = f"{number} "
            events.append(
                TextMessageContentEvent(message_id=item, delta=delta)
                if writer % 2
                else ToolCallArgsEvent(tool_call_id=item, delta=delta)
            )
    events += [end(writer) for writer in list(open_items)]
    return [*events, RUN_FINISHED]


STEPS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["write", "write", "write", "end"])), max_size=60)


@settings(max_examples=200, deadline=None)
@given(STEPS, BOUNDS, st.integers(1, 4), st.data())
def test_items_that_are_written_side_by_side_come_one_after_the_other(
    steps: list[tuple[int, str]], bound: int, pieces: int, data: st.DataObject
) -> None:
    events = interleaved(steps)
    frames = frames_of(events, framing(bound), pieces)
    found = [frame.event for frame in frames]
    verify(found, producer=True)
    assert max(most_open(found)) <= 1
    assert reduce(found) == reduce(events)
    if bound == 1_000_000:  # nothing had to be closed early
        assert sorted(map(repr, found)) == sorted(map(repr, events))
    cut = data.draw(st.sampled_from([at for at, frame in enumerate(frames) if frame.id is not None]))
    rest = resumed(events, str(frames[cut].id), bound, pieces)
    assert [*found[: cut + 1], *(frame.event for frame in rest)] == found
