"""Four servers on PostgreSQL, and everything that can go wrong between them and below them."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from database_link import DatabaseLink
from faults_kit import Frames, Viewer, Worker, act, events_of, report, scaled, terminal, within_deadline
from postgres_cluster import Cluster, find_programs, make_folder

FAULTS = int(os.environ.get("AGUILA_POSTGRES_FAULTS", scaled(20, 1000)))
SERVERS = 4
LEASE = 3.0

pytestmark = pytest.mark.anyio


class Deployment:
    """A primary with a synchronous standby, and servers that reach both through a link of their own."""

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder = folder
        self._place = place
        self._names = 0
        self.primary = self._cluster()
        self.primary.create()
        self.primary.start()
        self.standby: Cluster | None = None
        self.add_standby()
        self.schema = f"faults_{secrets.token_hex(4)}"
        self.workers: list[Worker] = []
        self.links: list[DatabaseLink] = []
        self.counts: Counter[str] = Counter()
        for _ in range(SERVERS):
            self.add_worker()

    def _cluster(self) -> Cluster:
        self._names += 1
        # A local commit would be visible on the primary although the standby does not have it.
        return Cluster(self._place / f"node{self._names}", synchronous_standby_names="standby")

    def add_standby(self) -> None:
        """Add a standby; from then on, a commit waits for it."""
        self.standby = self._cluster()
        self.standby.create_standby(self.primary)
        self.standby.start()

    def targets(self) -> list[int]:
        return [self.primary.port] + ([] if self.standby is None else [self.standby.port])

    def add_worker(self, index: int | None = None) -> None:
        """Start a server, with a clock that is minutes off."""
        link = DatabaseLink(*self.targets())
        worker = Worker(
            self.folder,
            postgres={"dsn": link.dsn(), "schema": self.schema, "patience": 8.0},
            clock_offset=random.Random(len(self.links)).choice([-300, -7, 0, 60, 240]),
            app={"lease": LEASE, "store_patience": 8.0},
        )
        if index is None:
            self.links.append(link)
            self.workers.append(worker)
        else:
            self.links[index].close()
            self.links[index], self.workers[index] = link, worker

    def close(self) -> None:
        for worker in self.workers:
            with suppress(ProcessLookupError):
                worker.wake()
            worker.stop()
        for link in self.links:
            link.close()
        for cluster in (self.standby, self.primary):
            if cluster is not None:
                cluster.stop()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    if find_programs() is None:
        pytest.skip("PostgreSQL is not installed")
    place = make_folder()
    found = Deployment(tmp_path, place)
    try:
        yield found
    finally:
        found.close()
        shutil.rmtree(place, ignore_errors=True)


async def in_thread(function: Any, *args: Any) -> Any:
    return await asyncio.to_thread(function, *args)


class Load:
    """Runs that are started on any server and watched through any, until the test stops it."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.is_stopping = False
        self.seen: dict[str, Frames] = {}
        self.lost = 0
        self.reconnects = 0

    async def watch(self, number: int) -> None:
        """Start one run after the other; follow each to its terminal event, whatever breaks."""
        chance = random.Random(number)
        count = 0
        while not self.is_stopping:
            thread = f"thread-{number}-{count}"
            count += 1
            try:
                await self._one(thread, chance)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{await describe(self._deployment, thread)}") from error

    async def _one(self, thread: str, chance: random.Random) -> None:
        viewer = Viewer(thread)
        viewer.last_words = []
        body = act("talk", thread, count=chance.choice([5, 40, 120]), size=chance.choice([5, 300]), pause=0.005)
        is_begun = False
        while not viewer.is_done:
            worker = chance.choice(self._deployment.workers)
            answer = None
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    if not is_begun:
                        is_begun = True
                        answer = await self._post(viewer, worker, body)
                    else:
                        answer = await viewer.follow(worker.port, survives=True)
            if answer is not None and answer.status == 404:
                is_begun = False
            if viewer.last_words and not viewer.is_done:
                viewer.last_words.clear()  # the end of a run that could not be stored, which the log repeats
            if not viewer.is_done:
                self.reconnects += 1
                await asyncio.sleep(0.05)
        self.seen[thread] = viewer.frames

    async def _post(self, viewer: Viewer, worker: Worker, body: Any) -> Any:
        try:
            return await viewer.post(worker.port, body, survives=True)
        except AssertionError:
            if viewer.frames:
                raise
            return None  # an earlier request has begun the run, and it has ended: the answer is a hydration


KINDS = {"kill": 2, "suspend": 2, "terminate": 4, "cut": 4, "freeze": 3, "partition": 3, "restart": 1, "promote": 1}
"""How many of twenty faults are of each kind."""


def schedule(chance: random.Random) -> Iterator[str]:
    """Return the kinds of all faults, in random order within each twenty."""
    for _ in range(0, FAULTS, 20):
        twenty = [kind for kind, count in KINDS.items() for _ in range(count)]
        chance.shuffle(twenty)
        yield from twenty


async def inject(deployment: Deployment, kind: str, chance: random.Random) -> None:
    """Break one thing, and mend it if it does not mend itself."""
    at = chance.randrange(SERVERS)
    worker, link = deployment.workers[at], deployment.links[at]
    deployment.counts[kind] += 1
    match kind:
        case "kill":
            await in_thread(worker.kill)
            await in_thread(deployment.add_worker, at)
        case "suspend":
            await in_thread(worker.pause)
            await asyncio.sleep(chance.choice([0.3, 0.3, LEASE + 1.5]))
            worker.wake()
        case "terminate":
            await terminate_backends(deployment, chance)
        case "cut":
            await in_thread(link.cut)
        case "freeze":
            await in_thread(link.freeze)
            await asyncio.sleep(chance.choice([0.2, 0.2, 1.0, 5.0]))
            await in_thread(link.thaw)
        case "partition":
            await in_thread(link.partition)
            await asyncio.sleep(chance.choice([0.2, 0.2, 1.0, 2.5]))
            link.heal()
        case "restart":
            await in_thread(deployment.primary.stop)
            await in_thread(deployment.primary.start)
        case _:
            await promote(deployment)


async def describe(deployment: Deployment, thread: str) -> str:
    """Return all rows of a thread, and what the servers logged about it."""
    import asyncpg  # type: ignore[import-untyped]

    db = await asyncpg.connect(deployment.primary.dsn)
    tables = {"threads": "thread_id", "runs": "thread", "log": "thread"}
    found: list[str] = []
    key = await db.fetchval(f"SELECT key FROM {deployment.schema}.threads WHERE thread_id = $1", thread)
    for table, column in tables.items():
        value = thread if table == "threads" else key
        rows = await db.fetch(f"SELECT * FROM {deployment.schema}.{table} WHERE {column} = $1", value)
        found += [f"{table}: {dict(row)}" for row in rows]
    await db.close()
    for log in sorted(deployment.folder.glob("worker-*.log")):
        found += [f"{log.name}: {line}" for line in log.read_text().splitlines() if thread in line]
    return "\n".join(found)


async def terminate_backends(deployment: Deployment, chance: random.Random) -> None:
    import asyncpg  # type: ignore[import-untyped]

    db = await asyncpg.connect(deployment.primary.dsn)
    try:
        rows = await db.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = 'aguila'")
        for row in chance.sample(rows, min(len(rows), chance.choice([1, 3, 20]))):
            await db.execute("SELECT pg_terminate_backend($1)", row[0])
    finally:
        await db.close()


async def promote(deployment: Deployment) -> None:
    """Lose the primary for ever, promote the standby, and add a new standby. All servers get links to both."""
    assert deployment.standby is not None
    await in_thread(deployment.primary.stop)
    deployment.primary, deployment.standby = deployment.standby, None
    await in_thread(deployment.primary.promote)
    await in_thread(deployment.add_standby)
    for link in deployment.links:
        link.lead_to(deployment.targets())


async def answer_on_all(deployment: Deployment, thread: str, interrupt_id: str) -> int:
    """Answer one question on every server at the same time; return how many answers were accepted."""

    async def answer(number: int, worker: Worker) -> int:
        viewer = Viewer(thread)
        viewer.last_words = []
        resume = [{"interruptId": interrupt_id, "status": "resolved", "payload": {"ok": number}}]
        body = act("ask", thread, f"answer-{number}", resume=resume)
        with suppress(TimeoutError, AssertionError):
            async with asyncio.timeout(30):
                return (await viewer.post(worker.port, body, survives=True)).status
        return 0

    found = await asyncio.gather(*(answer(number, one) for number, one in enumerate(deployment.workers)))
    return sum(status == 200 for status in found)


async def test_faults_lose_double_and_reorder_nothing(deployment: Deployment):
    await within_deadline(_play(deployment), 600 if FAULTS <= 100 else 6 * 3600)


async def _play(deployment: Deployment) -> None:
    chance = random.Random(os.environ.get("AGUILA_SEED", "17"))
    load = Load(deployment)
    watchers = [asyncio.create_task(load.watch(number)) for number in range(8)]
    for number, kind in enumerate(schedule(chance)):
        if number % 100 == 99:
            report("so far", **deployment.counts, runs=len(load.seen))
        await asyncio.sleep(chance.choice([0.0, 0.1, 0.5]))
        await inject(deployment, kind, chance)
        done = [task for task in watchers if task.done()]
        for task in done:
            task.result()
    load.is_stopping = True
    await asyncio.gather(*watchers)
    logs = await in_thread(read_logs, deployment, list(load.seen))
    events = lost = 0
    for thread, seen in load.seen.items():
        log = logs[thread]
        check_log(log)
        assert seen == log[: len(seen)], thread  # nothing that a viewer has seen is lost or changed
        assert len(seen) == len(log), thread
        events += len(log)
        lost += terminal(events_of(log))[0]["type"] == "RUN_ERROR"
    settled = await check_questions(deployment)
    report(
        "faults on PostgreSQL",
        faults=sum(deployment.counts.values()),
        **deployment.counts,
        runs=len(load.seen),
        runs_with_an_error=lost,
        events=events,
        reconnects=load.reconnects,
        questions_answered_once=settled,
    )
    assert len(load.seen) > FAULTS / 10


def read_logs(deployment: Deployment, threads: list[str]) -> dict[str, Frames]:
    return {thread: deployment.workers[0].frames(thread) for thread in threads}


def check_log(log: Frames) -> None:
    """Assert that a log is gapless, has one terminal event, and that its text is in order."""
    assert [number for number, _ in log] == list(range(1, len(log) + 1))
    events = events_of(log)
    assert len(terminal(events)) == 1
    assert terminal(events) == events[-1:]
    deltas = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    text = "".join(deltas)
    numbers = [int(part.rpartition("x")[2] or part) for part in text.split(":")[:-1]]
    assert numbers == list(range(len(numbers)))


async def check_questions(deployment: Deployment) -> int:
    """Ask some questions; answer each on all servers at once; return how many were answered once."""
    settled = 0
    for number in range(scaled(2, 20)):
        thread = f"question-{number}"
        viewer = Viewer(thread)
        viewer.last_words = []
        async with asyncio.timeout(60):
            while not viewer.is_done:
                await viewer.post(deployment.workers[0].port, act("ask", thread), survives=True)
        finished = terminal(events_of(viewer.frames))[0]
        (interrupt,) = finished["outcome"]["interrupts"]
        await answer_on_all(deployment, thread, interrupt["id"])
        answered = [line for line in (deployment.folder / "answered").read_text().splitlines() if thread in line]
        assert len(answered) == 1, answered
        settled += 1
    return settled
