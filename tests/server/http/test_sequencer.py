"""One text and one tool call at a time, for readers that declare no version: live, resumed, hydrated, as protobuf."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from builders import user_json
from cpu_bounds import check_cpu_time
from serving import Gate, Server, check_valid, run_input, serving, types

from aguila import App
from aguila.codec import decode_event, encode_event
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE
from aguila.codec.protobuf import ProtobufDecoder
from aguila.codec.sse import Frame, SSEParser
from aguila.protocol import (
    Event,
    StateDeltaEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.server import Sends
from aguila.server.http.sequencer import Sequencer
from aguila.stream import reduce

TEXTS = ("a", "b")
CALLS = ("c", "d")


def text(item: str, word: int) -> Event:
    return TextMessageContentEvent(message_id=item, delta=f"{item}{word} ")


def arguments(item: str, word: int) -> Event:
    return ToolCallArgsEvent(tool_call_id=item, delta=("{" if word == 0 else ",") + f'"{item}{word}":1')


def script(words: int = 4) -> list[Event]:
    """Return two texts and two calls that are written at the same time, and a change of the state among them."""
    events: list[Event] = [TextMessageStartEvent(message_id=item, role="assistant") for item in TEXTS]
    events += [ToolCallStartEvent(tool_call_id=item, tool_call_name="look") for item in CALLS]
    for word in range(words):
        events += [text(item, word) for item in TEXTS] + [arguments(item, word) for item in CALLS]
        events.append(StateDeltaEvent(delta=[{"op": "add", "path": "/word", "value": word}]))
    for item in CALLS:
        events += [ToolCallArgsEvent(tool_call_id=item, delta="}"), ToolCallEndEvent(tool_call_id=item)]
        events.append(ToolCallResultEvent(message_id=f"r{item}", tool_call_id=item, content=item))
    return events + [TextMessageEndEvent(message_id=item) for item in TEXTS]


async def agent(run: Any) -> Any:
    for event in script():
        yield event
        if isinstance(event, StateDeltaEvent):
            await run.flush()


def most_open(events: list[dict[str, Any]], prefix: str) -> int:
    """Return how many items of a kind are open at once."""
    count = most = 0
    for event in events:
        count += {f"{prefix}_START": 1, f"{prefix}_END": -1}.get(event["type"], 0)
        most = max(most, count)
    return most


def is_sequential(events: list[dict[str, Any]]) -> bool:
    return most_open(events, "TEXT_MESSAGE") == 1 and most_open(events, "TOOL_CALL") == 1


def outcome(events: Sequence[dict[str, Any] | Frame]) -> tuple[Any, Any]:
    """Return the messages and the state that a reader ends with."""
    decoded = [decode_event(one.data if isinstance(one, Frame) else json.dumps(one)) for one in events]
    conversation = reduce([event for event in decoded if event is not None])
    return conversation.messages, conversation.state


def frames_of(server: Server, path: str, headers: dict[str, str] | None = None) -> list[Frame]:
    """Return the frames of a stream for a reader that declares nothing."""
    with server.stream("GET", path, declared=None, headers=headers) as stream:
        found: list[Frame] = []
        while (frame := stream.next()) is not None:
            found.append(frame)
        return found


def without_snapshots(frames: list[Frame]) -> list[bytes]:
    """Return the events without the snapshots of the state, which the dialect adds to each response."""
    return [frame.data for frame in frames if b"STATE_SNAPSHOT" not in frame.data]


def test_an_undeclared_reader_gets_one_text_and_one_call_at_a_time_and_the_same_messages() -> None:
    with serving(App(agent)) as server:
        undeclared = server.events(protocolVersion=...)
        with server.stream("GET", "/threads/thread/runs/run/events") as stream:
            declared = stream.rest()
        assert most_open(declared, "TEXT_MESSAGE") == most_open(declared, "TOOL_CALL") == 2  # the log is as it was
        check_valid(undeclared)
        assert is_sequential(undeclared)
        assert types(undeclared).count("TEXT_MESSAGE_START") == types(undeclared).count("TOOL_CALL_START") == 2
        assert outcome(undeclared) == outcome(declared)


@pytest.mark.parametrize(("declared", "is_one_at_a_time"), [("0.0.35", True), ("0.0.57", False), ("1.0", False)])
def test_a_declared_reader_gets_parallel_items_from_0_0_40_on(declared: str, is_one_at_a_time: bool) -> None:
    with serving(App(agent)) as server:
        assert is_sequential(server.events(protocolVersion=declared)) == is_one_at_a_time


def test_parallel_items_can_be_chosen_for_undeclared_readers() -> None:
    with serving(App(agent, sends=Sends(undeclared_peers="parallel"))) as server:
        events = server.events(protocolVersion=...)
        assert most_open(events, "TEXT_MESSAGE") == most_open(events, "TOOL_CALL") == 2


@pytest.mark.parametrize("held", [0, 300, 256 * 1024])
@pytest.mark.parametrize("path", ["/threads/thread/runs/run/events", "/threads/thread/events"])
def test_a_reader_that_is_cut_off_after_any_frame_gets_exactly_the_rest(
    path: str, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aguila.server.http.frames._MAX_HELD", held)
    with serving(App(agent)) as server:
        server.events()
        frames = frames_of(server, path)
        log = frames_of(server, f"{path}?protocolVersion=1.1")
        assert outcome(frames) == outcome(log)
        ids = {frame.id for frame in log}
        seen: set[str | None] = set()
        for at, frame in enumerate(frames):
            if frame.id in seen:  # a frame of our own, before the one that has the next id
                continue
            seen.add(frame.id)
            assert frame.id is not None
            assert frame.id.partition(".")[0] in ids
            rest = frames_of(server, path, {"last-event-id": frame.id})
            assert without_snapshots([*frames[: at + 1], *rest]) == without_snapshots(frames)
            assert outcome([*frames[: at + 1], *rest]) == outcome(log)


def test_a_reader_of_the_log_that_continues_from_such_an_id_misses_nothing() -> None:
    with serving(App(agent)) as server:
        server.events()
        path = "/threads/thread/runs/run/events"
        log = frames_of(server, f"{path}?protocolVersion=1.1")
        frames = frames_of(server, path)
        for at, frame in enumerate(frames):
            rest = frames_of(server, f"{path}?protocolVersion=1.1", {"last-event-id": frame.id or ""})
            sent = {one.data for one in frames[: at + 1]}
            assert {one.data for one in log if b"_CONTENT" in one.data} <= sent | {one.data for one in rest}


def test_a_run_that_is_not_stored_is_sent_one_at_a_time() -> None:
    with serving(App(agent)) as server, server.run("/?store=false", protocolVersion=...) as stream:
        events = stream.rest()
        assert is_sequential(events)
        assert b"\nid:" not in stream.raw


def test_protobuf_is_sent_one_at_a_time() -> None:
    with serving(App(agent)) as server:
        answer = server.post("/", json=run_input(protocolVersion=...), headers={"accept": PROTOBUF_MEDIA_TYPE})
        events = [{"type": str(event.type)} for event in ProtobufDecoder().feed(answer.content)]
        assert is_sequential(events)


@pytest.mark.parametrize("held", [0, 300])
def test_beyond_the_bound_items_are_continued(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aguila.server.http.frames._MAX_HELD", held)
    with serving(App(agent)) as server:
        events = server.events(protocolVersion=...)
        check_valid(events)
        assert is_sequential(events)
        assert types(events).count("TEXT_MESSAGE_START") > 2
        with server.stream("GET", "/threads/thread/runs/run/events") as stream:
            assert outcome(events) == outcome(stream.rest())


def test_a_large_event_does_not_wait() -> None:
    large = "x" * (2 * 1024 * 1024)

    async def with_large(run: Any) -> None:
        async with run.text() as first, run.text() as second:
            await first.write("1")
            await second.write("2")
            await run.custom("large", large)
            await first.write("3")

    with serving(App(with_large)) as server:
        events = server.events(protocolVersion=...)
        check_valid(events)
        assert most_open(events, "TEXT_MESSAGE") == 1
        assert next(event["value"] for event in events if event["type"] == "CUSTOM") == large
        assert [message.content for message in outcome(events)[0]] == ["13", "2"]


def test_a_run_that_fails_loses_nothing_that_it_said() -> None:
    async def failing(run: Any) -> None:
        first, second = run.text(), run.text()
        await (await first.__aenter__()).write("first")
        await (await second.__aenter__()).write("second")
        raise RuntimeError("no")

    with serving(App(failing)) as server:
        events = server.events(protocolVersion=...)
        check_valid(events)
        assert types(events)[-1] == "RUN_ERROR"
        assert [message.content for message in outcome(events)[0]] == ["first", "second"]


def start(item: int) -> bytes:
    return encode_event(TextMessageStartEvent(message_id=str(item), role="assistant"))


def end(item: int) -> bytes:
    return encode_event(TextMessageEndEvent(message_id=str(item)))


def feed_all(events: Sequence[bytes], held: int) -> list[bytes | Event]:
    """Feed the events of a log. Return what is sent: the events of the log, and those of the sequencer."""
    sequencer = Sequencer(held)
    return [
        one if isinstance(one, Event) else one[0]
        for number, event in enumerate(events, 1)
        for sent in sequencer.feed(event, [event], f"{number}-x7Qd_0aZ")
        for one in sent.payloads
    ]


def test_as_many_texts_as_may_be_open_are_nested() -> None:
    count = 1_000  # limit-open
    events = [start(item) for item in range(count)] + [end(item) for item in reversed(range(count))]
    assert feed_all(events, 256 * 1024) == [event for item in range(count) for event in (start(item), end(item))]


def test_the_work_for_many_open_texts_is_linear_in_their_events() -> None:
    deltas = [encode_event(text(str(number % 1_000), 0)) for number in range(40_000)]
    events = [start(item) for item in range(1_000)] + deltas
    check_cpu_time(lambda: feed_all(events, 512 * 1024), 0.6)


def test_a_reader_that_attaches_while_two_texts_are_open_gets_one_after_the_other() -> None:
    gate = Gate()

    async def waiting(run: Any) -> None:
        async with run.text(message_id="a") as first, run.text(message_id="b") as second:
            await first.write("1")
            await second.write("2")
            await run.flush()
            await gate.wait()
            await second.write("3")
            await first.write("4")
            await run.flush()
            await second.write("5")

    with serving(App(waiting)) as server, server.run(messages=[user_json("u", "Go")]) as declared:
        gate.await_reached()
        body = run_input(run_id="other", protocolVersion=...)
        with server.stream("POST", "/connect", json=body) as stream:
            first = stream.read_until("TEXT_MESSAGE_START")
            assert first["messageId"] == "a"
            gate.open()
            events = [first, *stream.rest()]
        assert most_open(events, "TEXT_MESSAGE") == 1
        declared.rest()
        found = SSEParser().feed(stream.raw)
        assert [message.content for message in outcome(found)[0]] == ["Go", "14", "235"]
        # The snapshot has a cursor only once everything that it opens was sent.
        ids = [frame.id for frame in found]
        assert ids[0] is None
        assert ids[-1] == server.get("/threads/thread").json()["cursor"]
