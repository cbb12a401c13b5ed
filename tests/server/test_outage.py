"""A store that does not answer: viewers are told within bounds, and the log says it once."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from serving import Server, run_input, serving, until

from aguila import App
from aguila.errors import StoreUnavailable
from aguila.store import MemoryStore


class Stuck(MemoryStore):
    """A store that can be made to hang, or to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self.fails = threading.Event()

    async def append(self, *args: Any, **options: Any) -> Any:
        while self.hangs.is_set():  # noqa: ASYNC110 - it is freed from another thread
            await asyncio.sleep(0.001)
        self._check()
        return await super().append(*args, **options)

    async def begin(self, *args: Any, **options: Any) -> Any:
        self._check()
        return await super().begin(*args, **options)

    async def renew(self, *args: Any, **options: Any) -> Any:
        self._check()
        return await super().renew(*args, **options)

    async def expired(self) -> Any:
        self._check()
        return await super().expired()

    def _check(self) -> None:
        if self.fails.is_set():
            raise StoreUnavailable("the disk is away")


async def talks(run: Any) -> Any:
    while True:
        yield "word "
        await asyncio.sleep(0.001)


def test_viewers_are_told_while_the_store_hangs_and_the_log_agrees() -> None:
    store = Stuck()
    with serving(App(talks, store=store, store_patience=0.2)) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        store.hangs.set()
        told = stream.rest()[-1]  # while it hangs still
        assert (told["type"], told["code"]) == ("RUN_ERROR", "store_unavailable")
        store.hangs.clear()
        until(lambda: server.status_of("thread", "run") == "error")
        with server.stream("GET", "/threads/thread/events") as log:
            assert log.rest()[-1] == told


def test_an_outage_is_one_line_and_its_end_another_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    store = Stuck()
    with (
        serving(App(talks, store=store, lease=0.1, cancel_grace=0.1)) as server,
        server.run(thread_id="a") as one,
        server.run(thread_id="b") as two,
    ):
        one.read_until("TEXT_MESSAGE_CONTENT")
        two.read_until("TEXT_MESSAGE_CONTENT")
        with caplog.at_level(logging.WARNING):
            store.fails.set()
            assert [one.rest()[-1]["code"], two.rest()[-1]["code"]] == ["store_unavailable"] * 2
            for number in range(5):
                assert refused(server, number) == (503, "store_unavailable", "1")
            store.fails.clear()
            until(lambda: any("works again" in record.getMessage() for record in caplog.records))
    lines = [record.getMessage() for record in caplog.records if record.name == "aguila.server"]
    assert [line.partition(",")[0] for line in lines] == [
        "the store is unavailable: the disk is away",
        "the store works again",
    ]
    assert [record.exc_info for record in caplog.records if record.exc_info is not None] == []


def refused(server: Server, number: int) -> tuple[int, str, str]:
    answer = server.post("/", json=run_input("refused", str(number)))
    return answer.status_code, answer.json()["error"]["code"], answer.headers["retry-after"]
