"""The httpx2 transport: bodies from any httpx2 transport, limits for single reads, closing from another thread."""

import threading

import httpx2
import pytest
from builders import run_finished_json, run_started_json, text_message_json
from scripted_server import Answer, ScriptedServer, frame, frames

from aguila import AsyncClient, Client
from aguila.client.transports.base import Request, Timeouts
from aguila.client.transports.httpx2 import AsyncHTTPX2Transport, HTTPX2Transport
from aguila.errors import TransportFailed

pytestmark = pytest.mark.anyio

STREAM = frames([run_started_json(), *text_message_json("m", "Hello"), run_finished_json()])
PIECE = frame(run_started_json())


def post(url):
    return Request(method="POST", url=url, headers={}, body=b"{}")


class Whole(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __iter__(self):
        yield STREAM

    async def __aiter__(self):
        yield STREAM


async def test_an_answer_of_another_transport_is_read_the_public_way():
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Whole())
    )
    with Client("http://x", transport=HTTPX2Transport(httpx2.Client(transport=transport))) as client:
        assert client.thread().run("x").result().text == "Hello"

    asynchronous = AsyncHTTPX2Transport(httpx2.AsyncClient(transport=transport))
    async with AsyncClient("http://x", transport=asynchronous) as client:
        assert (await client.thread().run("x")).text == "Hello"


@pytest.mark.parametrize("idle", [None, 600.0])
def test_a_single_read_has_its_own_limit(idle):
    with ScriptedServer(Answer([PIECE, threading.Event()])) as server:
        transport = HTTPX2Transport(timeouts=Timeouts(idle=idle))
        response = transport.send(post(server.url), 60.0)
        assert response.read(60.0) == PIECE
        with pytest.raises(TransportFailed, match=r"no data for 0\.05 seconds") as failure:
            response.read(0.05)
        assert failure.value.is_timeout
        transport.close()


def test_a_limit_that_is_not_reached_changes_nothing():
    with ScriptedServer(Answer([PIECE, PIECE])) as server:
        transport = HTTPX2Transport()
        response = transport.send(post(server.url), 60.0)
        body = b""
        while piece := response.read(30.0):
            body += piece
        assert body == PIECE + PIECE
        response.close()
        transport.close()


def test_closing_leaves_the_connections_of_a_client_of_yours_alone():
    with ScriptedServer(Answer([PIECE]), Answer([PIECE])) as server, httpx2.Client() as client:
        transport = HTTPX2Transport(client)
        response = transport.send(post(server.url), 60.0)
        assert response.read(60.0) == PIECE
        assert response.read(60.0) == b""
        response.close()
        with client.stream("POST", server.url) as yours:  # it may use the connection that the transport used
            transport.close()
            assert yours.read() == PIECE


def test_closing_ends_a_read_in_another_thread_also_on_a_client_of_yours():
    with ScriptedServer(Answer([PIECE, threading.Event()])) as server, httpx2.Client() as client:
        transport = HTTPX2Transport(client)
        response = transport.send(post(server.url), 60.0)
        assert response.read(60.0) == PIECE
        failures = []

        def read():
            try:
                response.read(None)
            except TransportFailed as failure:
                failures.append(failure)

        reader = threading.Thread(target=read)
        reader.start()
        while reader.is_alive():  # it may not have begun to read when the transport is closed first
            transport.close()
            reader.join(0.01)
        assert len(failures) == 1
