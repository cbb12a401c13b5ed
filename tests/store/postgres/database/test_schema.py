"""Migrations, files in rows, and the work of vacuum."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from contract.support import complete, events_of, finish, lines, start
from postgres_support import engine_of, fetch

from aguila.errors import NotFound, StoreUnavailable
from aguila.store import PostgresStore, Retention
from aguila.store.postgres import files
from aguila.store.postgres.database import migrations

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


async def test_a_process_that_a_newer_schema_leaves_behind_says_so(store: PostgresStore):
    lease = await start(store)
    await fetch(store, "DROP FUNCTION aguila.append_events")  # as a script does that breaks older versions
    with pytest.raises(StoreUnavailable, match="a newer Aguila has migrated it, restart with that version"):
        await store.append(lease, lines(1))


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


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql:app", "postgresql://user@host/database"),
        ("postgresql://db:abc/app", "a port of the PostgreSQL URL is not a number"),
        ("postgresql://me:p@ss/w@db/app", "cannot be split .* %2F for /"),
        ("postgresql://me:p#ss@db/app", "cannot be split .* %23 for #"),
        (
            "postgresql://db/app?connect_timeout=3",
            "connect_timeout of the PostgreSQL URL is not supported: set patience",
        ),
        ("postgresql://db/app?channel_binding=require", "channel_binding .* sslmode=verify-full"),
        ("postgresql://db/app?wakeups=poll", "pass wakeups= to PostgresStore, or write aguila_wakeups= "),
        ("postgresql://db/app?aguila_pool=3", "pass pool= to PostgresStore"),
    ],
)
def test_a_url_that_cannot_work_is_refused_with_what_to_change(url: str, message: str):
    with pytest.raises(ValueError, match=message):
        PostgresStore(url)


async def test_a_host_without_an_address_is_named():
    store = PostgresStore("postgresql://nowhere.invalid/app", patience=0.1)
    with pytest.raises(StoreUnavailable, match=r"no address for host 'nowhere\.invalid'"):
        await store.open()


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://me:secret@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me@db/x?password=secret&port=1", "postgresql://me@db/x?password=***&port=1"),
        ("postgresql:///x?host=/run&sslpassword=secret", "postgresql:///x?host=/run&sslpassword=***"),
    ],
)
def test_a_password_is_not_part_of_the_location(url: str, location: str):
    assert PostgresStore(url).location == location


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
    """A transaction that holds the row of one thread blocks only calls for that thread."""
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
