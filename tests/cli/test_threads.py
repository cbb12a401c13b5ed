"""``aguila threads``: a store with every demo feature, exported and imported, is the same through the API."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from stores.demo_store import Demo, aguila, seen, served

from aguila.store import NewRun
from aguila.store.locations import make_store


def test_exported_and_imported_threads_are_the_same_through_the_api(demo: Demo, tmp_path: Path) -> None:
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


def test_the_store_is_that_of_the_environment_as_for_serve(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, expected, _ = demo
    expected_lines = len(expected["/threads"])
    (tmp_path / "location").write_text(f"{source}\n")
    monkeypatch.setenv("AGUILA_STORE_FILE", str(tmp_path / "location"))
    assert len(aguila("threads", "list").stdout.splitlines()) == expected_lines
    assert aguila("store", "check").exit_code == 0
    monkeypatch.setenv("AGUILA_STORE", str(source))
    done = aguila("threads", "list")
    assert (done.exit_code, done.stderr) == (
        2,
        "aguila: AGUILA_STORE and AGUILA_STORE_FILE are both set; set one of them\n",
    )
    monkeypatch.delenv("AGUILA_STORE_FILE")
    for command in (("threads", "export"), ("store", "stats")):
        monkeypatch.setenv("AGUILA_STORE", str(source))
        assert aguila(*command).exit_code == 0
    monkeypatch.setenv("AGUILA_STORE", "nowhere.db")
    assert len(aguila("threads", "list", "--store", source).stdout.splitlines()) == expected_lines


def test_threads_are_listed_shown_and_deleted(demo: Demo, tmp_path: Path) -> None:
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
    shown = aguila("threads", "show", "branches", "--store", store).stdout.splitlines()
    assert shown[1:3] == ["title Ramas", 'metadata {"k":[1]}']
    parents = {line.split()[1]: line.partition("  after ")[2] for line in shown if line.startswith("run ")}
    assert (parents["r1"], parents["r2"], parents["r4"]) == ("", "r1", "r2")
    events = aguila("threads", "show", "interrupt", "--store", store, "--json").stdout.splitlines()
    assert json.loads(events[0])["type"] == "RUN_STARTED"
    assert aguila("threads", "delete", "interrupt", "--store", store).exit_code == 1  # not confirmed
    assert aguila("threads", "delete", "interrupt", "--store", store, "--yes").exit_code == 0
    assert len(aguila("threads", "list", "--store", store).stdout.splitlines()) == 1
    assert len(aguila("threads", "list", "--store", source).stdout.splitlines()) == len(expected["/threads"])


def test_threads_of_several_scopes_are_listed_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fill() -> None:
        store = make_store(tmp_path / "store.db")
        await store.open()
        for scope, count in (("a", 2), ("b", 1), ("c", 5), ("d", 1)):
            for number in range(count):
                await store.begin(
                    NewRun(
                        scope=scope, thread_id=f"{scope}{number}", run_id="r", owner="o", lease_seconds=30.0,
                        request=b"{}", events=[b'{"type":"RAW"}'],
                    )
                )  # fmt: skip
        await store.close()

    asyncio.run(fill())
    monkeypatch.setattr("aguila.cli.threads._PAGE", 2)
    lines = aguila("threads", "list", "--store", tmp_path / "store.db", "--json").stdout.splitlines()
    threads = [json.loads(line)["thread_id"] for line in lines]
    assert threads == ["a1", "a0", "b0", "c4", "c3", "c2", "c1", "c0", "d0"]
    lines = aguila("threads", "list", "--store", tmp_path / "store.db", "--scope", "c").stdout.splitlines()
    assert [line.split()[2] for line in lines] == ["c4", "c3", "c2", "c1", "c0"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_in_progress_is_shown_as_running(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    location = str(tmp_path / "store.db")
    if kind == "postgres":
        schema = request.getfixturevalue("postgres_schema")
        location = f"{request.getfixturevalue('postgres')}?aguila_schema={schema}"
    shown: list[str] = []

    async def show_while_it_runs() -> None:
        store = make_store(location, busy_seconds=30.0)
        await store.open()
        new = NewRun(
            scope="a", thread_id="t", run_id="r", owner="me", events=[b'{"type":"RUN_STARTED"}', b'{"type":"RAW"}'],
            request=b"{}", lease_seconds=600.0, parent_run_id="r",
        )  # fmt: skip
        try:
            await store.begin(new)
            for options in ([], ["--json"]):
                arguments = ("threads", "show", "t", "--store", location, *options)
                shown.append((await asyncio.to_thread(aguila, *arguments)).stdout)
        finally:
            await store.close()

    asyncio.run(show_while_it_runs())
    text, events = shown
    (line,) = [line for line in text.splitlines() if line.startswith("run ")]
    assert line.startswith("run r  running  ")
    assert line.endswith("  events 1 to 2")  # not "after" itself: it continues no run
    assert [json.loads(event)["type"] for event in events.splitlines()] == ["RUN_STARTED", "RAW"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--store", "none.db"], "there is no store at none.db"),
        (["show", "nothing", "--store", "{demo}"], "no thread 'nothing'"),
        (["show", "text", "--store", "{demo}", "--scope", "x"], "no thread 'text' in scope 'x'"),
        (["import", "none.jsonl", "--store", "{new}"], "none.jsonl: No such file"),
        (["import", "{cut}", "--store", "{new}"], "has no end; the file was cut off"),
        (["import", "{demo}", "--store", "{new}"], "line 1: "),
    ],
)
def test_an_error_says_what_failed(demo: Demo, tmp_path: Path, arguments: list[str], message: str) -> None:
    export = aguila("threads", "export", "text", "--store", demo[0]).stdout_bytes
    (tmp_path / "cut.jsonl").write_bytes(b"".join(export.splitlines(keepends=True)[:-1]))
    places = {"demo": demo[0], "new": tmp_path / "new.db", "cut": tmp_path / "cut.jsonl"}
    done = aguila("threads", *(argument.format(**places) for argument in arguments))
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
