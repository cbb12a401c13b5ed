"""Commands whose standard output is closed, as by ``head``, end without a message."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import DEADLINE

from aguila.store import NewRun, RunChange, RunEnd, SQLiteStore


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stream, and a store with one thread."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "x.jsonl").write_text('{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n')
    asyncio.run(fill(folder / "store.db"))
    return folder


async def fill(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    new = NewRun(
        scope="a",
        thread_id="t",
        run_id="r",
        owner="o",
        lease_seconds=30.0,
        request=b"{}",
        events=[b'{"type":"RUN_STARTED"}'],
    )
    lease = (await store.begin(new)).lease
    await store.write(lease, RunChange(events=[b'{"type":"RUN_FINISHED"}'], end=RunEnd(outcome="success")))
    await store.close()


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["convert", "x.jsonl", "--to", "sse"], ""),
        (["store", "stats", "store.db"], ""),
        (["store", "stats", "store.db"], "1"),
        (["threads", "list", "--store", "store.db"], ""),
        (["threads", "list", "--store", "store.db"], "1"),
        (["threads", "show", "t", "--store", "store.db", "--json"], ""),
        (["threads", "export", "--store", "store.db"], ""),
    ],
)
def test_a_closed_output_ends_a_command_silently(folder: Path, arguments: list[str], unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "aguila", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=DEADLINE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
