"""Idle streams, stalled readers, slow writers and header-only connections at once: a new run still starts and ends."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from faults.kit import PATIENCE, Valve, Viewer, act, report, scaled, within_deadline, workers
from waiting import wait_until_async

pytestmark = pytest.mark.anyio

IDLE, STALLED = scaled(100, 2000), scaled(10, 200)
WRITERS, HEADERS = scaled(10, 200), scaled(10, 100)
MIB = 1024 * 1024
THREAD = 9 * MIB
SENT, LARGE_BODY = 1_100_000, 1_500_000
"""Bytes that half of the slow writers have sent, and of the body of the new run."""
AT_ONCE = 64 * MIB
"""Bytes of large bodies that are held at once (``Limits.buffered``)."""
PER_IDLE, PER_CONNECTION = 64 * 1024, 640 * 1024
"""Bytes of memory for an idle stream, and for any other connection."""


async def connect(opened: ExitStack, port: int, head: str, rest: bytes = b"") -> socket.socket:
    """Send a request, or the beginning of one, and keep the connection open."""
    loop, connection = asyncio.get_running_loop(), opened.enter_context(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    await loop.sock_connect(connection, ("127.0.0.1", port))
    await loop.sock_sendall(connection, f"{head} HTTP/1.1\r\nHost: localhost\r\n".encode() + rest)
    return connection


async def test_a_run_starts_and_ends_among_connections_that_do_nothing(tmp_path: Path) -> None:
    with workers(tmp_path) as (worker,):

        async def meet() -> int:
            size = 16_000
            large = Viewer("large")
            await large.post(worker.port, act("talk", "large", count=THREAD // size, size=size))
            assert large.is_done
            valve = Valve(tmp_path, "valve")
            quiet = Viewer("quiet")
            running = asyncio.create_task(quiet.post(worker.port, act("counted", "quiet", valve=valve.name)))
            await wait_until_async(lambda: bool(quiet.frames), PATIENCE)
            base = worker.memory()
            length = b"Content-Type: application/json\r\nContent-Length: 1500000\r\n"
            with ExitStack() as opened:
                followers = [
                    await connect(opened, worker.port, "GET /threads/quiet/events", b"\r\n") for _ in range(IDLE)
                ]
                stalled = [await connect(opened, worker.port, "GET /threads/large", b"\r\n") for _ in range(STALLED)]
                begun = length + b"\r\n" + b'{"threadId": "'
                for _ in range(WRITERS // 2):
                    await connect(opened, worker.port, "POST /", begun)
                # The others send most of their body, if the server lets them: its memory for bodies is limited.
                sending = [
                    asyncio.create_task(connect(opened, worker.port, "POST /", begun + b"x" * SENT))
                    for _ in range(WRITERS // 2)
                ]
                await asyncio.wait(sending, timeout=5)
                for _ in range(HEADERS):
                    await connect(opened, worker.port, "POST /", length + b"\r\n")
                for connection in [*followers, *stalled]:  # each is being answered
                    assert await asyncio.get_running_loop().sock_recv(connection, 12) == b"HTTP/1.1 200"
                new = Viewer("new")
                await new.post(worker.port, act("talk", "new", count=50, padding="x" * LARGE_BODY))
                assert new.is_done
                grown = worker.memory() - base
                for task in sending:
                    task.cancel()
                await asyncio.wait(sending)
            valve.open()
            await running
            assert quiet.is_done
            assert json.loads(quiet.frames[-1][1])["outcome"] == {"type": "success"}
            return grown

        grown = await within_deadline(meet())
    report("a crowd", idle=IDLE, stalled=STALLED, writers=WRITERS, headers=HEADERS, grown=grown)
    assert grown < 8 * THREAD + AT_ONCE + IDLE * PER_IDLE + (STALLED + WRITERS + HEADERS) * PER_CONNECTION
