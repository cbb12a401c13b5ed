"""Laws of reduction, over random valid streams."""

import random
from collections import Counter

from builders import ignore
from hypothesis import given, settings
from hypothesis import strategies as st
from streams.random_streams import random_stream, streams

from aguila.protocol import EventType, TextMessageChunkEvent, TextMessageContentEvent
from aguila.stream.chunks import expand_chunks
from aguila.stream.reducer import Reducer, reduce
from aguila.stream.verification.verifier import verify


def test_random_streams_are_valid_and_hold_every_event_type():
    types = Counter()
    for seed in range(300):
        stream = random_stream(random.Random(seed), 60)
        types.update(event.type for event in stream)
        verify(stream)
    assert set(types) == set(EventType)
    assert min(types.values()) >= 20


def test_random_streams_without_collisions_are_valid_too():
    for seed in range(100):
        verify(random_stream(random.Random(seed), 80, collisions=False, surrogates=False))


def test_the_same_seed_gives_the_same_stream():
    assert random_stream(random.Random(7), 50) == random_stream(random.Random(7), 50)


@settings(max_examples=150, deadline=None)
@given(streams(), st.data())
def test_in_one_go_event_by_event_or_from_the_middle_is_the_same(stream, data):
    whole = reduce(stream, warn=ignore)

    expanded = list(expand_chunks(stream))
    reducer = Reducer(warn=ignore)
    views = [reducer.conversation]
    for event in expanded:
        reducer.feed(event)
        views.append(reducer.conversation)
    assert views[-1] == whole

    cut = data.draw(st.integers(0, len(expanded)))
    later = Reducer.from_conversation(views[cut], warn=ignore)
    for event in expanded[cut:]:
        later.feed(event)
    assert later.conversation == whole
    assert later.conversation.pending_tool_calls == whole.pending_tool_calls
    assert later.conversation.usage == whole.usage


@settings(max_examples=60, deadline=None)
@given(streams(60))
def test_a_view_is_what_reducing_that_far_gives_and_stays_so(stream):
    expanded = list(expand_chunks(stream))
    reducer = Reducer(warn=ignore)
    views = []
    for event in expanded:
        reducer.feed(event)
        views.append(reducer.conversation)
    for count, view in enumerate(views, 1):
        assert view == reduce(expanded[:count], warn=ignore)


@settings(max_examples=100, deadline=None)
@given(streams())
def test_chunked_and_unchunked_spellings_reduce_alike(stream):
    assert reduce(stream, warn=ignore) == reduce(expand_chunks(stream), warn=ignore)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["a", "é", "\ud83d", "\ude42", "🙂", ""]), max_size=12))
def test_text_does_not_depend_on_where_it_was_cut(deltas):
    one = [TextMessageChunkEvent(message_id="m", delta="".join(deltas))]
    many = [TextMessageChunkEvent(message_id="m", delta=""), *(TextMessageChunkEvent(delta=d) for d in deltas)]
    assert reduce(one) == reduce(many)


@settings(max_examples=100, deadline=None)
@given(streams())
def test_ids_and_roles_are_unique_together(stream):
    keys = [(message.id, message.role) for message in reduce(stream, warn=ignore).messages]
    assert len(keys) == len(set(keys))


@settings(max_examples=60, deadline=None)
@given(streams(collisions=False))
def test_ids_are_unique_where_the_producer_keeps_them_so(stream):
    ids = [message.id for message in reduce(stream, warn=ignore).messages]
    assert len(ids) == len(set(ids))


@settings(max_examples=60, deadline=None)
@given(streams())
def test_reducing_changes_no_event(stream):
    before = repr(stream)
    reduce(stream, warn=ignore)
    assert repr(stream) == before


def test_a_long_message_costs_one_buffer_and_no_copies():
    reducer = Reducer()
    reducer.feed(next(iter(expand_chunks([TextMessageChunkEvent(message_id="m", delta="")]))))
    for _ in range(50_000):
        reducer.feed(TextMessageContentEvent(message_id="m", delta="ab"))
    assert len(reducer.conversation.messages[0].content) == 100_000
