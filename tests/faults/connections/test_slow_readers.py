"""Readers that are slow, that stop, and that are many."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from faults.kit import (
    PATIENCE,
    Valve,
    Viewer,
    Worker,
    act,
    events_of,
    open_files,
    report,
    scaled,
    within_deadline,
    workers,
)
from serving import check_valid
from waiting import wait_until, wait_until_async

pytestmark = pytest.mark.anyio


MIB = 1024 * 1024
EVENT = 16_000


def big(thread_id: str, mebibytes: int, **props: object) -> dict[str, object]:
    return act("talk", thread_id, count=mebibytes * MIB // EVENT, size=EVENT, **props)


async def test_slow_and_stopped_readers_neither_stall_a_run_nor_cost_memory(tmp_path: Path) -> None:
    size, stopped_readers = scaled(20, 64), 6
    with workers(tmp_path, app={"heartbeat": 0.05}) as (worker,):

        async def test() -> tuple[int, int, int]:
            warm = Viewer("warm")
            await warm.post(worker.port, big("warm", 8))
            assert warm.is_done
            base = peak = worker.memory()
            valve = Valve(tmp_path, "valve")
            fast, slow = Viewer("thread"), Viewer("thread")
            stopped = [Viewer("thread") for _ in range(stopped_readers)]
            progress, released = asyncio.Condition(), asyncio.Event()
            reads = 0

            async def stop() -> None:
                if all(viewer.frames for viewer in [*stopped, slow]):
                    valve.open()  # all are there: now the agent may run away from them
                await released.wait() if fast.frames and valve_is_open() else None

            def valve_is_open() -> bool:
                return (tmp_path / valve.name).stat().st_size > 1

            async def trickle() -> None:
                """Read 1 KiB for every 64 events of the fast reader."""
                nonlocal reads
                reads += 1
                seen = fast.last
                async with progress:
                    await progress.wait_for(lambda: fast.last >= seen + 64 or fast.is_done or not valve_is_open())

            async def follow_fast() -> None:
                nonlocal peak
                while not fast.is_done:
                    await fast.follow(worker.port, cut_events=64)
                    peak = max(peak, worker.memory())
                    async with progress:
                        progress.notify_all()

            for viewer in stopped:
                viewer.before_read = stop
            slow.before_read, slow.most = trickle, 1024
            first = stopped[0]
            lagging = [asyncio.create_task(first.post(worker.port, big("thread", size, valve=valve.name)))]
            valve.open_to(1)
            await wait_until_async(lambda: first.frames)
            lagging += [asyncio.create_task(viewer.follow(worker.port)) for viewer in [*stopped[1:], slow]]
            await follow_fast()
            assert not any(task.done() for task in lagging)
            assert all(len(viewer.frames) < len(fast.frames) / 2 for viewer in [*stopped, slow])
            behind = len(fast.frames) - max(len(viewer.frames) for viewer in [*stopped, slow])
            peak = max(peak, worker.memory())
            slow.most = 65536
            released.set()
            await asyncio.gather(*lagging)
            for viewer in [*stopped, slow]:
                assert viewer.frames == fast.frames
            assert len(fast.frames) == size * MIB // EVENT + 4
            return base, peak, behind

        base, peak, behind = await within_deadline(test())
        check_valid(events_of(worker.frames("thread")))
    report(
        "slow readers",
        run_mib=size,
        stopped=stopped_readers,
        slow=1,
        behind=behind,
        memory_before_mib=base // MIB,
        memory_at_most_mib=peak // MIB,
    )
    assert peak - base < 64 * MIB  # each holds one read of the log; all they have missed would be seven times the run


async def test_many_open_streams_on_one_process_all_get_everything(tmp_path: Path) -> None:
    runs, each = scaled(20, 50), 10
    count = runs * each
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    valve = Valve(tmp_path, "valve")
    with workers(tmp_path) as (worker,):

        async def test() -> tuple[int, int]:
            before = worker.memory()
            viewers = [Viewer(f"thread-{index % runs}") for index in range(count)]
            all_there = asyncio.Event()

            def seen() -> None:
                if all(viewer.frames for viewer in viewers):
                    all_there.set()

            for viewer in viewers:
                viewer.on_event = seen
            posts = [
                asyncio.create_task(viewer.post(worker.port, act("recorded", viewer.thread_id, valve=valve.name)))
                for viewer in viewers[:runs]
            ]
            await wait_until_async(lambda: all(viewer.frames for viewer in viewers[:runs]))
            follows = [asyncio.create_task(viewer.follow(worker.port)) for viewer in viewers[runs:]]
            await all_there.wait()
            open_at_once = sum(not task.done() for task in [*posts, *follows])
            memory = worker.memory() - before
            assert await asyncio.to_thread(lambda: worker.get("/healthz").status_code) == 200
            valve.open()
            await asyncio.gather(*posts, *follows)
            for viewer in viewers:
                assert viewer.is_done
                assert viewer.frames == viewers[int(viewer.thread_id[7:])].frames
            for viewer in viewers[:runs]:
                check_valid(events_of(viewer.frames))
            return open_at_once, memory

        open_at_once, memory = await within_deadline(test())
        # It is all over, and the server is as before.
        wait_until(lambda: _idle(worker), PATIENCE)
        assert worker.frames("thread-0")[-1][1].startswith(b'{"type":"RUN_FINISHED"')
    report("open streams", runs=runs, streams=open_at_once, kib_per_stream=memory // 1024 // count)
    assert open_at_once == count == scaled(200, 500)


def _idle(worker: Worker) -> bool:
    """Return whether the server holds no connections but the few that its peers keep."""
    return sum(file.startswith("socket:") for file in open_files(worker.process.pid)) < 20
