"""``aguila runs`` and ``aguila scopes usage``: runs are listed and ended from another process, and usage is counted."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from faults.kit import act, workers
from serving import check_valid
from stores.demo_store import Demo, aguila
from waiting import wait_until

from aguila.cli.runs import parse_duration
from aguila.store import NewRun, Store
from aguila.store.locations import make_store

RUNNING = [("t1", "shared", "ana"), ("t2", "shared", "bob"), ("t3", "own", "bob")]
"""Thread, run and scope of the runs that ``location`` begins."""


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with three runs in progress, whose owner is this process, and a file."""
    if request.param == "sqlite":
        place = str(tmp_path / "store.db")
    else:
        url, schema = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_schema")
        place = f"{url}{'&' if '?' in url else '?'}aguila_schema={schema}"

    async def begin() -> None:
        async with make_store(place) as store:
            for thread_id, run_id, scope in RUNNING:
                await store.begin(new_run(thread_id, run_id, scope))
            await store.put_file("bob", b"12345", media_type="text/plain")

    asyncio.run(begin())
    return place


def new_run(thread_id: str, run_id: str, scope: str) -> NewRun:
    return NewRun(
        scope=scope,
        thread_id=thread_id,
        run_id=run_id,
        owner="server",
        lease_seconds=30.0,
        request=b"{}",
        events=[b'{"type":"RUN_STARTED"}', b'{"type":"CUSTOM"}'],
    )


def cancel_requests(location: str) -> list[tuple[str, str | None]]:
    async def read() -> list[tuple[str, str | None]]:
        store: Store
        async with make_store(location) as store:
            return [(run.thread_id, run.cancel) for run in await store.open_runs()]

    return asyncio.run(read())


def listed(*arguments: object) -> list[dict[str, Any]]:
    done = aguila(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_runs_in_progress_are_listed_oldest_first(location: str) -> None:
    found = listed("runs", "list", "--running", "--store", location)
    assert [(one["thread_id"], one["run_id"], one["scope"]) for one in found] == RUNNING
    assert {(one["status"], one["first"], one["last"], one["ended_at"]) for one in found} == {("running", 1, 2, None)}
    found = listed("runs", "list", "--running", "--scope", "bob", "--store", location)
    assert [one["thread_id"] for one in found] == ["t2", "t3"]
    assert listed("runs", "list", "--running", "--older-than", "1h", "--store", location) == []
    assert len(listed("runs", "list", "--running", "--older-than", "0s", "--store", location)) == 3
    line = aguila("runs", "list", "--running", "--scope", "ana", "--store", location).stdout
    assert re.search(r"  shared  running  \d+ s  2 events  thread t1  scope 'ana'\n\Z", line)


def test_a_run_is_cancelled_by_its_id_and_one_of_several_by_its_thread(location: str) -> None:
    done = aguila("runs", "cancel", "own", "shared", "--store", location)
    assert (done.exit_code, done.stderr) == (
        2,
        "aguila runs cancel: run 'shared' is in progress on the threads 't1' (scope 'ana'), 't2' (scope 'bob'); "
        "name one with --thread and --scope\n",
    )
    assert cancel_requests(location) == [("t1", None), ("t2", None), ("t3", None)]
    done = aguila("runs", "cancel", "own", "shared", "--scope", "bob", "--store", location)
    assert (done.exit_code, "asked for the end of 2 runs" in done.stderr) == (0, True), done.output
    assert cancel_requests(location) == [("t1", None), ("t2", "always"), ("t3", "always")]
    assert [one["status"] for one in listed("runs", "list", "--running", "--store", location)] == [
        "running",
        "cancelling",
        "cancelling",
    ]
    assert aguila("runs", "cancel", "shared", "--thread", "t1", "--store", location).exit_code == 0
    done = aguila("runs", "cancel", "unknown", "--store", location)
    assert (done.exit_code, "no run 'unknown' is in progress" in done.stderr) == (2, True)


def test_usage_counts_what_each_scope_holds_the_largest_first(location: str) -> None:
    found = listed("scopes", "usage", "--store", location)
    assert [(one["scope"], one["threads"], one["runs"], one["events"], one["files"]) for one in found] == [
        ("bob", 2, 2, 4, 1),
        ("ana", 1, 1, 2, 0),
    ]
    assert found[0]["bytes"] > found[1]["bytes"] > 0
    assert [one["scope"] for one in listed("scopes", "usage", "--scope", "ana", "--store", location)] == ["ana"]
    table = aguila("scopes", "usage", "--store", location).stdout.splitlines()
    assert table[0].split() == ["threads", "runs", "events", "bytes", "files", "scope"]
    assert table[1].split() == ["2", "2", "4", f"{found[0]['bytes']:,}", "1", "'bob'"]


def test_without_running_the_runs_of_each_thread_are_listed(demo: Demo) -> None:
    source, expected, _ = demo
    found = listed("runs", "list", "--store", source)
    runs = [run for path, one in expected.items() if path.count("/") == 2 and "runs" in one for run in one["runs"]]
    assert len(found) > len(expected["/threads"])
    assert {(one["run_id"], one["status"]) for one in found} >= {(run["runId"], run["status"]) for run in runs}
    assert listed("runs", "list", "--running", "--store", source) == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("2d", 172_800), ("0", 0)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1w", "h", "-1h", "1 h", "nan", "1e3"])
def test_what_is_no_duration_is_refused(text: str, tmp_path: Path) -> None:
    done = aguila("runs", "list", "--older-than", text, "--store", tmp_path / "none.db")
    assert (done.exit_code, f"--older-than is {text!r}; use a number" in done.stderr) == (2, True), done.output


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_of_a_server_is_cancelled_from_the_command_line(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options: dict[str, Any] = {}
    place = str(tmp_path / "threads.db")
    if kind == "postgres":
        dsn, schema = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_schema")
        options["postgres"] = {"dsn": dsn, "schema": schema}
        place = f"{dsn}{'&' if '?' in dsn else '?'}aguila_schema={schema}"
    with ExitStack() as stack:
        (worker,) = stack.enter_context(workers(tmp_path, **options))
        streams = []
        for number in range(2):
            stream = stack.enter_context(worker.run(**act("everything_open", f"t{number}", f"r{number}")))
            stream.read_until("TEXT_MESSAGE_CONTENT")
            streams.append(stream)
        found = listed("runs", "list", "--running", "--store", place)
        assert [(one["run_id"], one["status"]) for one in found] == [("r0", "running"), ("r1", "running")]
        done = aguila("runs", "cancel", "r1", "--store", place)
        assert done.exit_code == 0, done.output
        events = streams[1].rest()
        assert events[-1]["outcome"]["type"] == "cancelled", events[-1]
        wait_until(lambda: len(listed("runs", "list", "--running", "--store", place)) == 1)
        assert worker.status_of("t0", "r0") == "running"
        assert worker.status_of("t1", "r1") == "cancelled"
        check_valid([json.loads(data) for _, data in worker.frames("t1")])
