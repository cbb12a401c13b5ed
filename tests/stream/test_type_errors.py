"""A value that is no event is a TypeError that says what to do, in every function that takes events."""

import datetime

import ag_ui.core
import pytest
from builders import RUN_FINISHED, RUN_STARTED

from aguila.protocol import TextMessageChunkEvent, TextMessageStartEvent
from aguila.protocol.legacy import ThinkingStartEvent
from aguila.stream import ChunkExpander, EventWriter, Reducer, Verifier, compact, expand_chunks, reduce, verify

CHUNK = TextMessageChunkEvent(message_id="m", delta="a")


class Derived(TextMessageStartEvent):
    pass


FOREIGN = [
    (None, "got NoneType: not an event"),
    (datetime.date(2026, 1, 1), "got date: not an event"),
    (TextMessageStartEvent, "got .*Meta: not an event"),
    (ThinkingStartEvent(), "got ThinkingStartEvent: an event of an older protocol"),
    (ag_ui.core.TextMessageEndEvent(message_id="m"), "got TextMessageEndEvent: .*official.from_official"),
    (ag_ui.core.UserMessage(id="m", content=""), "got UserMessage: .*official.from_official"),
    (Derived(message_id="m"), "got Derived: a subclass of an event"),
]
RAW = [
    ("TEXT", "got str: not decoded"),
    (b"{}", "got bytes: not decoded"),
    ({"type": "RUN_STARTED"}, "got dict: not decoded"),
]


@pytest.mark.parametrize(("value", "why"), FOREIGN + RAW)
@pytest.mark.parametrize("before", [[], [RUN_STARTED], [RUN_STARTED, CHUNK], [RUN_STARTED, RUN_FINISHED]])
@pytest.mark.parametrize("collect", [False, True])
def test_a_stream_of_events_holds_events_only(value, why, before, collect):
    stream = [*before, value]
    with pytest.raises(TypeError, match=why):
        verify(stream, collect=collect)
    verifier = Verifier(collect=collect)
    for event in before:
        verifier.feed(event)
    with pytest.raises(TypeError, match=why):
        verifier.feed(value)
    for read in (reduce, compact, lambda events: list(expand_chunks(events))):
        with pytest.raises(TypeError, match=why):
            read(stream)
    with pytest.raises(TypeError, match=why):
        Reducer().feed(value)
    with pytest.raises(TypeError, match=why):
        ChunkExpander().feed(value)


@pytest.mark.parametrize(("value", "why"), FOREIGN + RAW)
@pytest.mark.parametrize("is_started", [False, True])
def test_a_writer_emits_events_only_and_goes_on(value, why, is_started):
    writer = EventWriter("t", "r", new_id=lambda: "id")
    if is_started:
        writer.start()
        writer.emit(CHUNK)
    before = writer.open_items
    with pytest.raises(TypeError, match=why):
        writer.emit(value)
    assert writer.open_items == before
