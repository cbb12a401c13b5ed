"""Runs whose owner dies, whose lease is lost, whose store fails; and cancelling from another process."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from serving import Gate, Held, check_valid, run_input, server_process, serving, types
from waiting import wait_until

from aguila import App
from aguila.errors import StoreUnavailable
from aguila.server import Timing
from aguila.store import MemoryStore, SQLiteStore, Want

SLOW = """
import asyncio
from aguila import App
from aguila.server import Limits, Timing

async def agent(run):
    yield "one"
    await asyncio.sleep(60 if run.run_id.startswith("slow") else 0)
    yield "two"

app = App(agent, store="{store}", timing=Timing(lease={lease}), drain=0.1, limits=Limits(runs_per_scope={runs}))
"""


def write_app(folder: Path, lease: float = 30.0, runs: int = 100, store: str | None = None) -> None:
    (folder / "slow.py").write_text(SLOW.format(store=store or folder / "threads.db", lease=lease, runs=runs))


def test_a_run_whose_server_was_killed_gets_one_run_error_and_the_thread_is_usable(tmp_path: Path) -> None:
    write_app(tmp_path, lease=0.5)
    message = {"id": "m", "role": "user", "content": "Count to two"}
    with server_process("slow:app", tmp_path) as server, server.run(run_id="slow", messages=[message]) as stream:
        seen = [stream.next_event()]
        while seen[-1]["type"] != "TEXT_MESSAGE_CONTENT":
            seen.append(stream.next_event())
        server.process.kill()
        server.process.wait()
    with server_process("slow:app", tmp_path) as server:
        wait_until(lambda: server.status_of("thread", "slow") == "error")
        with server.stream("GET", "/threads/thread/events") as stream:
            events = stream.rest()
        assert events[: len(seen)] == seen
        assert types(events[len(seen) :]) == ["RUN_ERROR"]
        assert events[-1]["code"] == "run_lost"
        check_valid(events)
        assert server.client.get("/threads/thread").json()["title"] == "Count to two"
        assert server.events(run_id="next")[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize("has_survivor", [False, True])
def test_after_a_kill_a_thread_is_usable_at_once_without_waiting_for_the_lease(
    tmp_path: Path, has_survivor: bool
) -> None:
    write_app(tmp_path)  # with the default lease
    with ExitStack() as servers:
        server = servers.enter_context(server_process("slow:app", tmp_path))
        other = servers.enter_context(server_process("slow:app", tmp_path)) if has_survivor else None
        with server.run(run_id="slow") as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            server.process.kill()
            server.process.wait()
        if other is None:
            other = servers.enter_context(server_process("slow:app", tmp_path))
            assert other.status_of("thread", "slow") == "error"  # ended before the first request
        assert other.events(run_id="next")[-1]["outcome"] == {"type": "success"}
        with other.stream("GET", "/threads/thread/events") as log:
            events = log.rest()
        check_valid(events)
        assert [event["code"] for event in events if event["type"] == "RUN_ERROR"] == ["run_lost"]


def test_the_runs_of_a_killed_server_are_not_counted_against_the_scope(tmp_path: Path) -> None:
    write_app(tmp_path, runs=1)
    with server_process("slow:app", tmp_path) as one, server_process("slow:app", tmp_path) as two:
        with one.run(thread_id="theirs", run_id="slow") as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            assert two.post("/", json=run_input("mine")).status_code == 429
            one.process.kill()
            one.process.wait()
        assert two.events(thread_id="mine")[-1]["outcome"] == {"type": "success"}


def test_of_requests_that_find_a_dead_run_none_is_refused_for_it(tmp_path: Path) -> None:
    write_app(tmp_path)
    with server_process("slow:app", tmp_path) as one, server_process("slow:app", tmp_path) as two:
        with server_process("slow:app", tmp_path) as dead:
            for number in range(8):
                with dead.run(thread_id=f"t{number}", run_id="slow") as stream:
                    stream.read_until("TEXT_MESSAGE_CONTENT")
            dead.process.kill()
            dead.process.wait()
        with ThreadPoolExecutor(16) as pool:
            posts = [
                pool.submit(server.post, "/", json=run_input(f"t{number}", f"next {name}"))
                for number in range(8)
                for name, server in (("one", one), ("two", two))
            ]
            for number in range(8):
                answers = [post.result() for post in posts[2 * number : 2 * number + 2]]
                # They may delay each other, but not the recovery of the dead one.
                assert 200 in [answer.status_code for answer in answers]
                assert not any("run slow is on" in answer.text for answer in answers)
                with one.stream("GET", f"/threads/t{number}/events") as log:
                    events = log.rest()
                assert [event["code"] for event in events if event["type"] == "RUN_ERROR"] == ["run_lost"]


@pytest.mark.parametrize("lease", [0.5, 3600.0], ids=["short lease", "long lease"])
def test_a_viewer_of_a_lost_run_on_another_worker_receives_its_error(tmp_path: Path, lease: float) -> None:
    write_app(tmp_path, lease)
    check_viewer_of_lost_run(tmp_path)


def test_a_viewer_of_a_lost_run_on_another_machine_receives_its_error(
    tmp_path: Path, postgres: str, postgres_schema: str
) -> None:
    write_app(tmp_path, lease=3600.0, store=f"{postgres}?aguila_schema={postgres_schema}")
    check_viewer_of_lost_run(tmp_path)


def check_viewer_of_lost_run(folder: Path) -> None:
    with (
        server_process("slow:app", folder) as one,
        server_process("slow:app", folder) as two,
        one.run(run_id="slow") as stream,
    ):
        stream.read_until("TEXT_MESSAGE_CONTENT")
        with two.stream("GET", "/threads/thread/events") as other:
            other.read_until("TEXT_MESSAGE_CONTENT")
            one.process.kill()
            assert types(other.rest()) == ["RUN_ERROR"]


def test_a_run_is_watched_and_cancelled_from_another_worker(tmp_path: Path) -> None:
    write_app(tmp_path)
    with server_process("slow:app", tmp_path) as one, server_process("slow:app", tmp_path) as two:
        with one.run(run_id="slow") as mine, two.stream("GET", "/threads/thread/runs/slow/events") as theirs:
            mine.read_until("TEXT_MESSAGE_CONTENT")
            theirs.read_until("TEXT_MESSAGE_CONTENT")
            busy = two.post("/", json=run_input(run_id="other"))
            assert (busy.status_code, busy.json()["error"]["code"]) == (409, "thread_busy")
            assert two.post("/threads/thread/runs/slow/cancel").status_code == 202
            ends = [mine.rest(), theirs.rest()]
        assert ends[0] == ends[1]
        assert types(ends[0]) == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
        assert ends[0][-1]["outcome"] == {"type": "cancelled"}


def test_a_paused_owner_that_wakes_after_its_lease_writes_nothing(tmp_path: Path) -> None:
    write_app(tmp_path, lease=0.5)
    with (
        server_process("slow:app", tmp_path) as one,
        server_process("slow:app", tmp_path) as two,
        one.run(run_id="slow") as stream,
    ):
        stream.read_until("TEXT_MESSAGE_CONTENT")
        one.signal(signal.SIGSTOP)
        wait_until(lambda: two.status_of("thread", "slow") == "error")
        one.signal(signal.SIGCONT)
        assert types(stream.rest()) == ["RUN_ERROR"]
        assert one.get("/healthz").status_code == 200
        assert one.events(run_id="next")[-1]["outcome"] == {"type": "success"}
        with two.stream("GET", "/threads/thread/runs/slow/events") as log:
            assert types(log.rest())[-2:] == ["TEXT_MESSAGE_CONTENT", "RUN_ERROR"]


# A store that fails


class Failing(MemoryStore):
    """A store that fails when the test says so."""

    is_failing = False
    is_failing_for_good = False

    async def write(self, lease: Any, change: Any) -> Any:
        if self.is_failing_for_good or (self.is_failing and change.end is None):
            raise StoreUnavailable("the disk is full")
        return await super().write(lease, change)


@pytest.mark.parametrize("for_good", [False, True])
def test_a_store_that_fails_gives_run_error_and_a_working_server(for_good: bool) -> None:
    held = Held()

    async def agent(run: Any) -> None:
        await held(run)
        for _ in range(200):
            await run.say("more")

    store = Failing()
    with serving(App(agent, store=store)) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        store.is_failing, store.is_failing_for_good = True, for_good
        held.gate("run").open()
        rest = stream.rest()
        assert types(rest) == ["RUN_ERROR"]
        assert rest[0]["code"] == "store_unavailable"
        store.is_failing = store.is_failing_for_good = False
        wait_until(lambda: server.status_of("thread", "run") == "error")
        held.gate("again").open()
        assert server.events(run_id="again")[-1]["outcome"] == {"type": "success"}
        with server.stream("GET", "/threads/thread/runs/run/events") as log:
            check_valid(log.rest())


def test_a_store_that_cannot_begin_a_run_is_503_and_the_server_works_again(tmp_path: Path) -> None:
    import sqlite3

    async def agent(run: Any) -> Any:
        yield "Hello"

    path = tmp_path / "threads.db"
    with serving(App(agent, store=SQLiteStore(path, busy_seconds=0.1))) as server:
        server.events(run_id="1")
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        answer = server.post("/", json=run_input(run_id="2"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        assert server.get("/readyz").status_code == 503
        lock.execute("ROLLBACK")
        lock.close()
        assert server.events(run_id="2")[-1]["type"] == "RUN_FINISHED"
        assert server.get("/readyz").status_code == 200


def test_a_database_locked_in_the_middle_of_a_run_ends_it_and_nothing_else(tmp_path: Path) -> None:
    import sqlite3

    agent = Held()
    path = tmp_path / "threads.db"
    with serving(App(agent, store=SQLiteStore(path, busy_seconds=0.1))) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        agent.gate("run").open()
        assert types(stream.rest()) == ["RUN_ERROR"]
        lock.execute("ROLLBACK")
        lock.close()
        wait_until(lambda: server.status_of("thread", "run") == "error")
        agent.gate("next").open()
        assert server.events(run_id="next")[-1]["type"] == "RUN_FINISHED"


def test_retention_removes_idle_threads_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from aguila.server.runs import maintenance
    from aguila.store import Retention

    async def agent(run: Any) -> Any:
        yield "Hello"

    monkeypatch.setattr(maintenance, "PRUNE_INTERVAL", 0.0)
    app = App(agent, retention=Retention(max_threads=2), timing=Timing(lease=1.0), allow_anonymous=True)
    with serving(app) as server:
        for i in range(5):
            server.events(thread_id=f"t{i}")
        wait_until(lambda: len(server.get("/threads").json()["threads"]) == 2)


def test_a_run_cancelled_before_its_agent_began_ends_as_cancelled() -> None:
    """The cancel request may come while the run is still being prepared."""
    gate = Gate()
    calls: list[str] = []

    class Slow(MemoryStore):
        async def thread(self, scope: str, thread_id: str, want: Want = Want()) -> Any:  # noqa: B008 - frozen
            if want.session:
                await gate.wait()
            return await super().thread(scope, thread_id, want)

    async def agent(run: Any) -> None:
        calls.append(run.run_id)

    with serving(App(agent, store=Slow())) as server:
        server.events(run_id="before")  # a thread that is new has no session to be read
        with server.run() as stream:
            gate.await_reached()
            assert server.post("/threads/thread/runs/run/cancel").status_code == 202
            gate.open()
            assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}
        assert calls == ["before"]
