"""A client over loopback HTTP, bytes to messages, next to ``httpx-sse`` with the official models and ``@ag-ui/client``.

The server is a bare socket in a process of its own: it answers every request with the same bytes and parses nothing.
Every reader is a process of its own too, and they take turns. A stream comes in two ways: one event per HTTP chunk, as
servers write that send each event as it is made, and many per chunk. The rows without a floor say what there is to
gain at all: the same transports reading the same bytes and throwing them away, and ``@ag-ui/client`` in Node.

What counts is the processor time of the reader: the bytes are there before it asks for them, so that this is what a
stream costs it, and what else runs on the machine has no part in it.

``python -m benchmarks.client serve`` is the server, ``... read KIND PORT WAY`` is a reader.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NODE_DIR = HERE.parent / "tests" / "interop" / "node"
DELTAS = 20_000
EVENTS = DELTAS + 4
TEXT = "".join(f"word{i} " for i in range(DELTAS))
ROUNDS = 3
REPEATS = 8
PEER = "httpx-sse + official models"
WAYS = ("one", "many")
MANY = 65536

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


# The server


def answers() -> dict[str, bytes]:
    """The same stream, one event per HTTP chunk or many."""
    from benchmarks.consume import one_message, sse

    body = sse(one_message(DELTAS))
    frames = [frame + b"\n\n" for frame in body.split(b"\n\n")[:-1]]
    assert len(frames) == EVENTS
    large = [body[at : at + MANY] for at in range(0, len(body), MANY)]
    return {way: _HEAD + b"".join(map(_chunk, [*pieces, b""])) for way, pieces in (("one", frames), ("many", large))}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def serve() -> None:
    """Answer until killed; the first line of the output is the port."""
    made = answers()
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def answer(connection: socket.socket) -> None:
        with connection:
            held = b""
            while True:
                while b"\r\n\r\n" not in held:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    held += piece
                head, _, held = held.partition(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                left = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
                while len(held) < left:
                    held += connection.recv(65536)
                held = held[left:]
                connection.sendall(made[head.split(b" ", 2)[1].decode().strip("/")])

    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


@contextmanager
def server() -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.client", "serve"]
    process = subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# The readers: each makes its client, which is not measured, and gives a function that reads one stream and returns the
# text of the message that it ended up with

Read = Callable[[str], Awaitable[str]]


@asynccontextmanager
async def ours(transport: Any) -> AsyncIterator[Read]:
    from aguila import AsyncClient

    async def read(url: str) -> str:
        thread = AsyncClient(url, transport=transport).thread()
        async for _ in thread.run("Go", run_id="r"):
            pass
        return thread.messages[-1].content

    yield read
    await transport.close()


def ours_httpx2() -> Any:
    from aguila.client.transports.httpx2 import AsyncHTTPX2Transport

    return ours(AsyncHTTPX2Transport(verify=False))


def ours_aiohttp() -> Any:
    from aguila.client.transports.aiohttp import AiohttpTransport

    return ours(AiohttpTransport())


@asynccontextmanager
async def ours_sync() -> AsyncIterator[Read]:
    from aguila import Client
    from aguila.client.transports.httpx2 import HTTPX2Transport

    transport = HTTPX2Transport(verify=False)

    async def read(url: str) -> str:
        thread = Client(url, transport=transport).thread()
        for _ in thread.run("Go", run_id="r"):
            pass
        return thread.messages[-1].content

    yield read
    transport.close()


@asynccontextmanager
async def httpx_sse() -> AsyncIterator[Read]:
    """What an application writes today: validated, and put together by hand. Nothing is verified."""
    import httpx
    from ag_ui.core import Event, TextMessageContentEvent, TextMessageStartEvent
    from httpx_sse import aconnect_sse
    from pydantic import TypeAdapter

    validate = TypeAdapter(Event).validate_json
    async with httpx.AsyncClient(verify=False, timeout=None) as client:

        async def read(url: str) -> str:
            messages: dict[str, list[str]] = {}
            async with aconnect_sse(client, "POST", url, json={"threadId": "t", "runId": "r"}) as source:
                async for sse in source.aiter_sse():
                    event = validate(sse.data)
                    if isinstance(event, TextMessageContentEvent):
                        messages[event.message_id].append(event.delta)
                    elif isinstance(event, TextMessageStartEvent):
                        messages[event.message_id] = []
            return "".join(messages["m"])

        yield read


@asynccontextmanager
async def bare_httpx2() -> AsyncIterator[Read]:
    import httpx2

    async with httpx2.AsyncClient(verify=False, timeout=None) as client:

        async def read(url: str) -> str:
            size = 0
            async with client.stream("POST", url, json={}) as response:
                async for piece in response.aiter_raw():
                    size += len(piece)
            return TEXT if size > len(TEXT) else ""

        yield read


@asynccontextmanager
async def bare_aiohttp() -> AsyncIterator[Read]:
    import aiohttp

    async with aiohttp.ClientSession() as session:

        async def read(url: str) -> str:
            size = 0
            async with session.post(url, json={}) as response:
                while piece := await response.content.readany():
                    size += len(piece)
            return TEXT if size > len(TEXT) else ""

        yield read


READERS: dict[str, Callable[[], Any]] = {
    reader.__name__: reader for reader in (ours_httpx2, ours_aiohttp, ours_sync, httpx_sse, bare_httpx2, bare_aiohttp)
}


def read(kind: str, port: int, way: str) -> float:
    """Seconds that a run took, the fastest of some; the first one, which loads and compiles, is not counted."""

    async def timed() -> float:
        best = float("inf")
        async with READERS[kind]() as read_one:
            for turn in range(REPEATS + 1):
                start = time.process_time()
                text = await read_one(f"http://127.0.0.1:{port}/{way}")
                elapsed = time.process_time() - start
                if text != TEXT:
                    raise RuntimeError(f"{kind} did not read the message")
                best = min(best, elapsed) if turn else best
        return best

    return asyncio.run(timed())


def read_elsewhere(kind: str, port: int, way: str) -> float:
    """The same in a process of its own."""
    if kind == "node":
        command = ["node", str(HERE / "client_peer.mjs"), str(NODE_DIR), f"http://127.0.0.1:{port}/{way}"]
    else:
        command = [sys.executable, "-m", "benchmarks.client", "read", kind, str(port), way]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    if kind == "node":
        assert found["text"] == TEXT
        return found["seconds"]
    return found


def rows() -> list[dict[str, Any]]:
    best: dict[tuple[str, str], list[float]] = {}
    with server() as port:
        for turn in range(ROUNDS):
            for way in WAYS:
                for kind in [*READERS, *(["node"] if turn == 0 else [])]:  # Node takes seconds; its best is in one go
                    best.setdefault((kind, way), []).append(EVENTS / read_elsewhere(kind, port, way))
    out: list[dict[str, Any]] = []
    for way, how in (("one", "one event per chunk"), ("many", f"{MANY // 1024} KiB per chunk")):
        rate = {kind: max(best[kind, way]) for kind in [*READERS, "node"]}
        for kind, name in (("httpx2", "httpx2"), ("aiohttp", "aiohttp"), ("sync", "httpx2, sync")):
            mine = f"ours_{kind}"
            # httpx2 gives one chunk at a time, which costs more than the event in it: its own speed is the limit.
            is_bound_by_httpx2 = way == "one" and kind != "aiohttp"
            row = {
                "name": f"client over {name}, {how}, bytes to messages",
                "ours": rate[mine],
                "peer": rate["httpx_sse"],
                "peer_name": PEER,
                "unit": "events/s of CPU",
                "spread": (max(best[mine, way]) - min(best[mine, way])) / max(best[mine, way]),
            }
            out.append(row if kind == "sync" else {**row, "floor": 1.2 if is_bound_by_httpx2 else 1.5})
        for kind in ("httpx2", "aiohttp"):
            shared = {"ours": rate[f"ours_{kind}"], "unit": "events/s of CPU"}
            bare = {"peer": rate[f"bare_{kind}"], "peer_name": f"{kind} alone, nothing parsed"}
            out.append({"name": f"the same over {kind}, {how}, next to the floor of the machine", **shared, **bare})
            node = {"peer": rate["node"], "peer_name": "@ag-ui/client 1.0.0 (Node)"}
            out.append({"name": f"the same over {kind}, {how}, next to Node", **shared, **node})
    return out


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print(json.dumps(read(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
