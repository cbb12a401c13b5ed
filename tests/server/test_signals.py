"""SIGTERM and SIGINT: how runs and the process end, with each way to serve the app."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serving import Background, server_process, types
from waiting import DEADLINE, let_tasks_run, wait_until

from aguila import App
from aguila.store import SQLiteStore, Want

pytestmark = pytest.mark.anyio

SITE = """
import asyncio
from fastapi import FastAPI
from aguila import App
from aguila.server import Timing
from aguila.store import SQLiteStore

async def agent(run):
    yield "one"
    if run.run_id == "long":
        await asyncio.Event().wait()
    while not app._service.runs.is_draining:
        await asyncio.sleep(0.001)
    yield "two"

app = App(agent, store=SQLiteStore("{store}"), drain=1.0)
mounted = FastAPI()

@mounted.get("/healthz")
def health():
    return "fine"

app.mount_on(mounted, "/agent")
"""


@pytest.mark.parametrize(
    ("target", "path", "options"),
    [
        ("site_of_apps:mounted", "/agent", ()),
        ("site_of_apps:app", "/", ()),
        ("site_of_apps:app", "/", ("--lifespan", "off")),
        ("site_of_apps:app", "/", ("--loop", "asyncio")),
    ],
    ids=["mounted without a lifespan", "with a lifespan", "without a lifespan", "with the loop of asyncio"],
)
async def test_on_sigterm_runs_get_their_time_however_the_app_is_run(
    tmp_path: Path, target: str, path: str, options: tuple[str, ...]
) -> None:
    store = tmp_path / "threads.db"
    (tmp_path / "site_of_apps.py").write_text(SITE.format(store=store))
    with server_process(target, tmp_path, None, *options) as server:
        for run_id in ("short", "long"):
            with server.run(path=path, thread_id=f"unwatched {run_id}", run_id=run_id) as stream:
                stream.read_until("TEXT_MESSAGE_CONTENT")
        with (
            server.run(path=path, thread_id="watched short", run_id="short") as short,
            server.run(path=path, thread_id="watched long", run_id="long") as long,
        ):
            short.read_until("TEXT_MESSAGE_CONTENT")
            long.read_until("TEXT_MESSAGE_CONTENT")
            server.signal(signal.SIGTERM)
            rest = short.rest()
            assert types(rest) == ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]
            assert rest[-1]["outcome"] == {"type": "success"}
            answer = server.post(path, json={"threadId": "new", "runId": "new", "messages": []})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
            rest = long.rest()
            assert types(rest) == ["RUN_ERROR"]
            assert rest[-1]["code"] == "server_stopped"
        output = server.output()
        assert server.process.returncode in (0, -signal.SIGTERM)
        assert "Traceback" not in output
    assert await outcomes(store) == {
        "unwatched short": "success",
        "unwatched long": "error",
        "watched short": "success",
        "watched long": "error",
    }


async def outcomes(path: Path) -> dict[str, str | None]:
    store = SQLiteStore(path)
    await store.open()
    found = (await store.threads("anonymous")).threads
    outcomes = {
        one.thread_id: (await store.thread("anonymous", one.thread_id, Want(runs=True))).runs[-1].outcome
        for one in found
    }
    await store.close()
    return outcomes


def test_a_viewer_of_another_process_s_run_does_not_keep_this_one(tmp_path: Path) -> None:
    """The run may take hours. The viewer's stream ends without a terminal event, so it can reconnect elsewhere."""
    store = tmp_path / "threads.db"
    (tmp_path / "site_of_apps.py").write_text(SITE.format(store=store).replace("drain=1.0", "drain=0.1"))
    with (
        server_process("site_of_apps:app", tmp_path) as owner,
        server_process("site_of_apps:app", tmp_path) as other,
        owner.run(run_id="long") as stream,
    ):
        stream.read_until("TEXT_MESSAGE_CONTENT")
        with other.stream("GET", "/threads/thread/events") as viewer:
            viewer.read_until("TEXT_MESSAGE_CONTENT")
            other.signal(signal.SIGTERM)
            assert viewer.rest() == []
        assert "Traceback" not in other.output()
        assert other.process.returncode in (0, -signal.SIGTERM)
        owner.post("/threads/thread/runs/long/cancel")
        assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}


@pytest.mark.parametrize("run_id", ["long", "stubborn"])
async def test_a_second_sigterm_ends_runs_and_streams_without_their_time(tmp_path: Path, run_id: str) -> None:
    store = tmp_path / "threads.db"
    patient = SITE.format(store=store).replace("drain=1.0", "drain=3600, timing=Timing(cancel_grace=3600)")
    stubborn = """
    if run.run_id == "stubborn":
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()
"""
    (tmp_path / "site_of_apps.py").write_text(patient.replace('    yield "one"\n', '    yield "one"' + stubborn))
    with server_process("site_of_apps:app", tmp_path) as server:
        with server.run(run_id=run_id) as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            server.signal(signal.SIGTERM)
            wait_until(lambda: server.get("/readyz").status_code == 503)
            server.signal(signal.SIGTERM)
            assert [event.get("code") for event in stream.rest()] == ["server_stopped"]
        assert "Traceback" not in server.output()
        assert server.process.returncode in (0, -signal.SIGTERM)
    assert await outcomes(store) == {"thread": "error"}


# The handlers, in this process


async def waits(run: Any) -> None:
    await asyncio.Event().wait()


class Host:
    """The previous owner of the signals."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def __call__(self, number: int, frame: Any) -> None:
        self.heard.append(number)


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    before = {number: signal.signal(number, host) for number in (signal.SIGTERM, signal.SIGINT)}
    yield host
    assert signal.getsignal(signal.SIGTERM) is host
    assert signal.getsignal(signal.SIGINT) is host
    for number, handler in before.items():
        signal.signal(number, handler)


class Draining:
    """An app that is drained when the test says so."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.began = False
        self.may_end = asyncio.Event()

    async def drain(self) -> None:
        self.began = True
        await self.may_end.wait()


async def started(**options: Any) -> Draining:
    app = App(waits, **options)
    await app.start()
    draining = Draining(app)
    app._service.drain = draining.drain  # type: ignore[method-assign, union-attr]
    return draining


async def test_the_handler_before_gets_sigterm_when_all_apps_are_drained(host: Host) -> None:
    one, two = await started(), await started()
    signal.raise_signal(signal.SIGTERM)
    await let_tasks_run()
    assert (one.began, two.began, host.heard) == (True, True, [])
    one.may_end.set()
    await let_tasks_run()
    assert host.heard == []
    two.may_end.set()
    await let_tasks_run()
    assert host.heard == [signal.SIGTERM]
    await one.app.close()  # in the order they came, which is not the order of a stack
    signal.raise_signal(signal.SIGTERM)
    assert host.heard == [signal.SIGTERM] * 2
    await two.app.close()


async def test_a_second_sigterm_is_passed_on_at_once_and_only_that(host: Host) -> None:
    one = await started()
    signal.raise_signal(signal.SIGTERM)
    await let_tasks_run()
    signal.raise_signal(signal.SIGTERM)
    assert host.heard == [signal.SIGTERM]
    one.may_end.set()
    await let_tasks_run()
    await one.app.close()
    await let_tasks_run()
    assert host.heard == [signal.SIGTERM]


class Uvicorn(Host):
    """A server that has the signals, and waits for its connections."""

    def __init__(self, seconds: int | None) -> None:
        super().__init__()
        self.config = SimpleNamespace(timeout_graceful_shutdown=seconds)

    def handle_exit(self, number: int, frame: Any) -> None:
        self(number, frame)


@pytest.mark.parametrize("is_stuck", [True, False])
@pytest.mark.parametrize(("told", "once", "twice"), [(None, 1, 5), (30, 1, 5), (0, 0, 0)])
async def test_a_server_waits_only_a_moment_for_a_stream_that_is_stuck(
    host: Host, is_stuck: bool, told: int | None, once: int, twice: int
) -> None:
    for is_stopping_now in (False, True):
        server = Uvicorn(told)
        signal.signal(signal.SIGTERM, server.handle_exit)
        one = await started()
        one.app._service.is_stuck = is_stuck  # type: ignore[union-attr]
        signal.raise_signal(signal.SIGTERM)
        await let_tasks_run()
        assert server.config.timeout_graceful_shutdown == told
        if is_stopping_now:
            signal.raise_signal(signal.SIGTERM)
            assert server.config.timeout_graceful_shutdown == twice
        one.may_end.set()
        await let_tasks_run()
        if not is_stopping_now:
            assert server.config.timeout_graceful_shutdown == (once if is_stuck else told)
        assert server.heard == [signal.SIGTERM]
        await one.app.close()
    signal.signal(signal.SIGTERM, host)


async def test_sigint_is_passed_on_at_once_and_runs_are_drained(host: Host) -> None:
    one = await started()
    signal.raise_signal(signal.SIGINT)
    assert host.heard == [signal.SIGINT]
    await let_tasks_run()
    assert one.began
    one.may_end.set()
    await one.app.close()
    assert host.heard == [signal.SIGINT]


async def test_an_app_can_leave_the_signals_to_its_host(host: Host) -> None:
    one = await started(handle_signals=False)
    assert signal.getsignal(signal.SIGTERM) is host
    signal.raise_signal(signal.SIGTERM)
    await let_tasks_run()
    assert (one.began, host.heard) == (False, [signal.SIGTERM])
    one.app.begin_drain()
    await let_tasks_run()
    assert one.began
    one.may_end.set()
    await one.app.close()


async def test_a_signal_handler_installed_after_ours_is_left_alone(host: Host) -> None:
    one = await started()
    ours = signal.getsignal(signal.SIGTERM)
    assert callable(ours)

    def later(number: int, frame: Any) -> None:
        ours(number, frame)

    signal.signal(signal.SIGTERM, later)
    two = await started()
    one.may_end.set()
    await one.app.close()
    two.may_end.set()
    await two.app.close()
    assert signal.getsignal(signal.SIGTERM) is later
    signal.raise_signal(signal.SIGTERM)
    assert host.heard == [signal.SIGTERM]
    signal.signal(signal.SIGTERM, host)


async def test_a_server_started_after_the_app_is_found_by_its_lifespan(host: Host) -> None:
    """``async with app: await uvicorn.Server(...).serve()``: the server's handlers are newer than the app."""
    one = await started()
    server = Host()
    signal.signal(signal.SIGTERM, server)
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    lifespan = asyncio.create_task(one.app({"type": "lifespan"}, inbox.get, send))
    inbox.put_nowait({"type": "lifespan.startup"})
    await let_tasks_run()
    signal.raise_signal(signal.SIGTERM)
    await let_tasks_run()
    assert (one.began, server.heard) == (True, [])
    one.may_end.set()
    await let_tasks_run()
    assert server.heard == [signal.SIGTERM]
    inbox.put_nowait({"type": "lifespan.shutdown"})
    await lifespan
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert signal.getsignal(signal.SIGTERM) is server
    signal.signal(signal.SIGTERM, host)


def test_in_another_thread_nothing_is_installed(host: Host) -> None:
    async def scenario() -> Any:
        async with App(waits):
            return signal.getsignal(signal.SIGTERM)

    with Background(lambda: asyncio.run(scenario())) as background:
        assert background.result() is host
    assert threading.current_thread() is threading.main_thread()


def test_an_app_whose_loop_is_gone_holds_nothing_up(host: Host) -> None:
    app = App(waits)

    async def scenario() -> None:
        await app.start()

    # asyncio.run closes its loop, as this test needs.
    asyncio.run(scenario())
    signal.raise_signal(signal.SIGTERM)
    assert host.heard == [signal.SIGTERM]
    app._signals.uninstall()  # type: ignore[union-attr]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("handler", "status"),
    [("signal.SIG_DFL", -signal.SIGTERM), ("lambda *_: sys.exit(7)", 7)],
    ids=["no handler", "one that leaves"],
)
def test_a_program_of_ones_own_ends_as_it_would_but_drained(tmp_path: Path, handler: str, status: int) -> None:
    program = f"""
import asyncio, signal, sys
from aguila import App

class Drained(App):
    def begin_drain(self):
        print("drains", flush=True)
        return super().begin_drain()

async def agent(run):
    yield "Hello"

async def main():
    await Drained(agent, store={str(tmp_path / "threads.db")!r}).start()
    signal.raise_signal(signal.SIGTERM)
    await asyncio.Event().wait()

signal.signal(signal.SIGTERM, {handler})
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert (done.returncode, done.stdout) == (status, "drains\n"), done.stderr
