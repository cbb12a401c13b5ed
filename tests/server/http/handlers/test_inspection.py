"""The requests of the inspector: the input of a run, and the findings about it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from builders import user_json
from serving import Held, run_input, serving, text_of

from aguila import App
from aguila.cli.replay import Replay
from aguila.client.recordings import RecordedEvent, RecordedRun
from aguila.frameworks import upstream
from aguila.server.http.access import ANONYMOUS
from aguila.store import NewRun, RunChange, SQLiteStore
from aguila.store.records import RunEnd
from aguila.stream.verification.rule_texts import RULE_TEXTS


async def echo(run: Any) -> Any:
    yield "Hello"


def store_run(path: Path, events: list[dict[str, Any]]) -> None:
    """Store a run that no agent of ours would make."""

    async def write() -> None:
        store = SQLiteStore(path)
        await store.open()
        data = [json.dumps(event, separators=(",", ":")).encode() for event in events]
        begun = await store.begin(
            NewRun(
                scope=ANONYMOUS,
                thread_id="thread",
                run_id="run",
                owner="test",
                lease_seconds=30,
                request=json.dumps(run_input(state={"n": 1})).encode(),
                fingerprint="f",
                events=data[:1],
            )
        )
        await store.write(begun.lease, RunChange(events=data[1:], end=RunEnd(outcome="success")))
        await store.close()

    asyncio.run(write())


def test_a_run_of_ours_has_no_findings() -> None:
    with serving(App(echo)) as server:
        events = server.events()
        found = server.get("/threads/thread/runs/run/check").json()
    assert found == {
        "threadId": "thread",
        "runId": "run",
        "events": len(events),
        "isRunning": False,
        "findings": [],
    }


def test_a_finding_is_at_its_event_with_the_text_of_its_rule(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store_run(
        path,
        [
            {"type": "RUN_STARTED", "threadId": "thread", "runId": "run"},
            {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]},
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"},
            {"type": "RUN_FINISHED", "threadId": "thread", "runId": "other"},
        ],
    )
    with serving(App(echo, store=path)) as server:
        found = server.get("/threads/thread/runs/run/check").json()
    assert [(one["rule"], one["level"], one["index"], one["number"]) for one in found["findings"]] == [
        ("VER-2", "warning", 0, 1),
        ("STR-2", "error", 2, 3),
        ("IN-3", "warning", 3, 4),
    ]
    for one in found["findings"]:
        assert one["text"] == RULE_TEXTS[one["rule"]]
        assert one["source"] == "run"
        assert one["help"].startswith("docs/rules.md#")


def test_a_run_in_progress_is_checked_as_far_as_it_is_stored() -> None:
    agent = Held()
    with serving(App(agent)) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        found = server.get("/threads/thread/runs/run/check").json()
        assert found["isRunning"] is True
        assert found["findings"] == []
        agent.gate("run").open()
        stream.rest()


def test_an_unknown_run_is_not_found() -> None:
    with serving(App(echo)) as server:
        server.events()
        assert server.get("/threads/thread/runs/none/check").status_code == 404


@pytest.mark.parametrize("history", ["client", "server"])
def test_the_input_of_a_run_has_the_messages_and_the_state_that_its_events_change(history: Any) -> None:
    first, second = user_json("u1", "Hello"), user_json("u2", "And?")
    with serving(App(echo, history=history)) as server:
        server.events(messages=[first], state={"n": 1})
        answer = server.get("/threads/thread").json()["messages"][-1]
        sent = [second] if history == "server" else [first, answer, second]
        server.events(run_id="run2", messages=sent, tools=[{"name": "f", "description": "d"}])
        found = server.get("/threads/thread/runs/run2/input").json()
        assert server.get("/threads/thread/runs/run/input").json()["state"] == {"n": 1}
    assert found["messages"] == [first, answer, second]
    assert found["state"] == {}
    assert found["input"]["messages"] == sent
    assert found["input"]["tools"] == [{"name": "f", "description": "d"}]


def recorded(*events: dict[str, Any]) -> Replay:
    lines = [RecordedEvent(index, json.dumps(event).encode()) for index, event in enumerate(events)]
    return Replay([RecordedRun(events=lines)], speed=0)


STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


def test_what_another_server_violates_is_kept_although_the_gateway_makes_it_valid() -> None:
    other = recorded(
        STARTED,
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant", "surplus": 1},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hello"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        FINISHED,
    )
    with serving(other) as peer, serving(App(upstream(peer.url, check=True))) as front:
        events = front.events()
        found = front.get("/threads/thread/runs/run/check").json()
    assert found["upstreamEvents"] == 5
    assert [(one["rule"], one["source"], one["index"]) for one in found["findings"]] == [
        ("VER-2", "upstream", 0),
        ("PROC-3", "upstream", 1),
    ]
    started, unknown = found["findings"]
    assert json.loads(unknown["sent"])["surplus"] == 1
    assert events[unknown["number"] - 1]["type"] == "TEXT_MESSAGE_START"
    assert started["number"] == 1


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([STARTED, {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}, FINISHED], "STR-3"),
        ([STARTED], "TRN-3"),
    ],
)
def test_a_stream_of_another_server_that_is_refused_says_why(events: list[dict[str, Any]], rule: str) -> None:
    with serving(recorded(*events)) as peer, serving(App(upstream(peer.url, check=True))) as front:
        assert front.events()[-1]["type"] == "RUN_ERROR"
        found = front.get("/threads/thread/runs/run/check").json()
    # no finding that the stream was cut off: the gateway has stopped reading it
    assert {one["rule"] for one in found["findings"] if one["level"] == "error"} - {"VER-2"} == {rule}


def test_what_follows_an_event_that_every_reader_refuses_is_relayed_and_checked() -> None:
    events = [
        STARTED,
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "lost"},
        {"type": "TEXT_MESSAGE_START", "messageId": 5},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hello"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m", "surplus": 1},
        FINISHED,
    ]
    with serving(recorded(*events)) as peer, serving(App(upstream(peer.url, check=True))) as front:
        relayed = front.events()
        found = front.get("/threads/thread/runs/run/check").json()
    assert [event["delta"] for event in relayed if "delta" in event] == ["Hello"]
    assert relayed[-1]["type"] == "RUN_FINISHED"
    assert [(one["rule"], one["index"]) for one in found["findings"]] == [
        ("VER-2", 0),
        ("STR-2", 1),
        ("PROC-2", 2),
        ("PROC-3", 5),
    ]


def test_the_run_that_answers_another_servers_question_is_checked_too() -> None:
    async def asks(run: Any) -> Any:
        name = await run.ask("What is your name?")
        yield f"Hello {name}"

    with serving(App(asks)) as peer, serving(App(upstream(peer.url, check=True))) as front:
        (question,) = front.events()[-1]["outcome"]["interrupts"]
        answer = {"interruptId": question["id"], "status": "resolved", "payload": "Ada"}
        events = front.events(run_id="run2", resume=[answer])
        found = [front.get(f"/threads/thread/runs/{run_id}/check").json() for run_id in ("run", "run2")]
    assert text_of(events) == "Hello Ada"
    assert [one["upstreamEvents"] > 1 for one in found] == [True, True]
    assert [one["findings"] for one in found] == [[], []]
