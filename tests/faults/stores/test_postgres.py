"""Four servers on PostgreSQL, and everything that can go wrong between them and below them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg
import pytest
from faults.database_link import DatabaseLink
from faults.kit import Effects, Frames, Viewer, Worker, act, events_of, report, scaled, terminal, within_deadline
from stores.postgres_admin import query
from stores.postgres_cluster import Cluster, find_programs, make_folder
from waiting import DEADLINE

FAULTS = int(os.environ.get("AGUILA_POSTGRES_FAULTS", scaled(20, 1020)))
SERVERS = 4
LEASE = 3.0
PATIENCE = 8.0

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
        self.broken: set[int] = set()
        """The servers that are suspended or cut off at the moment."""
        self.counts: Counter[str] = Counter()
        self._roles = 0
        for _ in range(SERVERS):
            self.add_worker()
        asyncio.run(self._note_writers())

    def _cluster(self) -> Cluster:
        self._names += 1
        # A local commit would be visible on the primary although the standby does not have it.
        return Cluster(
            self._place / f"node{self._names}", synchronous_standby_names="standby", wal_retrieve_retry_interval="200ms"
        )

    def add_standby(self) -> None:
        """Add a standby; from then on, a commit waits for it."""
        self.standby = self._cluster()
        self.standby.create_standby(self.primary)
        self.standby.start()

    def targets(self) -> list[int]:
        return [self.primary.port] + ([] if self.standby is None else [self.standby.port])

    def add_worker(self, index: int | None = None) -> None:
        """Start a server with a clock that is minutes off, and with a role of its own in the database."""
        self._roles += 1
        role = f"server_{self._roles}"
        asyncio.run(execute(self.primary.dsn, f"CREATE ROLE {role} SUPERUSER LOGIN"))
        link = DatabaseLink(*self.targets())
        worker = Worker(
            self.folder,
            postgres={"dsn": link.dsn(role), "schema": self.schema, "patience": PATIENCE},
            clock_offset=random.Random(self._roles).choice([-300, -7, 0, 60, 240]),
            app={"timing": {"lease": LEASE, "store_patience": PATIENCE}},
        )
        if index is None:
            self.links.append(link)
            self.workers.append(worker)
        else:
            self.links[index].close()
            self.links[index], self.workers[index] = link, worker

    async def _note_writers(self) -> None:
        """Let the database note which server wrote each row of the log, and at which epoch."""
        await execute(
            self.primary.dsn,
            f"""
            CREATE TABLE {self.schema}.writers (thread bigint, last bigint, epoch bigint, writer text);
            CREATE FUNCTION {self.schema}.note_writer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              INSERT INTO {self.schema}.writers SELECT t.key, NEW.place & 4294967295, t.epoch, session_user
              FROM {self.schema}.threads t WHERE t.key = NEW.place >> 32;
              RETURN NULL;
            END $$;
            CREATE TRIGGER note_writer AFTER INSERT ON {self.schema}.log FOR EACH ROW
            EXECUTE FUNCTION {self.schema}.note_writer();
            """,
        )

    async def check_writers(self) -> int:
        """Assert that each epoch of a run has one writer, and that no writer comes back; return the take-overs."""
        rows = query(
            self.primary.dsn,
            f"""
            SELECT w.thread, r.run_id, w.epoch, w.writer FROM {self.schema}.writers w JOIN LATERAL (
              SELECT x.run_id FROM {self.schema}.runs x WHERE x.thread = w.thread AND x.first <= w.last
              ORDER BY x.first DESC LIMIT 1) r ON true
            ORDER BY w.thread, w.last
            """,
        )
        taken_over = 0
        for _, run in groupby(rows, key=lambda row: (row["thread"], row["run_id"])):
            owners = [owner for owner, _ in groupby((row["epoch"], row["writer"]) for row in run)]
            assert [epoch for epoch, _ in owners] == sorted({epoch for epoch, _ in owners}), owners
            taken_over += len(owners) - 1
        return taken_over

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


async def execute(dsn: str, sql: str) -> None:
    """Run a statement on a server that may be starting."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                query(dsn, sql)
                return
            except psycopg.Error:
                await asyncio.sleep(0.1)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    if find_programs() is None:
        assert os.environ.get("CI") != "true", "PostgreSQL is not installed"
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
        body = act("talk", thread, count=chance.choice([5, 40, 120]), size=chance.choice([5, 300]), pause=0.005)
        self.seen[thread] = await self.see_through(thread, body, chance)

    async def see_through(self, thread: str, body: Any, chance: random.Random) -> Frames:
        """Start the only run of a thread on any server; follow it through any, to its terminal event."""
        viewer = Viewer(thread)
        viewer.last_words = []
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
        return viewer.frames

    async def _post(self, viewer: Viewer, worker: Worker, body: Any) -> Any:
        try:
            return await viewer.post(worker.port, body, survives=True)
        except AssertionError:
            if viewer.frames:
                raise
            return None  # an earlier request has begun the run, and it has ended: the answer is a hydration


class Questions:
    """Runs that ask, and answers that differ, given on all servers at once, until one of them is used to its end."""

    def __init__(self, deployment: Deployment, load: Load) -> None:
        self._deployment = deployment
        self._load = load
        self.answered: list[str] = []
        self.unknown: list[str] = []
        """Questions whose answer was used by a run that was killed within an effect: the effect is not repeated."""
        self.lost = 0
        """Runs that were lost before they asked."""
        self.rounds = 0

    async def ask(self, number: int) -> None:
        """Ask one question after the other until the load stops."""
        chance = random.Random(1000 + number)
        count = 0
        while not self._load.is_stopping or not count:
            thread = f"question-{number}-{count}"
            count += 1
            frames = await self._load.see_through(thread, act("ask", thread), chance)
            ended = terminal(events_of(frames))[0]
            if ended["type"] == "RUN_ERROR":
                self.lost += 1
                continue
            (interrupt,) = ended["outcome"]["interrupts"]
            turn = 0
            while not (found := {*await self._answer_on_all(thread, interrupt["id"], turn)} & {"done", "unknown"}):
                turn += 1
                await asyncio.sleep(0.1)
                if await self._is_answered(thread, chance):
                    found = {"done"}  # an answer whose end was not seen
                    break
            self.rounds += turn + 1
            (self.answered if "done" in found else self.unknown).append(thread)
            await asyncio.sleep(0.1)

    async def _is_answered(self, thread: str, chance: random.Random) -> bool:
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(5):
                path = f"/threads/{thread}/events?protocolVersion=1.1"
                _, content = await request(chance.choice(self._deployment.workers).port, "GET", path)
                return b'"outcome":{"type":"success"}' in content
        return False

    async def _answer_on_all(self, thread: str, interrupt_id: str, turn: int) -> list[str]:
        """Answer on every server at the same time; return the outcome of each answer."""
        return await asyncio.gather(*(self._answer(thread, interrupt_id, turn, number) for number in range(SERVERS)))

    async def _answer(self, thread: str, interrupt_id: str, turn: int, number: int) -> str:
        """Give one of the answers: it is refused, or its run ends ("done"), or fails, or its end is not seen.

        The agent fails only if it cannot know whether the run before it has executed an effect (``OutcomeUnknown``).
        """
        resume = [{"interruptId": interrupt_id, "status": "resolved", "payload": {"ok": number}}]
        body = act("ask", thread, f"answer-{turn}-{number}", resume=resume)
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(10):
                status, content = await request(self._deployment.workers[number].port, "POST", "/", body)
                if status != 200:
                    return f"refused with {status}"
                if b'"type":"RUN_FINISHED"' in content and b'"type":"interrupt"' not in content:
                    return "done"
                return "unknown" if b'"code":"agent_error"' in content else "failed"
        return "not seen"

    async def check(self, logs: dict[str, Frames]) -> None:
        """Assert that one answer of each question was used, and that it cannot be given again."""
        used = [line.split(maxsplit=2) for line in Effects(self._deployment.folder, "answered").lines()]
        for thread in [*self.answered, *self.unknown]:
            assert len({answer for one, _, answer in used if one == thread}) == 1, [u for u in used if u[0] == thread]
            ends = terminal(events_of(logs[thread]))
            finished = [event["outcome"]["type"] for event in ends if event["type"] == "RUN_FINISHED"]
            assert finished == ["interrupt", "success"][: 1 + (thread in self.answered)], ends
            if thread in self.unknown:
                continue
            (interrupt,) = ends[0]["outcome"]["interrupts"]
            assert await self._answer_on_all(thread, interrupt["id"], 1000) == ["refused with 409"] * SERVERS


async def request(port: int, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Send a request; return the status and the whole answer."""
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(content)}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
        answer = await reader.read()
        return int(answer.split()[1]) if answer else 0, answer
    finally:
        writer.transport.abort()


KINDS = {"kill": 2, "suspend": 2, "terminate": 4, "cut": 4, "freeze": 3, "partition": 3, "restart": 1, "promote": 1}
"""How many of twenty faults are of each kind."""


def schedule(chance: random.Random) -> Iterator[str]:
    """Return the kinds of all faults, in random order within each twenty."""
    for _ in range(0, FAULTS, 20):
        twenty = [kind for kind, count in KINDS.items() for _ in range(count)]
        chance.shuffle(twenty)
        yield from twenty


LASTING = {"suspend": [0.3, 0.3, LEASE + 1.5], "freeze": [0.2, 0.2, 1.0, 5.0], "partition": [0.2, 0.2, 1.0, 2.5]}
"""Faults that last for so many seconds. Others happen meanwhile, as long as two servers are in order."""


async def inject(deployment: Deployment, kind: str, chance: random.Random, lasting: asyncio.TaskGroup) -> None:
    """Break one thing, and mend it if it does not mend itself."""
    async with asyncio.timeout(DEADLINE):
        while len(deployment.broken) >= SERVERS // 2:  # noqa: ASYNC110 - time mends them
            await asyncio.sleep(0.05)
    at = chance.choice([number for number in range(SERVERS) if number not in deployment.broken])
    worker, link = deployment.workers[at], deployment.links[at]
    deployment.counts[kind] += 1
    match kind:
        case "kill":
            await in_thread(worker.kill)
            await in_thread(deployment.add_worker, at)
        case "terminate":
            await terminate_backends(deployment, chance)
        case "cut":
            await in_thread(link.cut)
        case "restart":
            await in_thread(deployment.primary.stop)
            await in_thread(deployment.primary.start)
        case "promote":
            await promote(deployment)
        case _:
            deployment.broken.add(at)
            lasting.create_task(break_for(deployment, kind, at, chance.choice(LASTING[kind])))


async def break_for(deployment: Deployment, kind: str, at: int, seconds: float) -> None:
    """Suspend a server, or freeze or break its link, for some seconds."""
    worker, link = deployment.workers[at], deployment.links[at]
    match kind:
        case "suspend":
            await in_thread(worker.pause)
            await asyncio.sleep(seconds)
            worker.wake()
        case "freeze":
            await in_thread(link.freeze)
            await asyncio.sleep(seconds)
            await in_thread(link.thaw)
        case _:
            await in_thread(link.partition)
            await asyncio.sleep(seconds)
            link.heal()
    deployment.broken.discard(at)


async def describe(deployment: Deployment, thread: str) -> str:
    """Return all rows of a thread, and what the servers logged about it."""
    dsn = deployment.primary.dsn
    tables = {"threads": "key", "runs": "thread", "log": "place >> 32"}
    found: list[str] = []
    key = query(dsn, f"SELECT key FROM {deployment.schema}.threads WHERE thread_id = $1", thread)[0]["key"]
    for table, column in tables.items():
        rows = query(dsn, f"SELECT * FROM {deployment.schema}.{table} WHERE {column} = $1", key)
        found += [f"{table}: {row}" for row in rows]
    for log in sorted(deployment.folder.glob("worker-*.log")):
        found += [f"{log.name}: {line}" for line in log.read_text().splitlines() if thread in line]
    return "\n".join(found)


async def terminate_backends(deployment: Deployment, chance: random.Random) -> None:
    dsn = deployment.primary.dsn
    rows = query(dsn, "SELECT pid FROM pg_stat_activity WHERE application_name = 'aguila'")
    for row in chance.sample(rows, min(len(rows), chance.choice([1, 3, 20]))):
        query(dsn, "SELECT pg_terminate_backend($1)", row["pid"])


async def promote(deployment: Deployment) -> None:
    """Lose the primary for ever, promote the standby, and add a new standby. All servers get links to both."""
    assert deployment.standby is not None
    await in_thread(deployment.primary.stop)
    shutil.rmtree(deployment.primary.folder)
    deployment.primary, deployment.standby = deployment.standby, None
    await in_thread(deployment.primary.promote)
    await in_thread(deployment.add_standby)
    for link in deployment.links:
        link.lead_to(deployment.targets())


async def test_faults_lose_double_and_reorder_nothing(deployment: Deployment):
    await within_deadline(_play(deployment), 600 if FAULTS <= 100 else 8 * 3600)


async def _play(deployment: Deployment) -> None:
    chance = random.Random(os.environ.get("AGUILA_SEED", "17"))
    load = Load(deployment)
    questions = Questions(deployment, load)
    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(load.watch(number))
        for number in range(2):
            tasks.create_task(questions.ask(number))
        async with asyncio.TaskGroup() as lasting:
            for number, kind in enumerate(schedule(chance)):
                if number % 100 == 99:
                    report("so far", **deployment.counts, runs=len(load.seen), questions=len(questions.answered))
                await asyncio.sleep(chance.choice([0.0, 0.1, 0.5]))
                await inject(deployment, kind, chance, lasting)
        load.is_stopping = True
    logs = await in_thread(read_logs, deployment, [*load.seen, *questions.answered, *questions.unknown])
    events = lost = 0
    for thread, seen in load.seen.items():
        log = logs[thread]
        check_log(log)
        check_text(log)
        assert seen == log, thread  # nothing that a viewer has seen is lost or changed
        events += len(log)
        lost += terminal(events_of(log))[0]["type"] == "RUN_ERROR"
    for thread in [*questions.answered, *questions.unknown]:
        check_log(logs[thread], runs=None)
    await questions.check(logs)
    taken_over = await deployment.check_writers()
    for log in deployment.folder.glob("worker-*.log"):
        check_server_log(log.read_text())
    report(
        "faults on PostgreSQL",
        faults=sum(deployment.counts.values()),
        **deployment.counts,
        servers=SERVERS,
        runs=len(load.seen),
        runs_with_an_error=lost,
        events=events,
        reconnects=load.reconnects,
        questions_answered_once=len(questions.answered),
        rounds_of_answers=questions.rounds,
        questions_with_an_unknown_effect=len(questions.unknown),
        questions_lost_before_they_were_asked=questions.lost,
        runs_taken_over=taken_over,
    )
    assert len(load.seen) > FAULTS / 10
    assert questions.answered


def read_logs(deployment: Deployment, threads: list[str]) -> dict[str, Frames]:
    return {thread: deployment.workers[0].frames(thread) for thread in threads}


def check_log(log: Frames, runs: int | None = 1) -> None:
    """Assert that a log is gapless, and that each of its runs has one terminal event, which is its last."""
    assert [number for number, _ in log] == list(range(1, len(log) + 1))
    marks = [event["type"] for event in events_of(log) if event["type"].startswith("RUN_")]
    assert marks[0::2] == ["RUN_STARTED"] * (len(marks) // 2), marks
    assert set(marks[1::2]) <= {"RUN_FINISHED", "RUN_ERROR"}, marks
    assert len(marks) == (len(marks) // 2 if runs is None else runs) * 2
    assert terminal(events_of(log[-1:])), marks


def check_text(log: Frames) -> None:
    """Assert that the text of ``talk`` is in order."""
    deltas = [event["delta"] for event in events_of(log) if event["type"] == "TEXT_MESSAGE_CONTENT"]
    numbers = [int(part.rpartition("x")[2] or part) for part in "".join(deltas).split(":")[:-1]]
    assert numbers == list(range(len(numbers)))


def check_server_log(text: str) -> None:
    """Assert that a server has logged no bug."""
    assert not any(sign in text for sign in ("never retrieved", "never awaited", "was destroyed", "in callback")), text
    assert text.count("Traceback") == text.count("OutcomeUnknown:"), text[-4000:]
