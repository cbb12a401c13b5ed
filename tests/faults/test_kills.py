"""``kill -9`` of the server in the middle of runs, and an owner that sleeps through its lease.

Whatever a viewer has received is in the log afterwards, at the same place; each run that was interrupted ends with one
RUN_ERROR; its thread goes on.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest
from faults.kit import (
    PATIENCE,
    Effects,
    Viewer,
    Worker,
    act,
    events_of,
    report,
    scaled,
    terminal,
    within_deadline,
    workers,
)
from serving import check_valid
from waiting import wait_until

pytestmark = pytest.mark.anyio


LEASE = {"timing": {"lease": 0.5}}
RUNS = 4
ENDLESS = 1_000_000


async def watched(view: list[asyncio.Task[None]], viewers: list[Viewer], total: int, each: int = 0) -> None:
    """Return when the viewers have so many events in all, and each of them so many."""
    async with asyncio.timeout(PATIENCE):
        while sum(viewer.last for viewer in viewers) < total or any(viewer.last < each for viewer in viewers):
            assert not all(task.done() for task in view), [task.exception() for task in view]
            await asyncio.sleep(0)


async def life(number: int, owner: Worker, survivor: Worker | None) -> list[Viewer]:
    """Begin some runs, watch them, and kill the owner at some point; return the viewers."""
    rng = random.Random(number)
    viewers: list[Viewer] = []
    tasks: list[asyncio.Task[None]] = []

    async def start(viewer: Viewer, begun: asyncio.Event, **props: object) -> None:
        viewer.on_event = begun.set
        await viewer.post(owner.port, act("talk", viewer.thread_id, **props), survives=True)

    async def follow(viewer: Viewer, begun: asyncio.Event, port: int) -> None:
        await begun.wait()
        await viewer.follow(port, survives=True)

    for index in range(RUNS):
        thread_id = f"life-{number}-{index}"
        begun = asyncio.Event()
        count = rng.choice([5, ENDLESS, ENDLESS, ENDLESS])
        pause = rng.choice([0, 0.0002, 0.002, 0.01])
        size = rng.choice([1, 20, 3000])
        first, second = Viewer(thread_id), Viewer(thread_id)
        viewers += [first, second]
        tasks.append(asyncio.create_task(start(first, begun, count=count, pause=pause, size=size)))
        tasks.append(asyncio.create_task(follow(second, begun, (survivor or owner).port)))
    await watched(tasks, viewers, rng.choice([0, 1, 3, 10, 30, 100, 300, 500, 2000]))
    await asyncio.to_thread(owner.kill)
    if survivor is None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    else:
        # Viewers on the survivor receive the end in the same stream.
        for viewer, task in zip(viewers, tasks, strict=True):
            if viewer.frames and task in tasks[1::2]:
                await task
                assert viewer.is_done
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return viewers


async def settle(worker: Worker, viewers: list[Viewer], counts: Counter[str]) -> None:
    """After the restart, compare the events of the viewers with the log, and use the threads again."""
    for thread_id in {viewer.thread_id: None for viewer in viewers}:
        seen = [viewer for viewer in viewers if viewer.thread_id == thread_id]
        counts["runs"] += 1
        counts["seen"] += sum(len(viewer.frames) for viewer in seen)
        if worker.get(f"/threads/{thread_id}/runs/run").status_code == 404:
            assert not any(viewer.frames for viewer in seen)
            counts["never begun"] += 1
        else:
            before = [list(viewer.frames) for viewer in seen]
            for viewer in seen:
                await within_deadline(
                    viewer.follow_to_the_end(worker.port)
                )  # they reconnect, maybe before the death was noticed
            log = worker.frames(thread_id)
            for viewer, frames in zip(seen, before, strict=True):
                assert frames == log[: len(frames)]
                assert viewer.frames == log
            events = events_of(log)
            check_valid(events)
            (end,) = terminal(events)
            assert end is events[-1]
            if end["type"] == "RUN_ERROR":
                assert end["code"] == "run_lost"
                counts["interrupted"] += 1
            else:
                counts["finished"] += 1
            counts["stored"] += len(log)
        again = worker.events(**_fields(act("talk", thread_id, "again", count=3)))
        assert again[-1]["outcome"] == {"type": "success"}
        counts["used again"] += 1


def _fields(body: dict[str, object]) -> dict[str, object]:
    return {"thread_id": body["threadId"], "run_id": body["runId"], "forwardedProps": body["forwardedProps"]}


async def test_runs_whose_server_is_killed_at_any_point_end_once_and_keep_what_was_seen(tmp_path: Path) -> None:
    lives = scaled(3, 56)
    counts: Counter[str] = Counter()
    with workers(tmp_path, app=LEASE) as running:
        for number in range(lives):
            owner = running[-1]
            survivor = None
            if number % 2:  # every other time another process can notice
                survivor = Worker(tmp_path, app=LEASE)
                running.append(survivor)
            viewers = await within_deadline(life(number, owner, survivor))
            counts["kills"] += 1
            owner.close()
            if survivor is None:
                running.append(Worker(tmp_path, app=LEASE))
            await settle(running[-1], viewers, counts)
    with sqlite3.connect(tmp_path / "threads.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    report("killed servers", **counts)
    assert counts["kills"] == lives
    assert counts["runs"] == counts["used again"] == lives * RUNS
    assert counts["interrupted"] >= scaled(5, 100)
    assert counts["seen"] > lives * 10


async def test_an_owner_that_sleeps_through_its_lease_writes_nothing_after_the_run_error(tmp_path: Path) -> None:
    rounds = scaled(2, 15)
    counts: Counter[str] = Counter()
    with workers(tmp_path, 2, app=LEASE) as (one, two):
        stopped = Effects(tmp_path, "stopped")
        for number in range(rounds):
            owner, other = (one, two) if number % 2 else (two, one)
            thread_ids = [f"sleeper-{number}-{index}" for index in range(3)]

            async def sleep_through(owner: Worker, other: Worker, thread_ids: list[str]) -> list[Viewer]:
                """Watch on both workers; pause the owner until the other one has ended its runs; wake it."""
                mine, theirs = ([Viewer(thread_id) for thread_id in thread_ids] for _ in range(2))
                pauses = [0, 0.001, 0.005]
                tasks = [
                    asyncio.create_task(
                        viewer.post(owner.port, act("talk", viewer.thread_id, count=ENDLESS, pause=pause))
                    )
                    for viewer, pause in zip(mine, pauses, strict=True)
                ]
                await watched(tasks, mine, 50, each=1)  # a run that has not begun could not be followed
                tasks += [asyncio.create_task(viewer.follow(other.port)) for viewer in theirs]
                await watched(tasks, theirs, 50, each=1)
                pause_outside_of_a_write(owner, tmp_path / "threads.db")
                await asyncio.gather(*tasks[3:])
                assert [viewer.is_done for viewer in theirs] == [True] * 3, [task.result() for task in tasks[3:]]
                owner.wake()
                await asyncio.gather(*tasks)
                return [*mine, *theirs]

            viewers = await within_deadline(sleep_through(owner, other, thread_ids))
            # The agents of the sleeper were told to stop, so it has noticed; its last writes are nowhere.
            wait_until(lambda ids=thread_ids: {*ids} <= {*stopped.lines()}, PATIENCE)
            for thread_id in thread_ids:
                log = owner.frames(thread_id)
                assert log == other.frames(thread_id)
                events = events_of(log)
                check_valid(events)
                assert [end["code"] for end in terminal(events)] == ["run_lost"]
                for viewer in viewers:
                    if viewer.thread_id == thread_id:
                        assert viewer.frames == log
                again = owner.events(**_fields(act("talk", thread_id, "again", count=3)))
                assert again[-1]["outcome"] == {"type": "success"}
                assert other.frames(thread_id)[: len(log)] == log
                counts["runs"] += 1
                counts["events"] += len(log)
            counts["pauses"] += 1
    report("paused owners", **counts)
    assert (counts["pauses"], counts["runs"]) == (rounds, rounds * 3)


def pause_outside_of_a_write(owner: Worker, path: Path) -> None:
    """Pause a process. One that holds the lock of the file would stop the other ones too: that is SQLite's contract."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as lock:
        while not lock.in_transaction:  # without a pause: the owner releases the lock for moments only
            with suppress(sqlite3.OperationalError):
                lock.execute("BEGIN IMMEDIATE")
        owner.pause()
        lock.execute("ROLLBACK")
