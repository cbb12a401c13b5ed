"""Lists of threads with filters, in a scope with so many threads that indexes are used, and in one with few."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aguila.store import MemoryStore, MetadataFilter, PostgresStore, SQLiteStore, Store, ThreadFilter, ThreadUpdate
from aguila.store.sql import reads
from aguila.store.sqlite.tx import SQLiteTx
from aguila.testing.store_contract.support import complete, delete, list_threads

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "threads.db")
    if request.param == "postgres":
        dsn, schema = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_schema")
        opened = PostgresStore(dsn, schema=schema)
    await opened.open()
    yield opened
    await opened.close()


@pytest.mark.parametrize("most", [3, 1000])
async def test_filtered_pages_are_the_pages_of_a_plain_list(
    store: Store, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MAX_INDEXED", most)
    rng = random.Random(most)
    values = [
        None,
        b"{}",
        b'{"p":"x"}',
        b'{"p":"y"}',
        b'{"p":1}',
        b'{"q":"x","p":"x"}',
        '{"é":"\\ud83e\\udd85"}'.encode(),
    ]
    model: dict[str, tuple[bytes | None, bool]] = {}  # the last one was updated last
    for step in range(160):
        name = f"t{rng.randrange(40)}"
        choice = rng.random()
        if name not in model or choice < 0.3:
            await complete(store, name, f"r{step}")
            model[name] = model.pop(name, (None, False))
        elif choice < 0.9:
            model[name] = (rng.choice(values), rng.random() < 0.2)
            await store.amend("a", name, ThreadUpdate(metadata=model[name][0], archived=model[name][1]))
        else:
            await delete(store, name)
            del model[name]
    await complete(store, "another scope's", "r", scope="b")
    filters = [
        None,
        *(MetadataFilter(*one) for one in (("p",), ("p", "x"), ("p", "y"), ("q", "x"), ("é", "🦅"), ("z",))),
    ]
    for metadata in filters:
        for archived in (None, True, False):
            wanted = [
                name
                for name, (value, is_archived) in reversed(model.items())
                if archived in (None, is_archived) and (metadata is None or metadata.matches(value))
            ]
            found: list[str] = []
            before: int | None = None
            while page := await list_threads(store, limit=3, before=before, archived=archived, metadata=metadata):
                found += [one.thread_id for one in page]
                before = page[-1].position
            assert found == wanted


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({}, "threads_position"),
        ({"before": 5}, "threads_position"),
        ({"archived": False}, "threads_position"),
        ({"archived": True}, "threads_archived"),
        ({"agent": "other"}, "threads_agent"),
        ({"metadata": MetadataFilter("p", "x")}, "(member=?)"),
        ({"metadata": MetadataFilter("p")}, "(member=?)"),
    ],
)
async def test_sqlite_lists_threads_by_an_index(tmp_path: Path, filters: dict[str, Any], index: str) -> None:
    store = SQLiteStore(tmp_path / "threads.db")
    await store.open()
    await complete(store, "t", "r")
    await store.close()
    with sqlite3.connect(tmp_path / "threads.db") as db:
        statements: list[str] = []
        db.set_trace_callback(statements.append)
        tx = SQLiteTx(db, None, 0.0, 0.0)  # type: ignore[arg-type]
        reads.list_threads(tx, "a", ThreadFilter(**filters), None)
        db.set_trace_callback(None)
        listing = next(one for one in statements if "position" in one or "members" in one)
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {listing}")]
    db.close()
    assert any(index in step for step in plan), plan
    assert not any(step.startswith("SCAN") for step in plan), plan
