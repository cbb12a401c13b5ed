"""Merged deltas: a legal stream stays legal and leads to the same conversation."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import run_environment
from streams.random_streams import streams

from aguila.codec import decode_event, encode_event
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent, RunStartedEvent
from aguila.server.runs.event_pump import EventPump
from aguila.store import Batch, Lease, RunChange, Written
from aguila.stream import expand_chunks, reduce, verify
from aguila.stream.delta_merger import ITEM_IDS, MAX_MERGED

LEASE = Lease(scope="s", thread_id="t", run_id="r", epoch=1, owner="o")
BOUNDARIES = (RunStartedEvent, RunFinishedEvent, RunErrorEvent)


class Log:
    """The part of a store that an event pump appends to."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def write(self, lease: Lease, change: RunChange) -> Written:
        self.events += map(decode, change.events)
        return Written(Batch(1, change.events))


def decode(line: bytes) -> Event:
    event = decode_event(line, strict=True)
    assert event is not None
    return event


async def merge(events: list[Event], pauses: list[int]) -> list[Event]:
    """Return the log of a stream. At a run boundary, and after some events, nothing waits."""
    log: Any = Log()

    def new_pump() -> EventPump:
        return EventPump(run_environment(log), LEASE, on_failure=lambda error: pump.stop(error), last=0)

    async def flush() -> None:
        await pump.end()
        log.events += map(decode, pump.take_rest())

    pump = new_pump()
    for number, event in enumerate(events):
        if isinstance(event, BOUNDARIES):
            await flush()
            log.events.append(event)
            pump = new_pump()
        else:
            pump.put([event])
        if pump.is_full or number in pauses:
            await flush()
            pump = new_pump()
    await flush()
    return log.events


@settings(max_examples=150, deadline=None)
@given(streams(surrogates=False), st.lists(st.integers(0, 60)))
def test_a_merged_stream_is_legal_and_leads_to_the_same_conversation(stream: list[Event], pauses: list[int]) -> None:
    events = [decode(encode_event(event)) for event in expand_chunks(stream)]
    merged = asyncio.run(merge(events, pauses))
    verify(merged)
    assert reduce(merged) == reduce(events)
    assert texts_of(merged) == texts_of(events)
    assert not any(len(event.delta.encode("utf-8", "surrogatepass")) > MAX_MERGED for event in deltas_of(merged))
    # every other event, and each delta with members of its own, is sent as it is and in its order
    assert [one for one in merged if not is_plain(one)] == [one for one in events if not is_plain(one)]


def is_plain(event: Any) -> bool:
    return event.__class__ in ITEM_IDS and event.metadata is event.raw_event is event.timestamp is None


def deltas_of(events: list[Event]) -> list[Any]:
    return [event for event in events if event.__class__ in ITEM_IDS]


def texts_of(events: list[Event]) -> dict[Any, str]:
    texts: dict[Any, str] = {}
    for event in deltas_of(events):
        key = (event.__class__, getattr(event, ITEM_IDS[event.__class__]), event.subagent_run_id)
        texts[key] = texts.get(key, "") + event.delta
    return texts
