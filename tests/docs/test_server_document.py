"""The documents about serving have every route, and what they say about processes is true."""

from __future__ import annotations

import re
import sys
from itertools import islice
from pathlib import Path

import pytest
from ports import free_port
from processes.commands import Command
from waiting import wait_until

from aguila import App, Client
from aguila.client import Reconnect
from aguila.errors import RunFailed
from aguila.server.http.routes import ROUTES
from aguila.server.runs.maintenance import PRUNE_INTERVAL

REPOSITORY = Path(__file__).parents[2]


def read(name: str) -> str:
    return (REPOSITORY / "docs" / f"{name}.md").read_text()


def test_every_route_is_listed() -> None:
    named = re.findall(r"`((?:GET|POST|PATCH|DELETE) /[^`?]*)", read("http"))
    listed = [re.sub(r"\{\w+\}", "{}", route) for route in named]
    routes = [
        f"{method} " + (re.sub(r"\{\w+\}", "{}", route.path).rstrip("/") or "/")
        for route in ROUTES
        for method in route.endpoint.handlers
        if method != "HEAD"
    ]
    assert [route for route in routes if route not in listed] == []


MODULE = """
from aguila import App

async def agent(run):
    yield "Hello"

app = App(agent)
"""


def test_the_lines_of_the_document_show_the_log_records_of_runs_under_plain_uvicorn(tmp_path: Path) -> None:
    section = read("processes").split("## Log records")[1].split("\n## ")[0]
    shown, lines = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    (tmp_path / "mine.py").write_text(lines + MODULE)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "mine:app", "--port", str(port)]
    server = Command(command, port, tmp_path, "/healthz", {})
    try:
        server.events(thread_id="t1", run_id="r1")
        wait_until(lambda: "run ended" in server.log)
    finally:
        server.stop()
    found = re.findall(r"INFO (run (?:started|ended) .*)", server.log)
    assert [re.sub(r"ms=\d+", "ms=1840", line) for line in found] == shown.splitlines()
    assert [name for name in ("outcome", "ms", "reference", "code") if f"| `{name}` |" not in section] == []


def test_the_documents_say_what_a_killed_process_leaves(tmp_path: Path) -> None:
    for name in ("README.md", "docs/tutorial.md", "docs/processes.md"):
        text = (REPOSITORY / name).read_text()
        assert "`kill -9`" in text, name
        assert "`run_lost`" in text, name
    port = str(free_port())
    command = [sys.executable, "-m", "aguila", "serve", "--port", port]
    killed = Command(command, int(port), tmp_path, "/healthz", {})
    with Client(killed.url, reconnect=Reconnect(attempts=1000, longest=0.5)) as client:
        events = iter(client.thread("t").run("something slow"))
        received = list(islice(events, 10))
        killed.stop()  # with SIGKILL
        restarted = Command(command, int(port), tmp_path, "/healthz", {})
        try:
            with pytest.raises(RunFailed) as failed:
                received.extend(events)
            (stored,) = restarted.get("/threads/t").json()["runs"]
        finally:
            restarted.stop()
    assert failed.value.code == "run_lost"
    assert len(received) >= 10
    assert stored["status"] == "error"


def test_retention_is_found_where_the_document_says() -> None:
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", read("limits"), re.DOTALL) if "Retention(" in one)
    names: dict[str, object] = {"agent": lambda run: None}
    exec(block, names)
    assert isinstance(names["app"], App)


def test_the_schedule_of_retention_is_what_the_document_says() -> None:
    assert "about once a minute" in " ".join(read("limits").split())
    assert PRUNE_INTERVAL == 60
