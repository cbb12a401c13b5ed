"""A second run on a busy thread, and clients that disconnect."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from serving import Background, Gate, Held, run_input, serving, types
from waiting import let_tasks_run, wait_until, wait_until_async

from aguila import App
from aguila.errors import NotFound
from aguila.protocol import RunAgentInput
from aguila.server import Limits
from aguila.server.config.errors import Disconnected
from aguila.server.runs.start_request import StartRequest
from aguila.server.runs.turns import Turns
from aguila.store import MemoryStore, Want

pytestmark = pytest.mark.anyio


def test_a_watched_run_refuses_a_second_one(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with server.run(run_id="other") as second:
            assert second.status == 409
            assert json.loads(second.response.read())["error"]["code"] == "thread_busy"
        agent.gate("run").open()
        assert first.rest()[-1]["outcome"] == {"type": "success"}


def test_an_unwatched_run_is_cancelled_and_replaced(store: Any) -> None:
    agent = Held()
    agent.gate("other").open()
    with serving(App(agent, store=store)) as server:
        with server.run() as first:
            first.read_until("TEXT_MESSAGE_CONTENT")
            first.close()
        events = server.events(run_id="other")
        assert events[-1]["outcome"] == {"type": "success"}
        assert server.status_of("thread", "run") == "cancelled"


def test_busy_reject_refuses_even_if_the_run_is_not_watched(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store, busy="reject")) as server:
        with server.run() as first:
            first.read_until("TEXT_MESSAGE_CONTENT")
        with server.run(run_id="other") as second:
            assert second.status == 409
        agent.gate("run").open()
        wait_until(lambda: server.status_of("thread", "run") == "success")


def test_busy_replace_cancels_a_watched_run(store: Any) -> None:
    agent = Held()
    agent.gate("other").open()
    with serving(App(agent, store=store, busy="replace")) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        assert server.events(run_id="other")[-1]["outcome"] == {"type": "success"}
        assert first.rest()[-1]["outcome"] == {"type": "cancelled"}


def test_busy_queue_runs_one_after_the_other_in_order(store: Any) -> None:
    agent = Held()
    for name in ("second", "third"):
        agent.gate(name).open()
    app = App(agent, store=store, busy="queue")
    with serving(app) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with Background(lambda: server.events(run_id="second")) as second:
            wait_until(lambda: waiting(app) == 2)
            with Background(lambda: server.events(run_id="third")) as third:
                wait_until(lambda: waiting(app) == 3)
                assert agent.calls == ["run"]
                agent.gate("run").open()
                assert second.result()[-1]["outcome"] == {"type": "success"}
                assert third.result()[-1]["outcome"] == {"type": "success"}
        assert agent.calls == ["run", "second", "third"]


async def test_a_queue_keeps_its_order_when_one_more_comes_just_after_a_turn_has_ended() -> None:
    store = MemoryStore()
    await store.open()
    turns, order, gate = Turns(store), list[str](), asyncio.Event()

    async def take(run_id: str) -> None:
        sent = RunAgentInput(thread_id="t", run_id=run_id, messages=[])
        async with turns.turn(StartRequest(input=sent, body=b"", scope="a")):
            if run_id == "first":
                await gate.wait()
            order.append(run_id)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(take(run_id)) for run_id in ("first", "second", "third", "leaves")]
    await let_tasks_run()
    tasks.pop().cancel()
    gate.set()
    for number in range(20):
        tasks.append(asyncio.create_task(take(f"late {number:02}")))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert not turns.queues
    assert order == ["first", "second", "third", *(f"late {number:02}" for number in range(20))]
    await store.close()


class Visitor:
    """A client within the process that asks for a run, and may hang up."""

    def __init__(self, app: App, run_id: str) -> None:
        self.hung_up = asyncio.Event()
        self.answers = list[Any]()
        self._body = [json.dumps(run_input(run_id=run_id)).encode()]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "root_path": ""}
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        self.task = asyncio.ensure_future(app({**scope, "headers": headers}, self._receive, self._send))

    async def _receive(self) -> Any:
        if self._body:
            return {"type": "http.request", "body": self._body.pop()}
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.answers.append(message)


def kept() -> set[str]:
    """Return the runs whose requests are still in memory."""
    return {one.input.run_id for one in gc.get_objects() if isinstance(one, StartRequest)}


async def test_a_client_that_has_gone_before_its_start_begins_no_run_and_keeps_no_place() -> None:
    async def agent(run: Any) -> Any:
        yield "Hello"

    async with App(agent, busy="queue", store=":memory:") as app:
        assert app._service is not None
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone.set_result(None)
        sent = RunAgentInput(thread_id="t", run_id="r", messages=[])
        with pytest.raises(Disconnected):
            await app._service.runs.start(StartRequest(input=sent, body=b"{}", scope="", disconnected=gone))
        assert waiting(app) == 0
        with pytest.raises(NotFound):
            await app.store.thread("", "t")


async def test_a_request_is_freed_when_its_client_hangs_up_and_before_its_agent_runs() -> None:
    gc.collect()  # what other tests left
    gc.disable()
    begun, goes_on, seen = asyncio.Event(), asyncio.Event(), list[set[str]]()

    async def agent(run: Any) -> Any:
        seen.append(kept())
        begun.set()
        await goes_on.wait()
        yield "Hello"

    try:
        async with App(agent, busy="queue") as app:
            first = Visitor(app, "stays")
            await begun.wait()
            second = Visitor(app, "leaves")
            await wait_until_async(lambda: "leaves" in kept())
            second.hung_up.set()
            await second.task
            assert (seen, kept(), second.answers) == ([set()], set(), [])
            goes_on.set()
            await first.task
    finally:
        gc.enable()


def test_a_client_that_returns_to_a_run_does_not_wait_in_the_queue(store: Any) -> None:
    agent = Held()
    for name in ("before", "second"):
        agent.gate(name).open()
    app = App(agent, store=store, busy="queue")
    with serving(app) as server:
        server.events(run_id="before")
        with server.run() as first:
            first.read_until("TEXT_MESSAGE_CONTENT")
            with Background(lambda: server.events(run_id="second")) as second:
                wait_until(lambda: waiting(app) == 2)
                assert server.events(run_id="before")[-1]["outcome"] == {"type": "success"}
                with server.run() as again:
                    again.read_until("TEXT_MESSAGE_CONTENT")
                    agent.gate("run").open()
                    assert again.rest()[-1]["outcome"] == {"type": "success"}
                assert second.result()[-1]["outcome"] == {"type": "success"}
    assert agent.calls == ["before", "run", "second"]


def test_requests_whose_clients_hung_up_in_the_queue_leave_it_at_once_and_do_not_run() -> None:
    agent = Held()
    agent.gate("last").open()
    app = App(agent, busy="queue", limits=Limits(runs_per_scope=3))
    with serving(app) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with send_run(server, "next"):  # it has its turn, and waits for the run
            wait_until(lambda: waiting(app) == 2)
            with send_run(server, "after"):  # it waits for its turn
                wait_until(lambda: waiting(app) == 3)
                assert server.post("/", json=run_input(run_id="refused")).status_code == 429
            wait_until(lambda: waiting(app) == 2)
        wait_until(lambda: waiting(app) == 1)
        with Background(lambda: server.events(run_id="last")) as last:
            wait_until(lambda: waiting(app) == 2)
            agent.gate("run").open()
            assert last.result()[-1]["outcome"] == {"type": "success"}
        assert agent.calls == ["run", "last"]


def test_an_equal_request_without_capacity_ends_when_its_client_hangs_up() -> None:
    agent = Held()
    agent.gate("second").open()
    app = App(agent, busy="queue", limits=Limits(runs_per_scope=2))
    open_requests = set[object]()

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        request = object()
        open_requests.add(request)
        try:
            await app(scope, receive, send)
        finally:
            open_requests.discard(request)

    with serving(counting) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with Background(lambda: server.events(run_id="second")) as second:
            wait_until(lambda: waiting(app) == 2)
            before = len(open_requests)
            with send_run(server, "second"):
                wait_until(lambda: len(open_requests) == before + 1)
            wait_until(lambda: len(open_requests) == before)
            agent.gate("run").open()
            assert second.result()[-1]["outcome"] == {"type": "success"}


@contextmanager
def send_run(server: Any, run_id: str) -> Generator[None]:
    """Send a request for a run, and hang up at the end of the block."""
    host, port = server.url.removeprefix("http://").split(":")
    content = json.dumps(run_input(run_id=run_id)).encode()
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n"
        connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + content)
        yield


def test_a_request_that_waits_can_be_cancelled_by_the_id_of_its_run(store: Any) -> None:
    agent = Held()
    agent.gate("third").open()
    app = App(agent, store=store, busy="queue")
    with serving(app) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with (
            Background(lambda: server.events(run_id="second")) as second,
            Background(lambda: server.events(run_id="third")) as third,
        ):
            wait_until(lambda: waiting(app) == 3)
            # A run is admitted before its request is queued; until then it cannot be found.
            answer = wait_until(lambda: found(server.post("/threads/thread/runs/second/cancel")))
            assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
            events = second.result()  # while the first one is on
            assert types(events) == ["RUN_STARTED", "RUN_FINISHED"]
            assert events[-1]["outcome"] == {"type": "cancelled"}
            assert server.post("/threads/thread/runs/second/cancel").status_code == 404
            agent.gate("run").open()
            assert third.result()[-1]["outcome"] == {"type": "success"}
        wait_until(lambda: waiting(app) == 0)
        assert agent.calls == ["run", "third"]
        assert [run["runId"] for run in server.get("/threads/thread").json()["runs"]] == ["run", "third"]


class PausingStore(MemoryStore):
    """A store in which a call waits for a gate, once it is armed."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.gate = Gate()
        self.is_armed = False
        self._call = call

    async def _pause(self, call: str) -> None:
        if self.is_armed and call == self._call:
            await self.gate.wait()

    async def thread(self, scope: str, thread_id: str, want: Want = Want()) -> Any:  # noqa: B008 - frozen
        if want.interrupts:
            await self._pause("interrupts")
        return await super().thread(scope, thread_id, want)

    async def begin(self, *arguments: Any, **options: Any) -> Any:
        await self._pause("begin")
        return await super().begin(*arguments, **options)


@pytest.mark.parametrize("busy", ["queue", "reject"])
def test_a_request_that_is_withdrawn_while_it_is_planned_is_not_stored(busy: Any) -> None:
    agent, store = Held(), PausingStore("interrupts")
    app = App(agent, store=store, busy=busy)
    with serving(app) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        store.is_armed = True
        with Background(lambda: server.events(run_id="second")) as second:
            store.gate.await_reached()  # the first attempt has failed: the thread is busy
            assert server.post("/threads/thread/runs/second/cancel").json()["status"] == "cancelled"
            assert second.result()[-1]["outcome"] == {"type": "cancelled"}
            agent.gate("run").open()
            first.rest()
            server.call(store.gate.open)
        wait_until(lambda: waiting(app) == 0)
        assert [run["runId"] for run in server.get("/threads/thread").json()["runs"]] == ["run"]


def test_a_request_whose_run_is_being_stored_is_cancelled_as_a_run() -> None:
    agent, store = Held(), PausingStore("begin")
    app = App(agent, store=store, busy="queue")
    with serving(app) as server:
        store.is_armed = True
        with Background(lambda: server.events()) as run:
            store.gate.await_reached()  # a request that is cancelled before this is withdrawn
            with Background(lambda: stopped(server)) as cancelled:
                server.call(store.gate.open)
                assert run.result()[-1]["outcome"] == {"type": "cancelled"}
                assert cancelled.result().status_code in (200, 202)
        wait_until(lambda: server.status_of("thread", "run") == "cancelled")


def stopped(server: Any) -> Any:
    return wait_until(lambda: found(server.post("/threads/thread/runs/run/cancel")))


def test_a_request_that_waits_for_a_run_of_another_process_is_refused_when_this_one_stops(tmp_path: Any) -> None:
    agent = Held()
    first_app, app = (App(agent, store=tmp_path / "threads.db", busy="queue", drain=3600) for _ in range(2))
    with serving(first_app) as owner, owner.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with (
            serving(app) as server,
            Background(lambda: server.post("/", json=run_input(run_id="second"))) as second,
            Background(lambda: server.post("/", json=run_input(run_id="third"))) as third,
        ):
            wait_until(lambda: waiting(app) == 2)
            server.call(app.begin_drain)
            for answer in (second.result(), third.result()):  # while the first one is on
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
        agent.gate("run").open()
        assert first.rest()[-1]["outcome"] == {"type": "success"}
    assert agent.calls == ["run"]


def test_another_scope_cannot_cancel_a_request_that_waits() -> None:
    agent = Held()
    agent.gate("second").open()
    app = App(agent, busy="queue", authenticate=lambda request: request.headers.get("x-user"))
    with serving(app) as server:
        ada, eve = server.peer(**{"x-user": "ada"}), server.peer(**{"x-user": "eve"})
        with ada.run() as first:
            first.read_until("TEXT_MESSAGE_CONTENT")
            with Background(lambda: ada.events(run_id="second")) as second:
                wait_until(lambda: waiting(app) == 2)
                assert eve.post("/threads/thread/runs/second/cancel").status_code == 404
                agent.gate("run").open()
                assert second.result()[-1]["outcome"] == {"type": "success"}
        ada.close()
        eve.close()


def found(answer: Any) -> Any:
    """Return the answer; None if there is no such run."""
    return None if answer.status_code == 404 else answer


def waiting(app: App) -> int:
    """Return how many runs are admitted."""
    assert app._service is not None
    return app._service.runs.admission.total


# Disconnecting


def test_a_run_without_viewers_is_cancelled_after_the_time_that_was_given(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store, cancel_unwatched_after=0.05)) as server:
        with server.run() as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            stream.close()
        wait_until(lambda: server.status_of("thread", "run") == "cancelled")
        assert agent.cancelled == ["run"]


def test_cancelling_unwatched_runs_waits_for_the_last_viewer_and_a_new_one_saves_the_run() -> None:
    agent = Held()
    with serving(App(agent, cancel_unwatched_after=0.3)) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        with server.stream("GET", "/threads/thread/events") as other:
            other.read_until("TEXT_MESSAGE_CONTENT")
            stream.close()
            with server.run() as third:
                other.close()
                agent.gate("run").open()
                assert third.rest()[-1]["outcome"] == {"type": "success"}
