"""Conversations through a proxy that cuts at random bytes, with a server that is killed and comes back.

Every run ends as without faults, or with an error of ours that says what happened; client and server have the same
conversation afterwards; no tool is called twice. Errors are for runs whose server was killed under them, for protobuf,
whose frames have no ids to come back by, and for requests that a client lost that has never talked to this server: it
does not know that it may send them again.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from faults.cutting_proxy import CuttingProxy
from faults.kit import PATIENCE, Effects, Worker, events_of, report, scaled, terminal, workers
from serving import check_valid
from waiting import wait_until

from aguila import AsyncClient, Client
from aguila.client import Reconnect
from aguila.client.transports.aiohttp import AiohttpTransport
from aguila.errors import AguilaError, RunFailed, StreamTruncated, TransportFailed

RUNS = scaled(50, 1000)
EVERY = 7
"""One run in so many has its server killed."""

KINDS = ("sync", "async", "aiohttp", "sync", "async", "aiohttp", "sync", "async", "aiohttp", "protobuf")
FIRST = 4
"""One run in so many is the first of its client: what it has learnt about the server is forgotten."""

LEASE = {"timing": {"lease": 0.3}}
PACE = 0.002
"""Seconds between the words of an agent whose server is going to die under it."""


class Faults:
    """The faults, drawn from seeds: after how many bytes connections break, and when the server dies."""

    def __init__(self) -> None:
        self.draw = random.Random(0)
        self.is_on = False

    def budget(self) -> int | None:
        """Of a connection; see ``CuttingProxy``."""
        draw = self.draw
        if not self.is_on or draw.random() < 0.25:
            return None
        return draw.choice([-2, -1, 0, draw.randrange(1, 400), draw.randrange(400, 4000), draw.randrange(4000, 20000)])


class Stage:
    """The server behind its proxy, and the faults so far."""

    def __init__(self, folder: Path, running: list[Worker], faults: Faults, proxy: CuttingProxy) -> None:
        self.folder = folder
        self.running = running
        self.faults = faults
        self.proxy = proxy
        self.kills = 0
        self._return: threading.Thread | None = None

    @property
    def worker(self) -> Worker:
        return self.running[-1]

    def kill(self) -> None:
        """``kill -9``; another one comes up on the same file in the meantime."""
        self.kills += 1
        self.worker.kill()
        self._return = threading.Thread(target=self._come_back)
        self._return.start()

    def settle(self) -> None:
        """Wait until the server is there."""
        if self._return is not None:
            self._return.join(PATIENCE)
            assert not self._return.is_alive()
            self._return = None

    def _come_back(self) -> None:
        self.running.append(Worker(self.folder, app=LEASE))
        self.proxy.lead_to(self.worker.url)


class Caller:
    """One of our clients as a plain function: start a run, look at each event, return the result."""

    def __init__(self, kind: str, url: str, runner: asyncio.Runner) -> None:
        self.kind = kind
        self.calls: Counter[str] = Counter()
        self.on_call: Callable[[], None] = lambda: None
        self._runner = runner
        options: dict[str, Any] = {
            "tools": [self.lookup],
            "reconnect": Reconnect(attempts=400, initial=0.001, longest=0.02),
            "headers": {"Connection": "close"},  # so that every request meets the proxy anew
            "protobuf": kind == "protobuf",
        }
        if kind == "aiohttp":
            self.client: Any = AsyncClient(url, transport=AiohttpTransport(), **options)
        else:
            self.client = (Client if kind == "sync" else AsyncClient)(url, options={"verify": False}, **options)

    def lookup(self, key: str) -> str:
        """Look something up."""
        self.calls[key] += 1
        self.on_call()
        return f"value of {key}"

    def run(self, thread: Any, text: str, look: Callable[[], None], pace: float = 0) -> Any:
        run = thread.run(text, forwarded_props={"act": "converse", "pause": pace})
        if self.kind == "sync":
            for _ in run:
                look()
            return run.result()

        async def follow() -> Any:
            async for _ in run:
                look()
            return await run

        return self._runner.run(follow())

    def held(self, thread_id: str) -> Any:
        """Return the conversation as the server holds it."""
        return self._wait(self.client.thread(thread_id).refresh())

    def close(self) -> None:
        self._wait(self.client.close())

    def _wait(self, value: Any) -> Any:
        async def wait() -> Any:
            return await value

        return value if self.kind == "sync" else self._runner.run(wait())


def meaning(messages: list[Any]) -> list[Any]:
    """Messages without the ids that differ from run to run."""
    return [
        (message.role, message.content, [call.function for call in getattr(message, "tool_calls", None) or ()])
        for message in messages
    ]


def test_every_run_ends_as_without_faults_or_with_a_clear_error(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    with staged(tmp_path) as (stage, callers):
        without = {caller.kind: caller.client.thread(f"without-{caller.kind}") for caller in callers}
        expected: list[Any] = []
        for caller in callers:  # which also learn here that this server numbers its events
            caller.run(without[caller.kind], "key", lambda: None)
            assert caller.calls.pop("key") == 1
            expected.append((meaning(without[caller.kind].messages), without[caller.kind].state))
        assert all(one == expected[0] for one in expected)
        assert len(expected[0][0]) == 5
        for number in range(RUNS):
            kind = KINDS[number % len(KINDS)]
            one_run(stage, next(one for one in callers if one.kind == kind), number, expected[0], counts)
        cuts, kills = stage.proxy.cuts, stage.kills
        called = Effects(tmp_path, "conversed").lines()
    assert len(called) == len({*called}), "an agent was called twice for one run"
    report("client runs", runs=RUNS, cuts=cuts, kills=kills, agents_called=len(called), **counts)
    failed = counts["failed"] + counts["cut off"] + counts["nothing came"]
    assert counts["whole"] + failed == RUNS
    assert kills == RUNS // EVERY
    assert cuts > RUNS
    # At most every run whose server was killed, and of the others only those over protobuf, can fail.
    assert scaled(0, kills // 4) <= counts["failed"] <= kills  # of few kills, all may come between two answers
    assert counts["cut off"] <= RUNS // len(KINDS)
    assert counts["whole"] >= RUNS * 0.7


def one_run(stage: Stage, caller: Caller, number: int, expected: tuple[Any, Any], counts: Counter[str]) -> None:
    # Anew for each run: how often a run reconnects depends on timing, and must not change the faults of the next.
    draw = stage.faults.draw = random.Random(number)
    is_killing = number % EVERY == EVERY - 1
    kills, seen = stage.kills, 0
    at = draw.randrange(1, 100) if is_killing else 0
    is_in_tool = is_killing and draw.random() < 0.2

    def look() -> None:
        nonlocal seen
        seen += 1
        if seen == at and stage.kills == kills:
            stage.kill()

    caller.on_call = lambda: stage.kill() if is_in_tool and stage.kills == kills else None
    settings = caller.client.settings
    if number % FIRST == 0:
        settings.server_sends_ids = False
    is_first = not settings.server_sends_ids  # also if the one before, which was the first, never arrived
    thread = caller.client.thread(f"thread-{number}")
    stage.faults.is_on = True
    error: AguilaError | None = None
    try:
        result = caller.run(thread, "key", look, PACE if is_killing else 0)
    except AguilaError as raised:
        error = raised
    if is_killing and stage.kills == kills:
        stage.kill()  # the run had ended before the kill
    stage.faults.is_on = False
    stage.settle()
    calls = caller.calls.pop("key", 0)
    assert calls <= 1, f"the tool was called {calls} times"
    if error is None:
        assert result.outcome == "success"
        assert (meaning(thread.messages), thread.state) == expected
        assert calls == 1
        counts["whole"] += 1
    elif isinstance(error, RunFailed):
        assert (error.code, is_killing) == ("run_lost", True)
        counts["failed"] += 1
    else:
        # Cut off, or not even begun; the application has to find out its outcome.
        assert isinstance(error, StreamTruncated | TransportFailed), repr(error)
        assert caller.kind == "protobuf" or (is_first and not seen), repr(error)
        if isinstance(error, TransportFailed):
            assert not error.was_sent
            assert stage.worker.get(f"/threads/{thread.id}").status_code == 404, "it said that it never began"
        if caller.kind != "protobuf":
            assert stage.worker.get(f"/threads/{thread.id}").status_code == 404, "it could have been followed"
        counts["cut off" if caller.kind == "protobuf" else "nothing came"] += 1
    is_known_whole = error is None or isinstance(error, RunFailed)
    check_server_agrees(stage, caller, thread, is_known_whole=is_known_whole, counts=counts)


def check_server_agrees(
    stage: Stage, caller: Caller, thread: Any, *, is_known_whole: bool, counts: Counter[str]
) -> None:
    """Check that server and client have the same conversation: no event was lost, and none was counted twice."""
    path = f"/threads/{thread.id}"
    if stage.worker.get(path).status_code == 404:
        assert not is_known_whole
        counts["never arrived"] += 1
        return
    wait_until(lambda: all(run["status"] != "running" for run in stage.worker.get(path).json()["runs"]), PATIENCE)
    events = events_of(stage.worker.frames(thread.id))
    check_valid(events)
    assert len(terminal(events)) == len([event for event in events if event["type"] == "RUN_STARTED"])
    held = caller.held(thread.id)
    if is_known_whole:
        assert held.messages == thread.messages
        assert held.state == thread.state
    else:
        ids = [message.id for message in held.messages]
        assert len(ids) == len({*ids})


@contextmanager
def staged(folder: Path) -> Iterator[tuple[Stage, list[Caller]]]:
    faults = Faults()
    with ExitStack() as stack:
        running = stack.enter_context(workers(folder, app=LEASE))
        proxy = stack.enter_context(CuttingProxy(running[0].url, faults.budget))
        runner = stack.enter_context(asyncio.Runner())
        stage = Stage(folder, running, faults, proxy)
        stack.callback(stage.settle)
        callers = [Caller(kind, proxy.url, runner) for kind in dict.fromkeys(KINDS)]
        for caller in callers:
            stack.callback(caller.close)
        yield stage, callers
