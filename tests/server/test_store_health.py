"""A store that does not answer: viewers receive an error in time, and the outage is logged once."""

from __future__ import annotations

import asyncio
import logging
import threading
from math import inf
from time import monotonic
from typing import Any

import pytest
from serving import Server, run_input, serving
from waiting import DEADLINE, wait_until

from aguila import App
from aguila.errors import StoreUnavailable
from aguila.offload import offload
from aguila.protocol import CustomEvent
from aguila.server import Timing
from aguila.server.runs.live_run import LiveRun
from aguila.server.runs.store_health import StoreHealth
from aguila.store import MemoryStore

pytestmark = pytest.mark.anyio


class Stuck(MemoryStore):
    """A store that can be made to hang, or to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self.fails = threading.Event()

    async def write(self, *args: Any, **options: Any) -> Any:
        while self.hangs.is_set():  # noqa: ASYNC110 - it is freed from another thread
            await asyncio.sleep(0.001)
        self._check()
        return await super().write(*args, **options)

    async def begin(self, *args: Any, **options: Any) -> Any:
        self._check()
        return await super().begin(*args, **options)

    async def take_over(self, *args: Any, **options: Any) -> Any:
        self._check()
        return await super().take_over(*args, **options)

    def _check(self) -> None:
        if self.fails.is_set():
            raise StoreUnavailable("the disk is away")


class Slow(Stuck):
    """A store that is slower than every timeout, and always makes progress."""

    @property
    def wrote_at(self) -> float:
        return monotonic()


class Patience:
    """Counts how often the runs of a server checked the store timeout."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
        real = LiveRun.check_store_timeout
        self._patience = patience
        self._since = inf
        self.lost = 0

        def lose(live: LiveRun, since: float) -> None:
            self.lost += since > self._since
            real(live, since)

        monkeypatch.setattr(LiveRun, "check_store_timeout", lose)

    def wait(self) -> None:
        """Wait until the timeout was checked several times for calls that began before now."""
        self._since, self.lost = monotonic() + self._patience, 0
        wait_until(lambda: self.lost > 3)


async def talks(run: Any) -> Any:
    while True:
        yield "word "
        await asyncio.sleep(0.001)


def test_viewers_receive_an_error_while_the_store_hangs_and_the_log_agrees() -> None:
    store = Stuck()
    with serving(App(talks, store=store, timing=Timing(store_patience=0.2))) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        store.hangs.set()
        told = stream.rest()[-1]  # while it hangs still
        assert (told["type"], told["code"]) == ("RUN_ERROR", "store_unavailable")
        store.hangs.clear()
        wait_until(lambda: server.status_of("thread", "run") == "error")
        with server.stream("GET", "/threads/thread/events") as log:
            assert log.rest()[-1] == told


def test_a_store_that_is_slow_and_gets_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = Patience(monkeypatch, 0.1)
    store = Slow()
    stop = threading.Event()

    async def agent(run: Any) -> Any:
        while not stop.is_set():
            yield "word "
            await asyncio.sleep(0.001)

    with serving(App(agent, store=store, timing=Timing(store_patience=0.1))) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        store.hangs.set()
        patience.wait()
        store.hangs.clear()
        stop.set()
        assert stream.rest()[-1]["type"] == "RUN_FINISHED"


def test_the_time_for_which_a_large_event_waits_to_be_encoded_is_not_the_stores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patience = Patience(monkeypatch, 0.1)
    is_free = threading.Event()
    began = threading.Event()

    def others_are_encoded() -> None:
        began.set()
        is_free.wait(DEADLINE)

    async def agent(run: Any) -> Any:
        busy = asyncio.create_task(offload(others_are_encoded))
        yield CustomEvent(name="photo", value="A" * (2 << 20))
        await busy

    with serving(App(agent, timing=Timing(store_patience=0.1))) as server, server.run() as stream:
        assert began.wait(DEADLINE)
        patience.wait()
        is_free.set()
        assert stream.rest()[-1]["type"] == "RUN_FINISHED"


def test_a_store_with_much_to_do_counts_as_working() -> None:
    class Busy(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.gets_on = True

        @property
        def wrote_at(self) -> float:
            return monotonic() if self.gets_on else 0.0

        async def check(self) -> None:
            await asyncio.Event().wait()

    store = Busy()
    with serving(App(talks, store=store, timing=Timing(store_patience=0.05))) as server:
        assert server.get("/readyz").status_code == 200
        store.gets_on = False
        wait_until(lambda: server.get("/readyz").status_code == 503)  # a success counts for a second


def test_a_run_that_cannot_be_ended_does_not_keep_viewers_waiting() -> None:
    store = Stuck()
    app = App(talks, store=store, timing=Timing(store_patience=0.2))
    with serving(app) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        store.hangs.set()
        stream.rest()
        assert app._service is not None
        (live,) = app._service.runs.live.values()
        wait_until(lambda: live.is_ending)
        answer = server.post("/", json=run_input(run_id="next"), timeout=DEADLINE)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        store.hangs.clear()


def test_an_outage_is_one_line_and_its_end_another_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    store = Stuck()
    with (
        serving(App(talks, store=store, timing=Timing(lease=0.1, cancel_grace=0.1))) as server,
        server.run(thread_id="a") as one,
        server.run(thread_id="b") as two,
    ):
        one.read_until("TEXT_MESSAGE_CONTENT")
        two.read_until("TEXT_MESSAGE_CONTENT")
        with caplog.at_level(logging.WARNING):
            store.fails.set()
            assert [one.rest()[-1]["code"], two.rest()[-1]["code"]] == ["store_unavailable"] * 2
            for number in range(5):
                assert refusal(server, number) == (503, "store_unavailable", "1")
            store.fails.clear()
            wait_until(lambda: any("available again" in record.getMessage() for record in caplog.records))
    lines = [record.getMessage() for record in caplog.records if record.name == "aguila.server"]
    assert [line.partition(" after ")[0] for line in lines] == [
        "the store is unavailable: the disk is away",
        "the store is available again",
    ]
    assert [record.exc_info for record in caplog.records if record.exc_info is not None] == []


class NoWrites(MemoryStore):
    """A store that can be read, and written to only when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_locked = threading.Event()
        self.checks = 0

    async def begin(self, *args: Any, **options: Any) -> Any:
        if self.is_locked.is_set():
            raise StoreUnavailable("locked")
        return await super().begin(*args, **options)

    async def check(self) -> None:
        self.checks += 1
        if self.is_locked.is_set():
            raise StoreUnavailable("locked")


def test_a_store_that_can_only_be_read_does_not_work_again(caplog: pytest.LogCaptureFixture) -> None:
    store = NoWrites()
    with (
        serving(App(talks, store=store, timing=Timing(lease=0.02))) as server,
        caplog.at_level(logging.WARNING, "aguila.server"),
    ):
        store.is_locked.set()
        assert refusal(server, 1)[0] == 503
        looked = store.checks
        wait_until(lambda: store.checks > looked + 2)  # by maintenance, which has nothing else to write
        assert not any("available again" in record.getMessage() for record in caplog.records)
        store.is_locked.clear()
        wait_until(lambda: any("available again" in record.getMessage() for record in caplog.records))
    lines = [record.getMessage().partition(" after ")[0] for record in caplog.records if record.name == "aguila.server"]
    assert lines == ["the store is unavailable: locked", "the store is available again"]


def test_a_call_that_began_before_the_last_failure_does_not_end_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    health = StoreHealth()
    began = monotonic()
    health.record_failure(StoreUnavailable("locked"))
    health.record_success(began)
    assert health.is_failing
    health.record_success(monotonic())
    assert not health.is_failing
    assert len(caplog.records) == 2


def test_a_run_that_begins_ends_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    store = NoWrites()
    with serving(App(says_word, store=store)) as server, caplog.at_level(logging.WARNING, "aguila.server"):
        store.is_locked.set()
        assert server.get("/readyz").status_code == 503
        store.is_locked.clear()
        server.events()
        assert "available again" in caplog.records[-1].getMessage()


def test_a_probe_is_answered_while_the_store_hangs() -> None:
    class Hanging(MemoryStore):
        async def check(self) -> None:
            await asyncio.get_running_loop().create_future()

    with serving(App(says_word, store=Hanging(), timing=Timing(store_patience=0.05))) as server:
        assert server.get("/readyz").status_code == 503


async def test_a_store_that_does_not_close_does_not_hold_up_the_shutdown(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(MemoryStore):
        async def close(self) -> None:
            await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("aguila.server.app._MIN_CLOSE_TIMEOUT", 0.01)
    async with App(says_word, store=Endless(), timing=Timing(store_patience=0.01)):
        pass
    assert [record.getMessage() for record in caplog.records] == [
        "the store was not closed: it did not finish within 0.01 seconds"
    ]


async def test_an_app_that_cannot_start_leaves_its_store_closed() -> None:
    class Counted(Stuck):
        opened = 0

        async def open(self) -> None:
            await super().open()
            self.opened += 1

        async def close(self) -> None:
            await super().close()
            self.opened -= 1

    store = Counted()
    store.fails.set()
    app = App(says_word, store=store)
    with pytest.raises(StoreUnavailable):
        await app.start()
    assert store.opened == 0
    store.fails.clear()
    async with app:
        assert store.opened == 1
    assert store.opened == 0


async def says_word(run: Any) -> Any:
    yield "word"


def refusal(server: Server, number: int) -> tuple[int, str, str]:
    answer = server.post("/", json=run_input("refused", str(number)))
    return answer.status_code, answer.json()["error"]["code"], answer.headers["retry-after"]
