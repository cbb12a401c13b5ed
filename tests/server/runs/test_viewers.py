"""Viewers of a run that are connected to another process on the same file."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import Held, Server, run_input, serving
from waiting import wait_until

from aguila import App
from aguila.server import Timing
from aguila.server.runs import viewers
from aguila.store import AnswerCancel, RunKey, SQLiteStore, Watch

FINISHED = {"type": "success"}
CANCELLED = {"type": "cancelled"}


class Counted(SQLiteStore):
    """Counts registrations of viewers, and reads of them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.noted = 0
        self.looked = 0
        self.settled = 0

    async def tell(self, run: RunKey, message: Any) -> Any:
        self.noted += isinstance(message, Watch) and message.seconds > 0
        told = await super().tell(run, message)
        self.settled += isinstance(message, AnswerCancel)
        return told

    async def is_watched(self, key: RunKey, *, within: float = 0.0) -> bool:
        found = await super().is_watched(key, within=within)
        self.looked += 1
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@contextmanager
def two(path: Path, agent: Any, **options: Any) -> Generator[tuple[Server, Server]]:
    """Serve two apps on one file, each with an event loop and a store of its own."""
    with (
        serving(App(agent, store=SQLiteStore(path), **options)) as owner,
        serving(App(agent, store=SQLiteStore(path), **options)) as other,
    ):
        yield owner, other


def notes(path: Path, since: float | None = None) -> int:
    """Return how many processes are registered as viewers, now or after a time."""
    db = sqlite3.connect(path)
    try:
        count = "SELECT count(*) FROM viewers WHERE until > ?"
        return db.execute(count, (time.monotonic() if since is None else since,)).fetchone()[0]
    finally:
        db.close()


def refusal(server: Server, run_id: str = "other") -> str:
    """Return the code with which another run on the thread is refused."""
    with server.run(run_id=run_id) as stream:
        assert stream.status == 409
        return json.loads(stream.response.read())["error"]["code"]


def begin(server: Server) -> None:
    """Start a run, and disconnect."""
    with server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")


ATTACH: dict[str, tuple[str, str, Any]] = {
    "the run again": ("POST", "/", run_input()),
    "connect": ("POST", "/connect", run_input(run_id="joined")),
    "the events of the run": ("GET", "/threads/thread/runs/run/events", None),
    "the events of the thread": ("GET", "/threads/thread/events", None),
}


def attach(server: Server, how: str) -> Any:
    method, url, body = ATTACH[how]
    return server.stream(method, url, json=body)


# A second run on a thread whose run is owned elsewhere


def test_an_unwatched_run_of_another_process_is_cancelled_and_replaced(path: Path) -> None:
    agent = Held()
    agent.gate("other").open()
    with two(path, agent) as (owner, other):
        begin(owner)
        assert other.events(run_id="other")[-1]["outcome"] == FINISHED
        assert owner.status_of("thread", "run") == "cancelled"
    assert agent.cancelled == ["run"]


def test_a_run_that_is_watched_where_it_runs_is_not_replaced(path: Path) -> None:
    agent = Held()
    with two(path, agent) as (owner, other), owner.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        assert refusal(other) == "thread_busy"
        assert refusal(other, "third") == "thread_busy"  # the owner is asked again, and answers again
        agent.gate("run").open()
        assert first.rest()[-1]["outcome"] == FINISHED
    assert agent.calls == ["run"]


@pytest.mark.parametrize("how", ATTACH)
def test_a_run_that_is_watched_elsewhere_is_not_replaced_until_that_one_leaves(path: Path, how: str) -> None:
    agent = Held()
    agent.gate("other").open()
    with two(path, agent) as (owner, other):
        begin(owner)
        with attach(other, how) as viewer:
            assert viewer.next_event() is not None
            assert refusal(owner) == refusal(other) == "thread_busy"
            viewer.close()
            assert other.events(run_id="other")[-1]["outcome"] == FINISHED
        assert owner.status_of("thread", "run") == "cancelled"


def test_a_client_that_stops_elsewhere_can_go_on_at_once_where_the_run_is(path: Path) -> None:
    agent = Held()
    agent.gate("other").open()
    with two(path, agent) as (owner, other):
        begin(owner)
        with attach(other, "connect") as viewer:
            viewer.next_event()
            viewer.close()
            assert owner.events(run_id="other")[-1]["outcome"] == FINISHED


def test_a_client_that_stops_in_a_third_process_can_go_on_at_once_in_a_second(path: Path) -> None:
    agent = Held()
    agent.gate("other").open()
    with two(path, agent) as (owner, other), serving(App(agent, store=SQLiteStore(path))) as third:
        begin(owner)
        with attach(third, "connect") as viewer:
            viewer.next_event()
            assert refusal(other) == "thread_busy"
            viewer.close()
            assert other.events(run_id="other")[-1]["outcome"] == FINISHED


def test_all_viewers_in_a_process_are_one_note_and_the_end_of_the_run_removes_it(path: Path) -> None:
    agent = Held()
    with two(path, agent) as (owner, other), ExitStack() as stack:
        first = stack.enter_context(owner.run())
        first.read_until("TEXT_MESSAGE_CONTENT")
        assert notes(path) == 0
        streams = [stack.enter_context(attach(other, how)) for how in ATTACH]
        for stream in streams:
            stream.next_event()
        assert notes(path) == 1
        streams.pop().close()
        assert refusal(other) == "thread_busy"
        assert notes(path) == 1
        agent.gate("run").open()
        for stream in (first, *streams):
            assert stream.rest()[-1]["outcome"] == FINISHED
        assert notes(path, since=0) == 0


def test_a_run_that_is_watched_where_it_runs_costs_the_store_nothing(path: Path) -> None:
    store = Counted(path)
    agent = Held()
    agent.gate("run").open()
    with serving(App(agent, store=store)) as server:
        assert server.events()[-1]["outcome"] == FINISHED
        with attach(server, "the run again") as again:
            assert again.rest()[-1]["type"] == "RUN_FINISHED"
    assert (store.noted, store.looked) == (0, 0)


def test_a_viewer_is_noted_again_while_it_stays(path: Path) -> None:
    agent = Held()
    store = Counted(path)
    with (
        serving(App(agent, store=SQLiteStore(path))) as owner,
        serving(App(agent, store=store, timing=Timing(lease=0.3))) as other,
    ):
        begin(owner)
        with attach(other, "connect") as viewer:
            viewer.next_event()
            wait_until(lambda: store.noted >= 4)
            assert refusal(owner) == "thread_busy"
            agent.gate("run").open()
            assert viewer.rest()[-1]["outcome"] == FINISHED


def test_an_app_that_closes_takes_its_notes_back(path: Path) -> None:
    agent = Held()
    with serving(App(agent, store=SQLiteStore(path), drain=0)) as owner:
        begin(owner)
        with serving(App(agent, store=SQLiteStore(path), drain=0)) as other, attach(other, "connect") as viewer:
            viewer.next_event()
            assert notes(path) == 1
            other.stop()
            assert notes(path) == 0
            assert owner.status_of("thread", "run") == "running"


def test_an_owner_that_answers_late_keeps_its_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewers, "_OWNER_TIMEOUT", 0.05)  # less than an owner needs to answer
    agent = Held()
    store = Counted(path)
    with (
        serving(App(agent, store=store)) as owner,
        serving(App(agent, store=SQLiteStore(path))) as other,
        owner.run() as first,
    ):
        first.read_until("TEXT_MESSAGE_CONTENT")
        assert refusal(other) == "thread_busy"
        first.close()
        wait_until(lambda: store.settled)
        agent.gate("run").open()
        wait_until(lambda: owner.status_of("thread", "run") == "success")
    assert agent.cancelled == []


# The other settings of ``busy``


def test_busy_replace_cancels_a_watched_run_of_another_process(path: Path) -> None:
    agent = Held()
    agent.gate("other").open()
    with two(path, agent, busy="replace") as (owner, other), owner.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        assert other.events(run_id="other")[-1]["outcome"] == FINISHED
        assert first.rest()[-1]["outcome"] == CANCELLED


def test_busy_reject_refuses_from_another_process_too(path: Path) -> None:
    agent = Held()
    with two(path, agent, busy="reject") as (owner, other):
        begin(owner)
        assert refusal(other) == "thread_busy"
        agent.gate("run").open()
        wait_until(lambda: owner.status_of("thread", "run") == "success")


# Hanging up


def test_cancelling_unwatched_runs_follows_a_viewer_to_another_process(path: Path) -> None:
    agent = Held()
    options: dict[str, Any] = {"cancel_unwatched_after": 0.1}
    store = Counted(path)
    with (
        serving(App(agent, store=store, **options)) as owner,
        serving(App(agent, store=SQLiteStore(path), **options)) as other,
        owner.run() as first,
    ):
        first.read_until("TEXT_MESSAGE_CONTENT")
        with attach(other, "connect") as viewer:
            viewer.next_event()
            first.close()
            wait_until(lambda: store.looked >= 3)
            assert owner.status_of("thread", "run") == "running"
            viewer.close()
            wait_until(lambda: owner.status_of("thread", "run") == "cancelled")
    assert agent.cancelled == ["run"]


def test_cancelling_unwatched_runs_is_called_off_by_who_comes_back_while_it_is_looked_for_others(path: Path) -> None:
    agent = Held()
    store = Counted(path)
    with (
        serving(App(agent, store=store, cancel_unwatched_after=0.1)) as owner,
        serving(App(agent, store=SQLiteStore(path))) as other,
        owner.run() as first,
        attach(other, "connect") as viewer,
    ):
        viewer.next_event()
        first.close()
        wait_until(lambda: store.looked >= 2)
        with attach(owner, "the run again") as back:
            back.next_event()
            viewer.close()
            agent.gate("run").open()
            assert back.rest()[-1]["outcome"] == FINISHED
    assert agent.cancelled == []
