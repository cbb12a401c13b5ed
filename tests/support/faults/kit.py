"""Faults for tests: servers in processes of their own that can be killed, and viewers that can be cut at any byte.

``AGUILA_FAULTS=long`` (``make faults``) asks for the long version of every test in tests/faults. A viewer speaks HTTP
over a bare socket, so that a cut is exactly where the test wants it, also within the head or the framing of a chunk.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from processes.forked import ForkedProcess
from serving import REPOSITORY, Peer, number_of, run_input
from waiting import wait_until

from aguila.codec.sse import SSEParser

LONG = os.environ.get("AGUILA_FAULTS") == "long"
PATIENCE = 120.0

# Parts of log lines that only a bug causes.
_BUGS = (
    "never retrieved",
    "never awaited",
    "was destroyed",
    "ASGI",
    "failed reference=",
    "failed; trying again",
    "executor failed",
    "left open",
    "could not be stored",
)

T = TypeVar("T")
Frames = list[tuple[int, bytes]]
"""Events with their sequence numbers, as they came."""


def scaled(short: int, long: int) -> int:
    """Choose an amount of work: ``short`` in ``make test``, ``long`` in ``make faults``."""
    return long if LONG else short


def open_files(pid: int) -> list[str]:
    """Return what each open file of a process is: a path, or such as ``socket:[123]``."""
    found: list[str] = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(str(link.readlink()))
    return found


def report(what: str, **counts: object) -> None:
    """Print the counts of a test; ``make faults`` shows them."""
    print(f"{what}: " + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()))


async def within_deadline(work: Coroutine[Any, Any, T], seconds: float = 600 if LONG else 120) -> T:
    """Run a coroutine; raise TimeoutError if it hangs."""
    async with asyncio.timeout(seconds):
        return await work


# Servers


class Worker(Peer):
    """``faults.app`` on uvicorn in a process of its own. Workers with the same folder share one SQLite file."""

    count = 0
    script = "app.py"

    def __init__(self, folder: Path, **options: Any) -> None:
        Worker.count += 1
        self.folder = folder
        self._port = folder / f"port-{Worker.count}"
        self.log = folder / f"worker-{Worker.count}.log"
        settings = {"folder": str(folder), "port": str(self._port), **options}
        command = [str(REPOSITORY / "tests" / "support" / "faults" / self.script), json.dumps(settings)]
        streams = [Path(os.devnull), self.log, self.log]
        self.process = ForkedProcess(command, Path.cwd(), streams, os.environ)
        wait_until(self._is_up, PATIENCE)
        self.port = int(self._port.read_text())
        super().__init__(f"http://127.0.0.1:{self.port}")

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return self._port.exists() and self._port.read_text().endswith("\n")

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Stop the process. Its threads stop one by one: one in a system call may still take a lock with it."""
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: all(state.startswith("T") for state in self._thread_states()))

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        self.close()

    def memory(self) -> int:
        """Resident bytes."""
        return int(self._status()["VmRSS"].split()[0]) * 1024

    def _status(self) -> dict[str, str]:
        return _read_status(Path(f"/proc/{self.process.pid}"))

    def _thread_states(self) -> list[str]:
        return [_read_status(thread)["State"] for thread in Path(f"/proc/{self.process.pid}/task").iterdir()]

    def frames(self, thread_id: str) -> Frames:
        """Return the whole log of a thread."""
        with self.stream("GET", f"/threads/{thread_id}/events") as stream:
            assert stream.status == 200, stream.response.read()
            return [(number, data) for number, data in stream.frames() if number is not None]


@contextmanager
def workers(folder: Path, count: int = 1, **options: Any) -> Iterator[list[Worker]]:
    """Start workers on one file. Workers that the test appends are stopped as well. None may have logged a bug."""
    found: list[Worker] = []
    try:
        for _ in range(count):
            found.append(Worker(folder, **options))
        yield found
    finally:
        for worker in found:
            worker.stop()
    for worker in found:
        said = worker.log.read_text()
        assert not any(sign in said for sign in _BUGS), said[-4000:]


def act(name: str, thread_id: str, run_id: str = "run", resume: Any = ..., **props: Any) -> dict[str, Any]:
    """Build the input that makes ``faults.app`` act."""
    return run_input(thread_id, run_id, forwardedProps={"act": name, **props}, resume=resume)


def events_of(frames: Frames) -> list[dict[str, Any]]:
    return [json.loads(data) for _, data in frames]


def terminal(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] in ("RUN_FINISHED", "RUN_ERROR")]


class Effects:
    """A file of lines that agents in other processes append to."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / name

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


class Valve:
    """A file whose size says how far an agent may go."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._path = folder / name
        self._path.write_bytes(b"")

    def open_to(self, size: int) -> None:
        if self._path.stat().st_size < size:
            with self._path.open("ab") as file:
                file.truncate(size)

    def open(self) -> None:
        self.open_to(1_000_000)


# Viewers


class _Answer:
    """An HTTP/1.1 answer with a chunked body, byte by byte if need be."""

    def __init__(self) -> None:
        self.status = 0
        self.body = bytearray()
        self.is_complete = False
        self._rest = bytearray()
        self._in_head = True
        self._left: int | None = None
        self.length: int | None = None

    def feed(self, data: bytes) -> bytes:
        """Return the bytes of the body in this data."""
        rest = self._rest
        rest += data
        found = bytearray()
        if self._in_head:
            head, mark, after = rest.partition(b"\r\n\r\n")
            if not mark:
                return b""
            self._in_head = False
            lines = head.lower().split(b"\r\n")
            self.status = int(lines[0].split()[1])
            self.length = next((int(line[16:]) for line in lines if line.startswith(b"content-length: ")), None)
            rest[:] = after
        while rest and not self.is_complete:
            if self.length is not None:
                found += rest
                rest.clear()
                self.is_complete = len(self.body) + len(found) >= self.length
            elif self._left is None:
                size, mark, after = rest.partition(b"\r\n")
                if not mark:
                    break
                self._left = int(size, 16) + 2
                rest[:] = after
                if self._left == 2 and rest == b"\r\n":
                    self.is_complete = True
            else:
                piece = rest[: self._left]
                del rest[: len(piece)]
                self._left -= len(piece)
                found += piece[: len(piece) - max(0, 2 - self._left)]
                if self._left == 0:
                    self._left = None
        self.body += found
        return bytes(found)


def _read_status(folder: Path) -> dict[str, str]:
    lines = (folder / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


class Viewer:
    """Follows a thread by a bare socket, from after a sequence number. It holds the complete events."""

    def __init__(self, thread_id: str, after: int = 0, host: str = "127.0.0.1") -> None:
        self.thread_id = thread_id
        self._host = host
        self._after = after
        self._cursor = str(after)
        self.frames: Frames = []
        self.cuts = 0
        self.connections = 0
        self.received = 0
        """Bytes, heads included, of the last connection."""
        self.last_words: list[bytes] | None = None
        """Events without a number of their own. If it is None, the viewer fails at such an event, as at a repeat."""
        self.on_event: Callable[[], None] = lambda: None
        self.before_read: Callable[[], Awaitable[None]] | None = None
        self.most = 65536
        """How many bytes it reads at a time."""

    @property
    def last(self) -> int:
        return self.frames[-1][0] if self.frames else self._after

    @property
    def is_done(self) -> bool:
        return bool(self.frames) and self.frames[-1][1].startswith((b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"'))

    async def post(self, port: int, body: Any, **limits: Any) -> _Answer:
        """Start a run, or return to it by its id, and watch it."""
        content = json.dumps(body).encode()
        head = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        return await self._exchange(port, f"POST / HTTP/1.1\r\n{head}", content, **limits)

    async def follow(self, port: int, **limits: Any) -> _Answer:
        """Continue after the last complete event."""
        cursor = f"Last-Event-ID: {self._cursor}\r\n" if self.last else ""
        return await self._exchange(
            port, f"GET /threads/{self.thread_id}/events?protocolVersion=1.1 HTTP/1.1\r\n{cursor}", **limits
        )

    async def follow_to_the_end(self, *ports: int) -> None:
        """Reconnect, to one worker after the other, until the run has ended."""
        while not self.is_done:
            answer = await self.follow(ports[self.connections % len(ports)])
            assert answer.status == 200, answer.body

    async def _exchange(
        self,
        port: int,
        head: str,
        content: bytes = b"",
        *,
        cut_bytes: int | None = None,
        cut_events: int | None = None,
        survives: bool = False,
    ) -> _Answer:
        """Send one request. It is cut after so many bytes or events of the answer; ``survives``: the server may die."""
        self.connections += 1
        self.received = 0
        answer, parser = _Answer(), SSEParser()
        events = 0
        was_cut = False
        writer: asyncio.StreamWriter | None = None
        try:
            limit = 2**16 if self.before_read is None else 2**12
            reader, writer = await asyncio.open_connection(self._host, port, limit=limit)
            writer.write(f"{head}Host: localhost\r\n\r\n".encode() + content)
            while not answer.is_complete:
                if self.before_read is not None:
                    await self.before_read()
                want = self.most if cut_bytes is None else min(self.most, cut_bytes - self.received)
                was_cut = want == 0
                piece = await reader.read(want) if want else b""
                self.received += len(piece)
                if not piece:
                    break
                body = answer.feed(piece)
                for frame in parser.feed(body) if answer.status == 200 else ():
                    if self.last_words is not None and (frame.id is None or number_of(frame.id) == self.last):
                        self.last_words.append(frame.data)
                        continue
                    assert frame.id is not None
                    assert number_of(frame.id) == self.last + 1, f"{frame.id} came after {self.last}"
                    self.frames.append((number_of(frame.id), frame.data))
                    self._cursor = frame.id
                    self.on_event()
                    events += 1
                    was_cut = events == cut_events
                    if was_cut:
                        break  # what else came in these bytes is lost, as if the cut had been here
                if was_cut:
                    break
        except OSError:
            if not survives:
                raise
        finally:
            if writer is not None:
                self.cuts += was_cut
                writer.transport.abort()
                with suppress(OSError):
                    await writer.wait_closed()
        return answer
