"""One text message at a time: a legal stream stays legal and leads to the same conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from builders import RUN_FINISHED, RUN_STARTED
from hypothesis import given, settings
from hypothesis import strategies as st
from streams.random_streams import streams

from aguila.codec import encode_event
from aguila.errors import SequenceError
from aguila.protocol import (
    Event,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from aguila.stream import expand_chunks, reduce, verify
from aguila.stream.one_text import TextSequencer

BOUNDS = st.sampled_from([0, 150, 600, 5_000, 1_000_000])
TEXTS = (TextMessageStartEvent, TextMessageContentEvent, TextMessageEndEvent)


def size_of(event: Event) -> int:
    return len(encode_event(event))


def in_sequence(events: Sequence[Event], bound: int, pieces: int = 1) -> list[Event]:
    sequencer = TextSequencer(bound, size_of)
    sent: list[Event] = []
    for at in range(0, len(events), pieces):
        sent += sequencer.feed(events[at : at + pieces])
        assert sequencer.held_bytes <= bound
    return [*sent, *sequencer.flush()]


def most_open(events: Sequence[Any]) -> int:
    open_texts: set[str] = set()
    most = 0
    for event in events:
        if isinstance(event, RunStartedEvent | RunErrorEvent | RunFinishedEvent):
            open_texts.clear()
        elif isinstance(event, TextMessageStartEvent):
            open_texts.add(event.message_id)
        elif isinstance(event, TextMessageEndEvent):
            open_texts.discard(event.message_id)
        most = max(most, len(open_texts))
    return most


def is_owed(events: Sequence[Event]) -> bool:
    try:
        verify(events, producer=True)
    except SequenceError:
        return False
    return True


@settings(max_examples=300, deadline=None)
@given(streams(collisions=False), BOUNDS, st.integers(1, 4))
def test_a_legal_stream_stays_legal_and_has_one_text_open(stream: list[Event], bound: int, pieces: int) -> None:
    events = list(expand_chunks(stream))
    sent = in_sequence(events, bound, pieces)
    assert most_open(sent) <= 1
    verify(sent)
    if is_owed(events):
        verify(sent, producer=True)


@settings(max_examples=300, deadline=None)
@given(streams(collisions=False, without=["messages_snapshot"]), BOUNDS)
def test_the_conversation_is_the_same(stream: list[Event], bound: int) -> None:
    events = list(expand_chunks(stream))
    sent = in_sequence(events, bound)
    assert reduce(sent) == reduce(events)
    # every event is sent once, and those of other kinds, and of each message, in their order
    assert [one for one in sent if not isinstance(one, TEXTS)] == [one for one in events if not isinstance(one, TEXTS)]
    assert deltas_of(sent) == deltas_of(events)


def deltas_of(events: Sequence[Event]) -> dict[str, list[Event]]:
    deltas: dict[str, list[Event]] = {}
    for event in events:
        if isinstance(event, TextMessageContentEvent):
            deltas.setdefault(event.message_id, []).append(event)
    return deltas


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["write", "write", "write", "end"])), max_size=60),
    BOUNDS,
)
def test_texts_that_are_written_side_by_side_come_one_after_the_other(steps: list[tuple[int, str]], bound: int) -> None:
    events: list[Event] = [RUN_STARTED]
    generations: dict[int, int] = {}
    open_texts: dict[int, str] = {}
    for number, (writer, step) in enumerate(steps):
        if writer not in open_texts:
            generations[writer] = generations.get(writer, 0) + 1
            open_texts[writer] = f"m{writer}-{generations[writer]}"
            events.append(TextMessageStartEvent(message_id=open_texts[writer], role="assistant"))
        if step == "write":
            events.append(TextMessageContentEvent(message_id=open_texts[writer], delta=f"{number} "))
        else:
            events.append(TextMessageEndEvent(message_id=open_texts.pop(writer)))
    events += [TextMessageEndEvent(message_id=message_id) for message_id in open_texts.values()]
    events.append(RUN_FINISHED)
    sent = in_sequence(events, bound)
    verify(sent, producer=True)
    assert most_open(sent) <= 1
    assert reduce(sent) == reduce(events)
    if bound == 1_000_000:  # nothing had to be closed early
        assert sorted(map(repr, sent)) == sorted(map(repr, events))
