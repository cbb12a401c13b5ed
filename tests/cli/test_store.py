"""``aguila store``: copies are the same through the API, and ``check`` finds damage that was made by hand."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from serving import serving
from stores.demo_store import Demo, aguila, seen, served

from aguila import App
from aguila.cli.demo import agent
from aguila.store import NewRun, RunChange, RunEnd, SQLiteStore
from aguila.store.locations import make_store

THREAD = "(SELECT key FROM threads WHERE thread_id = '{}')"
BRANCHES, OPEN, ANSWERED = THREAD.format("branches"), THREAD.format("open"), THREAD.format("interrupt")

DAMAGE = {
    f"DELETE FROM log WHERE place >> 32 = {BRANCHES} AND first > 1 AND place < (SELECT max(place) FROM log "
    f"WHERE place >> 32 = {BRANCHES})": "the log continues with event",
    f"UPDATE threads SET last = last + 3 WHERE key = {OPEN}": "the log ends with event",
    f"UPDATE threads SET bytes = bytes + 1 WHERE key = {OPEN}": "and its row says",
    "DELETE FROM members": "the hashes of its metadata do not match",
    f"UPDATE log SET events = CAST('[]' AS BLOB) WHERE place >> 32 = {OPEN} AND first = 1": "is not a JSON object",
    f"UPDATE log SET events = 'text' WHERE place >> 32 = {OPEN} AND first = 1": "the batch from event 1 is not bytes",
    f"UPDATE log SET content = x'00' WHERE place >> 32 = {OPEN} AND first = 1": "is content 00, which is missing",
    f"UPDATE log SET events = CAST(replace(CAST(events AS TEXT), 'RUN_FINISHED', 'RUN_ENDED') AS BLOB) "
    f"WHERE place >> 32 = {OPEN}": "expected a terminal event",
    f"UPDATE runs SET first = first + 1 WHERE thread = {BRANCHES} AND run_id = 'r3'": "run 'r3' begins with event",
    f"UPDATE runs SET number = 9 WHERE thread = {BRANCHES} AND run_id = 'r5'": "has the number 9, expected 5",
    f"UPDATE runs SET outcome = NULL, last = NULL WHERE thread = {OPEN}": "is not the open run of the thread",
    f"UPDATE runs SET outcome = 'fine' WHERE thread = {OPEN}": "has the outcome 'fine'",
    f"UPDATE threads SET running = 9999 WHERE key = {OPEN}": "the open run of the thread does not exist",
    f"UPDATE interrupts SET status = 'claimed', claimed_by = 'r' WHERE thread = {OPEN}": "which is not the open run",
    f"UPDATE interrupts SET claimed_by = 'r' WHERE thread = {OPEN}": "is open, but claimed by run 'r'",
    f"UPDATE interrupts SET claimed_by = 'x' WHERE thread = {ANSWERED}": "was settled by run 'x', which does not exist",
    f"UPDATE interrupts SET scope = 'x' WHERE thread = {OPEN}": "has the scope 'x'",
    f"DELETE FROM runs WHERE thread = {BRANCHES} AND run_id = 'r2'": "the list of messages that it changes is missing",
    f"UPDATE runs SET request = CAST('{{' AS BLOB) WHERE thread = {OPEN}": "is not JSON",
    f"UPDATE runs SET list = x'c1' WHERE thread = {BRANCHES}": "the request of run 'r1' cannot be decoded",
    f"DELETE FROM contents WHERE thread = {BRANCHES}": "is missing",
    f"DELETE FROM contents WHERE thread = {BRANCHES} AND length(body) > 60000": "inline file",
    f"UPDATE contents SET body = CAST('{{}}' AS BLOB) WHERE thread = {BRANCHES}": "does not match its digest",
    "DELETE FROM holds": "belongs to no thread and was not stored without one",
    "UPDATE file_parts SET data = CAST('changed' AS BLOB)": "does not match its id",
    "UPDATE files SET size = 1": "and its row says 1",
    "DELETE FROM files": "which does not exist",
    "UPDATE usage SET bytes = bytes + 1 WHERE kind = 0": "bytes; its quotas count",
    "UPDATE usage SET threads = 0 WHERE kind = 1": "its quotas count 0 threads",
    f"DELETE FROM threads WHERE key = {OPEN}": "rows belong to no thread",
    "UPDATE threads SET position = 1": "two threads at position 1",
}


def test_a_file_of_a_newer_schema_needs_a_newer_aguila(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    for arguments in (("store", "check", path), ("store", "stats", path), ("threads", "list", "--store", path)):
        done = aguila(*arguments)
        assert (done.exit_code, done.stderr.endswith(": use a newer Aguila\n")) == (2, True), done.output


USAGE = "SELECT kind, scope, sum(threads), sum(files), sum(bytes) FROM usage GROUP BY kind, scope"


def new_run(run_id: str, event: bytes) -> NewRun:
    return NewRun(scope="a", thread_id="t", run_id=run_id, owner="o", lease_seconds=30.0, request=b"{}", events=[event])


def clone(source: Path, target: Path) -> Path:
    with sqlite3.connect(source) as one, sqlite3.connect(target) as other:
        one.backup(other)
    one.close()
    other.close()
    return target


def test_a_copied_store_is_the_same_through_the_api_and_nothing_is_broken(demo: Demo, tmp_path: Path) -> None:
    source, expected, files = demo
    target = tmp_path / "copy.db"
    count = len(expected["/threads"])
    done = aguila("store", "copy", source, target)
    assert (done.exit_code, f"threads: {count} added\n" in done.stderr) == (0, True), done.output
    done = aguila("store", "copy", source, target)  # as after an interrupted copy
    assert (done.exit_code, f"threads: {count} unchanged\n" in done.stderr) == (0, True), done.output
    for path in (source, target):
        done = aguila("store", "check", path)
        assert (done.exit_code, done.stdout) == (0, "")
    with served(target) as server:
        assert seen(server, files) == expected
    one, other = (json.loads(aguila("store", "stats", path, "--json").stdout) for path in (source, target))
    names = ("threads", "thread_bytes", "runs", "events", "open_interrupts", "files", "file_bytes")
    assert {name: one[name] for name in names} == {name: other[name] for name in names}
    assert one["threads"] == count


def test_a_store_is_copied_to_postgres_and_back(
    demo: Demo, tmp_path: Path, postgres: str, postgres_schema: str
) -> None:
    source, expected, files = demo
    middle, back = f"{postgres}{'&' if '?' in postgres else '?'}aguila_schema={postgres_schema}", tmp_path / "back.db"
    count = len(expected["/threads"])
    for one, other in ((source, middle), (middle, back), (source, f"sqlite:///{back}")):
        done = aguila("store", "copy", one, other)
        assert done.exit_code == 0, done.output
    assert f"threads: {count} unchanged" in done.stderr
    for store in (make_store(middle), make_store(back)):
        with serving(App(agent, store=store, allow_anonymous=True)) as server:
            assert seen(server, files) == expected
    assert aguila("store", "check", back).exit_code == 0


def test_a_run_in_progress_is_lost_in_the_copy_and_goes_on_in_the_store(tmp_path: Path) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"

    async def begin_copy_and_end() -> None:
        async with SQLiteStore(source) as store:
            lease = (await store.begin(new_run("r", b'{"type":"RUN_STARTED"}'))).lease
            done = await asyncio.to_thread(aguila, "store", "copy", source, target)
            assert done.exit_code == 0, done.output
            end = RunEnd(outcome="success")
            await store.write(lease, RunChange(events=[b'{"type":"RUN_FINISHED"}'], end=end))

    asyncio.run(begin_copy_and_end())
    events = aguila("threads", "show", "t", "--store", target, "--json").stdout.splitlines()
    assert json.loads(events[-1])["code"] == "run_lost"
    assert aguila("store", "check", target).exit_code == 0
    assert aguila("store", "copy", source, target).exit_code == 1  # the run has ended otherwise since
    assert aguila("store", "copy", source, target, "--replace").exit_code == 0
    assert "RUN_FINISHED" in aguila("threads", "show", "t", "--store", target, "--json").stdout


@pytest.mark.parametrize("statement", DAMAGE)
def test_check_names_what_is_broken(demo: Demo, tmp_path: Path, statement: str) -> None:
    path = clone(demo[0], tmp_path / "broken.db")
    with sqlite3.connect(path) as db:
        assert db.execute(statement).rowcount > 0
    db.close()
    done = aguila("store", "check", path)
    assert (done.exit_code, DAMAGE[statement] in done.stdout) == (1, True), done.output


def test_check_counts_again_what_each_scope_holds(demo: Demo, tmp_path: Path) -> None:
    path = clone(demo[0], tmp_path / "miscounted.db")
    with sqlite3.connect(path) as db:
        before = db.execute(USAGE).fetchall()
        db.execute("UPDATE usage SET bytes = 7")
        db.execute("UPDATE threads SET counted = 7 WHERE counted IS NOT NULL")
    db.close()
    assert aguila("store", "check", path).exit_code == 1
    done = aguila("store", "check", path, "--recount")
    assert (done.exit_code, done.stdout) == (0, "")
    with sqlite3.connect(path) as db:
        assert db.execute(USAGE).fetchall() == before
    db.close()
    found = json.loads(aguila("store", "stats", path, "--json").stdout)
    assert found["counted_bytes"] == found["thread_bytes"] + found["file_bytes"]
    assert found["largest_scope_threads"] == found["threads"]


def test_compact_returns_unused_space(demo: Demo, tmp_path: Path) -> None:
    path = clone(demo[0], tmp_path / "large.db")
    with sqlite3.connect(path) as db:
        db.execute("INSERT OR REPLACE INTO checks VALUES (1, 0, zeroblob(1000000))")
        db.commit()
        db.execute("DELETE FROM checks")
    db.close()
    before = path.stat().st_size
    assert aguila("store", "compact", path).exit_code == 0
    assert path.stat().st_size < before - 900_000
    assert aguila("store", "check", path).exit_code == 0


@pytest.mark.parametrize("command", ["check", "stats", "compact"])
def test_a_store_that_does_not_exist_is_not_created(tmp_path: Path, command: str) -> None:
    done = aguila("store", command, tmp_path / "none.db")
    assert (done.exit_code, "there is no store" in done.stderr) == (2, True)
    assert not (tmp_path / "none.db").exists()


def test_a_store_is_not_copied_to_itself_and_other_files_are_no_stores(demo: Demo, tmp_path: Path) -> None:
    assert "is the store to copy from" in aguila("store", "copy", demo[0], demo[0]).stderr
    (tmp_path / "text.db").write_text("not a database, but long enough to be read as one")
    for command in ("check", "stats"):
        assert aguila("store", command, tmp_path / "text.db").exit_code == 2


def test_an_interrupt_that_is_raised_again_is_counted_once(tmp_path: Path) -> None:
    async def raise_twice() -> None:
        async with SQLiteStore(tmp_path / "asks.db") as store:
            for run_id, body in (("r1", b'{"id":"i"}'), ("r2", b'{"id":"i","again":true}')):
                lease = (await store.begin(new_run(run_id, b'{"type":"X"}'))).lease
                end = RunEnd(outcome="interrupt", interrupts=[("i", body)])
                await store.write(lease, RunChange(events=[b'{"type":"RUN_FINISHED"}'], end=end))

    asyncio.run(raise_twice())
    done = aguila("store", "check", tmp_path / "asks.db")
    assert (done.exit_code, done.stdout) == (0, "")
