"""``aguila threads``: a store with every demo feature, exported and imported, is the same through the API."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from serving import Server, serving
from typer.testing import CliRunner

from aguila import App
from aguila.cli.commands import commands
from aguila.cli.demo import FEATURES, agent
from aguila.store import SQLiteStore


def served(path: Path) -> Any:
    return serving(App(agent, store=SQLiteStore(path), allow_anonymous=True))


def user(name: str, content: Any) -> dict[str, Any]:
    return {"id": name, "role": "user", "content": content}


def show_features(server: Server) -> list[str]:
    """Run every feature of the demo, branches, answered and open interrupts and files; return the ids of the files."""
    for feature in FEATURES:
        if feature != "slow":
            server.events(thread_id=feature, run_id="r", messages=[user("m", f"Show me {feature}")])
    found = server.get("/threads/interrupt").json()["interrupts"]
    answer = [{"interruptId": found[0]["id"], "status": "resolved", "payload": {"colour": "red"}}]
    messages = [user("m", "Show me interrupt")]
    server.events(thread_id="interrupt", run_id="r2", messages=messages, resume=answer)
    found = server.get("/threads/approval").json()["interrupts"]
    answer = [{"interruptId": found[0]["id"], "status": "resolved", "payload": {"approved": True}}]
    server.events(thread_id="approval", run_id="r2", messages=[user("m", "Show me approval")], resume=answer)
    server.events(thread_id="open", run_id="r", messages=[user("m", "Show me interrupt")])
    image = base64.b64encode(random.Random(1).randbytes(60_000)).decode()
    part = {"type": "image", "source": {"type": "data", "value": image, "mimeType": "image/png"}}
    messages = [user("m1", [part, {"type": "text", "text": "an image"}])]
    server.events(thread_id="branches", run_id="r1", messages=messages)
    for name, parent in (("r2", "r1"), ("r3", "r1"), ("r4", "r2")):
        messages = [*messages, user(f"m-{name}", "Show me text " + "x" * 3000)]
        server.events(thread_id="branches", run_id=name, messages=messages, parentRunId=parent)
    assert server.client.patch("/threads/branches", json={"title": "Ramas", "metadata": {"k": [1]}}).status_code == 200
    assert server.client.patch("/threads/text", json={"archived": True}).status_code == 200
    uploaded = server.post("/files?threadId=image", content=b"report", headers={"content-type": "text/plain"})
    return [uploaded.json()["id"]]


def seen(server: Server, files: list[str]) -> dict[str, Any]:
    """Return all that the API tells."""
    threads = server.get("/threads?limit=100").json()
    found: dict[str, Any] = {"/threads": threads["threads"]}
    for summary in threads["threads"]:
        path = f"/threads/{summary['threadId']}"
        found[path] = server.get(path).json()
        for run in found[path]["runs"]:
            run_path = f"{path}/runs/{run['runId']}"
            found[f"{path}?run={run['runId']}"] = server.get(f"{path}?run={run['runId']}").json()
            found[run_path] = server.get(run_path).json()
            with server.stream("GET", f"{run_path}/events") as stream:
                found[f"{run_path}/events"] = stream.frames()
    for file in files:
        found[file] = server.get(f"/files/{file}").content
    return found


def aguila(*arguments: object) -> Any:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    path = tmp_path_factory.mktemp("demo") / "demo.db"
    with served(path) as server:
        files = show_features(server)
        return path, seen(server, files), files


def test_exported_and_imported_threads_are_the_same_through_the_api(
    demo: tuple[Path, dict[str, Any], list[str]], tmp_path: Path
) -> None:
    source, expected, files = demo
    export, target = tmp_path / "all.jsonl", tmp_path / "target.db"
    done = aguila("threads", "export", "--store", source, "-o", export)
    assert done.exit_code == 0, done.output
    assert aguila("threads", "export", "--store", source, "-o", export).exit_code == 2  # it exists
    done = aguila("threads", "import", export, "--store", target)
    assert (done.exit_code, done.stderr) == (0, f"threads: {len(expected['/threads'])} added\n")
    done = aguila("threads", "import", export, "--store", target)
    assert (done.exit_code, done.stderr) == (0, f"threads: {len(expected['/threads'])} unchanged\n")
    again = tmp_path / "again.jsonl"
    assert aguila("threads", "export", "--store", target, "-o", again).exit_code == 0
    assert again.read_bytes() == export.read_bytes()
    with served(target) as server:
        assert seen(server, files) == expected
        # The imported thread goes on: its open interrupt can be answered.
        (interrupt,) = server.get("/threads/open").json()["interrupts"]
        answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"colour": "red"}}]
        events = server.events(thread_id="open", run_id="r2", messages=[], resume=answer)
        assert events[-1]["type"] == "RUN_FINISHED"
    done = aguila("threads", "import", export, "--store", target)
    assert done.exit_code == 1
    assert "open (scope 'anonymous') differs; --replace replaces it" in done.stderr
    done = aguila("threads", "import", export, "--store", target, "--replace")
    assert (done.exit_code, "1 replaced" in done.stderr) == (0, True)
    with served(target) as server:
        got = seen(server, files)
        assert got.pop("/threads")[0]["threadId"] == "open"  # the one updated last
        assert got == {path: value for path, value in expected.items() if path != "/threads"}


def test_threads_are_listed_shown_and_deleted(demo: tuple[Path, dict[str, Any], list[str]], tmp_path: Path) -> None:
    source, expected, _ = demo
    store = tmp_path / "copy.db"
    export = aguila("threads", "export", "branches", "interrupt", "--store", source)
    (tmp_path / "two.jsonl").write_bytes(export.stdout_bytes)
    assert aguila("threads", "import", tmp_path / "two.jsonl", "--store", store).exit_code == 0
    listed = aguila("threads", "list", "--store", store).stdout.splitlines()
    assert [line.split()[2] for line in listed] == ["branches", "interrupt"]
    assert listed[0].endswith("Ramas")
    lines = aguila("threads", "list", "--store", store, "--json").stdout.splitlines()
    assert [json.loads(line)["metadata"] for line in lines] == [{"k": [1]}, None]
    shown = aguila("threads", "show", "interrupt", "--store", store).stdout
    assert "run r2  success" in shown
    assert "settled by r2" in shown
    events = aguila("threads", "show", "interrupt", "--store", store, "--json").stdout.splitlines()
    assert json.loads(events[0])["type"] == "RUN_STARTED"
    assert aguila("threads", "delete", "interrupt", "--store", store).exit_code == 1  # nobody confirmed
    assert aguila("threads", "delete", "interrupt", "--store", store, "--yes").exit_code == 0
    assert len(aguila("threads", "list", "--store", store).stdout.splitlines()) == 1
    assert len(aguila("threads", "list", "--store", source).stdout.splitlines()) == len(expected["/threads"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--store", "none.db"], "there is no store none.db"),
        (["show", "nothing", "--store", "{demo}"], "no thread 'nothing'"),
        (["show", "text", "--store", "{demo}", "--scope", "x"], "no thread 'text' in scope 'x'"),
        (["import", "none.jsonl", "--store", "{new}"], "none.jsonl: No such file"),
        (["import", "{cut}", "--store", "{new}"], "has no end; the file was cut off"),
        (["import", "{demo}", "--store", "{new}"], "line 1: "),
    ],
)
def test_an_error_says_what_failed(
    demo: tuple[Path, dict[str, Any], list[str]], tmp_path: Path, arguments: list[str], message: str
) -> None:
    export = aguila("threads", "export", "text", "--store", demo[0]).stdout_bytes
    (tmp_path / "cut.jsonl").write_bytes(b"".join(export.splitlines(keepends=True)[:-1]))
    places = {"demo": demo[0], "new": tmp_path / "new.db", "cut": tmp_path / "cut.jsonl"}
    done = aguila("threads", *(argument.format(**places) for argument in arguments))
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
