"""Whether each hot statement uses an index, however large the tables are."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any

import pytest
from contract.support import DEADLINE, finish, lines, start
from postgres_support import engine_of, fetch
from stores.postgres_cluster import FOLDER

from aguila.store import PostgresStore, RunEnd, RunProjection, ThreadUpdate
from aguila.store.postgres import files, inputs, projections, queries
from aguila.store.postgres.appends import POSITIONS
from aguila.store.run_inputs import hash_json

pytestmark = pytest.mark.anyio


# Statements whose plan must use an index, however large the tables are.
HOT = {
    "positions": (POSITIONS, [["a"], ["t"], ["r"], [1], ["o"]]),
    "read the log": (queries.LOG, ["a", "t", 0, None, 1024, 1 << 19]),
    "the last number": (queries.LAST, ["a", "t"]),
    "a run": (queries.RUN_BY_IDS, ["a", "t", "r"]),
    "the runs of a thread": (queries.RUNS_OF_THREAD, ["a", "t"]),
    "a thread": (queries.THREAD, ["a", "t"]),
    "a page of threads": (queries.threads_statement(None, None, None), ["a", 2**62, 50]),
    "threads that are not archived": (queries.threads_statement(None, False, None), ["a", 2**62, 50]),
    "archived threads": (queries.threads_statement(None, True, None), ["a", 2**62, 50]),
    "threads of an agent": (queries.threads_statement("x", None, None), ["a", 2**62, 50, "x"]),
    "threads with rare metadata": (queries.threads_statement(None, None, "rare"), ["a", 2**62, 50, 7]),
    "threads with common metadata": (queries.threads_statement("x", True, "common"), ["a", 2**62, 50, "x", 7]),
    "how common metadata is": (queries.COUNT_MEMBERS, [7, 256]),
    "stamps": (queries.STAMPS, [["a"], ["t"]]),
    "a cancel request": (queries.HELD_RUN, ["a", "t", "r", 1, "o"]),
    "expired runs": (queries.EXPIRED, [None]),
    "interrupts": (queries.INTERRUPTS, ["a", "t"]),
    "an interrupt": (queries.INTERRUPT_THREAD, ["a", "i"]),
    "the session": (queries.SESSION, ["a", "t"]),
    "effects": (queries.EFFECTS, ["a", "t", "r"]),
    "a request": (inputs.INPUT, ["a", "t", "r"]),
    "the list of a request": (inputs.BASE, ["a", "t"]),
    "projections": (projections.LIST, ["a", "t", 0]),
    "values": (projections.VALUES, ["a", "t", [b"x" * 16]]),
    "parts of a file": (files.PARTS, [1, 0, 4]),
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def filled(postgres: str):
    """A store with enough rows for the planner to prefer an index."""
    schema = f"test_{secrets.token_hex(6)}"  # each worker has its own
    store = PostgresStore(postgres, schema=schema, patience=DEADLINE)
    await store.open()
    await fetch(
        store,
        """
        INSERT INTO aguila.threads (scope, thread_id, created_at, updated_at, touched, first, last, bytes, agent,
          running, counted)
        SELECT 's' || n % 50, 't' || n, 0, 0, n, 1, 20, 0, 'default', CASE WHEN n % 500 = 0 THEN n END, 0
        FROM generate_series(1, 20000) n
        """,
    )
    await fetch(
        store,
        """
        INSERT INTO aguila.runs (key, thread, run_id, fingerprint, first, owner, epoch, lease_seconds, lease_until,
          started_at, outcome, ended_at)
        SELECT n, n, 'r', 'f', 1, 'o', 1, 30, 0, 0, CASE WHEN n % 500 <> 0 THEN 'success' END, n
        FROM generate_series(1, 20000) n
        """,
    )
    for text in (
        "INSERT INTO aguila.details SELECT n, NULL, '{}', ARRAY[n] FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.log SELECT n / 4, n, n, 0, NULL, 'x' FROM generate_series(1, 40000) n",
        "INSERT INTO aguila.interrupts (scope, thread, interrupt_id, run_id, status, body)"
        " SELECT 's', n, 'i' || n, 'r', 'open', 'x' FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.inputs SELECT n, NULL, NULL, NULL, NULL, 'x' FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.sessions SELECT n, 'x' FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.projections SELECT n, 1, 'x' FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.projected_values SELECT n, 'x', NULL, 'x' FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.effects (thread, root_run_id, name, value)"
        " SELECT n, 'r', 'k', 'x' FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.blob_parts SELECT n, 0, 'x' FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.messages SELECT n, 'x', 'x' FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.viewers SELECT n, 'v', 0, 0 FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.take_overs SELECT n, 1, 1 FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.removed SELECT -n, 1 FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.holds SELECT 's', 't' || n, n FROM generate_series(1, 20000) n",
        "INSERT INTO aguila.blobs (scope, blob_id, media_type, size, created_at, kept)"
        " SELECT 's', 'b' || n, '', 1, 0, true FROM generate_series(1, 5000) n",
    ):
        await fetch(store, text)
    for sequence in ("runs_key_seq", "blobs_key_seq"):
        await fetch(store, f"SELECT setval('aguila.{sequence}', 1000000)")
    await engine_of(store).database.run(lambda db: db.execute("ANALYZE"))
    yield store
    await engine_of(store).database.run(lambda db: db.execute(f"DROP SCHEMA {schema} CASCADE"))
    await store.close()


@pytest.mark.parametrize("name", HOT)
async def test_each_hot_statement_uses_an_index(filled: PostgresStore, name: str):
    text, arguments = HOT[name]
    database = engine_of(filled).database
    (row,) = await database.fetch("EXPLAIN (FORMAT JSON) " + text, *arguments)
    scans = _nodes(json.loads(row[0])[0]["Plan"])
    ours = [node for node in scans if node.get("Relation Name") in TABLES]
    assert ours, scans
    sequential = [node["Relation Name"] for node in ours if node["Node Type"] == "Seq Scan"]
    assert sequential == []


TABLES = {
    "threads", "runs", "log", "interrupts", "inputs", "sessions", "effects", "projections", "projected_values",
    "blob_parts", "messages", "details", "viewers", "take_overs", "removed", "holds", "blobs",
}  # fmt: skip


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in _nodes(child))]


_EXPLAIN = """
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_format = json;
SET log_min_messages = log;
SET plan_cache_mode = {mode};
"""


class Explained(PostgresStore):
    """A store whose server logs the plan of every statement, also of those within functions."""

    async def explain(self, mode: str) -> None:
        """Begin to log. The connections that are made from now on do."""
        database = engine_of(self).database
        connect = database.connect

        async def connect_explained(**options: Any) -> Any:
            db = await connect(**options)
            await db.execute(_EXPLAIN.format(mode=mode))
            return db

        database.connect = connect_explained  # type: ignore[method-assign]


def read_plans(text: str, schema: str) -> dict[str, dict[str, Any]]:
    """Return the plans in the log of a server that concern a schema, by their statements."""
    found: dict[str, dict[str, Any]] = {}
    for part in re.findall(r"plan:\n((?:\t.*\n)+)", text):
        plan = json.loads(part)
        if schema in plan["Query Text"]:
            found[plan["Query Text"]] = plan["Plan"]
    return found


@pytest.mark.skipif("AGUILA_POSTGRES" in os.environ, reason="reads the log of a server of its own")
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_each_statement_of_a_run_uses_an_index(filled: PostgresStore, postgres: str, mode: str):
    """Also within the functions of the schema, whose plans EXPLAIN of their call does not show."""
    schema = engine_of(filled).database.schema
    log = Path(os.environ[FOLDER], "cluster", "log")
    size = log.stat().st_size
    store = Explained(postgres, schema=schema, patience=DEADLINE)
    await store.open()
    await store.explain(mode)
    await use_all(store, f"plans-{mode}")
    await store.close()
    plans = read_plans(log.read_bytes()[size:].decode(), schema)
    # Only open runs have viewers, and their clock is compared with all of them.
    all_viewers = engine_of(filled).database.sql(queries.SHORTEN_VIEWERS)
    sequential = {
        text: node["Relation Name"]
        for text, plan in plans.items()
        if text != all_viewers
        for node in _nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in TABLES
    }
    assert sequential == {}
    written = {
        node["Relation Name"] for plan in plans.values() for node in _nodes(plan) if node["Node Type"] == "ModifyTable"
    }
    assert written >= TABLES  # otherwise the log does not show all statements


async def use_all(store: PostgresStore, thread_id: str) -> None:
    """Make each call that servers make for a run, its answer and its removal."""
    blob = await store.put_blob("a", b"x", media_type="text/plain", thread_id=thread_id)
    await store.blob("a", blob.blob_id)
    lease = await start(store, thread_id, "one", max_running=10_000)
    await store.watch("a", thread_id, "one", viewer="v", seconds=30)
    await store.unwatch("a", thread_id, "one", viewer="v")
    await store.watched(lease)
    await store.renew(lease, 30)
    await store.record(lease, "one", "key", b"1")
    for number in range(7):  # more often than a plan is made anew
        await store.append(lease, lines(number))
    await finish(store, lease, "question", session=b"{}")
    lease = await start(store, thread_id, "two", claims=["question"], waiting=frozenset(["question"]))
    await store.settle(lease, ["question"])
    await store.renew(lease, -1.0)
    (run,) = [run for run in await store.expired() if run.thread_id == thread_id]
    taken = await store.take_over(run, owner="other", lease_seconds=30)
    assert taken is not None
    projection = RunProjection(format=1, body=b"{}", values={hash_json(b"1"): b"1"})
    update = ThreadUpdate(title="A title", archived=True, metadata=b'{"k":1}')
    await store.append(taken, lines("end"), end=RunEnd(outcome="success", projection=projection, update=update))
    await store.request_cancel("a", thread_id, "two")
    await store.run("a", thread_id, "two")
    await store.input("a", thread_id, "two")
    await store.compact_run(await store.run("a", thread_id, "one"), lines("compacted"))
    await store.update_thread("a", thread_id, ThreadUpdate(title="Another one"))
    await store.usage("a")
    await store.delete_thread("a", thread_id)
    async with asyncio.timeout(DEADLINE):
        while await fetch(store, "SELECT 1 FROM aguila.trash"):  # noqa: ASYNC110 - the database does it
            await asyncio.sleep(0.01)
