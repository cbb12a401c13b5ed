"""Several requests for one thing at the same time, on one worker and on two: it happens once."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from faults.kit import Effects, Valve, Viewer, Worker, act, events_of, report, scaled, within_deadline, workers
from serving import check_valid, text_of, types

pytestmark = pytest.mark.anyio


def answer_to(events: list[dict[str, Any]], payload: Any) -> list[dict[str, Any]]:
    interrupts = events[-1]["outcome"]["interrupts"]
    return [{"interruptId": one["id"], "status": "resolved", "payload": payload} for one in interrupts]


@pytest.mark.parametrize("count", [1, 2], ids=["on one worker", "on two workers"])
async def test_of_racing_answers_one_is_used_by_one_run_and_others_are_refused(tmp_path: Path, count: int) -> None:
    """An equal answer attaches to the run that uses it. A different answer is refused."""
    rounds, attached = scaled(5, 60), 0
    refusals: Counter[str] = Counter()
    with workers(tmp_path, count) as found:
        answered = Effects(tmp_path, "answered")

        async def race(number: int) -> None:
            nonlocal attached
            thread_id = f"thread-{number}"
            first = Viewer(thread_id)
            valve = Valve(tmp_path, f"valve-{number}")
            valve.open_to(2)
            await first.post(found[0].port, act("ask", thread_id, "asked", valve=valve.name))
            payloads = [{"ok": "yes"}, {"ok": "yes"}, {"ok": "no"}]
            settled: set[int] = set()

            def settle(index: int) -> None:
                settled.add(index)
                if len(settled) == len(payloads):
                    valve.open()  # the run goes on until all have seen it or were refused

            async def resumed(index: int) -> tuple[int, Viewer, bytes]:
                viewer = Viewer(thread_id, after=first.last)
                resume = answer_to(events_of(first.frames), payloads[index])
                viewer.on_event = lambda: settle(index)
                body = act("ask", thread_id, f"resumed-{index}", resume=resume, valve=valve.name)
                answer = await viewer.post(found[(index + number) % count].port, body)
                settle(index)
                return answer.status, viewer, bytes(answer.body)

            answers = await asyncio.gather(*map(resumed, range(len(payloads))))
            ((_, run_id, used),) = [line.split(" ", 2) for line in answered.lines() if line.startswith(f"{thread_id} ")]
            log = await asyncio.to_thread(found[-1].frames, thread_id)
            assert types(events_of(log)).count("RUN_STARTED") == 2
            events = events_of(log[first.last :])
            check_valid(events)
            assert events[0]["runId"] == run_id
            assert (text_of(events), events[-1]["outcome"]) == ("after", {"type": "success"})
            seen = 0
            for index, (status, viewer, body) in enumerate(answers):
                if json.dumps(payloads[index]) == used:
                    assert status == 200, body
                    theirs = [{**event, "runId": f"resumed-{index}"} if "runId" in event else event for event in events]
                    assert events_of(viewer.frames) == theirs  # each knows the run by the id that it sent
                    seen += 1
                else:
                    assert status == 409
                    refusals[json.loads(body)["error"]["code"]] += 1
            attached += seen - 1

        async def test() -> None:
            for number in range(rounds):
                await race(number)

        await within_deadline(test())
        assert Effects(tmp_path, "paid").lines() == Effects(tmp_path, "sent").lines()
        assert len(Effects(tmp_path, "paid").lines()) == rounds
    report("racing answers", workers=count, rounds=rounds, attached=attached, **refusals)
    assert refusals.total() + attached == rounds * 2
    assert refusals.total() >= rounds
    assert refusals.keys() <= {"interrupt_taken", "interrupt_stale", "thread_busy"}


@pytest.mark.parametrize("count", [1, 2], ids=["on one worker", "on two workers"])
async def test_a_run_id_posted_several_times_at_once_runs_once_and_all_see_it(tmp_path: Path, count: int) -> None:
    rounds, racers = scaled(5, 60), 4
    streams = 0
    with workers(tmp_path, count) as found:

        async def race(number: int) -> None:
            nonlocal streams
            thread_id = f"thread-{number}"
            valve = Valve(tmp_path, f"valve-{number}")
            viewers = [Viewer(thread_id) for _ in range(racers)]

            def seen() -> None:
                if all(viewer.frames for viewer in viewers):
                    valve.open()

            async def view(index: int) -> None:
                viewers[index].on_event = seen
                body = act("counted", thread_id, valve=valve.name)
                answer = await viewers[index].post(found[index % count].port, body)
                assert (answer.status, answer.is_complete) == (200, True), answer.body

            await asyncio.gather(*map(view, range(racers)))
            log = await asyncio.to_thread(found[-1].frames, thread_id)
            check_valid(events_of(log))
            assert text_of(events_of(log)) == "beforeafter"
            for viewer in viewers:
                assert viewer.frames == log
                streams += 1

        async def test() -> None:
            for number in range(rounds):
                await race(number)

        await within_deadline(test())
        calls = Effects(tmp_path, "calls").lines()
    report("run ids posted at once", workers=count, rounds=rounds, streams=streams, calls=len(calls))
    assert calls == [f"thread-{number} run" for number in range(rounds)]
    assert streams == rounds * racers


async def test_cancelling_from_the_other_worker_ends_the_run_with_everything_closed(tmp_path: Path) -> None:
    rounds = scaled(8, 60)
    took: list[float] = []
    # With this lease no heartbeat comes before the deadline: the owner has to be woken by the request.
    with workers(tmp_path, 2, app={"timing": {"lease": 3600}}) as both:

        async def cancel(number: int, owner: Worker, other: Worker) -> None:
            thread_id = f"thread-{number}"
            mine, theirs = Viewer(thread_id), Viewer(thread_id)
            opened = asyncio.Event()

            def seen() -> None:
                if b'"delta":"open"' in mine.frames[-1][1]:
                    opened.set()
                if mine.is_done:
                    took.append(time.perf_counter() - asked_at)

            mine.on_event = seen
            running = asyncio.create_task(mine.post(owner.port, act("everything_open", thread_id)))
            await opened.wait()
            watching = asyncio.create_task(theirs.follow(other.port))
            asked_at = time.perf_counter()
            status = await post(other.port, f"/threads/{thread_id}/runs/run/cancel")
            assert status == 202
            await asyncio.gather(running, watching)
            events = events_of(mine.frames)
            assert mine.frames == theirs.frames
            check_valid(events)
            assert events[-1]["outcome"] == {"type": "cancelled"}
            counted = Counter(types(events))
            for kind in ("STEP", "TEXT_MESSAGE", "TOOL_CALL", "REASONING_MESSAGE"):
                starts, ends = ("STEP_STARTED", "STEP_FINISHED") if kind == "STEP" else (f"{kind}_START", f"{kind}_END")
                assert counted[starts] == counted[ends] > 0, kind
            assert await post(other.port, f"/threads/{thread_id}/runs/run/cancel") == 200  # it is over

        async def test() -> None:
            for number in range(rounds):
                await cancel(number, both[number % 2], both[(number + 1) % 2])

        await within_deadline(test())
    milliseconds = sorted(1000 * seconds for seconds in took)
    report(
        "cancelled from the other worker",
        runs=rounds,
        median_ms=round(statistics.median(milliseconds), 1),
        worst_ms=round(milliseconds[-1], 1),
    )
    assert len(took) == rounds


async def post(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
    status = int((await reader.read()).split()[1])
    writer.close()
    await writer.wait_closed()
    return status
