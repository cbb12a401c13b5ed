"""Questions whose server is killed: between question and answer, before the answer was used, and after.

Nothing is sent twice, effects under ``once`` are not repeated, and a question that was changed meanwhile is asked again
instead of taking the old answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faults.kit import PATIENCE, Effects, Valve, Worker, act, report, scaled, workers
from serving import Stream, check_valid, text_of
from waiting import wait_until

LEASE = {"timing": {"lease": 0.5}}


def run_ask(worker: Worker, thread_id: str, run_id: str, resume: Any = ..., **props: Any) -> list[dict[str, Any]]:
    with worker.stream("POST", "/", json=act("ask", thread_id, run_id, resume, **props)) as stream:
        assert stream.status == 200, stream.response.read()
        events = stream.rest()
    check_valid(events)
    return events


def answers(events: list[dict[str, Any]], payload: Any) -> list[dict[str, Any]]:
    interrupts = events[-1]["outcome"]["interrupts"]
    assert len(interrupts) == 1
    return [{"interruptId": one["id"], "status": "resolved", "payload": payload} for one in interrupts]


def thread_text(worker: Worker, thread_id: str) -> str:
    """Return all text that was sent on a thread."""
    with worker.stream("GET", f"/threads/{thread_id}/events") as stream:
        return text_of(stream.rest())


def restarted(folder: Path, running: list[Worker]) -> Worker:
    """Kill the server with ``kill -9``, and start a new one."""
    running[-1].kill()
    running.append(Worker(folder, app=LEASE))
    return running[-1]


def lines(folder: Path, name: str, thread_id: str) -> int:
    return [line.split()[0] for line in Effects(folder, name).lines()].count(thread_id)


def test_a_question_is_answered_after_the_server_was_killed(tmp_path: Path) -> None:
    threads = [f"thread-{number}" for number in range(scaled(3, 20))]
    with workers(tmp_path, app=LEASE) as running:
        questions = {thread_id: run_ask(running[0], thread_id, "one") for thread_id in threads}
        worker = restarted(tmp_path, running)
        for thread_id, events in questions.items():
            resumed = run_ask(worker, thread_id, "two", answers(events, {"ok": 1}))
            assert (text_of(events), text_of(resumed)) == ("before", "after")
            assert resumed[-1]["outcome"] == {"type": "success"}
            assert thread_text(worker, thread_id) == "beforeafter"
            assert [lines(tmp_path, name, thread_id) for name in ("began", "paid", "answered", "sent")] == [2, 1, 1, 1]
    report("questions answered after a kill", threads=len(threads), kills=len(running) - 1)
    assert len(running) == 2


def test_a_question_that_was_changed_meanwhile_is_asked_again(tmp_path: Path) -> None:
    with workers(tmp_path, app=LEASE) as running:
        first = run_ask(running[0], "thread", "one")
        worker = restarted(tmp_path, running)
        (tmp_path / "question").write_text("Send it to everybody?")
        second = run_ask(worker, "thread", "two", answers(first, {"ok": 1}))
        (old,), (new,) = (events[-1]["outcome"]["interrupts"] for events in (first, second))
        assert (old["message"], new["message"]) == ("Send it?", "Send it to everybody?")
        assert old["id"] != new["id"]
        assert (text_of(second), lines(tmp_path, "answered", "thread")) == ("", 0)
        worker = restarted(tmp_path, running)
        third = run_ask(worker, "thread", "three", answers(second, {"ok": 2}))
        assert text_of(third) == "after"
        assert thread_text(worker, "thread") == "beforeafter"
        assert Effects(tmp_path, "answered").lines() == ['thread three {"ok": 2}']
        assert [lines(tmp_path, name, "thread") for name in ("began", "paid", "sent")] == [3, 1, 1]


def stopped_at(worker: Worker, stream: Stream, folder: Path, effect: str, count: int) -> None:
    """Wait until an agent has left a mark, and kill its server there."""
    assert stream.status == 200, stream.response.read()
    wait_until(lambda: lines(folder, effect, "thread") == count, PATIENCE)
    worker.kill()


@pytest.mark.parametrize("place", ["before the answer is used", "after it was used"])
def test_a_resumed_run_whose_server_is_killed(tmp_path: Path, place: str) -> None:
    """The answer can be given again, used or not. A used answer retries the run, and repeats nothing."""
    valve = Valve(tmp_path, "valve")
    is_used = place == "after it was used"
    with workers(tmp_path, app=LEASE) as running:
        valve.open_to(1)
        first = run_ask(running[0], "thread", "one", valve=valve.name)
        resume = answers(first, {"ok": 1})
        if not is_used:
            (tmp_path / "valve").write_bytes(b"")  # the second call stops in front of the question
        with running[0].stream("POST", "/", json=act("ask", "thread", "two", resume, valve=valve.name)) as stream:
            stopped_at(running[0], stream, tmp_path, "answered" if is_used else "began", 1 if is_used else 2)
        worker = restarted(tmp_path, running)
        wait_until(lambda: worker.status_of("thread", "two") == "error", PATIENCE)
        valve.open()
        still_open = [one["id"] for one in worker.get("/threads/thread").json()["interrupts"]]
        if is_used:
            assert still_open == []
        else:
            assert still_open == [resume[0]["interruptId"]]
        third = run_ask(worker, "thread", "three", resume, valve=valve.name)
        assert text_of(third) == "after"
        assert thread_text(worker, "thread") == "beforeafter"
        assert [lines(tmp_path, name, "thread") for name in ("began", "paid", "answered", "sent")] == [
            3,
            1,
            2 if is_used else 1,
            1,
        ]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_server_that_was_paused_before_an_effect_does_not_repeat_it(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """The server wakes after another one took the run over, and after the effect happened in the run that followed."""
    options: dict[str, Any] = {"app": LEASE}
    if kind == "postgres":
        dsn, schema = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_schema")
        options["postgres"] = {"dsn": dsn, "schema": schema}
    valve = Valve(tmp_path, "valve")
    with workers(tmp_path, count=2, **options) as (paused, other):
        valve.open_to(1)
        resume = answers(run_ask(paused, "thread", "one", valve=valve.name), {"ok": 1})
        with paused.stream("POST", "/", json=act("ask", "thread", "two", resume, valve=valve.name)) as stream:
            assert stream.status == 200, stream.response.read()
            wait_until(lambda: lines(tmp_path, "answered", "thread") == 1, PATIENCE)
            paused.pause()
            wait_until(lambda: other.status_of("thread", "two") == "error", PATIENCE)
            valve.open()
            assert text_of(run_ask(other, "thread", "three", resume, valve=valve.name)) == "after"
            paused.wake()
            stream.rest()
        run_ask(paused, "later", "one", valve=valve.name)  # meanwhile its agent has reached the effect, or was ended
        assert [lines(tmp_path, name, "thread") for name in ("paid", "answered", "sent")] == [1, 2, 1]
        assert thread_text(other, "thread") == "beforeafter"
