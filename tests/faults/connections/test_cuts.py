"""Connections that are cut: after every event, at every byte, during the run and after its end.

Two workers share one file; a viewer that is cut on one reconnects to the other. In the end every viewer has the events
of the uncut run: none lost, none twice, each at its sequence number.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from faults.kit import Frames, Valve, Viewer, Worker, act, events_of, report, scaled, within_deadline, workers
from serving import check_valid, types

pytestmark = pytest.mark.anyio


VIEWERS = 6


def uncut(worker: Worker, turns: int, thread_id: str = "thread") -> Frames:
    """Return a run and its log."""
    with worker.stream("POST", "/", json=act("recorded", thread_id, turns=turns)) as stream:
        sent = [(number, data) for number, data in stream.frames() if number is not None]
    assert sent == worker.frames(thread_id)
    check_valid(events_of(sent))
    return sent


def joined(viewer: Viewer) -> list[dict[str, Any]]:
    """Return the events of a run with all deltas merged, and without the ids that differ between runs."""
    found: list[dict[str, Any]] = []
    for event in events_of(viewer.frames):
        event.pop("threadId", None)
        if event["type"] in ("REASONING_START", "REASONING_END"):
            del event["messageId"]
        last = found[-1] if found else {}
        if isinstance(event.get("delta"), str) and {**event, "delta": last.get("delta")} == last:
            last["delta"] += event["delta"]
        else:
            found.append(event)
    return found


async def response_size(port: int) -> int:
    viewer = Viewer("thread")
    answer = await viewer.follow(port)
    assert answer.is_complete
    return viewer.received


async def share(jobs: list[int], work: object) -> None:
    """Give every job to one of several viewers at once."""

    async def one(first: int) -> None:
        for job in jobs[first::VIEWERS]:
            await work(job)  # type: ignore[operator]

    await asyncio.gather(*map(one, range(VIEWERS)))


async def test_a_finished_run_cut_after_every_event_is_resumed_on_the_other_worker(tmp_path: Path) -> None:
    with workers(tmp_path, 2) as both:
        whole = uncut(both[0], turns=2)
        ports = [worker.port for worker in both]
        cuts = 0

        async def cut_once(at: int) -> None:
            nonlocal cuts
            viewer = Viewer("thread")
            await viewer.follow(ports[at % 2], cut_events=at)
            assert viewer.frames == whole[:at]
            await viewer.follow_to_the_end(ports[(at + 1) % 2])
            assert viewer.frames == whole
            cuts += viewer.cuts

        async def cut_always(offset: int) -> None:
            nonlocal cuts
            viewer = Viewer("thread")
            while not viewer.is_done:
                await viewer.follow(ports[(viewer.connections + offset) % 2], cut_events=1)
            assert viewer.frames == whole
            assert viewer.connections == len(whole)
            assert viewer.cuts == len(whole)
            cuts += viewer.cuts

        async def test() -> None:
            await share(list(range(1, len(whole))), cut_once)
            await share(list(range(VIEWERS)), cut_always)

        await within_deadline(test())
        report("finished run, cut after every event", events=len(whole), cuts=cuts)
        assert cuts == len(whole) - 1 + VIEWERS * len(whole)


async def test_a_finished_run_cut_at_every_byte_is_resumed_on_the_other_worker(tmp_path: Path) -> None:
    with workers(tmp_path, 2) as both:
        whole = uncut(both[0], turns=scaled(1, 2))
        ports = [worker.port for worker in both]
        size = await within_deadline(response_size(ports[0]))
        places = list(range(0, size, scaled(13, 1)))
        cuts = 0

        async def cut(at: int) -> None:
            nonlocal cuts
            viewer = Viewer("thread")
            await viewer.follow(ports[at % 2], cut_bytes=at)
            assert viewer.received == at
            assert viewer.frames == whole[: len(viewer.frames)]
            assert viewer.cuts == 1
            await viewer.follow_to_the_end(ports[(at + 1) % 2])
            assert viewer.frames == whole
            cuts += 1

        await within_deadline(share(places, cut))
        report("finished run, cut at every byte", events=len(whole), bytes=size, cuts=cuts)
        assert cuts == len(places) >= scaled(150, size)


@pytest.mark.parametrize("lead", [min, max], ids=["nobody lags", "most lag"])
async def test_a_run_that_is_on_cut_after_every_event_and_anywhere_within(tmp_path: Path, lead: object) -> None:
    """The agent continues when the slowest, or the fastest, viewer has received its output."""
    rounds = scaled(2, 25)
    totals = {"connections": 0, "cuts": 0, "events": 0}
    with workers(tmp_path, 2, app={"heartbeat": 0.002}) as both:  # comments between the events as well
        ports = [worker.port for worker in both]

        async def one_round(number: int) -> None:
            thread_id = f"thread-{number}"
            rng = random.Random(number)
            valve = Valve(tmp_path, f"valve-{number}")
            viewers = [Viewer(thread_id) for _ in range(VIEWERS)]
            began = asyncio.Event()

            def step() -> None:
                began.set()
                valve.open_to(lead([viewer.last for viewer in viewers]))  # type: ignore[operator]

            async def view(index: int) -> None:
                viewer = viewers[index]
                viewer.on_event = step
                if index == 0:
                    body = act("recorded", thread_id, valve=valve.name)
                    await viewer.post(ports[number % 2], body, cut_events=1)
                await began.wait()
                while not viewer.is_done:
                    port = ports[(viewer.connections + index) % 2]
                    if index < 3:
                        await viewer.follow(port, cut_events=1)
                    else:
                        await viewer.follow(port, cut_bytes=rng.randrange(1200))

            await asyncio.gather(*map(view, range(VIEWERS)))
            whole = both[0].frames(thread_id)
            assert both[1].frames(thread_id) == whole
            for viewer in viewers:
                assert viewer.frames == whole
                totals["connections"] += viewer.connections
                totals["cuts"] += viewer.cuts
            for viewer in viewers[:3]:
                assert viewer.connections == len(whole)
            check_valid(events_of(whole))
            totals["events"] += len(whole)

        async def test() -> None:
            for number in range(rounds):
                await one_round(number)

        await within_deadline(test())
    report("run that is on, cut after every event and anywhere", rounds=rounds, viewers=VIEWERS, **totals)
    assert totals["cuts"] > 3 * totals["events"] > 0


async def test_the_stream_of_a_posted_run_cut_after_each_of_its_events(tmp_path: Path) -> None:
    """A disconnect does not stop a run. Each cut has a run of its own, and all have the same events."""
    with workers(tmp_path, 2, app={"sends": {"merge_deltas": False}}) as both:  # so that all runs have the same events
        ports = [worker.port for worker in both]
        whole = uncut(both[0], turns=1, thread_id="thread-x")
        places = list(range(1, len(whole)))[:: scaled(3, 1)]
        cuts = 0

        async def cut(at: int) -> None:
            nonlocal cuts
            thread_id = f"thread-{at}"
            valve = Valve(tmp_path, f"valve-{at}")
            viewer = Viewer(thread_id)
            viewer.on_event = lambda: valve.open_to(viewer.last)
            await viewer.post(ports[at % 2], act("recorded", thread_id, valve=valve.name), cut_events=at)
            assert (viewer.cuts, viewer.last) == (1, at)
            valve.open()
            await viewer.follow_to_the_end(ports[(at + 1) % 2])
            assert types(events_of(viewer.frames)) == types(events_of(whole))
            assert viewer.frames == await asyncio.to_thread(both[0].frames, thread_id)
            cuts += viewer.cuts

        await within_deadline(share(places, cut))
        report("posted run, cut after every event", events=len(whole), runs=len(places), cuts=cuts)
        assert cuts == len(places) >= scaled(10, len(whole) - 1)


async def test_the_stream_of_a_posted_run_cut_at_each_of_its_bytes(tmp_path: Path) -> None:
    """A viewer without events posts again: the run may have begun or not, and runs once in either case."""
    with workers(tmp_path, 2) as both:
        ports = [worker.port for worker in both]
        size, said = 0, []

        async def whole() -> None:
            nonlocal size, said
            viewer = Viewer("thread-x")
            await viewer.post(ports[0], act("recorded", "thread-x"))
            assert viewer.is_done
            size, said = viewer.received, joined(viewer)

        await within_deadline(whole())
        places = list(range(0, size, scaled(41, 1)))
        cuts = posts = 0

        async def cut(at: int) -> None:
            nonlocal cuts, posts
            thread_id = f"thread-{at}"
            body = act("recorded", thread_id)
            viewer = Viewer(thread_id)
            await viewer.post(ports[at % 2], body, cut_bytes=at)
            cuts += viewer.cuts
            posts += 1
            while not viewer.is_done:
                answer = await viewer.follow(ports[(at + 1) % 2])
                if answer.status == 404:
                    assert not viewer.frames
                    await viewer.post(ports[at % 2], body, cut_bytes=1)  # the first byte says that it has begun
                    posts += 1
            assert viewer.frames == await asyncio.to_thread(both[0].frames, thread_id)
            assert joined(viewer) == said

        await within_deadline(share(places, cut))
        report("posted run, cut at every byte", bytes=size, runs=len(places), cuts=cuts, posts=posts)
        assert len(places) >= scaled(50, size)
        assert cuts >= 0.6 * len(places)  # the next run is shorter if more of its deltas are merged
