"""Closing a client ends its runs at once, with one error that says why."""

import asyncio
import socket
import threading

import pytest
from builders import run_started_json, tool_call_json
from scripted_server import Answer, ScriptedServer, frame, frames, run_of
from twins import SyncTwin, error_while_closing

from aguila.client import AsyncClient, Reconnect, tool
from aguila.client.transports.aiohttp import AiohttpTransport
from aguila.client.transports.asgi import ASGITransport
from aguila.errors import TransportFailed

pytestmark = pytest.mark.anyio

LIMIT = 10


def is_closed_error(error):
    return type(error) is TransportFailed and str(error) == "the client was closed"


def silent_after_a_while(is_waiting):
    def answer(asked):
        def pieces():
            yield frame(run_started_json(asked.json["runId"], asked.json["threadId"]), 1)
            is_waiting.set()
            yield threading.Event()

        return Answer(pieces())

    return answer


def transports(twin):
    return {
        "httpx2": lambda url, **options: twin.client(url, **options),
        "aiohttp": lambda url, **options: twin.over(AiohttpTransport, url, **options),
    }


@pytest.mark.parametrize("transport", ["httpx2", "aiohttp"])
def test_a_silent_stream(twin, transport):
    is_waiting = threading.Event()
    with ScriptedServer(silent_after_a_while(is_waiting)) as server:
        client = transports(twin)[transport](server.url)
        assert is_closed_error(error_while_closing(twin, client, client.thread().run("Hi"), is_waiting))
        assert server.requests[0].closed.wait(LIMIT), "the server was hung up on"
        assert len(server.requests) == 1, "nobody tried to come back"


@pytest.mark.parametrize("transport", ["httpx2", "aiohttp"])
def test_a_server_that_does_not_answer(twin, transport):
    is_waiting = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = transports(twin)[transport](f"http://127.0.0.1:{listener.getsockname()[1]}")

        def accept():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                is_waiting.set()
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        assert is_closed_error(error_while_closing(twin, client, client.thread().run("Hi"), is_waiting))
        thread.join(LIMIT)


def test_a_pause_before_coming_back(twin):
    is_waiting = threading.Event()

    def cut(asked):
        return Answer([frame(run_started_json(asked.json["runId"], "t"), 1)], cut=True)

    class Long(Reconnect, frozen=True):
        def delay(self, attempt, random):
            is_waiting.set()
            return 600.0

    with ScriptedServer(cut) as server:
        client = twin.client(server.url, reconnect=Long())
        assert is_closed_error(error_while_closing(twin, client, client.thread().run("Hi"), is_waiting))


def test_an_app_in_this_process(twin):
    is_waiting, has_ended = threading.Event(), threading.Event()

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            raise RuntimeError
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": frames([run_started_json()]), "more_body": True})
        await receive()
        is_waiting.set()
        assert (await receive())["type"] == "http.disconnect"
        has_ended.set()

    client = twin.over(lambda: ASGITransport(app))
    assert is_closed_error(error_while_closing(twin, client, client.thread().run("Hi"), is_waiting))
    assert has_ended.wait(LIMIT)


def test_in_the_middle_of_ones_own_loop(twin):
    with ScriptedServer(silent_after_a_while(threading.Event())) as server:
        client = twin.client(server.url)
        run = client.thread().run("Hi")
        if isinstance(twin, SyncTwin):

            def follow():
                for _ in run:
                    client.close()
        else:

            async def follow():
                async for _ in run:
                    await client.close()

        with pytest.raises(TransportFailed, match="client was closed"):
            twin.wait(follow())
        with pytest.raises(TransportFailed, match="client was closed"):
            twin.result(run)


def test_nothing_can_be_asked_afterwards(twin):
    with ScriptedServer() as server:
        client = twin.client(server.url)
        twin.wait(client.close())
        for ask in (lambda: twin.result(client.thread().run("Hi")), lambda: twin.wait(client.capabilities())):
            with pytest.raises(TransportFailed, match="client was closed"):
                ask()
        assert server.requests == []


async def test_an_async_tool_is_interrupted_and_its_call_answered_as_such():
    is_waiting, made = threading.Event(), []

    @tool(parameters={})
    async def pay():
        made.append(1)
        is_waiting.set()
        await asyncio.Event().wait()

    with ScriptedServer(run_of(*tool_call_json("c1", "pay", {}))) as server:
        client = AsyncClient(server.url, tools=[pay])
        following = asyncio.ensure_future(client.thread().run("Hi").result())
        assert await asyncio.to_thread(is_waiting.wait, LIMIT)
        await client.close()
        with pytest.raises(TransportFailed, match="client was closed"):
            await asyncio.wait_for(following, LIMIT)
    assert made == [1]
