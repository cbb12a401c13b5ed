"""The files of ``deploy/``, and the service that they serve, in processes on one PostgreSQL database."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
from ports import free_port
from processes.commands import Command
from serving import REPOSITORY, Stream, run_input
from waiting import DEADLINE

DEPLOY = REPOSITORY / "deploy"
CLIENTS = 2
"""How many clients ``load`` has."""

HEADERS = {"host": "agents.example.com", "authorization": "Bearer token-of-ada"}

AGENT = """
import asyncio

async def agent(run):
    text = run.user_text
    yield "I hear: "
    for word in text.split():
        await asyncio.sleep(0.02)
        yield word + " "
"""


def write_service(folder: Path) -> None:
    """Write ``service.py`` and an agent that repeats each word that it hears after 0.02 s."""
    (folder / "agent.py").write_text(AGENT)
    (folder / "service.py").write_bytes((DEPLOY / "service.py").read_bytes())


class Service:
    """``aguila serve service:app`` on one port; it can be restarted."""

    def __init__(self, folder: Path, store: str) -> None:
        self._folder = folder
        self._environment = {"AGUILA_STORE": store, "TOKENS": '{"token-of-ada": "ada"}'}
        self.port = free_port()
        self.process = self._start()

    def _start(self) -> Command:
        command = [sys.executable, "-m", "aguila", "serve", "service:app", "--port", str(self.port)]
        return Command(command, self.port, self._folder, "/readyz", self._environment)

    def restart(self) -> None:
        """Stop the process as a supervisor does, and start another one when it has ended."""
        assert self.process.terminate() == -signal.SIGTERM, self.process.log  # uvicorn raises it again at the end
        self.process.stop()
        self.process = self._start()

    def stop(self) -> None:
        self.process.stop()


@contextmanager
def services(folder: Path, store: str, count: int = 2) -> Iterator[list[Service]]:
    """Serve in several processes on one store."""
    write_service(folder)
    found: list[Service] = []
    try:
        for _ in range(count):
            found.append(Service(folder, store))
        yield found
    finally:
        for one in found:
            one.stop()


def says(client: httpx2.Client, text: str, thread_id: str) -> str:
    """Run the agent; return its text. The run has to succeed."""
    message = {"id": "m", "role": "user", "content": text}
    with client.stream("POST", "/", json=run_input(thread_id, messages=[message]), timeout=DEADLINE) as response:
        assert response.status_code == 200, response.read()
        events = Stream(response).rest()
    assert events[-1]["type"] == "RUN_FINISHED", events[-1]
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


@contextmanager
def load(url: str) -> Iterator[list[str]]:
    """Start runs, one after the other in each of several clients, until the block ends. Yields what each said."""
    stop = threading.Event()
    said: list[str] = []

    def call(number: int) -> None:
        while not stop.is_set():
            # A new connection for each: a server may close an idle one while a request is on its way.
            with httpx2.Client(base_url=url, headers=HEADERS, verify=False) as client:
                said.append(says(client, "one two three four five six", f"thread {number} {len(said)}"))

    with ThreadPoolExecutor(CLIENTS) as pool:
        calls = [pool.submit(call, number) for number in range(CLIENTS)]
        try:
            yield said
        finally:
            stop.set()
    for one in calls:
        one.result()
