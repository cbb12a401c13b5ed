"""The schema, a role without the right to change it, removed rows, and the work of vacuum."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from postgres_support import SQL, CutCommits
from stores.postgres_admin import connect, query

from aguila.errors import NotFound, StoreUnavailable
from aguila.store import PostgresStore, Retention
from aguila.store.sql.schema import VERSION
from aguila.testing.store_contract.support import (
    DEADLINE,
    append,
    complete,
    delete,
    delete_file,
    events_of,
    finish,
    lines,
    read,
    record,
    start,
)

pytestmark = pytest.mark.anyio


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the database does."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_processes_that_start_together_create_one_schema(postgres: str, postgres_schema: str, sql: SQL):
    stores = [PostgresStore(postgres, schema=postgres_schema) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    assert sql("SELECT version FROM aguila.schema_info") == [(VERSION,)]
    for store in stores:
        await store.close()


async def test_the_schema_has_no_code(store: PostgresStore, postgres_schema: str, sql: SQL):
    assert sql("SELECT proname FROM pg_proc WHERE pronamespace = $1::regnamespace", postgres_schema) == []
    triggers = "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
    assert sql(f"{triggers} WHERE c.relnamespace = $1::regnamespace", postgres_schema) == []


async def test_a_schema_of_a_newer_version_is_refused(store: PostgresStore, sql: SQL):
    sql("UPDATE aguila.schema_info SET version = version + 1")
    await store.close()
    with pytest.raises(StoreUnavailable, match="use a newer Aguila"):
        await store.open()


async def test_the_schema_of_an_old_release_is_refused_with_what_to_do(postgres: str, postgres_schema: str):
    query(postgres, f"CREATE SCHEMA {postgres_schema}")
    query(postgres, f"CREATE TABLE {postgres_schema}.migrations (version integer)")
    for migrate in (True, False):
        with pytest.raises(StoreUnavailable, match="made by the Aguila before this one, and is not"):
            await PostgresStore(postgres, schema=postgres_schema, migrate=migrate).open()
    with pytest.raises(StoreUnavailable, match=r"aguila store copy old\.db URL, .* names another schema"):
        await PostgresStore(postgres, schema=postgres_schema).migrate()


async def test_a_store_that_may_not_create_its_schema_says_what_to_do(postgres: str, postgres_schema: str):
    store = PostgresStore(postgres, schema=postgres_schema, migrate=False)
    with pytest.raises(StoreUnavailable, match="aguila store migrate"):
        await store.open()
    assert await store.migrate() == (0, VERSION)
    assert await store.migrate() == (VERSION, VERSION)
    await store.open()
    await store.close()


async def test_a_role_without_the_right_to_create_works_on_a_schema_that_exists(
    postgres: str, postgres_schema: str, sql: SQL
):
    role = f"{postgres_schema}_role"
    parts = urlsplit(postgres)
    url = parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
    query(postgres, f"CREATE ROLE {role} LOGIN")
    try:
        await PostgresStore(postgres, schema=postgres_schema).migrate()
        sql(f"GRANT USAGE ON SCHEMA {postgres_schema} TO {role}")
        sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {postgres_schema} TO {role}")
        sql(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {postgres_schema} TO {role}")
        for migrate in (True, False):
            async with PostgresStore(url, schema=postgres_schema, migrate=migrate, patience=30.0) as store:
                await store.check()
                await complete(store, f"t{migrate}", "r")
                file = await store.put_file("a", b"x", media_type="text/plain")
                await delete_file(store, file.file_id)
                await delete(store, f"t{migrate}")
    finally:
        sql(f"DROP OWNED BY {role}")
        sql(f"DROP ROLE {role}")


async def test_a_role_that_may_only_read_reads(postgres: str, postgres_schema: str, store: PostgresStore, sql: SQL):
    role = f"{postgres_schema}_role"
    parts = urlsplit(postgres)
    url = parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
    await complete(store, "t", "r")
    query(postgres, f"CREATE ROLE {role} LOGIN")
    try:
        sql(f"GRANT USAGE ON SCHEMA {postgres_schema} TO {role}")
        sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA {postgres_schema} TO {role}")
        async with PostgresStore(url, schema=postgres_schema, migrate=False) as reader:
            assert events_of(await read(reader)) == lines("started", "finished")
            for refused in (reader.check(), start(reader, "other")):
                with pytest.raises(StoreUnavailable, match=r"permission denied for .*; grant the role of the store"):
                    await refused
    finally:
        sql(f"DROP OWNED BY {role}")
        sql(f"DROP ROLE {role}")


async def test_a_schema_that_is_removed_meanwhile_is_an_outage(store: PostgresStore, postgres_schema: str, sql: SQL):
    lease = await start(store)
    sql(f"DROP SCHEMA {postgres_schema} CASCADE")
    for use in (read(store), append(store, lease, lines(1))):
        with pytest.raises(StoreUnavailable, match=r"newer Aguila has changed it, .* aguila store migrate"):
            await use


async def test_a_write_updates_no_index(store: PostgresStore, sql: SQL, postgres_schema: str):
    """Such an update stays in its page (HOT), so that autovacuum has no index to clean."""
    leases = [await start(store, f"t{i}") for i in range(5)]
    for number in range(40):
        await asyncio.gather(*(append(store, lease, lines(number)) for lease in leases))
    await store.close()  # a session reports its statistics at its end, at the latest
    table = f"'{postgres_schema}.threads'::regclass"
    counts = f"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = {table}"
    await until(lambda: sql(counts)[0][0] >= 100)
    ((updated, hot),) = sql(counts)
    assert hot >= 0.9 * updated
    await store.open()


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, (5 << 20) + 17])
async def test_a_file_is_stored_in_rows_of_a_mebibyte(store: PostgresStore, sql: SQL, size: int):
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    file = await store.put_file("a", data, media_type="application/octet-stream", thread_id="t")
    rows = sql("SELECT octet_length(data) FROM aguila.file_parts ORDER BY part")
    assert [row[0] for row in rows] == [min(1 << 20, size - start) for start in range(0, size, 1 << 20)]
    assert (await store.file("a", file.file_id))[1] == data
    await delete(store)
    assert sql("SELECT 1 FROM aguila.file_parts") == []


async def test_a_removed_thread_leaves_no_rows(store: PostgresStore, sql: SQL, postgres_schema: str):
    lease = await start(store, "secret-thread", "secret-run")
    await record(store, lease, "secret-run", "secret-key", b"1")
    for number in range(3):
        await append(store, lease, lines(number))
    await finish(store, lease, "secret-question", session=b"secret")
    await delete(store, "secret-thread")
    tables = sql("SELECT tablename FROM pg_tables WHERE schemaname = $1", postgres_schema)

    def rows() -> dict[str, int]:
        found = {name: sql(f"SELECT count(*) FROM aguila.{name}")[0][0] for (name,) in tables}
        return {name: count for name, count in found.items() if count}

    await until(lambda: rows().keys() <= {"checks", "schema_info", "removed", "usage"})
    assert rows()["removed"] == 1
    assert sql("SELECT sum(threads), sum(files), sum(bytes) FROM aguila.usage") == [(0, 0, 0)]


async def test_the_rows_of_a_removed_thread_are_deleted_if_its_process_dies(
    store: PostgresStore, postgres: str, postgres_schema: str, sql: SQL, monkeypatch: pytest.MonkeyPatch
):
    await complete(store, "t", "r")
    monkeypatch.setattr("aguila.store.sql.threads.empty_trash", lambda _: False)  # it dies before it does
    await delete(store)
    assert sql("SELECT 1 FROM aguila.log") != []
    await store.close()
    monkeypatch.undo()
    async with PostgresStore(postgres, schema=postgres_schema) as other:
        await other.sweep(Retention())  # as the maintenance of each server does all the time
        await until(lambda: sql("SELECT 1 FROM aguila.log UNION ALL SELECT 1 FROM aguila.trash") == [])
    await store.open()


async def test_a_removal_whose_answer_was_lost_is_no_error(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    await complete(store, "t", "r")
    file = await store.put_file("a", b"x", media_type="text/plain")
    for remove in (lambda: delete(store), lambda: delete_file(store, file.file_id)):
        with monkeypatch.context() as patch:
            cut = CutCommits(patch, store, after=True)
            await remove()
            assert cut.cuts == 1
        with pytest.raises(NotFound):
            await remove()


async def test_removing_a_thread_waits_for_no_other_and_blocks_no_other(
    store: PostgresStore, other: PostgresStore, postgres: str, postgres_schema: str
):
    """A transaction that holds the row of one thread blocks only calls for that thread."""
    busy = await start(store, "busy")
    await complete(store, "old", "r")
    with connect(postgres) as holder, holder.transaction():
        holder.execute(f"SELECT 1 FROM {postgres_schema}.threads WHERE thread_id = 'old' FOR UPDATE")
        removing = asyncio.create_task(delete(other, "old"))
        for number in range(5):
            await append(store, busy, lines(number))
        await complete(store, "new", "r")
        assert not removing.done()
    await removing
    assert events_of(await read(store, "busy")) == lines("started", *range(5))


async def test_files_that_are_put_at_once_are_stored_once(store: PostgresStore, other: PostgresStore, sql: SQL):
    data = b"x" * 3_000_000
    found = await asyncio.gather(
        *(one.put_file("a", data, media_type="text/plain", thread_id=f"t{i}") for i, one in enumerate([store, other]))
    )
    assert found[0].file_id == found[1].file_id
    await delete(store, "t0")
    assert (await store.file("a", found[0].file_id))[1] == data
    await delete(store, "t1")
    assert sql("SELECT 1 FROM aguila.file_parts") == []


async def test_a_file_is_kept_while_a_thread_takes_it_and_another_leaves_it(
    store: PostgresStore, other: PostgresStore, sql: SQL
):
    for number in range(20):
        old, new = f"old{number}", f"new{number}"
        file = await store.put_file("a", b"x", media_type="text/plain", thread_id=old)
        await asyncio.gather(delete(other, old), store.put_file("a", b"x", media_type="text/plain", thread_id=new))
        assert (await store.file("a", file.file_id))[1] == b"x"
        await store.put_file("a", b"x", media_type="text/plain", thread_id=old)
        await asyncio.gather(delete(other, old), delete(store, new))
        assert sql("SELECT 1 FROM aguila.files") == []
