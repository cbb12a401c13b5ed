"""Files of earlier schemas.

``schema_9.sql`` to ``schema_15.sql`` are dumps of files that earlier revisions of Aguila wrote (``sqlite3 .dump``):
05b61f3, the last one with ten migrations, b85efd0, and 348c6c75, which upgraded the file of schema 11 and added a
thread. They are frozen: a later schema adds a dump.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from contract.support import Clock, events_of, lines, start, statuses

from aguila.errors import CursorExpired, StoreUnavailable
from aguila.store import MetadataFilter, RunEnd, SQLiteStore, ThreadUpdate
from aguila.store.run_inputs import hash_json
from aguila.store.sqlite.database.migrations import OLDEST, SCHEMA

pytestmark = pytest.mark.anyio

EARLIER = [9, 10, 11, 15]


def load(path: Path, version: int) -> None:
    """Write a file of an earlier schema."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(Path(__file__).with_name(f"schema_{version}.sql").read_text())


def get_schema(path: Path) -> dict[str, object]:
    """Return the columns of each table and index, and the schema version."""
    with closing(sqlite3.connect(path)) as db:
        found: dict[str, object] = {"version": db.execute("PRAGMA user_version").fetchone()[0]}
        for kind, name in db.execute("SELECT type, name FROM sqlite_schema").fetchall():
            pragma = "table_info" if kind == "table" else "index_info"
            rows = db.execute(f"PRAGMA {pragma}({name})").fetchall()
            found[name] = sorted(row[1:] for row in rows) if kind == "table" else [row[2] for row in rows]
    return found


@pytest.mark.parametrize("version", EARLIER)
async def test_a_file_of_an_earlier_schema_keeps_everything(path: Path, version: int):
    load(path, version)
    store = SQLiteStore(path, clock=Clock(3000.0), monotonic=Clock(3000.0))
    await store.open()
    assert events_of(await store.read("a", "t")) == lines("started", "one", "two", "asked", "started")
    assert events_of(await store.read("a", "t", 2)) == lines("two", "asked", "started")
    assert await statuses(store) == {"i1": "settled", "i2": "open"}
    assert await store.interrupt_thread("a", "i2") == "t"
    assert await store.session("a", "t") == b"mine"
    assert await store.recorded("a", "t", "r1") == {"k": b"1"}
    for data, filename in ((b"data", "x.txt"), (b"kept", None)):
        blob = await store.put_blob("a", data, media_type="text/plain", filename=filename, thread_id="t")
        assert blob.created_at == 1000.0  # stored before
        assert (await store.blob("a", blob.blob_id))[1] == data
    first, second = await store.runs("a", "t")
    assert (first.run_id, first.outcome, first.first, first.last) == ("r1", "interrupt", 1, 4)
    assert await store.input("a", "t", "r1") == b'{"in":1}'
    assert (second.parent_run_id, second.is_running, second.lease_until) == ("r1", True, 2030.0)
    assert [run.run_id for run in await store.expired()] == ["r2"]
    summary = await store.thread("a", "t")
    assert (summary.agent, summary.title, summary.archived, summary.metadata) == ("default", None, False, None)
    lease = await store.take_over(second, owner="new", lease_seconds=30)
    assert lease is not None
    assert (await store.append(lease, lines("end"), end=RunEnd(outcome="error"))).last == 6
    assert (await store.threads("a"))[0].thread_id == "t"
    with pytest.raises(CursorExpired):  # a cursor of the removed thread that had this id before
        await store.read("a", "again", 2)
    assert events_of(await store.read("a", "again")) == lines("started", "finished")
    await start(store, "gone")
    assert await store.last("a", "gone") == 4  # above the numbers of its predecessor
    await store.close()


async def test_a_file_of_schema_10_keeps_agents_and_titles(path: Path):
    load(path, 10)
    store = SQLiteStore(path)
    await store.open()
    summary = await store.thread("a", "titled")
    assert (summary.agent, summary.title, summary.archived, summary.metadata) == ("helper", "Title", True, b'{"m":1}')
    for filters in ({"metadata": MetadataFilter("m")}, {"agent": "helper"}, {"archived": True}):
        assert [one.thread_id for one in await store.threads("a", **filters)] == ["titled"]
    await store.close()


async def test_a_file_of_schema_15_keeps_messages_and_values(path: Path):
    load(path, 15)
    store = SQLiteStore(path)
    await store.open()
    long = "long " * 500
    messages = [{"id": "u1", "role": "user", "content": long}, {"id": "u2", "role": "user", "content": "short"}]
    assert json.loads(await store.input("b", "long", "r1")) == {"messages": messages}
    values = [b'{"content":"%b"}' % long.encode(), b"{}"]
    found = await store.values("b", "long", [hash_json(value) for value in values])
    assert list(found.values()) == values
    await store.close()


async def test_the_index_of_metadata_counts_in_a_file_of_schema_16(path: Path):
    store = SQLiteStore(path)
    await store.open()
    await store.append(await start(store, "t"), lines("end"), end=RunEnd(outcome="success"))
    await store.update_thread("a", "t", ThreadUpdate(metadata=b'{"m":1}'))
    counted = await store.usage("a")
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE threads SET bytes = bytes - 2 * 7")
        db.execute("PRAGMA user_version = 16")
    store = SQLiteStore(path)
    await store.open()
    assert await store.usage("a") == counted
    await store.close()


@pytest.mark.parametrize("version", EARLIER)
async def test_what_a_file_of_an_earlier_schema_holds_is_counted(path: Path, version: int):
    load(path, version)
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        threads, size = db.execute("SELECT count(*), sum(bytes) FROM threads WHERE running IS NULL").fetchone()
        files, file_size = db.execute("SELECT count(*), sum(size) FROM blobs").fetchone()
        for where in ("scope = x''", "scope <> x''"):
            counted = db.execute(f"SELECT sum(threads), sum(files), sum(bytes) FROM usage WHERE {where}").fetchone()
            assert counted == (threads, files, size + file_size)


@pytest.mark.parametrize("version", EARLIER)
async def test_an_upgraded_file_has_the_schema_of_a_new_one(path: Path, tmp_path: Path, version: int):
    load(path, version)
    new = tmp_path / "new.db"
    for each in (path, new):
        store = SQLiteStore(each)
        await store.open()
        await store.close()
    assert get_schema(path) == get_schema(new)
    assert get_schema(new)["version"] == SCHEMA


@pytest.mark.parametrize(
    ("version", "advice"),
    [(SCHEMA + 1, "use a newer Aguila"), (OLDEST - 1, "open the file once with Aguila of commit")],
)
async def test_a_schema_that_is_not_known_is_refused_and_the_file_left_alone(path: Path, version: int, advice: str):
    load(path, EARLIER[-1])
    store = SQLiteStore(path)
    await store.open()  # brings the file up to date
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreUnavailable, match=rf"schema {version},.*{advice}"):
        await store.open()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM log").fetchone() == (10,)
        db.execute(f"PRAGMA user_version = {SCHEMA}")
    await store.open()
    assert await store.last("a", "t") == 5
    await store.close()


async def test_an_upgrade_is_announced_and_a_new_file_is_not(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    for at in (path, tmp_path / "new.db"):
        if at == path:
            load(at, EARLIER[-1])
        store = SQLiteStore(at)
        await store.open()
        await store.close()
    assert [record.getMessage().partition(";")[0] for record in caplog.records if record.levelname == "WARNING"] == [
        f"upgrading the SQLite file from schema {version} to {version + 1}" for version in range(EARLIER[-1], SCHEMA)
    ]
