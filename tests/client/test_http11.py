"""Bodies of HTTP/1.1 answers: chunks are put together, and nothing of them is changed, whatever the bytes are."""

import asyncio
from itertools import pairwise

import h11
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Answer, ScriptedServer, finished, frames, started, text

from aguila import AsyncClient, Client
from aguila.client.http11 import ChunkMerger, connection_of
from aguila.client.httpx2 import AsyncHTTPX2Transport, HTTPX2Transport

STREAM = frames([started("r", "t"), *text("m", "Hello"), finished("r", "t")])


def parsed(pieces):
    """What h11 makes of a chunked body, and what is wrong with it."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    body, count = b"", 0
    for piece in [*filter(None, pieces), b""]:
        try:
            parser.receive_data(piece)
            while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Data):
                    body += event.data
                    count += 1
                elif isinstance(event, h11.EndOfMessage):
                    return body, event.headers.raw_items(), count
        except h11.RemoteProtocolError as error:
            return body, str(error), count
    raise AssertionError("the end was not noticed")


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


chunks = st.lists(st.binary(min_size=1, max_size=40), max_size=12).map(
    lambda pieces: b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
)
ends = st.sampled_from([b"0\r\n\r\n", b"0\r\nTrailer: 1\r\n\r\n", b"000\r\n\r\n", b""])
damage = st.sampled_from(
    [b"", b"5;a=b\r\nhello\r\n", b"g\r\n", b"+3\r\nabc\r\n", b"3\r\nabcd\r\n", b" 3\r\nabc\r\n", b"3\nabc"]
)


@settings(max_examples=300, deadline=None)
@given(chunks, damage, chunks, ends, st.lists(st.integers(0, 10_000), max_size=8), st.integers(0, 200))
def test_merged_chunks_mean_the_same_to_the_parser(before, odd, after, end, places, seen):
    data = before + odd + after + end
    head, rest = data[:seen], data[seen:]
    merger = ChunkMerger(head)
    fed = cut(rest, places)
    merged = [merger.feed(piece) for piece in fed]
    plain, changed = parsed([head, *fed]), parsed([head, *merged])
    assert changed[:2] == plain[:2]
    assert changed[2] <= plain[2]


def test_what_arrives_together_is_one_chunk():
    merger = ChunkMerger(b"3\r\nab")
    assert merger.feed(b"c\r\n1\r\nd\r\n2\r\nef\r\n5\r\ngh") == b"c\r\n3\r\ndef\r\n5\r\ngh"
    assert merger.feed(b"ijk\r\n1") == b"ijk\r\n1"
    assert merger.feed(b"\r\nl\r\n1\r\nm\r\n1\r\nn\r\n0\r\n\r\n") == b"\r\nl\r\n2\r\nmn\r\n0\r\n\r\n"


@pytest.mark.parametrize("http2", [False, True])
def test_the_fast_way_is_found_in_the_httpx2_that_we_pin(http2):
    with ScriptedServer(Answer([STREAM]), Answer([STREAM])) as server:
        with httpx2.Client(http2=http2, verify=False) as client, client.stream("POST", server.url) as response:
            assert connection_of(response) is not None

        async def main():
            async with (
                httpx2.AsyncClient(http2=http2, verify=False) as client,
                client.stream("POST", server.url) as got,
            ):
                assert connection_of(got) is not None

        asyncio.run(main())


class Whole(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __iter__(self):
        yield STREAM

    async def __aiter__(self):
        yield STREAM


def test_an_answer_of_another_transport_is_read_the_public_way():
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Whole())
    )
    with Client("http://x", transport=HTTPX2Transport(httpx2.Client(transport=transport))) as client:
        assert client.thread().run("x").result().text == "Hello"

    async def main():
        async with AsyncClient(
            "http://x", transport=AsyncHTTPX2Transport(httpx2.AsyncClient(transport=transport))
        ) as client:
            return (await client.thread().run("x")).text

    assert asyncio.run(main()) == "Hello"
