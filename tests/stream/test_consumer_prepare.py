"""``Consumer.prepare`` and then ``feed`` give the same events, notices and errors as ``feed`` alone."""

import json

from builders import UNVERSIONED_RUN_STARTED, run_finished_json
from hypothesis import given, settings
from hypothesis import strategies as st

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


def feed_results(feed, texts):
    """Return the events with the conversation after each, the error, and the notices."""
    notices = []
    consumer = Consumer(warn=notices.append, new_id=iter(f"id{n}" for n in range(99)).__next__)
    seen = []
    try:
        for text in texts:
            seen.append((feed(consumer, text), consumer.conversation))
    except ProtocolError as error:
        seen.append((type(error), error.rule, error.path, error.index, str(error), error.conversation))
    return seen, notices, consumer.conversation, consumer.is_ended


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.booleans(), st.sets(st.integers(0, 14)))
def test_a_prepared_event_is_fed_like_any_other(events, is_begun, prepared):
    begun = [UNVERSIONED_RUN_STARTED, TEXT_START] if is_begun else []
    texts = [(at in prepared, json.dumps(event).encode()) for at, event in enumerate([*begun, *events])]

    def prepare_some(consumer, item):
        is_prepared, text = item
        return consumer.feed(consumer.prepare(text) if is_prepared else text)

    plain = feed_results(lambda consumer, item: consumer.feed(item[1]), texts)
    assert feed_results(prepare_some, texts) == plain
