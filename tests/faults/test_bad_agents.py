"""Agents that raise, hang, yield garbage, break the order or swallow everything, on one real server at the same time.

Each run ends with one terminal event, its stream keeps all rules for producers, no text of an exception is sent, and
the server stays healthy.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from faults.bad_agents import BAD, SECRET
from faults.kit import Worker, report, scaled, terminal, workers
from serving import check_valid, run_input


def run(worker: Worker, name: str, thread_id: str) -> list[dict[str, Any]]:
    ending = BAD[name][1]
    with worker.stream("POST", f"/{name}", json=run_input(thread_id)) as stream:
        assert stream.status == 200, stream.response.read()
        events: list[dict[str, Any]] = []
        while (event := stream.next_event()) is not None:
            events.append(event)
            if ending == "cancel" and event["type"] == "TEXT_MESSAGE_CONTENT":
                ending = ""
                assert worker.post(f"/{name}/threads/{thread_id}/runs/run/cancel").status_code == 202
        return events


def log(worker: Worker, name: str, thread_id: str) -> list[dict[str, Any]]:
    with worker.stream("GET", f"/{name}/threads/{thread_id}/events") as stream:
        return stream.rest()


def test_whatever_an_agent_does_its_run_ends_once_and_its_stream_is_valid(tmp_path: Path) -> None:
    rounds = scaled(1, 8)
    ended: Counter[str] = Counter()
    with workers(tmp_path, bad_agents=True) as (worker,):
        jobs = [(name, f"{name}-{number}") for number in range(rounds) for name in BAD]
        with ThreadPoolExecutor(8) as pool:
            streams = list(pool.map(lambda job: run(worker, *job), jobs))
        for (name, thread_id), events in zip(jobs, streams, strict=True):
            wanted = BAD[name][1]
            assert events[0]["type"] == "RUN_STARTED", name
            assert (len(terminal(events)), terminal(events)[0]) == (1, events[-1]), name
            try:
                check_valid(events)
            except Exception as error:
                raise AssertionError(f"{name}: {json.dumps(events)[:2000]}") from error
            end = events[-1]
            outcome = end["code"] if end["type"] == "RUN_ERROR" else end.get("outcome", {"type": "success"})["type"]
            assert wanted in ("any", outcome, outcome.removesuffix("led")), f"{name}: {outcome}"
            assert SECRET not in json.dumps(events), name
            ended[outcome] += 1
            # The stored events are those that were sent.
            assert log(worker, name, thread_id) == events, name
        assert worker.get("/raises_at_once/healthz").status_code == 200
        again = run(worker, "leaves_everything_open", "afterwards")
        assert again[-1]["type"] == "RUN_FINISHED"
    report("bad agents", agents=len(BAD), runs=len(jobs), **ended)
    assert sum(ended.values()) == len(jobs) >= 35 * rounds
