"""A file of the schema before this one: it is refused, and converted by a copy without a change in any document."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from serving import serving
from stores.demo_store import aguila
from stores.legacy_store import FOLDER, OPEN, SCOPES, authenticate, build, documents_of, expected_documents

from aguila import App
from aguila.errors import StoreUnavailable
from aguila.store import RunKey, SQLiteStore, Want
from aguila.store.archives.archive import RUN_LOST


async def agent(run: Any) -> None:
    """Never runs."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return build(tmp_path / "old.db")


def test_a_converted_file_gives_the_same_documents(old: Path, tmp_path: Path) -> None:
    before = sha256(old.read_bytes()).hexdigest()
    new = tmp_path / "new.db"
    for found in ("16 added", "16 unchanged"):
        done = aguila("store", "copy", old, new)
        assert (done.exit_code, found in done.stderr) == (0, True), done.output
    assert sha256(old.read_bytes()).hexdigest() == before
    expected = expected_documents()
    files = expected.pop("files")
    with ExitStack() as stack:
        server = stack.enter_context(serving(App(agent, store=SQLiteStore(new), authenticate=authenticate)))
        peers = {scope: stack.enter_context(closing(server.peer(**{"x-user": scope}))) for scope in SCOPES}
        for _ in range(2):  # the turns are computed, then they are stored
            documents = documents_of(peers, files)
            for scope in SCOPES:
                for name in documents[scope].keys() | expected[scope].keys():
                    assert documents[scope].get(name) == expected[scope].get(name), name
    done = aguila("store", "check", new)
    assert (done.exit_code, done.stdout) == (0, "")


def test_a_run_that_had_not_ended_is_lost_and_its_question_is_open_again(old: Path, tmp_path: Path) -> None:
    assert aguila("store", "copy", old, tmp_path / "new.db").exit_code == 0

    async def read() -> None:
        async with SQLiteStore(tmp_path / "new.db") as store:
            found = await store.thread("ana", OPEN, Want(runs=True, interrupts=True, effects=True))
            assert [run.outcome for run in found.runs] == ["interrupt", "error"]
            assert [interrupt.status for interrupt in found.interrupts] == ["open"]
            assert found.results("left") == {"done": b'"an effect"'}
            part = await store.read("ana", OPEN, found.runs[-1].first)
            assert part.batches[-1].events[-1] == RUN_LOST
            assert b'"left"' in await store.request(RunKey("ana", OPEN, "left"))

    asyncio.run(read())


def test_an_id_of_a_thread_that_was_removed_in_the_old_file_starts_above_its_numbers(old: Path, tmp_path: Path) -> None:
    assert aguila("store", "copy", old, tmp_path / "new.db").exit_code == 0
    app = App(agent, store=SQLiteStore(tmp_path / "new.db"), authenticate=authenticate)
    with serving(app) as server, closing(server.peer(**{"x-user": "ana"})) as peer:
        peer.events(thread_id="gone", run_id="new", messages=[])
        assert peer.get("/threads/gone").json()["last"] > 5
        cursor = {"last-event-id": "3"}
        assert peer.get("/threads/gone/events", headers=cursor).status_code == 410


@pytest.mark.parametrize("command", [("store", "check"), ("threads", "list", "--store"), ("store", "migrate")])
def test_an_old_file_is_refused_with_the_command_that_converts_it(command: tuple[str, ...], old: Path) -> None:
    before = sha256(old.read_bytes()).hexdigest()
    done = aguila(*command, old)
    assert (done.exit_code, f"aguila store copy {old} NEW" in done.stderr) == (2, True), done.output

    async def open_store() -> None:
        with pytest.raises(StoreUnavailable, match="aguila store copy"):
            await SQLiteStore(old).open()

    asyncio.run(open_store())
    assert sha256(old.read_bytes()).hexdigest() == before


def test_a_file_older_than_that_names_the_aguila_that_upgrades_it(old: Path) -> None:
    with closing(sqlite3.connect(old)) as db:
        db.execute("PRAGMA user_version = 11")
    done = aguila("store", "copy", old, old.with_name("new.db"))
    assert (done.exit_code, "commit 7e4615b0" in done.stderr) == (2, True), done.output


def test_an_export_of_that_time_is_imported_as_the_file_is_converted(old: Path, tmp_path: Path) -> None:
    converted, imported = tmp_path / "converted.db", tmp_path / "imported.db"
    assert aguila("store", "copy", old, converted).exit_code == 0
    done = aguila("threads", "import", FOLDER / "export.jsonl", "--store", imported)
    assert (done.exit_code, "5 added" in done.stderr) == (0, True), done.output
    wanted = ("branches", "compacted", "asks", "answered", "tools")
    exports = [
        aguila("threads", "export", *wanted, "--scope", "ana", "--store", place) for place in (converted, imported)
    ]
    # Threads are in the order of the import. Format 1 does not say of a run that compacting it would change nothing.
    one, other = [sorted(done.stdout.replace('"compacted":true,', "").splitlines()) for done in exports]
    assert one == other
    assert aguila("store", "check", imported).exit_code == 0
