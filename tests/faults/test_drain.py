"""SIGTERM while the store cannot be written, while it is being opened, and while a viewer does not read.

The process ends by itself, whatever the store does, without a kill. It names each run whose end it could not store. The
next process that opens the store ends that run with one RUN_ERROR, and its thread is usable.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from faults.kit import PATIENCE, open_files, terminal
from ports import free_port
from processes.commands import Command, aguila_serve
from serving import Background, Peer, Server, check_valid, run_input, serving
from waiting import wait_until

from aguila import App

SITE = """
import asyncio
from fastapi import FastAPI
from aguila import App
from aguila.server import Timing

async def agent(run):
    yield "one"
    if run.run_id == "short":
        return
    if run.run_id == "talks":
        while True:
            yield "word " * 20
            await asyncio.sleep(0.002)
    if run.run_id == "floods":
        while True:
            yield "word " * 2000
            await asyncio.sleep(0)
    for _ in range(3 if run.run_id == "stubborn" else 0):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
    await asyncio.Event().wait()

quick = App(agent, store="threads.db", drain=0.2, timing=Timing(cancel_grace=0.2, store_patience=0.5))
patient = App(agent, store="threads.db", drain=3600, timing=Timing(cancel_grace=3600, store_patience=3600))
mounted = FastAPI()

@mounted.get("/healthz")
def health():
    return "fine"

quick.mount_on(mounted, "/agent")
"""

UNSTORED = "the end of the run is not stored; the next process that opens the store ends the run"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "site_to_stop.py").write_text(SITE)
    return tmp_path


@contextmanager
def uvicorn_of(folder: Path, name: str, *options: str) -> Iterator[Command]:
    port = free_port()
    target = f"site_to_stop:{name}"
    command = [sys.executable, "-m", "uvicorn", target, "--port", str(port), "--no-access-log", *options]
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])  # the source under test, if it is there
    server = Command(command, port, folder, "/healthz", {"PYTHONPATH": paths})
    try:
        yield server
    finally:
        server.stop()


def plain(folder: Path) -> AbstractContextManager[Command]:
    return uvicorn_of(folder, "quick")


def without_lifespan(folder: Path) -> AbstractContextManager[Command]:
    return uvicorn_of(folder, "quick", "--lifespan", "off")


def served(folder: Path) -> AbstractContextManager[Command]:
    return aguila_serve(folder, "site_to_stop:quick")


def locked(server: Command, folder: Path) -> AbstractContextManager[None]:
    return locked_store(folder)


@contextmanager
def full(server: Command, folder: Path) -> Iterator[None]:
    """The operating system refuses every write beyond the first page of a file."""
    hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, hard))
    yield


@contextmanager
def locked_store(folder: Path) -> Iterator[None]:
    """Another process keeps the file locked."""
    program = """
import sqlite3, sys
db = sqlite3.connect("threads.db", isolation_level=None, timeout=30)
db.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], cwd=folder, stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield
        assert holder.stdin is not None
        holder.stdin.close()


def ended(server: Command) -> str:
    """Return the output of a server, which must end by itself."""
    status = server.process.wait(PATIENCE)
    assert status in (0, -signal.SIGTERM), server.log
    assert "Traceback" not in server.log, server.log
    return server.log


def unstored(log: str) -> list[str]:
    """Return the runs whose end was not stored, according to the log."""
    return [line.rpartition("run=")[2] for line in log.splitlines() if UNSTORED in line]


async def says_again(run: Any) -> Any:
    yield "again"


@contextmanager
def opened(folder: Path) -> Iterator[Server]:
    """Serve the store in a new process."""
    with serving(App(says_again, store=folder / "threads.db", allow_anonymous=True)) as server:
        yield server


def has_one_error_and_goes_on(folder: Path, *runs: str) -> None:
    with opened(folder) as server:
        for run_id in runs:
            assert server.status_of(run_id, run_id) == "error"
            with server.stream("GET", f"/threads/{run_id}/events") as stream:
                events = stream.rest()
            check_valid(events)
            assert [end["code"] for end in terminal(events)] == ["run_lost"]
            assert server.events(thread_id=run_id, run_id="next")[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(
    ("run", "outage"),
    [(plain, locked), (served, locked), (served, full), (without_lifespan, full)],
    ids=["uvicorn, locked", "aguila serve, locked", "aguila serve, full", "without a lifespan, full"],
)
def test_a_run_whose_end_cannot_be_stored_does_not_keep_the_process(
    folder: Path, run: Callable[[Path], AbstractContextManager[Command]], outage: Any
) -> None:
    with run(folder) as server:
        runs = ("waits", "talks")
        for run_id in runs:
            with server.run(thread_id=run_id, run_id=run_id) as stream:
                stream.read_until("TEXT_MESSAGE_CONTENT")
        with server.run(thread_id="watched", run_id="talks") as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            with outage(server, folder):
                server.process.send_signal(signal.SIGTERM)
                rest = stream.rest()  # cut, or told so: never an end that the log does not have
                assert [end["code"] for end in terminal(rest)] in ([], ["store_unavailable"])
                assert sorted(unstored(ended(server))) == ["talks", "talks", "waits"]
    has_one_error_and_goes_on(folder, *runs)


def test_a_store_that_comes_back_in_time_gets_the_end(folder: Path) -> None:
    (folder / "site_to_stop.py").write_text(SITE.replace("store_patience=0.5)", "store_patience=20)", 1))
    with plain(folder) as server:
        with server.run(thread_id="waits", run_id="waits") as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            with locked_store(folder):
                server.process.send_signal(signal.SIGTERM)
                wait_until(lambda: server.get("/readyz").status_code == 503)
        assert unstored(ended(server)) == []
    with opened(folder) as server:
        assert server.status_of("waits", "waits") == "error"


def test_a_second_sigterm_ends_it_although_the_store_is_locked(folder: Path) -> None:
    """All timeouts are long. An agent that does not stop must not start a timeout again."""
    run_id = "stubborn"
    with uvicorn_of(folder, "patient") as server, server.run(thread_id=run_id, run_id=run_id) as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        with locked_store(folder):
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: server.get("/readyz").status_code == 503)
            server.process.send_signal(signal.SIGTERM)
            assert terminal(stream.rest()) == []
            assert unstored(ended(server)) == [run_id]
    has_one_error_and_goes_on(folder, run_id)


@pytest.mark.parametrize(
    ("options", "signals"),
    [((), 1), (("--http", "h11", "--loop", "asyncio"), 2)],
    ids=["told once", "told twice, on other parts of uvicorn"],
)
def test_a_viewer_that_does_not_read_does_not_keep_the_process(
    folder: Path, options: tuple[str, ...], signals: int
) -> None:
    """Uvicorn waits for its connections without limit, unless it is configured otherwise."""
    # A loaded machine takes longer than "quick" allows to store the end of a run, which would be lost.
    (folder / "site_to_stop.py").write_text(
        SITE.replace("grace=0.2, store_patience=0.5)", "grace=60, store_patience=60)")
    )
    with uvicorn_of(folder, "mounted", *options) as server, unread(server, "/agent", "floods"), ExitStack() as stack:
        readers = [Reader(server, "/agent/threads/floods/events") for _ in range(9)]
        reading = [stack.enter_context(Background(reader.read)) for reader in readers]
        for reader in readers:
            assert reader.has_read.wait(PATIENCE)
        server.process.send_signal(signal.SIGTERM)
        if signals == 2:
            wait_until(lambda: server.post("/agent", json=run_input("new", "short")).status_code == 503)
            server.process.send_signal(signal.SIGTERM)
        assert unstored(ended(server)) == []
        for one in reading:
            one.result()
    with opened(folder) as server:
        assert server.status_of("floods", "floods") == "error"


class Reader:
    """Reads a stream to its end."""

    def __init__(self, server: Command, path: str) -> None:
        self.has_read = threading.Event()
        self._peer = Peer(server.url)
        self._path = path

    def read(self) -> None:
        with suppress(httpx2.TransportError), self._peer.stream("GET", self._path) as stream:  # it may be cut
            for _ in stream.response.iter_raw():
                self.has_read.set()
        self._peer.close()


@contextmanager
def unread(server: Command, path: str, name: str) -> Iterator[None]:
    """Start a run whose client reads only the beginning."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        body = json.dumps(run_input(name, name)).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        assert client.recv(12) == b"HTTP/1.1 200"
        yield


# While the store is being opened


def has_opened(server: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has the store's file open."""
    assert server.poll() is None
    return any(file.endswith("/threads.db") for file in open_files(server.pid))


def test_sigterm_while_a_locked_store_is_being_opened_ends_the_process(folder: Path) -> None:
    command = [sys.executable, "-m", "uvicorn", "site_to_stop:quick", "--port", str(free_port())]
    with (
        locked_store(folder),
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server,
    ):
        try:
            wait_until(lambda: has_opened(server))
            server.send_signal(signal.SIGTERM)
            output = server.communicate(timeout=PATIENCE)[0].decode()
        finally:
            server.kill()
    assert "the app cannot start: threads.db cannot be used as a store: SQLite: database is locked" in output
    assert "Traceback" not in output


def test_sigterm_while_the_first_request_opens_the_store_starts_no_run(folder: Path) -> None:
    """Without a lifespan the app would not be notified again, and the server would wait for the run."""
    (folder / "site_to_stop.py").write_text(SITE.replace("store_patience=0.5)", "store_patience=20)", 1))
    with uvicorn_of(folder, "mounted") as server:
        with locked_store(folder), Background(lambda: server.post("/agent", json=run_input("new", "waits"))) as request:
            wait_until(lambda: has_opened(server.process))
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "Shutting down" in server.log)
        answer = request.result()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
        ended(server)
