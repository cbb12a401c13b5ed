"""Attack a server that measures itself, and measure the costs of the attack while other clients are served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

from cpu_bounds import allowed
from serving import run_input

from faults.kit import Viewer, Worker, within_deadline

CPU_PER_MEGABYTE = 0.5
CPU_OF_SMALL = 0.05
"""Seconds of CPU time for what is smaller than 100 KB."""
MAX_SLICE = 0.05
"""Seconds of CPU time that the event loop may be busy with one callback."""
MEMORY_PER_BYTE, MEMORY_BASE = 64, 32 * 1024 * 1024
"""Memory that an attack may take at its peak: per byte that is sent, and besides."""
MEMORY_AT_END = 256 * 1024 * 1024
"""Memory that may have been taken for all attacks when they are over, besides what a store in memory keeps."""
PAUSE = 0.05
"""Seconds between two runs of the other client."""


_BUGS = ("never retrieved", "never awaited", "was destroyed", "Exception in ASGI", "executor failed")


class MeasuredWorker(Worker):
    """``measured_app`` in a process of its own."""

    script = "measured_app.py"


@asynccontextmanager
async def measured_worker(folder: Path, store: str, **settings: Any) -> AsyncIterator[MeasuredWorker]:
    """Start a server that measures itself. It may have logged runs that failed, but no other bug."""
    worker = await asyncio.to_thread(lambda: MeasuredWorker(folder, store=store, **settings))
    try:
        yield worker
    finally:
        worker.stop()
    said = worker.log.read_text()
    assert [sign for sign in _BUGS if sign in said] == []


class Request:
    """A request on a connection of its own, whose last byte is sent when ``finish`` is called.

    ``headers`` are further lines of the head. ``status`` is 0 if the server disconnects without an answer.
    """

    def __init__(self, port: int, method: str, path: str, body: bytes = b"", headers: bytes = b"") -> None:
        self._port = port
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._bytes = head.encode() + headers + b"\r\n" + body
        self.status = 0
        self.body = b""

    async def begin(self) -> None:
        """Send all but the last byte."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(OSError):  # the server may refuse the request before it is complete
            self._writer.write(self._bytes[:-1])
            await self._writer.drain()

    async def finish(self) -> None:
        """Send the last byte and read the answer to its end."""
        with suppress(OSError):
            self._writer.write(self._bytes[-1:])
            await self._writer.drain()
        answer = bytearray()
        with suppress(OSError):
            while piece := await self._reader.read(65536):
                answer += piece
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        head, _, self.body = bytes(answer).partition(b"\r\n\r\n")
        self.status = int(head.split()[1]) if head else 0


class Attacks:
    """Attacks a server. ``excesses`` lists what took too much."""

    def __init__(self, worker: MeasuredWorker) -> None:
        self._worker = worker
        self.excesses: list[str] = []
        self.count = self.served = 0
        self.sent = 0
        """Bytes of all requests, or of the streams that they let the server read."""
        self.longest = self.dearest = 0.0
        self.peak = 0
        self.figures: list[str] = []
        self._others = 0
        self._cost_of_other = 0.0
        self._base = 0

    async def prepare(self, runs: int = 20) -> None:
        """Warm the server up, and measure what a run of the other client costs."""
        for _ in range(5):
            await self._run_other()
        before = self._measure()
        for _ in range(runs):
            await self._run_other()
        after = self._measure()
        self._cost_of_other = (after["cpu"] - before["cpu"]) / runs
        self._base = int(after["memory"])

    def _measure(self) -> dict[str, float]:
        return self._worker.post("/measurements").json()

    async def _run_other(self, *, deletes_threads: bool = False) -> None:
        """Run an agent as another client. The run must end well, unless the attack deletes the threads of the scope."""
        self._others += 1
        viewer = Viewer(f"other-{self._others}")
        answer = await viewer.post(self._worker.port, run_input(viewer.thread_id, "r"))
        assert answer.status == 200, answer.body
        is_finished = json.loads(viewer.frames[-1][1])["type"] == "RUN_FINISHED"
        assert is_finished or deletes_threads, viewer.frames[-1]

    async def _serve_others(self, attack: asyncio.Task[Any], *, deletes_threads: bool) -> int:
        """Run agents as another client until the attack is over; at least one. Return how many."""
        count = 0
        while not count or not attack.done():
            await self._run_other(deletes_threads=deletes_threads)
            count += 1
            await asyncio.wait([attack], timeout=PAUSE)
        return count

    async def attack(
        self,
        name: str,
        size: int,
        make: Callable[[int], Awaitable[Request]],
        *,
        is_relayed: bool = False,
        deletes_threads: bool = False,
    ) -> Request:
        """Send the request that ``make`` returns for an attempt, and check its costs, while another client is served.

        The run of the other client begins when all of the request but its last byte was sent, and before the last byte
        is. If the attack takes too much, it is repeated: CPU time is sometimes inflated by other work. What
        ``is_relayed`` is read, stored and sent, so both directions count. What ``deletes_threads`` ends runs of others.
        """
        self.count += 1
        given = size
        spent = longest = inf
        for attempt in range(4):
            request = await make(attempt)
            before = self._measure()
            await request.begin()
            attack = asyncio.create_task(request.finish())
            served = await within_deadline(self._serve_others(attack, deletes_threads=deletes_threads))
            await attack
            after = self._measure()
            spent = min(spent, after["cpu"] - before["cpu"] - served * self._cost_of_other)
            longest = min(longest, after["longest"])
            peak = int(after["peak"] - before["memory"])
            self.served += served
            self.sent += given
            size = given + len(request.body) if is_relayed else given
            factor = allowed(1.0)
            bound = max(CPU_OF_SMALL, CPU_PER_MEGABYTE * size / 1e6)
            has_memory = peak <= MEMORY_BASE + MEMORY_PER_BYTE * size
            if spent <= bound * factor and longest <= MAX_SLICE * factor and has_memory:
                break
        else:
            self.excesses.append(
                f"{name}: {spent:.2f} s of CPU time for {size} bytes, {longest:.3f} s in one turn, {peak >> 20} MiB"
            )
        self.longest, self.peak = max(self.longest, longest), max(self.peak, peak)
        self.dearest = max(self.dearest, spent / max(size, 100_000) * 1e6)
        self.figures.append(f"{spent:7.3f} s {longest:.3f} s {peak >> 20:4} MiB {size:8} {request.status} {name}")
        return request

    def summary(self) -> dict[str, object]:
        """Return the measurements, for the report."""
        return {
            "count": self.count,
            "runs_of_others_meanwhile": self.served,
            "cpu_of_a_run_of_others": f"{self._cost_of_other:.4f} s",
            "most_cpu_per_MB": f"{self.dearest:.2f} s",
            "longest_turn": f"{self.longest:.3f} s",
            "peak": f"{self.peak >> 20} MiB",
            "grown": f"{self.grown() >> 20} MiB",
        }

    def grown(self) -> int:
        """Bytes of memory that the server takes more than before the attacks."""
        return int(self._measure()["memory"]) - self._base
