"""THINKING_* (document 001) and META (003), emitted by an agent in each of the three ways, and read."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from agent_threads import Thread, run_agent

from aguila.chat import ChatUpdate, TextContent, UpdateReader, UpdateWriter, event_content
from aguila.codec import Notice, decode_event, encode
from aguila.codec.dialects import CURRENT, GENERATIONS, UNDECLARED, UNDECLARED_WITH_META, Translator
from aguila.codec.jsonl import JSONLDecoder
from aguila.codec.sse import SSEDecoder
from aguila.errors import DecodeError
from aguila.protocol import (
    CustomEvent,
    EventType,
    RawEvent,
    ReasoningMessageContentEvent,
    ReasoningStartEvent,
    RunFinishedEvent,
    RunStartedEvent,
)
from aguila.protocol.legacy import (
    LegacyEvent,
    LegacyEventType,
    MetaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ThinkingTextMessageContentEvent,
    ThinkingTextMessageEndEvent,
    ThinkingTextMessageStartEvent,
)
from aguila.stream import EventWriter, compact, reduce, verify
from aguila.stream.consumer import Consumer
from aguila.stream.verification.checker import judge

pytestmark = pytest.mark.anyio


def thought(text: str, message_id: str | None = None) -> list[LegacyEvent]:
    return [
        ThinkingStartEvent(title="Birds"),
        ThinkingTextMessageStartEvent(message_id=message_id),
        ThinkingTextMessageContentEvent(message_id=message_id, delta=text),
        ThinkingTextMessageEndEvent(message_id=message_id),
        ThinkingEndEvent(),
    ]


META = MetaEvent(meta_type="thumbs_up", payload={"message": "m-1"}, timestamp=7)

WAYS = {
    "yield": lambda event: event,
    "raw_representation": lambda event: ChatUpdate(raw_representation=event),
    "raw_representation of a content": lambda event: ChatUpdate(contents=[TextContent("", raw_representation=event)]),
    "event_content": lambda event: ChatUpdate(contents=[event_content.create(event)]),
}
REASONING = ["REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"]
REASONING += ["REASONING_MESSAGE_END", "REASONING_END"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("message_id", [None, "th-1"])
async def test_thinking_is_emitted_as_reasoning_with_ids_of_the_run(way: str, message_id: str | None) -> None:
    async def agent(run: Any) -> Any:
        for event in [*thought("A heron.", message_id), *thought("Or an egret.")]:
            yield WAYS[way](event)

    thread = Thread()
    first = await thread.run(agent)
    second = await thread.run(agent)
    assert first.types[1:-1] == REASONING * 2
    events: list[Any] = first.events[1:-1]
    spans = [event.message_id for event in events if isinstance(event, ReasoningStartEvent)]
    texts = {e.message_id: e.delta for e in events if isinstance(e, ReasoningMessageContentEvent)}
    assert list(texts.values()) == ["A heron.", "Or an egret."]
    assert len({*spans, *texts}) == 4
    if message_id is not None:
        assert next(iter(texts)) == message_id
    assert events[0].metadata == {"aguila": {"title": "Birds"}}
    later: list[Any] = second.events[1:-1]
    others = {event.message_id for event in later}
    assert not others & {*spans, *texts} - {message_id}


@pytest.mark.parametrize("way", WAYS)
async def test_meta_is_emitted_as_custom(way: str) -> None:
    async def agent(run: Any) -> Any:
        yield "hello "
        yield WAYS[way](META)
        yield "world"

    outcome = await run_agent(agent)
    (custom,) = [event for event in outcome.events if event.type == EventType.CUSTOM]
    assert custom == CustomEvent(name="meta:thumbs_up", value={"message": "m-1"}, timestamp=7)
    assert outcome.types.count("TEXT_MESSAGE_START") == 1 or way != "yield"  # a side note does not end a message


@pytest.mark.parametrize("way", ["raw_representation", "event_content"])
async def test_a_thought_that_was_started_by_a_yield_goes_on_in_an_update(way: str) -> None:
    async def agent(run: Any) -> Any:
        start, message, delta, *ends = thought("A heron.")
        yield [start, message]
        for event in [delta, *ends]:
            yield WAYS[way](event)

    outcome = await run_agent(agent)
    assert outcome.types[1:-1] == REASONING
    thinking: list[Any] = outcome.events[1:-1]
    assert len({event.message_id for event in thinking}) == 2


async def test_an_agent_may_return_a_retired_event() -> None:
    async def agent(run: Any) -> Any:
        return META

    assert (await run_agent(agent)).types == ["RUN_STARTED", "CUSTOM", "RUN_FINISHED"]


async def test_a_delta_that_was_never_started_is_refused() -> None:
    async def agent(run: Any) -> Any:
        yield ThinkingTextMessageContentEvent(delta="x")

    assert (await run_agent(agent)).types[-1] == "RUN_ERROR"


def test_the_types_of_the_retired_events_are_constants() -> None:
    assert {cls.type for cls in get_args(LegacyEvent)} == set(LegacyEventType)
    assert LegacyEventType.META == "META"


# Nothing is dropped silently


def test_a_raw_representation_that_is_no_event_is_reported() -> None:
    notices: list[Notice] = []
    writer = EventWriter("t", "r", new_id=str)
    writer.start()
    updates = UpdateWriter(writer, warn=notices.append)
    assert updates.feed(ChatUpdate(raw_representation={"type": "CUSTOM"})) == []
    assert updates.feed(ChatUpdate(raw_representation={"type": "RAW"})) == []
    assert [notice.message for notice in notices] == ["dropped a raw_representation: dict is not an event"]
    # What the contents say is sent, so that nothing is lost.
    assert updates.feed(ChatUpdate(contents=[TextContent("x")], raw_representation={"chunk": 1})) != []
    assert len(notices) == 1


# Reading


def raw_meta(**more: Any) -> bytes:
    return json.dumps({"type": "META", "metaType": "tag", "payload": {"color": "red"}, **more}).encode()


@pytest.mark.parametrize("data", [raw_meta(), raw_meta().decode()])
def test_meta_by_itself_is_read_as_the_document_says(data: bytes | str) -> None:
    notices: list[Notice] = []
    assert decode_event(data, warn=notices.append) == MetaEvent(meta_type="tag", payload={"color": "red"})
    assert notices == []


def test_meta_by_itself_is_checked_like_any_event() -> None:
    with pytest.raises(DecodeError, match="metaType"):
        decode_event(b'{"type":"META","payload":{}}')
    with pytest.raises(DecodeError):
        decode_event(raw_meta(), strict=True)
    notices: list[Notice] = []
    assert decode_event(raw_meta(), compat="off", warn=notices.append) is None
    assert decode_event(raw_meta(mood=1), warn=notices.append) == decode_event(raw_meta())
    assert [notice.rule for notice in notices] == ["PROC-3", "PROC-3"]


RUN: list[Any] = [RunStartedEvent(thread_id="t", run_id="r"), RunFinishedEvent(thread_id="t", run_id="r")]
SIDE_NOTE = MetaEvent(meta_type="tag", payload={"color": "red"})
AS_RAW = RawEvent(event={"type": "META", "metaType": "tag", "payload": {"color": "red"}}, source="meta")


@pytest.mark.parametrize("form", [encode, lambda event: event], ids=["JSON", "objects"])
def test_meta_in_a_run_is_raw_and_outside_one_is_delivered_as_it_is(form: Any) -> None:
    notices: list[Notice] = []
    stream = [form(event) for event in (SIDE_NOTE, RUN[0], SIDE_NOTE, RUN[1], SIDE_NOTE)]
    consumer = Consumer(warn=notices.append)
    delivered = [event for raw in stream for event in consumer.feed(raw)]
    assert delivered == [SIDE_NOTE, RUN[0], AS_RAW, RUN[1], SIDE_NOTE]
    assert [notice.message for notice in notices] == ["META in a run is read as RAW with the source 'meta'"]
    assert consumer.close().last_run is not None
    updates = UpdateReader(warn=[].append)
    assert [update.raw_representation for raw in stream for update in updates.feed(raw)] == delivered


def test_a_decoder_delivers_meta_outside_a_run() -> None:
    notices: list[Notice] = []
    for decoder in (SSEDecoder(warn=notices.append), JSONLDecoder(warn=notices.append)):
        frame = b"data: %b\n\n" if isinstance(decoder, SSEDecoder) else b"%b\n"
        assert decoder.feed(b"".join([frame % encode(event) for event in (SIDE_NOTE, *RUN)])) == [SIDE_NOTE, *RUN]
    assert notices == []


def test_verify_reduce_and_compact_pass_meta_unchanged() -> None:
    stream = [SIDE_NOTE, RUN[0], SIDE_NOTE, RUN[1], SIDE_NOTE]
    assert verify(stream, collect=True).findings == []
    assert compact(stream) == stream
    assert reduce(stream) == reduce(RUN)
    assert [finding for finding in judge(stream) if finding.level == "error"] == []


# Peers that know only the old spelling


def test_meta_is_sent_as_meta_to_a_reader_that_knows_it() -> None:
    custom = CustomEvent(name="meta:thumbs_up", value={"message": "m-1"}, timestamp=7)
    (sent,) = Translator(UNDECLARED_WITH_META).feed(custom)
    assert json.loads(encode(sent)) == {
        "type": "META",
        "metaType": "thumbs_up",
        "payload": {"message": "m-1"},
        "timestamp": 7,
    }
    assert Translator(UNDECLARED_WITH_META).feed(CustomEvent(name="x", value=1)) == [CustomEvent(name="x", value=1)]
    for dialect in (CURRENT, UNDECLARED, *GENERATIONS.values()):
        assert Translator(dialect).feed(custom) == [custom]


async def test_thinking_comes_back_for_clients_that_know_only_that() -> None:
    async def agent(run: Any) -> Any:
        yield thought("A heron.")

    translator = Translator(GENERATIONS[(0, 0, 40)])
    sent = [event for event in (await run_agent(agent)).events for event in translator.feed(event)][1:-1]
    assert sent == thought("A heron.")
