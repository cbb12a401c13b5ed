"""``/data``: a caller exports and erases everything it has stored, and nothing of others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from serving import Gate, Peer, serving
from waiting import wait_until

from aguila import App, Run
from aguila.store import SQLiteStore
from aguila.store.archives.copying import restore_thread
from aguila.store.archives.file_format import decode_archives
from aguila.store.records import ThreadArchive

TEXTS = {"ana": b"only-ana-knows-this", "bob": b"only-bob-knows-this"}


def authenticate(request: Any) -> str | None:
    return request.headers.get("x-user")


class Both(NamedTuple):
    path: Path
    ana: Peer
    bob: Peer
    gate: Gate

    def stored(self) -> bytes:
        """Return the bytes of the files of the store, the write-ahead log included."""
        return b"".join([one.read_bytes() for one in self.path.parent.glob(self.path.name + "*")])


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    gate = Gate()

    async def agent(run: Run) -> None:
        await run.say(f"you said {run.user_text}")
        if "wait" in run.user_text:
            await gate.wait()

    app = App(agent, store=SQLiteStore(tmp_path / "store.db"), authenticate=authenticate)
    with ExitStack() as stack:
        server = stack.enter_context(serving(app))
        peers = [stack.enter_context(closing(server.peer(**{"x-user": name}))) for name in TEXTS]
        for peer, text in zip(peers, TEXTS.values(), strict=True):
            for number in range(3):
                message = {"id": "m", "role": "user", "content": text.decode() * 1000}
                peer.events(thread_id=f"t{number}", run_id="r", messages=[message])
            for query in ("", "?threadId=t0", "?threadId=early"):
                headers = {"content-type": "text/plain"}
                assert peer.post(f"/files{query}", content=text + query.encode(), headers=headers).status_code == 201
        yield Both(tmp_path / "store.db", *peers, gate)
        gate.open()


def test_an_export_has_everything_of_the_caller_and_can_be_restored(both: Both, tmp_path: Path) -> None:
    answer = both.ana.get("/data")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/jsonl")
    assert "attachment" in answer.headers["content-disposition"]
    assert TEXTS["bob"] not in answer.content
    archives = list(decode_archives(answer.content.splitlines(keepends=True)))
    threads = [one for one in archives if isinstance(one, ThreadArchive)]
    assert [one.thread.summary.thread_id for one in threads] == ["t0", "t1", "t2"]
    assert len(archives) == 5  # two files belong to no thread, and one is within its thread

    async def restore() -> None:
        async with SQLiteStore(tmp_path / "copy.db") as store:
            for archive in archives:
                if isinstance(archive, ThreadArchive):
                    assert await restore_thread(store, archive, replace=False) == "added"
                else:
                    await store.restore(archive)

    asyncio.run(restore())
    assert TEXTS["ana"] in (tmp_path / "copy.db").read_bytes()


def test_erased_data_is_gone_and_leaves_the_files_of_the_store(both: Both) -> None:
    assert TEXTS["ana"] in both.stored()
    assert both.ana.delete("/data").status_code == 204
    assert both.ana.get("/threads").json()["threads"] == []
    assert both.ana.get("/data").content == b""
    wait_until(lambda: TEXTS["ana"] not in both.stored())  # in steps, while nothing else is written
    assert TEXTS["bob"] in both.stored()
    assert [one["threadId"] for one in both.bob.get("/threads").json()["threads"]] == ["t2", "t1", "t0"]
    assert both.ana.delete("/data").status_code == 204  # nothing is left to erase


def test_nothing_is_erased_while_a_run_is_in_progress(both: Both) -> None:
    with both.ana.run(thread_id="t1", run_id="waits", messages=[{"id": "w", "role": "user", "content": "wait"}]) as run:
        both.gate.await_reached()
        answer = both.ana.delete("/data")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "thread_busy")
        assert len(both.ana.get("/threads").json()["threads"]) == 3
        exported = list(decode_archives(both.ana.get("/data").content.splitlines(keepends=True)))
        assert len(exported) == 5  # the run in progress is lost in the export
        both.gate.open()
        run.rest()
    assert both.ana.delete("/data").status_code == 204
