"""How the event pump of a run encodes and appends its events."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import patch

import pytest
from in_process import run_environment
from waiting import DEADLINE, wait_until_async

from aguila.codec.json.encoder import encode_strict
from aguila.errors import AguilaError
from aguila.protocol import (
    CustomEvent,
    Event,
    ReasoningMessageContentEvent,
    ReasoningMessageStartEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallStartEvent,
)
from aguila.server import Sends
from aguila.server.config.options import Settings
from aguila.server.runs.event_pump import MAX_AHEAD, EventPump
from aguila.store import Batch, Lease, RunChange, Written
from aguila.stream.delta_merger import MAX_MERGED

pytestmark = pytest.mark.anyio

LEASE = Lease(scope="s", thread_id="t", run_id="r", epoch=1, owner="o")


class Log:
    """The part of a store that an event pump appends to. It waits while ``is_held``."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_held = asyncio.Event()

    async def write(self, lease: Lease, change: RunChange) -> Written:
        await self.is_held.wait()
        self.lines += change.events
        return Written(Batch(1, change.events))


def event_pump(log: Any, window: float = 0.0, *, merges: bool = True) -> EventPump:
    environment = run_environment(log, Settings(sends=Sends(merge_deltas=merges)))
    with patch("aguila.server.runs.event_pump.COALESCE", window):
        pump = EventPump(environment, LEASE, on_failure=lambda error: pump.stop(error), last=0)
    return pump


async def appended(log: Log, count: int) -> None:
    await wait_until_async(lambda: len(log.lines) >= count)


def text(delta: Any, **more: Any) -> Event:
    return TextMessageContentEvent(message_id="m", delta=delta, **more)


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
    pump = event_pump(log, merges=False)
    for event in events[:3]:
        pump.put([event])
    pump.put(events[3:5])
    for event in events[5:]:
        pump.put([event])
    await appended(log, len(events))
    assert log.lines == [encode_strict(event) for event in events]


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
    await appended(log, 1)
    assert log.lines == [encode_strict(text("beforeafter"))]


@pytest.mark.parametrize("merges", [True, False])
async def test_a_run_is_full_when_it_is_64_events_ahead_and_not_before(merges: bool) -> None:
    log = Log()
    pump = event_pump(log, merges=merges)
    for count in range(MAX_AHEAD):
        assert not pump.is_full
        assert count < MAX_AHEAD
        pump.put([text(".")])
        await asyncio.sleep(0)  # some are being appended by now, and count as well
    assert pump.is_full
    waiting = asyncio.create_task(pump.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    log.is_held.set()
    await asyncio.wait_for(waiting, DEADLINE)
    assert not pump.is_full
    await wait_until_async(lambda: len(b"".join(map(_delta_of, log.lines))) == MAX_AHEAD)
    assert len(log.lines) == (2 if merges else MAX_AHEAD)


async def test_a_large_event_counts_as_several_so_that_few_of_them_wait() -> None:
    log = Log()
    pump = event_pump(log)
    pump.put([CustomEvent(name="image", value="x" * (MAX_AHEAD * MAX_MERGED // 2))])
    assert not pump.is_full
    pump.put([CustomEvent(name="image", value="x" * (MAX_AHEAD * MAX_MERGED // 2))])
    assert pump.is_full
    log.is_held.set()
    await asyncio.wait_for(pump.room(), DEADLINE)
    assert len(log.lines) == 2


async def waiting_deltas(*events: Event) -> list[bytes]:
    """Put events that wait together; return the appended events."""
    log = Log()
    pump = event_pump(log, window=DEADLINE)
    for event in events:
        pump.put([event])
    await pump.end()
    return pump.take_rest()


def args(delta: Any, call_id: str = "c", **more: Any) -> Event:
    return ToolCallArgsEvent(tool_call_id=call_id, delta=delta, **more)


def reasoning(delta: Any, **more: Any) -> Event:
    return ReasoningMessageContentEvent(message_id="r", delta=delta, **more)


@pytest.mark.parametrize(
    ("events", "merged"),
    [
        ([text("a"), text("b"), text("c")], [text("abc")]),
        ([args("a"), args("b")], [args("ab")]),
        ([reasoning("a"), reasoning("b")], [reasoning("ab")]),
        # another item of the same owner, also one with the same id
        ([text("a"), reasoning("b"), text("c")], [text("a"), reasoning("b"), text("c")]),
        ([args("a"), args("b", "d"), args("c")], [args("a"), args("b", "d"), args("c")]),
        # other owners
        (
            [text("a"), args("1", subagent_run_id="s"), text("b"), args("2", subagent_run_id="s")],
            [text("ab"), args("12", subagent_run_id="s")],
        ),
        # an item with its owner's tag and without
        (
            [args("1", subagent_run_id="s"), args("2"), args("3", subagent_run_id="s"), args("4")],
            [args("1", subagent_run_id="s"), args("2"), args("3", subagent_run_id="s"), args("4")],
        ),
        # members of their own
        ([text("a"), text("b", timestamp=5), text("c")], [text("a"), text("b", timestamp=5), text("c")]),
        ([text("a"), text("b", metadata={"k": 1}), text("c")], [text("a"), text("b", metadata={"k": 1}), text("c")]),
        ([text("a"), text("b", raw_event=1), text("c")], [text("a"), text("b", raw_event=1), text("c")]),
        # another event
        (
            [text("a"), CustomEvent(name="n", value=1), text("b")],
            [text("a"), CustomEvent(name="n", value=1), text("b")],
        ),
        # at most 16 KiB of UTF-8
        ([text("x" * 4096)] * 5, [text("x" * 16384), text("x" * 4096)]),
        ([text("é" * 4000)] * 3, [text("é" * 8000), text("é" * 4000)]),
        ([text("a"), text("x" * 4097), text("b")], [text("a"), text("x" * 4097), text("b")]),
    ],
)
async def test_waiting_deltas_of_an_item_become_one(events: list[Event], merged: list[Event]) -> None:
    assert await waiting_deltas(*events) == [encode_strict(event) for event in merged]


async def test_the_first_delta_of_an_item_does_not_wait_for_the_window() -> None:
    log = Log()
    log.is_held.set()
    pump = event_pump(log, window=DEADLINE)
    for number, opener in enumerate(
        [
            TextMessageStartEvent(message_id="m"),
            ReasoningMessageStartEvent(message_id="r", role="reasoning"),
            ToolCallStartEvent(tool_call_id="c", tool_call_name="f"),
        ]
    ):
        pump.put([opener])
        pump.put([(text, reasoning, args)[number]("first")])
        await appended(log, 3 * number + 2)
        pump.put([(text, reasoning, args)[number]("second")])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(log.lines) == 3 * number + 2
    await pump.end()
    assert pump.take_rest() == [encode_strict(args("second"))]


async def test_the_first_delta_of_an_item_follows_the_current_append_at_once() -> None:
    log = Log()
    pump = event_pump(log, window=0.0)
    pump.put([text("a")])
    await asyncio.sleep(0)  # it is being appended
    pump._window = DEADLINE  # pyright: ignore[reportPrivateUsage]
    pump.put([TextMessageStartEvent(message_id="n"), TextMessageContentEvent(message_id="n", delta="first")])
    log.is_held.set()
    await appended(log, 3)


def _delta_of(line: bytes) -> bytes:
    return json.loads(line)["delta"].encode()
