"""``Consumer.feed_all`` gives the same events, notices and errors as ``feed``, for any grouping."""

import json

import pytest
from builders import UNVERSIONED_RUN_STARTED, run_finished_json
from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.codec import EventDecoder
from aguila.errors import ProtocolError
from aguila.stream import Consumer

TEXT_START = {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}
TEXT_END = {"type": "TEXT_MESSAGE_END", "messageId": "m"}
PIECES = [
    UNVERSIONED_RUN_STARTED,
    run_finished_json(),
    {"type": "RUN_ERROR", "message": "no"},
    TEXT_START,
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "a"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "b", "unknown": 1},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "c" * 5000},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "f", "metadata": {"k": 1}},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "g", "subagentRunId": "s"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m2", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "h"},
    {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning"},
    {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m", "delta": "i"},
    {"type": "MESSAGES_SNAPSHOT", "messages": []},
    TEXT_END,
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "n", "delta": "d"},
    {"type": "TEXT_MESSAGE_CHUNK", "delta": "e"},
    {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": 1}]},
    {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "a"}]},
    {"type": "THINKING_START"},
    {"type": "FROM_THE_FUTURE"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m"},
]


def feed_results(feed, texts, is_looking=True):
    """Return the events, the error and the notices."""
    notices = []
    consumer = Consumer(warn=notices.append, new_id=iter(f"id{n}" for n in range(99)).__next__)
    seen = []
    try:
        for event in feed(consumer, texts):
            seen.append((event, consumer.conversation if is_looking else None))
    except ProtocolError as error:
        seen.append((type(error), error.rule, error.path, error.index, str(error), error.conversation))
    return seen, notices, consumer.conversation, consumer.is_ended


def one_by_one(consumer, texts):
    for text in texts:
        yield from consumer.feed(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.integers(0, 12), st.booleans(), st.booleans())
def test_all_at_once_is_the_same_as_one_by_one(events, cut, is_begun, is_looking):
    begun = [UNVERSIONED_RUN_STARTED, TEXT_START] if is_begun else []
    texts = [json.dumps(event).encode() for event in [*begun, *events]]

    def in_two(consumer, texts):
        yield from consumer.feed_all(texts[:cut])
        yield from consumer.feed_all(texts[cut:])

    plain, together = feed_results(one_by_one, texts, is_looking), feed_results(in_two, texts, is_looking)
    assert [each[0] for each in together[0]] == [each[0] for each in plain[0]]
    assert together[0][-1:] == plain[0][-1:]
    assert together[1:] == plain[1:]


def test_the_conversation_is_never_ahead_of_the_events():
    texts = [
        json.dumps(event).encode() for event in (UNVERSIONED_RUN_STARTED, TEXT_START, PIECES[4], PIECES[4], TEXT_END)
    ]
    consumer = Consumer()
    found = [
        (event.type, len(m[0].content) if (m := consumer.conversation.messages) else None)
        for event in consumer.feed_all(texts)
    ]
    assert [size for _, size in found] == [None, 0, 1, 2, 2]


def test_feed_all_stops_where_the_caller_stops_it():
    texts = [
        json.dumps(event).encode() for event in (UNVERSIONED_RUN_STARTED, PIECES[1], UNVERSIONED_RUN_STARTED, PIECES[1])
    ]
    consumer = Consumer()
    seen = []
    found = list(consumer.feed_all(texts, lambda event: seen.append(event.type) or event.type == "RUN_FINISHED"))
    assert [event.type for event in found] == seen == ["RUN_STARTED", "RUN_FINISHED"]
    assert len(consumer.conversation.runs) == 1


@pytest.mark.parametrize("start", [0, 1])
def test_a_run_ends_before_what_needs_a_closer_look(start):
    texts = [
        json.dumps(event).encode() for event in (UNVERSIONED_RUN_STARTED, PIECES[3], PIECES[4], PIECES[5], PIECES[4])
    ]
    decoder = EventDecoder()
    assert [event.type for event in decoder.feed_exact(texts, start)] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
    ][start:]
    assert decoder.next_index == 3 - start
