"""A file of 20 MiB through the server and the client: how much memory it takes, and for how long a loop is held.

The server runs in a process of its own and measures itself (``tests/support/large_files/app.py``). A loop is held for
as long as a task that wants to run every 2 ms has to wait at the longest. By the clock this says more about other
things, on a machine that is busy with them, so of three rounds the best one counts. What the loop's own thread worked
meanwhile, and the memory, are those of the worst round.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

ROUNDS = 3
HELD = 50
"""Milliseconds for which a loop may be held by what is read and sent in pieces: uploads, and events from the log."""
REQUEST_HELD = 100 * 2.67
"""The same for a request that is decoded in one call: 100 ms for 10 MiB, and the file is 26.7 MiB of base64."""
EVENT_HELD = 60 * 2.67
"""The same for an event that is encoded or decoded in one call: 60 ms for 10 MiB."""
BOUNDS = {
    "in a request": REQUEST_HELD,
    "as ten attachments": REQUEST_HELD,
    "out, live": EVENT_HELD,
    "ten at once, in and out": REQUEST_HELD,
}


def rows() -> Iterator[dict[str, Any]]:
    from large_files import kit

    ways: dict[str, Callable[[Any], dict[str, Any]]] = {
        "in a request": kit.come_in,
        "as ten attachments": kit.ten_come_in,
        "uploaded, as a form": partial(kit.upload, is_form=True),
        "uploaded, as it is": partial(kit.upload, is_form=False),
        "out, live": kit.go_out,
        "out, from the log": kit.replay,
        "ten at once, in and out": kit.ten_at_once,
    }
    for kind in ("memory", "sqlite"):
        for name, way in ways.items():
            found = [_measured(kind == "sqlite", way) for _ in range(ROUNDS)]
            is_many = way is kit.ten_at_once
            size = (10 if is_many else 1) * kit.SIZE
            kept = 0 if kind == "sqlite" else size * 4 // 3 * (2 if is_many else 1)
            yield {
                "name": f"20 MiB {name}, {kind}: peak memory, times its size, beyond what the store keeps",
                "value": max(0, max(one["grown"] for one in found) - kept) / size,
                "most": 3,
                "unit": "x",
            }
            yield {
                "name": f"20 MiB {name}, {kind}: the loop's thread worked between two turns at the longest",
                "value": 1000 * max(one["worked"] for one in found),
                "most": BOUNDS.get(name, HELD),
                "unit": "ms",
            }
            yield {
                "name": f"20 MiB {name}, {kind}: the loop was held at the longest, by the clock",
                "value": 1000 * min(one["late"] for one in found),
                "most": BOUNDS.get(name, HELD),
                "unit": "ms",
            }
    yield {
        "name": "20 MiB in a result, read by AsyncClient: its loop was held at the longest",
        "value": 1000 * min(_client() for _ in range(ROUNDS)),
        "most": EVENT_HELD,
        "unit": "ms",
    }


def _measured(is_durable: bool, way: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    from large_files import kit

    with tempfile.TemporaryDirectory() as folder:
        server = kit.Measured(Path(folder), is_durable=is_durable)
        try:
            return way(server)
        finally:
            server.close()


def _client() -> float:
    from large_files import kit

    with tempfile.TemporaryDirectory() as folder:
        server = kit.Measured(Path(folder), is_durable=False)
        try:
            return asyncio.run(_read(str(server.client.base_url), kit.SIZE))
        finally:
            server.close()


async def _read(url: str, size: int) -> float:
    from aguila.client import AsyncClient
    from aguila.protocol import ToolCallResultEvent

    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            asked = time.monotonic()
            await asyncio.sleep(0.002)
            longest = max(longest, time.monotonic() - asked - 0.002)

    async with AsyncClient(url, max_size=1 << 30) as client:
        _ = [event async for event in client.thread("warm").run("Paint.", forwarded_props={"back": 1})]
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        longest = 0.0
        run = client.thread("read").run("Paint.", forwarded_props={"back": size})
        results = [event async for event in run if isinstance(event, ToolCallResultEvent)]
        watching.cancel()
    assert len(results) == 1
    return longest
