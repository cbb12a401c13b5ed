"""Large files through a server that measures itself (``large_files.app``), in a process of its own.

What is measured: the memory that the process grew by at its peak, and how long its event loop was blocked. Each
function sends a file of ``SIZE`` bytes in one way and returns the figures of the server.
"""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
from ports import free_port
from serving import REPOSITORY
from waiting import wait_until

MIB = 1 << 20
SIZE = 20 * MIB
SSE = {"content-type": "application/json", "accept": "text/event-stream"}


class Measured:
    """A server in a process of its own."""

    def __init__(self, folder: Path, *, is_durable: bool, at_once: int = 64 * MIB) -> None:
        self.is_durable = is_durable
        port = free_port()
        environment = {**os.environ, "PORT": str(port), "AT_ONCE": str(at_once)}
        if is_durable:
            environment["STORE"] = str(folder / "threads.db")
        script = REPOSITORY / "tests" / "support" / "large_files" / "app.py"
        self._log = (folder / "server.log").open("wb")
        self.process = subprocess.Popen([sys.executable, str(script)], env=environment, stderr=self._log)
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, verify=False)
        wait_until(self._answers)
        self.post(request("warm", [b"x"], back=1))
        self.figures()

    def _answers(self) -> bool:
        assert self.process.poll() is None
        try:
            return self.client.get("/healthz").status_code == 200
        except httpx2.TransportError:
            return False

    def post(self, body: bytes) -> bytes:
        with self.client.stream("POST", "/", content=body, headers=SSE) as response:
            assert response.status_code == 200, response.read()
            return b"".join(response.iter_raw())

    def get(self, path: str) -> bytes:
        with self.client.stream("GET", path, headers={"accept": "text/event-stream"}) as response:
            assert response.status_code == 200, response.read()
            return b"".join(response.iter_raw())

    def figures(self) -> dict[str, Any]:
        """Return the figures since the last call."""
        return self.client.post("/measure").json()

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()
        self._log.close()


def image(size: int) -> bytes:
    """Return random bytes, which nothing can process in a shorter way."""
    return random.Random(size).randbytes(size)


def request(run_id: str, files: list[bytes], back: int = 0, sources: list[Any] | None = None) -> bytes:
    sources = sources or []
    for one in files:
        sources.append({"type": "data", "value": base64.b64encode(one).decode(), "mimeType": "image/png"})
    asked = {
        "threadId": f"thread of {run_id}",
        "runId": run_id,
        "protocolVersion": "1.1",
        "messages": [
            {"id": "m", "role": "user", "content": [{"type": "image", "source": source} for source in sources]}
        ],
        "forwardedProps": {"back": back},
    }
    return json.dumps(asked).encode()


def events(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.partition(b"data: ")[2]) for frame in stream.split(b"\n\n") if b"data: " in frame]


def check(stream: bytes, sizes: list[int], back: int = 0) -> None:
    """Check that the agent had files of these sizes, and that the file it sent back is complete."""
    found = events(stream)
    assert found[-1]["type"] == "RUN_FINISHED", found[-1]
    [text] = [event["delta"] for event in found if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert json.loads(text) == sizes
    results = [event for event in found if event["type"] == "TOOL_CALL_RESULT"]
    assert len(results) == (back > 0)
    for event in results:
        assert len(base64.b64decode(event["content"][0]["source"]["value"])) == back


def come_in(server: Measured) -> dict[str, Any]:
    """Send a request with a file to an agent that reads its bytes."""
    check(server.post(request("in", [image(SIZE)])), [SIZE])
    return server.figures()


def ten_come_in(server: Measured) -> dict[str, Any]:
    """Send ten files in one message."""
    check(server.post(request("ten", [image(SIZE // 10)] * 10)), [SIZE // 10] * 10)
    return server.figures()


def upload(server: Measured, *, is_form: bool) -> dict[str, Any]:
    """Upload a file; the agent then loads it by its id."""
    data = image(SIZE)
    if is_form:
        answer = server.client.post("/files", files={"file": ("a.png", data, "image/png")})
    else:
        answer = server.client.post("/files", content=data, headers={"content-type": "image/png"})
    assert answer.status_code == 201, answer.text
    check(server.post(request("upload", [], sources=[answer.json()["source"]])), [SIZE])
    return server.figures()


def go_out(server: Measured) -> dict[str, Any]:
    """Let the agent send a file to a viewer."""
    check(server.post(request("out", [b"x"], back=SIZE)), [1], SIZE)
    return server.figures()


def replay(server: Measured) -> dict[str, Any]:
    """Read a sent file again from the log."""
    go_out(server)
    check(server.get("/threads/thread%20of%20out/events?protocolVersion=1.1"), [1], SIZE)
    return server.figures()


def ten_at_once(server: Measured, size: int = SIZE) -> dict[str, Any]:
    """Send ten requests at once, each with a file and answered with one."""
    data = image(size)
    bodies = [request(f"run {number}", [data], back=size) for number in range(10)]
    server.figures()
    with ThreadPoolExecutor(10) as pool:
        for stream in pool.map(server.post, bodies):
            check(stream, [size], size)
    return server.figures()
