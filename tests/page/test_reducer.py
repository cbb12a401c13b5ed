"""The page's reducer (TypeScript) against ours: the same conversation after every event of every stream."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from builders import ignore
from processes.node import run_node
from streams.conformance import STREAMS, Seen, expectations, failures, load_cases
from streams.random_streams import random_stream

from aguila.codec import EventDecoder, decode, encode
from aguila.errors import ProtocolError
from aguila.protocol import Event, Message
from aguila.stream import ChunkExpander, Reducer

WEB = Path(__file__).parents[2] / "web"
CASES = load_cases()


def reduce_in_page(streams: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    script = str(Path(__file__).parent / "reduce.mjs")
    return json.loads(run_node(script, json.dumps({"streams": streams}), folder=WEB))


def views_of(events: list[Event], messages: list[Message]) -> list[dict[str, Any]]:
    """Our conversation after every event. A chunk that cannot be expanded changes nothing."""
    expander, reducer = ChunkExpander(), Reducer(messages, {}, warn=ignore)
    views: list[dict[str, Any]] = []
    for event in events:
        try:
            expanded = expander.feed(event)
        except ProtocolError:
            expanded = ()
        for each in expanded:
            reducer.feed(each)
        conversation = reducer.conversation
        view = {
            "messages": conversation.messages,
            "state": conversation.state,
            # The page shows no questions and no pending calls while a run is open.
            "interrupts": [] if conversation.is_running else conversation.interrupts,
            "pendingToolCalls": [] if conversation.is_running else [one.id for one in conversation.pending_tool_calls],
            "isRunning": conversation.is_running,
        }
        views.append(json.loads(encode(view)))
    return views


def decoded(stream: list[Any]) -> list[Event]:
    """Return the events of a stream as the server stores them: without what the protocol does not know."""
    decoder = EventDecoder(warn=ignore)
    events: list[Event] = []
    for raw in stream:
        try:
            events += decoder.feed(raw)
        except ProtocolError:  # the stream is refused here
            break
    return events


def as_json(events: list[Event]) -> list[Any]:
    return [json.loads(encode(event)) for event in events]


@pytest.mark.skipif(not CASES, reason=f"the official conformance streams are not at {STREAMS.name}/ beside us")
@pytest.mark.parametrize("restores", [False, True], ids=["event by event", "through checkpoints"])
def test_the_official_streams_are_reduced_as_they_should_be(restores: bool) -> None:
    given = [
        decode(json.dumps(case.get("input", {}).get("messages", [])), list[Message], warn=ignore) for case in CASES
    ]
    events = [decoded(case["stream"]) for case in CASES]
    found = reduce_in_page(
        [
            {"seed": {"messages": json.loads(encode(messages))}, "events": as_json(stream), "restores": restores}
            for messages, stream in zip(given, events, strict=True)
        ]
    )
    assert len(CASES) == 77
    for case, messages, stream, views in zip(CASES, given, events, found, strict=True):
        assert views == views_of(stream, messages), case["name"]
        wanted = {
            key: value for key, value in expectations(case).items() if key in ("messages", "messageCount", "state")
        }
        # A stream that is refused has an end that only a verifier sees.
        if expectations(case).get("outcome") == "completed" and "client" not in case:
            last = Seen(messages=views[-1]["messages"], state=views[-1]["state"])
            assert failures({"name": case["name"], "expect": wanted}, last) == [], case["name"]


def test_random_streams_are_reduced_alike() -> None:
    # Decoded again, because encoding has more than one form for the same content.
    streams = [decoded(as_json(random_stream(random.Random(seed), 120))) for seed in range(60)]
    found = reduce_in_page([{"seed": {}, "events": as_json(stream)} for stream in streams])
    for seed, (stream, views) in enumerate(zip(streams, found, strict=True)):
        assert views == views_of(stream, []), f"seed {seed}"
