"""Events of many megabytes are read whole, and not on the event loop."""

from __future__ import annotations

import asyncio
import base64
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from serving import Server, serving

from aguila import App
from aguila.chat import ChatMessage, ChatUpdate, DataContent, FunctionCallContent, FunctionResultContent
from aguila.client import AsyncClient, Client
from aguila.client.middleware import Stage
from aguila.client.transports.asgi import ASGITransport
from aguila.codec.json.decoder import EventDecoder
from aguila.errors import DecodeError
from aguila.protocol import RunFinishedEvent, ToolCallResultEvent
from aguila.server import Limits

pytestmark = pytest.mark.anyio

IMAGE = random.Random(1).randbytes(8_000_000)
TEXT = base64.b64encode(IMAGE).decode()  # more than the default limit
MOST = 1 << 30


async def painter(run: Any) -> Any:
    yield "Here it is."
    yield ChatUpdate(contents=[FunctionCallContent("c", "paint", "{}")])
    yield ChatMessage("tool", [FunctionResultContent("c", [DataContent(IMAGE, "image/png")])])
    yield "Done."


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(App(painter, limits=Limits(body=MOST, event=MOST))) as server:
        yield server


def values(events: list[Any]) -> list[Any]:
    assert isinstance(events[-1], RunFinishedEvent)
    return [event.content[0].source.value for event in events if isinstance(event, ToolCallResultEvent)]


@pytest.mark.parametrize("wire", ["sse", "protobuf"])
async def test_a_large_event_is_read_off_the_event_loop(
    server: Server, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    decode = EventDecoder.feed

    def watched_decode(self: EventDecoder, data: Any) -> Any:
        if len(data) > 1 << 20:
            threads.add(threading.get_ident())
        return decode(self, data)

    async with AsyncClient(server.url, max_size=MOST, protobuf=wire == "protobuf") as client:
        monkeypatch.setattr(EventDecoder, "feed", watched_decode)
        thread = client.thread("t")
        found = [event async for event in thread.run("Paint.")]
    assert values(found) == [TEXT]
    assert [message.role for message in thread.messages][-2:] == ["tool", "assistant"]
    assert len(threads) > 0
    assert threading.get_ident() not in threads


def test_a_client_without_an_event_loop_reads_it_too(server: Server) -> None:
    with Client(server.url, max_size=MOST) as client:
        assert values(list(client.thread("t").run("Paint."))) == [TEXT]


async def test_a_large_value_that_is_no_event_is_reported_with_its_place_and_the_events_before_it() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        start = b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'
        large = b'data: {"type":"CUSTOM","name":7,"value":"%b"}\n\n' % (b"x" * 3_000_000)
        for piece in (start, large[:1_500_000], large[1_500_000:]):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with AsyncClient("http://agent", transport=ASGITransport(broken, lifespan=False), max_size=MOST) as client:
        run = client.thread("t").run("Go.")
        with pytest.raises(DecodeError) as caught:
            await run
    assert caught.value.index == 1
    assert caught.value.path == "/name"


@pytest.mark.parametrize("is_async", [True, False])
def test_a_thread_of_several_megabytes_is_refreshed(is_async: bool) -> None:
    text = "x" * (3 * 1024 * 1024)

    async def agent(run: Any) -> Any:
        yield text

    with serving(App(agent, allow_anonymous=True)) as server:
        if is_async:

            async def refresh() -> Any:
                async with AsyncClient(server.url) as client:
                    thread = client.thread("t")
                    await thread.run("hello")
                    other = client.thread("t")
                    await other.refresh()
                    return other.messages[-1].content

            assert asyncio.run(refresh()) == text
        else:
            with Client(server.url) as client:
                client.thread("t").run("hello").result()
                other = client.thread("t")
                other.refresh()
                assert other.messages[-1].content == text


@pytest.mark.parametrize("has_middleware", [False, True])
async def test_other_tasks_run_while_many_events_of_one_read_are_consumed(has_middleware: bool) -> None:
    ids = b'"threadId":"t","runId":"r"'
    unknown = b'data: {"type":"SPELL"}\n\n' * 1000
    body = b'data: {"type":"RUN_STARTED",%b}\n\n%bdata: {"type":"RUN_FINISHED",%b}\n\n' % (ids, unknown, ids)
    turns: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def count() -> None:
        turn = 0
        while True:
            turn += 1
            turns.append(turn)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    seen: list[int] = []
    transport = ASGITransport(app, lifespan=False)
    middleware = [Stage] if has_middleware else []
    client = AsyncClient(
        "http://x", transport=transport, warn=lambda _: seen.append(turns[-1]), middleware=middleware, reconnect=None
    )
    async with client:
        run = client.thread("t").run("hello", run_id="r")
        events = [event async for event in run]
    counting.cancel()
    assert isinstance(events[-1], RunFinishedEvent)
    assert len(seen) >= 1000
    assert max(seen.count(turn) for turn in set(seen)) <= 256
