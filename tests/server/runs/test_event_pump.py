"""How the event pump of a run encodes and appends its events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from waiting import DEADLINE, wait_until_async

from aguila.errors import AguilaError
from aguila.protocol import Event, ReasoningMessageContentEvent, TextMessageContentEvent
from aguila.server.runs.event_encoding import encode_checked, encode_deltas_checked
from aguila.server.runs.event_pump import MAX_UNSTORED, EventPump
from aguila.server.runs.run_task import LiveRun
from aguila.server.settings import Settings
from aguila.store import Lease, Store

pytestmark = pytest.mark.anyio

LEASE = Lease(scope="s", thread_id="t", run_id="r", epoch=1, owner="o")

TEXTS = ["a", "", "two\nlines", '"quoted"', "\\", "\u2028", "é", "🦅", "\x00\x1f", "half \ud83e", "x" * 512]


class Log:
    """The part of a store that an event pump appends to. It waits while ``is_held``."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_held = asyncio.Event()

    async def append(self, lease: Lease, events: Sequence[bytes], **_: Any) -> None:
        await self.is_held.wait()
        self.lines += events


def event_pump(log: Any, window: float = 0.0) -> EventPump:
    store: Store = log
    return LiveRun(store, LEASE, Settings(coalesce=window), root_run_id="r").pump


async def appended(log: Log, count: int) -> None:
    await wait_until_async(lambda: len(log.lines) >= count)


def text(delta: Any, **more: Any) -> Event:
    return TextMessageContentEvent(message_id="m", delta=delta, **more)


@pytest.mark.parametrize("texts", [*[[one] for one in TEXTS], TEXTS, TEXTS[:9], []])
def test_deltas_checked_together_are_what_each_would_be_alone(texts: list[str]) -> None:
    deltas = [text(one) for one in texts]
    deltas += [ReasoningMessageContentEvent(message_id="r", delta=one) for one in texts]
    assert encode_deltas_checked(deltas) == [encode_checked(delta) for delta in deltas]


async def test_events_are_appended_in_the_order_in_which_they_came_whichever_way_they_were_checked() -> None:
    events = [
        text("short"),
        text("l" * 2000),
        text("short again"),
        text("tagged", subagent_run_id="s"),
        text("with metadata", metadata={"a": 1}),
        text("half \udc00"),
        text("stamped", timestamp=5),
        text("last"),
    ]

    log = Log()
    log.is_held.set()
    pump = event_pump(log)
    for event in events[:3]:
        pump.put([event])
    pump.put(events[3:5])
    for event in events[5:]:
        pump.put([event])
    await appended(log, len(events))
    assert log.lines == [encode_checked(event) for event in events]


@pytest.mark.parametrize(
    "event",
    [
        text(5),
        text(None),
        text("a", subagent_run_id=5),
        text("a", timestamp="noon"),
        text("a", metadata=[]),
        text("a", raw_event=float("nan")),
        TextMessageContentEvent(message_id=5, delta="a"),  # pyright: ignore[reportArgumentType]
    ],
)
async def test_a_malformed_delta_is_refused_when_it_is_put_and_what_came_before_is_kept(event: Event) -> None:
    log = Log()
    log.is_held.set()
    pump = event_pump(log)
    pump.put([text("before")])
    with pytest.raises(AguilaError):
        pump.put([event])
    pump.put([text("after")])
    await appended(log, 2)
    assert log.lines == [encode_checked(text("before")), encode_checked(text("after"))]


async def test_a_run_is_full_when_it_is_64_events_ahead_and_not_before() -> None:
    log = Log()
    pump = event_pump(log)
    for count in range(MAX_UNSTORED):
        assert not pump.is_full
        assert count < MAX_UNSTORED
        pump.put([text(".")])
        await asyncio.sleep(0)  # some are being appended by now, and count as well
    assert pump.is_full
    waiting = asyncio.create_task(pump.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    log.is_held.set()
    await asyncio.wait_for(waiting, DEADLINE)
    assert not pump.is_full
    await appended(log, MAX_UNSTORED)
