"""``aguila serve --workers --metrics``: each worker answers with the sums of all, also after one was killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

from metrics import samples
from processes.commands import aguila_serve
from serving import Peer, text_of
from waiting import wait_until

AGENT = """
import asyncio, os

async def agent(run):
    yield str(os.getpid())
    if run.messages[-1].content == "wait":
        await asyncio.Event().wait()
"""


class Load:
    """Runs that each have a connection of their own, so that any worker may get them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.started = 0

    def run(self) -> int:
        """Run the agent to its end; return the process of its worker."""
        self.started += 1
        peer = Peer(self.url)
        message = {"id": "u", "role": "user", "content": "go"}
        try:
            return int(text_of(peer.events(thread_id=f"t{self.started}", messages=[message])))
        finally:
            peer.close()

    def scrape(self, _: int = 0) -> Counter[str]:
        peer = Peer(self.url)
        try:
            answer = peer.get("/metrics")
            assert answer.status_code == 200, answer.text
            return samples(answer.text)
        finally:
            peer.close()

    def await_numbers(self, **expected: int) -> None:
        """Wait until so many runs have ended with these outcomes, or are running, whichever worker answers."""
        names = {one: "aguila_run_running" if one == "running" else f"aguila_run_ended_total {one}" for one in expected}

        def is_so() -> bool:
            return all({one: found[names[one]] for one in expected} == expected for found in map(self.scrape, range(6)))

        wait_until(is_so)


def test_every_worker_answers_with_the_sums_and_a_killed_one_takes_nothing_along(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(AGENT)
    with aguila_serve(tmp_path, "mine:agent", "--workers", "2", "--store", "x.db", "--metrics") as server:
        load = Load(server.url)
        workers: set[int] = set()
        wait_until(lambda: workers.add(load.run()) or len(workers) == 2)
        load.await_numbers(success=load.started, running=0)

        peer = Peer(server.url)
        message = {"id": "u", "role": "user", "content": "wait"}
        with peer.run(thread_id="held", messages=[message]) as stream:
            killed = int(stream.read_until("TEXT_MESSAGE_CONTENT")["delta"])
            load.await_numbers(success=load.started, running=1)
            os.kill(killed, signal.SIGKILL)
        peer.close()
        load.await_numbers(success=load.started, lost=1, running=0)

        wait_until(lambda: workers.add(load.run()) or len(workers) == 3)
        load.await_numbers(success=load.started, lost=1, running=0)
