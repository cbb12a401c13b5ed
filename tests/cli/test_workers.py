"""``aguila serve`` for operators: workers that drain or die, a blocked event loop, the password of the store."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from ports import free_port
from processes.commands import Command, aguila_serve
from serving import Peer, run_input
from waiting import DEADLINE, wait_until

from aguila.cli.store_locations import has_password, store_from_environment

AGENT = """
import asyncio, os, subprocess, sys, time

async def agent(run):
    text = run.messages[-1].content
    if text == "pid":
        yield str(os.getpid())
    elif text == "block":
        time.sleep(7)
    elif text == "environment":
        done = subprocess.run([sys.executable, "-c", "import os; print(dict(os.environ))"], capture_output=True)
        yield done.stdout.decode()
    elif text == "wait":
        yield str(os.getpid())
        await asyncio.Event().wait()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(AGENT)
    return tmp_path


def says(url: str, text: str, run_id: str = "run") -> str:
    peer = Peer(url)
    try:
        message = {"id": "m", "role": "user", "content": text}
        events = peer.events(thread_id=f"{text} {run_id}", run_id=run_id, messages=[message])
        return "".join(event.get("delta", "") for event in events)
    finally:
        peer.close()


def workers_of(server: Command) -> set[int]:
    return {int(says(server.url, "pid", f"r{number}-{time.monotonic_ns()}")) for number in range(12)}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ended, before or while the file was read
        return False


def test_a_worker_that_drains_leaves_new_connections_to_its_siblings(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent", "--workers", "2", "--drain", "60", "--store", "x.db") as server:
        wait_until(lambda: len(workers_of(server)) == 2)
        peer = Peer(server.url)
        idle = [httpx2.Client(timeout=DEADLINE) for _ in range(12)]  # connections that are kept alive, to both workers
        assert {client.get(server.url + "/healthz").status_code for client in idle} == {200}
        message = {"id": "m", "role": "user", "content": "wait"}
        with peer.run(thread_id="held", run_id="held", messages=[message]) as stream:
            draining = int(stream.read_until("TEXT_MESSAGE_CONTENT")["delta"])
            os.kill(draining, signal.SIGTERM)  # as SIGHUP of the supervisor does, one worker after the other
            wait_until(lambda: "shutting down; runs in progress" in server.log)
            for number in range(20):
                with httpx2.Client() as client:
                    answer = client.post(server.url, json=run_input(f"new {number}", "r"), timeout=DEADLINE)
                assert answer.status_code == 200, answer.text
            for number, client in enumerate(idle):  # a draining worker has closed its own
                assert client.post(server.url, json=run_input(f"idle {number}", "r")).status_code == 200
                client.close()
            assert peer.post("/threads/held/cancel").status_code in (200, 202)
        peer.close()


def test_a_worker_that_drains_answers_on_the_connections_that_it_has_accepted(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent", "--workers", "2", "--store", "x.db") as server:
        wait_until(lambda: len(workers_of(server)) == 2)
        address = ("127.0.0.1", httpx2.URL(server.url).port)
        accepted = [socket.create_connection(address, DEADLINE) for _ in range(12)]
        draining = min(workers_of(server))  # it has taken some of the connections meanwhile
        os.kill(draining, signal.SIGTERM)
        time.sleep(0.2)  # it is told meanwhile; if not, this test only shows less
        for connection in accepted:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        for connection in accepted:
            with connection:
                assert connection.recv(64).startswith(b"HTTP/1.1 200 ")


def test_sighup_replaces_the_workers_and_no_request_fails(folder: Path) -> None:
    with (
        aguila_serve(folder, "mine:agent", "--workers", "2", "--drain", "60", "--store", "x.db") as server,
        httpx2.Client(timeout=DEADLINE) as idle,  # its connection is kept alive by a worker that will drain
    ):
        wait_until(lambda: len(workers_of(server)) == 2)
        old = workers_of(server)
        assert idle.get(server.url + "/healthz").headers.get("connection") != "close"
        server.process.send_signal(signal.SIGHUP)
        seen: set[int] = set()
        numbers = itertools.count()
        deadline = time.monotonic() + DEADLINE
        while len(seen - old) < 2:
            assert time.monotonic() < deadline, (seen, old)
            seen.add(int(says(server.url, "pid", f"during {next(numbers)}")))  # raises for every status but 200
        wait_until(lambda: not any(map(is_alive, old)))
        assert idle.get(server.url + "/healthz").status_code == 200


def test_a_worker_that_is_killed_is_replaced_with_a_line_in_the_log(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent", "--workers", "2", "--store", "x.db") as server:
        wait_until(lambda: len(workers_of(server)) == 2)
        killed = min(workers_of(server))
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: f"ERROR worker {killed} was killed by SIGKILL; worker " in server.log)


def test_workers_end_when_their_supervisor_is_killed(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent", "--workers", "2", "--store", "x.db") as server:
        wait_until(lambda: len(workers_of(server)) == 2)
        workers = workers_of(server)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(DEADLINE)
        wait_until(lambda: not any(map(is_alive, workers)))
        assert "the supervisor of this worker is gone; the worker stops" in server.log


def test_a_blocked_event_loop_is_logged_with_its_stack(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent") as server:
        says(server.url, "block")
        wait_until(lambda: "the event loop was blocked for" in server.log)
        assert 'mine.py", line 9 in agent' in server.log


# The location of the store


def test_the_store_of_the_environment_is_used_and_no_subprocess_sees_it(folder: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "aguila", "serve", "mine:agent", "--port", str(port), "--workers", "2"]
    server = Command(command, port, folder, "/healthz", {"AGUILA_STORE": "sqlite:///secret-place.db"})
    try:
        seen = says(server.url, "environment")
        assert "PATH" in seen
        assert "secret-place" not in seen
        assert (folder / "secret-place.db").is_file()
    finally:
        server.stop()


def test_the_store_can_be_named_by_a_file(folder: Path) -> None:
    (folder / "location").write_text("from-file.db\n")
    port = free_port()
    command = [sys.executable, "-m", "aguila", "serve", "mine:agent", "--port", str(port)]
    server = Command(command, port, folder, "/healthz", {"AGUILA_STORE_FILE": "location"})
    server.stop()
    assert (folder / "from-file.db").is_file()


def test_the_environment_is_read_once_and_refused_if_it_is_ambiguous(tmp_path: Path) -> None:
    given = {"AGUILA_STORE": "postgresql://ada:secret@db/app"}
    assert store_from_environment(given) == "postgresql://ada:secret@db/app"
    assert given == {}
    assert store_from_environment(given) is None
    with pytest.raises(ValueError, match="AGUILA_STORE and AGUILA_STORE_FILE are both set; set one of them"):
        store_from_environment({"AGUILA_STORE": "a.db", "AGUILA_STORE_FILE": "b"})
    with pytest.raises(ValueError, match=r"cannot read .*nowhere, the file of AGUILA_STORE_FILE: No such file"):
        store_from_environment({"AGUILA_STORE_FILE": str(tmp_path / "nowhere")})


def test_a_password_in_the_arguments_is_warned_about(folder: Path) -> None:
    location = "postgresql://ada:secret@127.0.0.1:9/app"
    command = [sys.executable, "-m", "aguila", "serve", "mine:agent", "--store", location]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False)
    warning, *others = done.stderr.splitlines()
    assert warning.startswith("aguila serve: the password in --store is visible to all users of this machine")
    assert "secret" not in done.stderr + done.stdout
    assert others  # the database is not there
    assert has_password("postgresql://db/app?password=x")
    assert not has_password("postgresql://ada@db/app")
