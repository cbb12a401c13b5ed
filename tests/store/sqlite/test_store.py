"""The file: its content, its limits, and the space that it returns."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from sqlite_support import run_sql
from waiting import wait_until_async

from aguila.errors import StoreUnavailable
from aguila.store import SQLiteStore, Store, ThreadFilter
from aguila.store.records import Durability
from aguila.store.sqlite import checkpoint
from aguila.testing.store_contract.support import (
    DEADLINE,
    append,
    collect,
    complete,
    delete,
    effects_of,
    events_of,
    finish,
    last_of,
    lines,
    read,
    record,
    session_of,
    start,
    statuses,
    sweep,
)

pytestmark = pytest.mark.anyio


async def test_a_file_that_is_opened_again_has_everything(path: Path):
    store = SQLiteStore(path)
    await store.open()
    lease = await start(store)
    await record(store, lease, "r", "k", b"1")
    unfinished = [asyncio.create_task(append(store, lease, lines(i))) for i in range(20)]
    await asyncio.sleep(0)
    await store.close()  # finishes accepted writes
    await asyncio.gather(*unfinished)
    await store.open()
    await finish(store, lease, "i1", session=b"mine")
    file = await store.put_file("a", b"data", media_type="text/plain", thread_id="t")
    await store.close()
    store = SQLiteStore(path)
    await store.open()
    assert events_of(await read(store)) == lines("started", *range(20), "finished")
    assert await statuses(store) == {"i1": "open"}
    assert await session_of(store) == b"mine"
    assert await effects_of(store) == {"k": b"1"}
    assert await store.file("a", file.file_id) == (file, b"data")
    await store.close()
    beside = {file.name: file.stat().st_size for file in path.parent.iterdir() if file != path}
    assert beside == {"threads.db-lock": 0}  # nothing else is left


async def test_a_file_that_is_not_a_database_is_refused_and_not_changed(path: Path):
    path.write_bytes(b"something else entirely, longer than a header\n" * 50)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a database"):
        await SQLiteStore(path).open()
    assert path.read_bytes() == before


@pytest.mark.parametrize("made", ["a folder", "no database", "in no folder"])
async def test_the_error_names_the_file_and_the_reason(tmp_path: Path, made: str, caplog: pytest.LogCaptureFixture):
    path, reason = {
        "a folder": (tmp_path, "it is a folder"),
        "no database": (tmp_path / "x", "SQLite: file is not a database (SQLITE_NOTADB)"),
        "in no folder": (tmp_path / "no" / "x", f"there is no folder {tmp_path / 'no'}"),
    }[made]
    (tmp_path / "x").write_text("something else entirely" * 99)
    with pytest.raises(StoreUnavailable) as error:
        await SQLiteStore(path).open()
    assert str(error.value) == f"{path} cannot be used as a store: {reason}"
    assert caplog.records == []


async def test_a_store_in_a_missing_folder_opens_once_the_folder_exists(tmp_path: Path):
    store = SQLiteStore(tmp_path / "missing" / "threads.db")
    with pytest.raises(StoreUnavailable):
        await store.open()
    (tmp_path / "missing").mkdir()
    await store.open()
    await store.check()
    await store.close()


def test_settings_are_checked_at_once(path: Path):
    with pytest.raises(ValueError, match="MemoryStore"):
        SQLiteStore(":memory:")
    with pytest.raises(ValueError, match="durability"):
        SQLiteStore(path, durability="none")  # type: ignore[arg-type]


@pytest.mark.parametrize(("setting", "value"), [("process", 1), ("power", 2)])
async def test_durability_decides_whether_sqlite_syncs_each_commit(path: Path, setting: Durability, value: int):
    store = SQLiteStore(path, durability=setting)
    await store.open()
    assert await run_sql(store, "PRAGMA synchronous") == [(value,)]
    await store.close()


async def test_a_deleted_thread_leaves_no_id_behind(path: Path):
    store = SQLiteStore(path)
    await store.open()
    await complete(store, "a-thread-nobody-must-know", "a-run-nobody-must-know", "a-question", scope="a-secret-scope")
    await delete(store, "a-thread-nobody-must-know", scope="a-secret-scope")
    async with asyncio.timeout(DEADLINE):
        while await run_sql(store, "SELECT 1 FROM trash"):  # noqa: ASYNC110 - the writer's thread does it
            await asyncio.sleep(0.01)
    tables = await run_sql(store, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    kept = [row for (name,) in tables for row in await run_sql(store, f"SELECT * FROM {name}")]
    assert not any("nobody" in str(row) or "secret" in str(row) or "question" in str(row) for row in kept)
    await complete(store, "a-thread-nobody-must-know", "r", scope="a-secret-scope")
    assert await run_sql(store, "SELECT count(*) FROM removed") == [(0,)]
    assert await last_of(store, "a-thread-nobody-must-know", scope="a-secret-scope") == 5
    await store.close()


async def test_free_pages_are_returned_to_the_file_system(store: SQLiteStore, path: Path):
    await store.put_file("a", b"x" * 8_000_000, media_type="text/plain", thread_id="t")
    await complete(store, "t", "r")
    await delete(store)
    await wait_until_async(lambda: path.stat().st_size < 500_000)
    await complete(store, "t", "r")
    assert await sweep(store, max_threads=0) == 1


async def test_the_write_ahead_log_starts_over_under_load(
    store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(checkpoint, "MAX_ROWS", 10)
    monkeypatch.setattr(checkpoint, "LONG_WAL", 50)

    def salt() -> bytes:
        """Return the salt of the WAL header, which changes when the WAL starts over."""
        with path.with_name(path.name + "-wal").open("rb") as wal:
            return wal.read(32)[16:24]

    leases = [await start(store, f"t{i}") for i in range(4)]
    before = await asyncio.to_thread(salt)
    async with asyncio.timeout(DEADLINE):
        while True:
            await asyncio.gather(*(append(store, lease, [b"1" * 4000]) for lease in leases))
            if await asyncio.to_thread(salt) != before:
                break
    last = await last_of(store, "t0")
    assert await collect(store.tail("a", "t0", 1), last - 1) == [b"1" * 4000] * (last - 1)


async def stamp_of(store: Store) -> str | None:
    """Return the stamp of lists of threads."""
    return (await store.threads("a", ThreadFilter(limit=0))).stamp


async def test_the_stamp_of_a_list_changes_with_the_write_of_another_store_on_the_file(path: Path):
    one, other = SQLiteStore(path), SQLiteStore(path)
    await one.open()
    await other.open()
    before = await stamp_of(one)
    await complete(other, "t", "r")
    assert await stamp_of(one) != before
    assert await stamp_of(one) != await stamp_of(other)  # each counts for itself
    await one.close()
    await other.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_the_files_are_readable_by_their_owner_only(tmp_path: Path, umask: int):
    before = os.umask(umask)
    try:
        store = SQLiteStore(tmp_path / "threads.db")
        await store.open()
        await complete(store, "t", "r")
        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
        await store.close()
    finally:
        os.umask(before)
    assert {"threads.db", "threads.db-wal", "threads.db-shm"} <= modes.keys()
    assert set(modes.values()) == {"0o600"}


async def test_a_file_that_exists_keeps_its_mode(tmp_path: Path):
    path = tmp_path / "threads.db"
    path.touch()
    path.chmod(0o660)
    store = SQLiteStore(path)
    await store.open()
    assert path.stat().st_mode & 0o777 == 0o660
    await store.close()
