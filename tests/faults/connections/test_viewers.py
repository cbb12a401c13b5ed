"""Two workers on one file: a viewer counts wherever it is connected, whoever owns the run."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faults.kit import Effects, Valve, Worker, act, report, scaled, workers
from serving import Background, Stream
from waiting import wait_until

FINISHED = {"type": "success"}


def begin(worker: Worker, thread_id: str, run_id: str = "run", **props: Any) -> None:
    """Start a run, and disconnect."""
    with running(worker, thread_id, run_id, **props):
        pass


@contextmanager
def running(worker: Worker, thread_id: str, run_id: str = "run", **props: Any) -> Generator[Stream]:
    """Start a run, and watch it."""
    with worker.stream("POST", "/", json=act("counted", thread_id, run_id, **props)) as stream:
        assert stream.status == 200, stream.response.read()
        stream.read_until("TEXT_MESSAGE_CONTENT")
        yield stream


def outcome(worker: Worker, thread_id: str, run_id: str) -> Any:
    """Return how another run on the thread ends, or why it is refused."""
    with worker.stream("POST", "/", json=act("counted", thread_id, run_id)) as stream:
        if stream.status != 200:
            return stream.status, json.loads(stream.response.read())["error"]["code"]
        return stream.rest()[-1]["outcome"]


REFUSED = (409, "thread_busy")


def test_an_unwatched_run_is_replaced_and_a_watched_one_is_not(tmp_path: Path) -> None:
    rounds = scaled(2, 40)
    took: list[float] = []
    valve = Valve(tmp_path, "valve")
    with workers(tmp_path, 2) as both:
        for number in range(rounds):
            owner, other = both[number % 2], both[(number + 1) % 2]
            thread_id = f"stopped-{number}"
            begin(owner, thread_id, valve=valve.name)
            asked_at = time.perf_counter()
            assert outcome(other, thread_id, "next") == FINISHED
            took.append(1000 * (time.perf_counter() - asked_at))
            assert other.status_of(thread_id, "run") == "cancelled"

            thread_id = f"watched-{number}"
            with running(owner, thread_id, valve=valve.name):
                assert outcome(other, thread_id, "next") == REFUSED
            thread_id = f"moved-{number}"
            begin(owner, thread_id, valve=valve.name)
            with other.stream("GET", f"/threads/{thread_id}/events") as viewer:
                viewer.next_event()
                assert outcome(owner, thread_id, "next") == outcome(other, thread_id, "next") == REFUSED
            assert outcome(both[number % 2], thread_id, "next") == FINISHED
            assert owner.status_of(thread_id, "run") == "cancelled"
    report(
        "replaced from the other worker",
        runs=rounds,
        median_ms=round(statistics.median(took), 1),
        worst_ms=round(max(took), 1),
    )


def test_cancelling_unwatched_runs_follows_a_viewer_to_the_other_worker(tmp_path: Path) -> None:
    valve = Valve(tmp_path, "valve")
    options = {"cancel_unwatched_after": 0.2}
    with workers(tmp_path, 2, app=options) as (owner, other):
        with running(owner, "moved", valve=valve.name) as first, other.stream("GET", "/threads/moved/events") as viewer:
            viewer.next_event()
            first.close()
            begin(owner, "left", valve=valve.name)  # later, so that one was looked at before this one is cancelled
            wait_until(lambda: owner.status_of("left", "run") == "cancelled")
            assert owner.status_of("moved", "run") == "running"
        wait_until(lambda: owner.status_of("moved", "run") == "cancelled")


def test_an_owner_that_is_stopped_keeps_its_run(tmp_path: Path) -> None:
    valve = Valve(tmp_path, "valve")
    with workers(tmp_path, 2) as (owner, other):
        begin(owner, "thread", valve=valve.name)
        owner.pause()
        assert outcome(other, "thread", "next") == REFUSED
        owner.wake()
        assert owner.status_of("thread", "run") == "running"  # the request was taken back
        valve.open()
        wait_until(lambda: other.status_of("thread", "run") == "success")


def test_viewers_of_a_worker_that_died_do_not_count(tmp_path: Path) -> None:
    valve = Valve(tmp_path, "valve")
    with workers(tmp_path, 2) as (owner, other):
        begin(owner, "thread", valve=valve.name)
        with other.stream("GET", "/threads/thread/events") as viewer:
            viewer.next_event()
            other.kill()
            assert outcome(owner, "thread", "next") == FINISHED
        assert owner.status_of("thread", "run") == "cancelled"


def test_busy_replace_reject_and_queue_hold_for_a_run_of_the_other_worker(tmp_path: Path) -> None:
    valve = Valve(tmp_path, "valve")
    with workers(tmp_path) as found:
        owner = found[0]
        found += [Worker(tmp_path, app={"busy": busy}) for busy in ("replace", "reject", "queue")]
        _, replacing, rejecting, queueing = found
        with running(owner, "replace", valve=valve.name) as watched:
            assert outcome(replacing, "replace", "next") == FINISHED
            assert watched.rest()[-1]["outcome"] == {"type": "cancelled"}
        begin(owner, "reject", valve=valve.name)
        assert outcome(rejecting, "reject", "next") == REFUSED
        begin(owner, "queue", valve=valve.name)
        with Background(lambda: outcome(queueing, "queue", "next")) as waiting:
            assert owner.status_of("queue", "run") == owner.status_of("reject", "run") == "running"
            valve.open()
            assert waiting.result() == FINISHED
        assert owner.status_of("queue", "run") == "success"
        wait_until(lambda: owner.status_of("reject", "run") == "success")
    calls = Effects(tmp_path, "calls").lines()
    assert calls == ["replace run", "replace next", "reject run", "queue run", "queue next"]


def test_those_who_wait_in_the_queues_of_two_workers_all_have_their_turn(tmp_path: Path) -> None:
    valve = Valve(tmp_path, "valve")
    names = [f"next-{number}" for number in range(scaled(6, 30))]
    with workers(tmp_path, 2, app={"busy": "queue"}) as both:
        begin(both[0], "thread", valve=valve.name)
        waiting = [
            Background(lambda name=name, worker=both[number % 2]: outcome(worker, "thread", name))
            for number, name in enumerate(names)
        ]
        valve.open()
        for one in waiting:
            with one:
                assert one.result() == FINISHED
        assert {both[1].status_of("thread", name) for name in ("run", *names)} == {"success"}
    calls = [line.removeprefix("thread ") for line in Effects(tmp_path, "calls").lines()]
    assert sorted(calls) == sorted(["run", *names])
