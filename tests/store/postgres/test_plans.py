"""Whether each statement of a run uses an index, however large the tables are."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from postgres_support import SQL, make_sql
from stores.postgres_cluster import FOLDER

from aguila.store import (
    AnswerCancel,
    Cancel,
    Compaction,
    MetadataFilter,
    NewTurns,
    PostgresStore,
    Quotas,
    Retention,
    RunChange,
    RunEnd,
    RunKey,
    ThreadFilter,
    ThreadUpdate,
    Turn,
    Want,
    Watch,
)
from aguila.store.contents import hash_content
from aguila.testing.store_contract.support import (
    DEADLINE,
    append,
    delete,
    finish,
    lines,
    read,
    record,
    renew,
    run_of,
    settle,
    start,
    take,
)

pytestmark = pytest.mark.anyio

ROWS = (
    "INSERT INTO aguila.threads (key, scope, thread_id, agent, created_at, updated_at, position, first, last, bytes,"
    " running, epoch) SELECT n, 's' || n % 50, 't' || n, 'default', 0, 0, n, 1, 20, 0,"
    " CASE WHEN n % 500 = 0 THEN n END, 1 FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.runs (key, thread, number, run_id, fingerprint, first, owner, token, epoch, lease_seconds,"
    " lease_until, started_at, outcome, ended_at, request) SELECT n, n, 1, 'r', 'f', 1, 'o', 'x', 1, 30, 1e12, 0,"
    " CASE WHEN n % 500 <> 0 THEN 'success' END, n, '{}' FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.details (thread) SELECT n FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.members SELECT n, n FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.contents SELECT n, 'x', 0, 'x' FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.log SELECT (n / 4 << 32) + n, n, 0, 'x', n, NULL, 'x' FROM generate_series(1, 40000) n",
    "INSERT INTO aguila.interrupts (scope, thread, interrupt_id, run_id, status, body)"
    " SELECT 's', n, 'i' || n, 'r', 'open', 'x' FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.effects (thread, root, name, epoch) SELECT n, 'r', 'k', 1 FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.viewers SELECT n, 'v', 0, 0 FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.files (scope, file_id, media_type, size, created_at, kept)"
    " SELECT 's', 'b' || n, '', 1, 0, 1 FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.file_parts SELECT n, 0, 'x' FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.holds SELECT 's', 't' || n, n FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.removed SELECT -n, 1 FROM generate_series(1, 20000) n",
    "INSERT INTO aguila.usage SELECT 0, 's' || n, 1, 1, 1, 1 FROM generate_series(1, 20000) n",
    *(f"SELECT setval('aguila.{name}_key_seq', 1000000)" for name in ("threads", "runs", "files")),
    "SELECT setval('aguila.positions', 1000000)",
    "ANALYZE",
)
"""Enough rows for the planner to prefer an index."""

TABLES = {
    "threads", "details", "members", "runs", "contents", "log", "interrupts", "effects", "viewers", "files",
    "file_parts", "holds", "removed", "usage",
}  # fmt: skip

_EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_format": "json",
    "log_min_messages": "log",
}
"""Settings with which the server logs the plan of each statement."""


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
async def explained(
    request: pytest.FixtureRequest, postgres: str, postgres_schema: str
) -> AsyncIterator[PostgresStore]:
    """A store with many rows, whose plans the server logs."""
    sql = make_sql(postgres, postgres_schema)
    await PostgresStore(postgres, schema=postgres_schema).migrate()
    for statement in ROWS:
        sql(statement)
    options = " ".join(f"-c {name}={value}" for name, value in (_EXPLAIN | {"plan_cache_mode": request.param}).items())
    async with PostgresStore(
        f"{postgres}?options={quote(options)}", schema=postgres_schema, patience=DEADLINE
    ) as store:
        yield store
    sql(f"DROP SCHEMA {postgres_schema} CASCADE")


@pytest.mark.skipif("AGUILA_POSTGRES" in os.environ, reason="reads the log of a server of its own")
async def test_each_statement_of_a_run_uses_an_index(explained: PostgresStore, postgres_schema: str, sql: SQL):
    log = Path(os.environ[FOLDER], "cluster", "log")
    size = log.stat().st_size
    await use_all(explained)
    async with asyncio.timeout(DEADLINE):
        while sql("SELECT 1 FROM aguila.trash"):  # noqa: ASYNC110 - the database does it
            await asyncio.sleep(0.01)
    await explained.close()  # the sessions have logged everything when they end
    await explained.open()
    plans = read_plans(log.read_bytes()[size:].decode(errors="replace"), postgres_schema)
    sequential = {
        text: node["Relation Name"]
        for text, plan in plans.items()
        if "r.ended_at <=" not in text  # a generic plan cannot know that few runs ended so long ago
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in TABLES and not is_one_row(node)
    }
    assert sequential == {}
    written = {
        node["Relation Name"] for plan in plans.values() for node in nodes(plan) if node["Node Type"] == "ModifyTable"
    }
    assert written >= TABLES  # otherwise the log does not show all statements


def is_one_row(node: dict[str, Any]) -> bool:
    """Return whether a scan ends with the first row: EXISTS."""
    return node.get("Parent Relationship") == "InitPlan"


def read_plans(text: str, schema: str) -> dict[str, dict[str, Any]]:
    """Return the plans in the log of a server that concern a schema, by their statements."""
    found: dict[str, dict[str, Any]] = {}
    for part in re.findall(r"plan:\n((?:\t.*\n)+)", text):
        plan = json.loads(part)
        if schema in plan["Query Text"]:
            found[plan["Query Text"]] = plan["Plan"]
    return found


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


async def use_all(store: PostgresStore) -> None:
    """Make each call that servers make for a run, its answer and its removal."""
    file = await store.put_file("a", b"x", media_type="text/plain", thread_id="t", quotas=Quotas(bytes_per_scope=1000))
    await store.file("a", file.file_id)
    request = json.dumps({"messages": [{"id": "m", "role": "user", "content": "x" * 300}], "state": "y" * 300}).encode()
    lease = await start(store, "t", "one", max_running=10_000, request=request, quotas=Quotas(bytes_per_scope=10**6))
    key = RunKey("a", "t", "one")
    await store.tell(key, Watch("v", 30))
    await store.is_watched(key)
    await store.tell(key, Watch("v", 0))
    await store.tell(key, Watch("w", 30))
    await store.tell(key, Cancel(unwatched=True))
    await store.tell(key, AnswerCancel(granted=False))
    await renew(store, lease)
    await record(store, lease, "one", "key", b"1")
    for number in range(7):  # more often than a plan is made anew
        await append(store, lease, lines(number))
    others = [await start(store, f"other {n}", "r") for n in range(4)]
    for number in range(3):
        await asyncio.gather(*(append(store, one, lines(number)) for one in others))
    await asyncio.gather(*(finish(store, one, "asked") for one in others))
    await finish(store, lease, "question", session=secrets.token_bytes(10))
    lease = await start(
        store, "t", "two", claims=["question"], waiting=frozenset(["question"]), parent_run_id="one", request=request
    )
    await settle(store, lease, "question")
    await renew(store, lease, -1.0)
    taken = (await take(store, only=RunKey("a", "t", "two"))).lease
    turn = Turn(format=1, body=b"{}", values={hash_content(b"1"): b"1"})
    update = ThreadUpdate(title="A title", archived=True, metadata=b'{"k":1}')
    end = RunEnd(outcome="success", turn=turn, update=update)
    await store.write(taken, RunChange(events=lines("end"), end=end))
    await store.request(RunKey("a", "t", "two"))
    want = Want(runs=True, turns=True, interrupts=True, session=True, effects=True, viewers=True, files=True)
    await store.thread("a", "t", want)
    await store.values("a", "t", [hash_content(b"1"), hash_content(b"2")])
    await read(store, "t", 3, until=5)
    await store.stamps([("a", "t"), ("a", "other 1")])
    one = await run_of(store, "t", "one")
    await store.amend("a", "t", Compaction(run_id="one", first=one.first, last=one.last, events=lines("compacted")))
    await store.amend("a", "t", NewTurns({"one": turn}))
    await store.amend("a", "t", ThreadUpdate(title="Another one", archived=False))
    for options in (
        {}, {"archived": False}, {"archived": True}, {"agent": "x"}, {"run_id": "one"}, {"interrupt_id": "asked"},
        {"before": 10}, {"usage": True}, {"metadata": MetadataFilter("k")},
    ):  # fmt: skip
        await store.threads("a", ThreadFilter(limit=20, **options))  # type: ignore[arg-type]
    await store.check()
    await delete(store, "t")
    await store.sweep(Retention(compact_after=1e12))
