"""Migrations, the use of indexes, files in rows, and what vacuum has to do."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

import pytest
from contract.support import complete, events_of, finish, lines, start
from postgres_support import engine_of, fetch

from aguila.errors import NotFound, StoreUnavailable
from aguila.store import PostgresStore, Retention
from aguila.store.postgres import files, inputs, migrations, projections, queries
from aguila.store.postgres.appends import POSITIONS

pytestmark = pytest.mark.anyio


async def test_processes_that_start_together_migrate_once(postgres: str, postgres_schema: str):
    stores = [PostgresStore(postgres, schema=postgres_schema) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    rows = await fetch(stores[0], "SELECT version FROM aguila.migrations ORDER BY version")
    assert [row[0] for row in rows] == list(range(1, migrations.newest() + 1))
    for store in stores:
        await store.close()


async def test_an_older_aguila_works_beside_a_newer_schema_or_is_refused(store: PostgresStore):
    newer = migrations.newest() + 1
    await fetch(store, "INSERT INTO aguila.migrations (version, oldest) VALUES ($1, 3)", newer)
    assert await store.migrate() == (newer, newer)
    await store.close()
    await store.open()
    await complete(store, "t", "r")
    await fetch(store, "UPDATE aguila.migrations SET oldest = $1 WHERE version = $1", newer)
    await store.close()
    with pytest.raises(StoreUnavailable, match="use a newer Aguila"):
        await store.open()


async def test_what_an_earlier_schema_holds_is_counted(store: PostgresStore):
    await complete(store, "t", "r")
    await store.put_blob("a", b"x" * 100, media_type="text/plain")
    before = await store.usage("a")
    await fetch(store, "UPDATE aguila.usage SET bytes = 7, threads = 7")
    await fetch(store, "UPDATE aguila.total_usage SET bytes = 7")
    await fetch(store, "SELECT aguila.rebuild_usage()")  # as the script of the migration does
    assert await store.usage("a") == await store.usage() == before


async def test_a_store_that_may_not_migrate_says_what_to_do(postgres: str, postgres_schema: str):
    store = PostgresStore(postgres, schema=postgres_schema, migrate=False)
    with pytest.raises(StoreUnavailable, match="aguila store migrate"):
        await store.open()
    assert await store.migrate() == (0, migrations.newest())
    await store.open()
    await store.close()


async def test_a_schema_that_is_removed_meanwhile_is_an_outage(store: PostgresStore, postgres_schema: str):
    await start(store)
    await fetch(store, f"DROP SCHEMA {postgres_schema} CASCADE")
    with pytest.raises(StoreUnavailable, match="aguila store migrate"):
        await store.read("a", "t")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": "Robert'); DROP"}, "schema is"),
        ({"schema": "pg_catalog"}, "schema is"),
        ({"wakeups": "hope"}, "wakeups is"),
        ({"pool": 0}, "pool is"),
    ],
)
def test_settings_are_checked_at_once(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        PostgresStore("postgresql://x/y", **options)
    with pytest.raises(ValueError, match="postgresql://"):
        PostgresStore("threads.db")


def test_a_password_is_not_part_of_the_location():
    assert PostgresStore("postgresql://me:secret@db/x").location == "postgresql://me:***@db/x"


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
    store = PostgresStore(postgres, schema=schema)
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
    ):
        await fetch(store, text)
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
    "blob_parts", "messages", "details",
}  # fmt: skip


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in _nodes(child))]


async def test_an_append_updates_no_index(store: PostgresStore):
    """Such an update stays in its page (HOT), so that autovacuum has no index to clean."""
    leases = [await start(store, f"t{i}") for i in range(5)]
    for number in range(40):
        await asyncio.gather(*(store.append(lease, lines(number)) for lease in leases))
    database = engine_of(store).database
    await database.run(lambda db: db.execute("SELECT pg_stat_force_next_flush()"))

    async def counts() -> Any:
        return await database.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'aguila.threads'::regclass"
        )

    async with asyncio.timeout(30):
        while (row := await counts())[0] < 100:
            await asyncio.gather(*(store.append(lease, lines("more")) for lease in leases))
    assert row[1] >= 0.9 * row[0]


@pytest.mark.parametrize("size", [0, 1, files.PART, files.PART + 1, 5 * files.PART + 17])
async def test_a_file_is_stored_in_rows_of_a_mebibyte(store: PostgresStore, size: int):
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    blob = await store.put_blob("a", data, media_type="application/octet-stream", thread_id="t")
    rows = await fetch(store, "SELECT octet_length(data) FROM aguila.blob_parts ORDER BY part")
    assert [row[0] for row in rows] == [min(files.PART, size - start) for start in range(0, size, files.PART)]
    assert await store.blob("a", blob.blob_id) == (blob, data)
    await store.delete_thread("a", "t")
    assert await fetch(store, "SELECT 1 FROM aguila.blob_parts") == []


async def test_a_removed_thread_leaves_no_rows(store: PostgresStore):
    lease = await start(store, "secret-thread", "secret-run")
    await store.record(lease, "secret-run", "secret-key", b"1")
    for number in range(3):
        await store.append(lease, lines(number))
    await finish(store, lease, "secret-question", session=b"secret")
    await store.delete_thread("a", "secret-thread")
    tables = await fetch(
        store, "SELECT relname FROM pg_stat_user_tables WHERE schemaname = $1", engine_of(store).database.schema
    )

    async def rows() -> dict[str, int]:
        found = {row[0]: (await fetch(store, f"SELECT count(*) FROM aguila.{row[0]}"))[0][0] for row in tables}
        return {name: count for name, count in found.items() if count}

    async with asyncio.timeout(30):
        while (left := await rows()).keys() - {"checks", "migrations", "removed", "total_usage"}:  # noqa: ASYNC110 - the database does it
            await asyncio.sleep(0.01)
    assert left["removed"] == 1


async def test_the_rows_of_a_removed_thread_are_deleted_if_its_process_dies(store: PostgresStore, other: PostgresStore):
    await complete(store, "t", "r")
    engine_of(store).clean = lambda: None  # type: ignore[method-assign] - it dies before it does
    await store.delete_thread("a", "t")
    assert await fetch(store, "SELECT 1 FROM aguila.log")
    await other.expired()  # as the maintenance of each server does all the time
    async with asyncio.timeout(30):
        while await fetch(store, "SELECT 1 FROM aguila.log UNION ALL SELECT 1 FROM aguila.trash"):  # noqa: ASYNC110 - the database does it
            await asyncio.sleep(0.01)


async def test_a_removal_whose_answer_was_lost_is_no_error(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    await complete(store, "t", "r")
    blob = await store.put_blob("a", b"x", media_type="text/plain")
    database = engine_of(store).database
    real = database.attempt
    cut: list[str] = []

    async def attempt(use: Any, *args: Any) -> Any:
        result = await real(use, *args)
        if not cut:
            cut.append("once")
            raise ConnectionResetError("cut by a test")
        return result

    monkeypatch.setattr(database, "attempt", attempt)
    await store.delete_thread("a", "t")
    cut.clear()
    await store.delete_blob("a", blob.blob_id)
    for removing in (store.delete_thread("a", "t"), store.delete_blob("a", blob.blob_id)):
        with pytest.raises(NotFound):
            await removing


async def test_removing_a_thread_waits_for_no_other_and_blocks_no_other(store: PostgresStore, other: PostgresStore):
    """A transaction that holds the row of one thread blocks only what concerns that thread."""
    busy = await start(store, "busy")
    await complete(store, "old", "r")
    holder = await engine_of(other).database.connect()
    transaction = holder.transaction()
    await transaction.start()
    table = f"{engine_of(store).database.schema}.threads"
    await holder.execute(f"SELECT 1 FROM {table} WHERE thread_id = 'old' FOR UPDATE")
    removing = asyncio.create_task(other.delete_thread("a", "old"))
    pruning = asyncio.create_task(other.prune(Retention(max_threads=1)))
    for number in range(5):
        await store.append(busy, lines(number))
    await complete(store, "new", "r")
    await transaction.rollback()
    await holder.close()
    await asyncio.gather(removing, pruning, return_exceptions=True)
    assert events_of(await store.read("a", "busy")) == lines("started", *range(5))


async def test_files_that_are_put_at_once_are_stored_once(store: PostgresStore, other: PostgresStore):
    data = b"x" * 3_000_000
    found = await asyncio.gather(
        *(one.put_blob("a", data, media_type="text/plain", thread_id=f"t{i}") for i, one in enumerate([store, other]))
    )
    assert found[0] == found[1]
    await store.delete_thread("a", "t0")
    assert (await store.blob("a", found[0].blob_id))[1] == data
