"""Real servers for tests: uvicorn on a free port of the loopback, in a thread or in a process of its own.

No test sleeps: ``wait_until`` waits for a condition, a ``Gate`` holds an agent until the test opens it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from ports import free_port
from processes.forked import ForkedProcess
from waiting import DEADLINE, wait_until

from aguila.codec import decode_event
from aguila.codec.sse import Frame, SSEParser
from aguila.stream import Verifier

REPOSITORY = Path(__file__).parents[2]


def number_of(cursor: str) -> int:
    """Return the sequence number of a cursor: the part before its token."""
    return int(cursor.partition("-")[0])


class Gate:
    """Block an agent until the test opens the gate; the test can wait until the agent has reached it."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()

    def open(self) -> None:
        self._open.set()

    def await_reached(self) -> None:
        assert self.reached.wait(DEADLINE), "the agent did not reach the gate"

    async def wait(self) -> None:
        self.reached.set()
        while not self._open.is_set():  # noqa: ASYNC110 - it is opened from another thread
            await asyncio.sleep(0.001)


def run_input(thread_id: str = "thread", run_id: str = "run", **members: Any) -> dict[str, Any]:
    """Build a RunAgentInput as JSON. It declares 1.1 by default; a member that is ``...`` is left out."""
    found = {"threadId": thread_id, "runId": run_id, "messages": [], "protocolVersion": "1.1", **members}
    return {name: value for name, value in found.items() if value is not ...}


def declaring(path: str, version: str | None = "1.1") -> str:
    """The address of a stream with the reader's protocol version, unless it has one; other addresses as they are."""
    is_stream = path.partition("?")[0].endswith("/events")
    if version is None or not is_stream or "protocolVersion=" in path:
        return path
    return f"{path}{'&' if '?' in path else '?'}protocolVersion={version}"


class Stream:
    """An open response and the frames that have come."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.status = response.status_code
        self._parser = SSEParser()
        self._bytes = response.iter_raw()
        self._frames: list[Frame] = []
        self.raw = b""

    def next(self) -> Frame | None:
        """Return the next frame; None at the end."""
        while not self._frames:
            piece = next(self._bytes, None)
            if piece is None:
                return None
            self.raw += piece
            self._frames += self._parser.feed(piece)
        return self._frames.pop(0)

    def next_event(self) -> dict[str, Any] | None:
        frame = self.next()
        return None if frame is None else json.loads(frame.data)

    def read_until(self, type_: str) -> dict[str, Any]:
        while (event := self.next_event()) is not None:
            if event["type"] == type_:
                return event
        raise AssertionError(f"the stream ended without {type_}")

    def rest(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        while (event := self.next_event()) is not None:
            events.append(event)
        return events

    def frames(self) -> list[tuple[int | None, bytes]]:
        found: list[tuple[int | None, bytes]] = []
        while (frame := self.next()) is not None:
            found.append((None if frame.id is None else number_of(frame.id), frame.data))
        return found

    def close(self) -> None:
        """Disconnect."""
        self.response.close()


class Peer:
    """A client of a server, over plain HTTP."""

    def __init__(self, url: str, **headers: str) -> None:
        self.url = url
        # Loading the certificates of the system takes longer than most tests; no server here has one.
        self.client = httpx2.Client(base_url=url, timeout=DEADLINE, headers=headers, trust_env=False, verify=False)

    @contextmanager
    def stream(self, method: str, path: str, declared: str | None = "1.1", **options: Any) -> Iterator[Stream]:
        """Open a stream. A GET declares 1.1 by default, as ``run_input`` does."""
        with self.client.stream(method, declaring(path, declared), **options) as response:
            yield Stream(response)

    def run(self, path: str = "/", headers: dict[str, str] | None = None, **members: Any) -> Any:
        """Post a run; a context manager with its stream."""
        body = json.dumps(run_input(**members)).encode()  # escaped, so that half a character can be sent
        return self.stream("POST", path, content=body, headers={"content-type": "application/json", **(headers or {})})

    def events(self, **members: Any) -> list[dict[str, Any]]:
        """Return all events of a run."""
        with self.run(**members) as stream:
            assert stream.status == 200, stream.response.read()
            return stream.rest()

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.client.get(declaring(path), **options)

    def post(self, path: str, **options: Any) -> httpx2.Response:
        return self.client.post(path, **options)

    def delete(self, path: str, **options: Any) -> httpx2.Response:
        return self.client.delete(path, **options)

    def status_of(self, thread_id: str, run_id: str) -> str:
        return self.get(f"/threads/{thread_id}/runs/{run_id}").json()["status"]

    def close(self) -> None:
        self.client.close()


class _Uvicorn(uvicorn.Server):
    """Exits as soon as it is told to. Uvicorn's own loop looks ten times a second, and many tests would wait for it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_told = asyncio.Event()

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await self.is_told.wait()

    def tell(self) -> None:
        self.should_exit = True
        self.is_told.set()


class Server(Peer):
    """An app on uvicorn in a thread of this process."""

    def __init__(self, app: Any, drain: Callable[[], None] | None, **options: Any) -> None:
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", access_log=False, **options)
        self._server = _Uvicorn(config)
        self._drain = drain
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started, "the server did not start"
        port = self._server.servers[0].sockets[0].getsockname()[1]
        super().__init__(f"http://127.0.0.1:{port}")

    def _serve(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve()

        asyncio.run(main())

    def call(self, function: Callable[[], Any]) -> None:
        """Call a function on the server's event loop."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function)

    def peer(self, **headers: str) -> Peer:
        """Return another client, with connections of its own."""
        return Peer(self.url, **headers)

    def stop(self) -> None:
        if self._thread.is_alive() and self._drain is not None:
            self.call(self._drain)
        if self._thread.is_alive():
            self.call(self._server.tell)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "the server did not stop"
        self.close()


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[Server]:
    """Serve an app; on leaving, its runs are drained."""
    server = Server(app, getattr(app, "begin_drain", None), **options)
    try:
        yield server
    finally:
        server.stop()


class ServerProcess(Peer):
    """An app on uvicorn in a process of its own. ``target`` is ``module:attribute``, found in ``folder``."""

    def __init__(self, target: str, folder: Path, environment: dict[str, str] | None = None, *args: str) -> None:
        port = free_port()
        paths = [str(folder), str(REPOSITORY / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
        command = ["-m", "uvicorn", target, "--port", str(port), "--no-access-log", *args]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})}
        self._log = folder / f"uvicorn-{port}.log"
        self.process = ForkedProcess(command, Path.cwd(), [Path(os.devnull), self._log, self._log], environment)
        super().__init__(f"http://127.0.0.1:{port}")
        wait_until(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.output()
        try:
            return self.get("/healthz").status_code == 200
        except httpx2.TransportError:
            return False

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def output(self) -> str:
        """Wait for the end of the process and return its output."""
        self.process.wait(DEADLINE)
        return self._log.read_text()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        self.close()


@contextmanager
def server_process(target: str, folder: Path, environment: dict[str, str] | None = None, *args: str) -> Iterator[Any]:
    server = ServerProcess(target, folder, environment, *args)
    try:
        yield server
    finally:
        server.stop()


# Agents and what they said


class Held:
    """An agent that writes "one", waits for its gate, and writes "two"."""

    def __init__(self) -> None:
        self.gates: dict[str, Gate] = {}
        self.calls: list[str] = []
        self.cancelled: list[str] = []

    def gate(self, run_id: str) -> Gate:
        return self.gates.setdefault(run_id, Gate())

    async def __call__(self, run: Any) -> Any:
        self.calls.append(run.run_id)
        try:
            async with run.text() as text:
                await text.write("one")
                await self.gate(run.run_id).wait()
                await text.write("two")
        except asyncio.CancelledError:
            self.cancelled.append(run.run_id)
            raise


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def check_valid(events: list[dict[str, Any]]) -> None:
    verifier = Verifier(producer=True)
    for event in events:
        decoded = decode_event(json.dumps(event), strict=True)
        assert decoded is not None
        verifier.feed(decoded)
    verifier.close()


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


class Background:
    """A call in a thread."""

    def __init__(self, function: Any) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(function)

    def result(self) -> Any:
        return self._future.result(DEADLINE)

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
