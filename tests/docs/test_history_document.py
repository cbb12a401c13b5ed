"""The functions of docs/history.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aguila.errors import DecodeError
from aguila.protocol import Event, StateDeltaEvent, StateSnapshotEvent
from aguila.stream import EventWriter

TEXT = (Path(__file__).parents[2] / "docs/history.md").read_text()


def run_blocks() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/history.md", "exec"), names)
    return names


def write_run(run_id: str, *words: str, parent: str | None = None) -> list[Event]:
    writer = EventWriter("t1", run_id, new_id=lambda: f"m-{run_id}", parent_run_id=parent)
    events = [*writer.start(), *writer.start_text()]
    for word in words:
        events += writer.write_text(f"m-{run_id}", word)
    return [*events, *writer.finish()]


def test_a_history_is_appended_and_restored(tmp_path: Path) -> None:
    names, path = run_blocks(), tmp_path / "history.jsonl"
    names["save"](path, write_run("r1", "Hello ", "you"))
    names["save"](path, write_run("r2", "Bye"))
    assert [message.content for message in names["restore"](path).messages] == ["Hello you", "Bye"]


def test_the_events_before_a_line_that_was_cut_off_are_read(tmp_path: Path) -> None:
    names, path, events = run_blocks(), tmp_path / "history.jsonl", write_run("r1", "Hello")
    names["save"](path, events)
    path.write_bytes(path.read_bytes()[:-5])
    restored: list[Event] = []
    with path.open("rb") as file, pytest.raises(DecodeError, match="line 5"):
        restored.extend(names["read_events"](file))
    assert restored == events[:-1]


def test_a_branch_has_only_its_own_runs() -> None:
    log = [*write_run("r1", "One"), *write_run("r2", "Two"), *write_run("r3", "Three", parent="r1")]
    found = run_blocks()["branches"](log)
    contents = {run_id: [message.content for message in messages] for run_id, messages in found.items()}
    assert contents == {"r2": ["One", "Two"], "r3": ["One", "Three"]}


def test_state_deltas_are_joined_if_each_certainly_applies() -> None:
    names, writer = run_blocks(), EventWriter("t1", "r1", new_id=lambda: "m1")
    deltas = [*writer.start()]
    for number in (1, 2):
        deltas += writer.set_state({"number": number})
    deltas += writer.finish()
    assert [event.type for event in names["shorten"](deltas)].count("STATE_DELTA") == 1
    later = [deltas[0], *[StateDeltaEvent(delta=[{"op": "replace", "path": "/birds", "value": n}]) for n in (2, 3)]]
    later.append(deltas[-1])
    assert [event.type for event in names["shorten"](later)].count("STATE_DELTA") == 2
    assert [event.type for event in names["compact"](later, state={"birds": 1})].count("STATE_DELTA") == 1
    snapshot = [deltas[0], StateSnapshotEvent(snapshot={}), *deltas[1:]]
    assert [str(event.type) for event in names["shorten"](snapshot)] == [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "RUN_FINISHED",
    ]
