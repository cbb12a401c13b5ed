"""A file that is locked, full, or cannot be written.

Runs in progress end with RUN_ERROR, and new ones are refused with 503. Viewers on another worker receive the end when
it can be stored. In the end the log has the events that the viewers received. When the cause is gone, the server works
as before.
"""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults.kit import PATIENCE, Viewer, Worker, act, events_of, report, scaled, terminal, within_deadline, workers
from serving import check_valid
from waiting import wait_until, wait_until_async

pytestmark = pytest.mark.anyio


RUNS = 4
MIB = 1024 * 1024


class Lock:
    """Another process that keeps the file locked for longer than any timeout."""

    def __init__(self, worker: Worker) -> None:
        path = worker.folder / "threads.db"
        self._db = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE, check_same_thread=False)

    def begin(self) -> None:
        self._db.execute("BEGIN EXCLUSIVE")

    def end(self) -> None:
        self._db.execute("ROLLBACK")
        self._db.close()


class NoRoom:
    """The operating system refuses every write beyond the first page of a file."""

    def __init__(self, worker: Worker) -> None:
        self._pid = worker.process.pid
        self._before = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)

    def begin(self) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (4096, self._before[1]))

    def end(self) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._before)


def assert_refused(worker: Worker, thread_id: str) -> None:
    answer = worker.post("/", json=act("talk", thread_id, count=1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert answer.headers["retry-after"] == "1"
    assert worker.get("/readyz").status_code == 503


def assert_works(worker: Worker, thread_id: str, run_id: str = "afterwards") -> None:
    with worker.stream("POST", "/", json=act("talk", thread_id, run_id, count=3)) as stream:
        assert stream.status == 200, stream.response.read()
        assert stream.rest()[-1]["outcome"] == {"type": "success"}
    assert worker.get("/readyz").status_code == 200


def check_log_of_viewer(worker: Worker, viewer: Viewer) -> int:
    """Check that the log continues after the viewer's last event, with its RUN_ERROR; return the length of the log."""
    wait_until(lambda: worker.status_of(viewer.thread_id, "run") == "error", PATIENCE)
    log = worker.frames(viewer.thread_id)
    assert viewer.last_words is not None
    told = [data for _, data in viewer.frames if b'"RUN_ERROR"' in data] + viewer.last_words
    numbered = [frame for frame in viewer.frames if b'"RUN_ERROR"' not in frame[1]]
    assert log[: len(numbered)] == numbered
    events = events_of(log)
    check_valid(events)
    assert [end["code"] for end in terminal(events)] == ["store_unavailable"]
    assert told == [log[-1][1]]
    return len(log)


async def run_through_outage(
    worker: Worker, other: Worker, outage: Any, number: int, during: Callable[[], None]
) -> list[Viewer]:
    """Start runs with a viewer each, and an outage in the middle that lasts until all viewers have received an end."""
    viewers = [Viewer(f"thread-{number}-{index}") for index in range(RUNS)]
    tasks: list[asyncio.Task[Any]] = []
    for index, viewer in enumerate(viewers):
        viewer.last_words = []
        body = act("talk", viewer.thread_id, count=1_000_000, pause=index * 0.002)
        tasks.append(asyncio.create_task(viewer.post(worker.port, body)))
    await wait_until_async(lambda: all(viewer.last > 5 for viewer in viewers))
    elsewhere = [Viewer(viewer.thread_id) for viewer in viewers]
    following = [asyncio.create_task(viewer.follow(other.port)) for viewer in elsewhere]
    await wait_until_async(lambda: all(viewer.last > 5 for viewer in elsewhere))
    await asyncio.to_thread(outage.begin)
    await asyncio.to_thread(during)
    answers = await asyncio.gather(*tasks)
    assert all(answer.is_complete for answer in answers)
    assert not any(task.done() for task in following)
    outage.end()
    await asyncio.gather(*following)
    for viewer in elsewhere:
        assert viewer.frames == await asyncio.to_thread(other.frames, viewer.thread_id)
    return viewers


@pytest.mark.parametrize("outage", [Lock, NoRoom], ids=["locked", "unwritable"])
async def test_a_file_that_cannot_be_written_ends_the_runs_and_not_the_server(tmp_path: Path, outage: Any) -> None:
    rounds = scaled(1, 6)
    counts: Counter[str] = Counter()
    with workers(tmp_path, 2, store={"busy_seconds": 0.3}) as (worker, other):
        assert_works(worker, "before")
        for number in range(rounds):
            broken = outage(worker)
            viewers = await within_deadline(
                run_through_outage(worker, other, broken, number, partial(assert_refused, worker, f"refused-{number}"))
            )
            for viewer in viewers:
                counts["events"] += check_log_of_viewer(worker, viewer)
                counts["ended"] += 1
                assert_works(worker, viewer.thread_id)
            assert_works(worker, f"refused-{number}", "run")
            counts["outages"] += 1
    report("outages of the store", kind=outage.__name__, **counts)
    assert (counts["outages"], counts["ended"]) == (rounds, rounds * RUNS)
    assert counts["events"] > counts["ended"] * 5


async def test_a_full_disk_ends_the_run_and_not_the_server(tmp_path: Path) -> None:
    rounds = scaled(1, 5)
    counts: Counter[str] = Counter()
    with workers(tmp_path, store={"max_bytes": 4 * MIB}) as (worker,):
        for number in range(rounds):
            old, full = f"old-{number}", f"full-{number}"
            # 1.2 MB in the log, and again in the projection of the run.
            with worker.stream("POST", "/", json=act("talk", old, count=120, size=10_000)) as stream:
                assert stream.rest()[-1]["outcome"] == {"type": "success"}

            async def fill(thread_id: str) -> Viewer:
                viewer = Viewer(thread_id)
                viewer.last_words = []
                await viewer.post(worker.port, act("talk", thread_id, count=1_000_000, size=10_000))
                return viewer

            viewer = await within_deadline(fill(full))
            counts["stored"] += viewer.last
            # What is there can still be read, and room can be made.
            assert worker.frames(old)[-1][1].startswith(b'{"type":"RUN_FINISHED"')
            assert worker.delete(f"/threads/{old}").status_code == 204
            check_log_of_viewer(worker, viewer)
            assert_works(worker, full)
            assert worker.delete(f"/threads/{full}").status_code == 204
            assert_works(worker, f"next-{number}")
            counts["filled"] += 1
        assert (tmp_path / "threads.db").stat().st_size <= 4 * MIB
    report("full disks", **counts)
    assert counts["filled"] == rounds
    assert counts["stored"] > 50 * rounds
