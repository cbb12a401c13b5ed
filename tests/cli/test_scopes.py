"""``aguila scopes``: everything that one user has is listed, exported and erased, also from the files of the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from serving import Peer, serving
from stores.demo_store import aguila

from aguila import App, Run
from aguila.store import PostgresStore, SQLiteStore
from aguila.store.locations import make_store

TEXTS = {
    "message": "ana-asked-this",
    "answer": "ana-was-told-this",
    "state": "ana-state",
    "session": "ana-session",
    "effect": "ana-effect",
    "question": "ana-was-asked",
    "title": "ana-title",
    "metadata": "ana-metadata",
    "kept file": "ana-kept-file",
    "file of a thread": "ana-file-of-a-thread",
    "name of a file": "ana-file-name",
    "removed": "ana-removed-before",
}
"""A text of each kind. They repeat in long values, so that some are contents of their own."""


async def agent(run: Run) -> None:
    """Write every text of the agent."""
    if "ana" not in run.user_text:
        await run.say("bob-stays")
        return
    run.state = {"a": TEXTS["state"] * 100}
    run.session = {"a": TEXTS["session"] * 2000}
    await run.once("effect", lambda: TEXTS["effect"])
    await run.say(TEXTS["answer"] * 100)
    if run.user_text.startswith("ask "):
        await run.ask(TEXTS["question"])


def authenticate(request: Any) -> str | None:
    return request.headers.get("x-user")


def fill(peer: Peer) -> None:
    """Store every text of ana."""
    long = TEXTS["message"] * 2000
    for number, text in enumerate((long, f"ask {long}")):
        peer.events(thread_id="t", run_id=f"r{number}", messages=[{"id": "m", "role": "user", "content": text}])
    update = {"title": TEXTS["title"], "metadata": {"a": TEXTS["metadata"]}}
    changed = peer.client.patch("/threads/t", json=update)
    assert changed.status_code == 200, changed.text
    headers = {"content-type": "text/plain"}
    named = headers | {"content-disposition": f'attachment; filename="{TEXTS["name of a file"]}"'}
    assert peer.post("/files", content=TEXTS["kept file"] * 9000, headers=named).status_code == 201
    assert peer.post("/files?threadId=t", content=TEXTS["file of a thread"], headers=headers).status_code == 201
    peer.events(thread_id="gone", run_id="r", messages=[{"id": "m", "role": "user", "content": TEXTS["removed"]}])
    assert peer.delete("/threads/gone").status_code == 204


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The location of a store with the threads of ana and bob."""
    if request.param == "sqlite":
        place = str(tmp_path / "store.db")
    else:
        url, schema = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_schema")
        place = f"{url}{'&' if '?' in url else '?'}aguila_schema={schema}"
    with serving(App(agent, store=make_store(place), authenticate=authenticate)) as server:
        with closing(server.peer(**{"x-user": "ana"})) as peer:
            fill(peer)
        with closing(server.peer(**{"x-user": "bob"})) as peer:
            peer.events(thread_id="t", run_id="r", messages=[{"id": "m", "role": "user", "content": "hello"}])
    return place


def stored_bytes(location: str) -> bytes:
    """Return everything that a store has on disk: the bytes of its files, or all rows of all tables."""
    store = make_store(location)
    if isinstance(store, SQLiteStore):
        path = Path(location)
        return b"".join([one.read_bytes() for one in sorted(path.parent.glob(path.name + "*"))])
    assert isinstance(store, PostgresStore)
    return b"".join(rows_of(location))


def rows_of(location: str) -> Iterator[bytes]:
    """Yield all rows of the tables of a PostgreSQL schema."""
    import psycopg

    url, _, schema = location.partition("aguila_schema=")
    with psycopg.connect(url.rstrip("?&")) as db:
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        for (table,) in tables:
            for row in db.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall():  # type: ignore[arg-type]
                yield b" ".join([one if isinstance(one, bytes) else str(one).encode() for one in row])


def found_in(data: bytes) -> set[str]:
    return {name for name, text in TEXTS.items() if text.encode() in data}


def test_a_deleted_scope_leaves_no_text_in_the_store(location: str) -> None:
    before = found_in(stored_bytes(location))
    assert before >= TEXTS.keys() - {"removed"}
    done = aguila("scopes", "list", "--store", location, "--json")
    listed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["scope"], one["threads"], one["files"]) for one in listed] == [("ana", 1, 2), ("bob", 1, 0)]
    done = aguila("scopes", "delete", "ana", "--yes", "--store", location)
    assert (done.exit_code, "1 thread and 2 files deleted" in done.stderr) == (0, True), done.output
    left = stored_bytes(location)
    assert found_in(left) == set()
    assert b"ana" not in left.replace(b"banana", b"")
    assert b"bob-stays" in left
    assert aguila("store", "check", location).exit_code == 0
    done = aguila("scopes", "list", "--store", location)
    assert done.stdout.startswith("'bob'  1 thread  0 files"), done.output
    done = aguila("scopes", "delete", "ana", "--yes", "--store", location)
    assert (done.exit_code, "the store has nothing of scope 'ana'" in done.stderr) == (2, True)


def test_an_exported_scope_is_imported_whole(location: str, tmp_path: Path) -> None:
    export, copy = tmp_path / "ana.jsonl", tmp_path / "copy.db"
    done = aguila("scopes", "export", "ana", "--store", location, "-o", export)
    assert (done.exit_code, "1 thread and 2 files exported" in done.stderr) == (0, True), done.output
    assert b"bob-stays" not in export.read_bytes()
    done = aguila("threads", "import", export, "--store", copy)
    assert done.exit_code == 0, done.output
    assert found_in(stored_bytes(str(copy))) == TEXTS.keys() - {"removed"}
    listed = [aguila("scopes", "list", "--store", place).stdout.splitlines()[0] for place in (location, copy)]
    assert [line.split("  ")[:3] for line in listed] == 2 * [["'ana'", "1 thread", "2 files"]]
    again = tmp_path / "again.jsonl"
    assert aguila("scopes", "export", "ana", "--store", copy, "-o", again).exit_code == 0
    assert again.read_bytes() == export.read_bytes()


def test_a_scope_is_deleted_only_if_it_is_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    app = App(agent, store=SQLiteStore(path), authenticate=authenticate)
    with serving(app) as server, closing(server.peer(**{"x-user": "bob"})) as peer:
        peer.events(messages=[{"id": "m", "role": "user", "content": "hello"}])
    done = aguila("scopes", "delete", "bob", "--store", path)
    assert (done.exit_code, "Delete 1 thread and 0 files of scope 'bob'" in done.stderr) == (1, True), done.output
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM threads").fetchone() == (1,)
