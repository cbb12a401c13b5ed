"""``aguila inspect`` and ``aguila serve URL``: a gateway to any endpoint, and recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import user_json
from processes.commands import aguila_serve
from serving import Held, check_valid, serving, text_of
from typer.testing import CliRunner

from aguila import App
from aguila.cli.commands import commands
from aguila.cli.options.inspect import inspect as inspect_command
from aguila.cli.replay import Replay
from aguila.client.recordings import RecordedEvent, RecordedRun

EVENTS: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hel"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "lo"},
    {"type": "TEXT_MESSAGE_END", "messageId": "m"},
    {"type": "RAW", "event": {"vendor": 1}},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]


async def echo(run: Any) -> Any:
    yield f"You said {run.user_text}, {run.headers.get('x-key')}"


def recorded() -> Replay:
    lines = [RecordedEvent(index, json.dumps(event).encode()) for index, event in enumerate(EVENTS)]
    return Replay([RecordedRun(events=lines)], speed=0)


def test_serve_makes_the_runs_of_an_endpoint_durable(tmp_path: Path) -> None:
    given = {"messages": [user_json("u1", "hi")]}
    with serving(App(echo, headers_allowed=["x-key"])) as peer:
        with aguila_serve(tmp_path, peer.url, "--upstream-header", "X-Key: secret") as server:
            events = server.events(**given)
            assert text_of(events) == "You said hi, secret"
        with aguila_serve(tmp_path, peer.url) as server:
            found = server.get("/threads/thread").json()
    check_valid(events)
    assert [message["content"] for message in found["messages"]] == ["hi", "You said hi, secret"]


def test_inspect_records_the_runs_of_an_endpoint_with_what_they_violate(tmp_path: Path) -> None:
    arguments = ("--no-open", "--store", "runs.db")
    with (
        serving(recorded()) as peer,
        aguila_serve(tmp_path, peer.url, *arguments, command_name="inspect") as server,
    ):
        events = server.events()
        found = server.get("/threads/thread/runs/run/check").json()
        assert f"{peer.url} at {server.url}, threads in {tmp_path / 'runs.db'}" in server.log
    assert {"type": "RAW", "event": {"vendor": 1}} in events
    assert [one["delta"] for one in events if "delta" in one] == ["Hel", "lo"]  # each as it was sent
    assert [(one["rule"], one["source"], one["number"]) for one in found["findings"]] == [("VER-2", "upstream", 1)]


def test_a_run_behind_inspect_outlives_its_connection(tmp_path: Path) -> None:
    agent = Held()
    with (
        serving(App(agent)) as peer,
        aguila_serve(tmp_path, peer.url, "--no-open", command_name="inspect") as server,
    ):
        with server.run() as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
        with server.stream("GET", "/threads/thread/runs/run/events") as again:  # as a page that is reloaded
            agent.gate("run").open()
            events = again.rest()
    check_valid(events)
    assert text_of(events) == "onetwo"


@pytest.mark.parametrize("suffix", [".jsonl", ".sse", ".json"])
def test_inspect_opens_a_recording(tmp_path: Path, suffix: str) -> None:
    lines = [json.dumps(event) for event in EVENTS]
    text = {
        ".jsonl": "\n".join(lines),
        ".sse": "".join(f"data: {line}\n\n" for line in lines),
        ".json": json.dumps(EVENTS, indent=2),
    }
    (tmp_path / f"run{suffix}").write_text(text[suffix])
    with aguila_serve(tmp_path, f"run{suffix}", "--no-open", command_name="inspect") as server:
        assert f"7 events, at {server.url}/?recording=run{suffix}#/inspect" in server.log
        answer = server.get("/_recording")
        found = server.get("/_recording/check").json()["findings"]
        foreign = server.get("/_recording", headers={"host": "evil.example"})
        played = server.events()
        assert "lost on exit" not in server.log  # it keeps nothing of the user's
    first, *rest = [json.loads(line) for line in answer.text.splitlines()]
    assert first == {"input": None}
    assert [line["event"] for line in rest] == EVENTS
    assert [(one["rule"], one["index"], one["stream"]) for one in found] == [("VER-2", 0, 0)]
    assert found[0]["text"].startswith("The producer declares")
    assert foreign.status_code == 403
    assert text_of(played) == "Hello"  # the chat plays the recording


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "none.jsonl"], "cannot read none.jsonl"),
        (["inspect", "empty.jsonl"], "empty.jsonl has no events"),
        (["inspect", "http://localhost:1", "-H", "x"], "'x' is not a header"),
        (["serve", "mine:agent", "--upstream-header", "a: b"], "--upstream-header is for the URL of an endpoint"),
        (["serve", "http://localhost:1", "--upstream-header", "x"], "'x' is not a header"),
    ],
)
def test_what_cannot_be_inspected_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").touch()
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code in (1, 2)
    assert words in " ".join(done.output.replace("│", " ").split())


def test_every_option_is_in_the_documents() -> None:
    import inspect

    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    section = text[text.index("## inspect") : text.index("## chat")]
    names = {"source": "from", "target": ""}
    options = [names.get(name, name) for name in inspect.signature(inspect_command).parameters]
    assert [name for name in options if f"`--{name.replace('_', '-')}" not in section and name] == []
