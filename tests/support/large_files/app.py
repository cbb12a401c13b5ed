"""A server that measures itself: how long its event loop was blocked, and how much its memory grew.

Run as a program it serves ``PORT``, with the threads in ``STORE``. ``POST /measure`` returns the figures since the last
one.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

from aguila import App
from aguila.chat import ChatMessage, ChatUpdate, DataContent, FunctionCallContent, FunctionResultContent
from aguila.server import Limits
from aguila.store import MemoryStore

TICK = 0.002
IMAGE = random.Random(1).randbytes(20 << 20)
"""The file that the agent sends. It is made before anything is measured."""


class Probe:
    """Watches the event loop from within, and the memory of the process."""

    def __init__(self) -> None:
        self._watching: asyncio.Task[None] | None = None
        self._resets = 0
        self.reset()

    def start(self) -> None:
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def reset(self) -> None:
        self._resets += 1
        self.late = self.worked = self.held = 0.0
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
        self.base = _memory("VmRSS")

    async def _watch(self) -> None:
        while True:
            resets = self._resets
            asked, by_loop, by_all = time.monotonic(), time.thread_time(), time.process_time()
            await asyncio.sleep(TICK)
            if resets != self._resets:
                continue  # collecting and trimming take long, and belong to no request
            self.late = max(self.late, time.monotonic() - asked - TICK)
            self.worked = max(self.worked, time.thread_time() - by_loop)
            self.held = max(self.held, time.process_time() - by_all)

    def figures(self) -> dict[str, Any]:
        return {
            "late": self.late,
            "worked": self.worked,
            "held": self.held,
            "grown": _memory("VmHWM") - self.base,
            "threads": threading.active_count(),
        }


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


async def agent(run: Any) -> Any:
    """Read every file of the request; send a file as a result if the request asks for it."""
    message = (await run.chat_messages())[-1]
    sizes = [len(content.data) for content in message.contents if isinstance(content, DataContent)]
    yield json.dumps(sizes)
    size = run.forwarded_props["back"] if isinstance(run.forwarded_props, dict) else 0
    if size:
        yield ChatUpdate(contents=[FunctionCallContent("c", "paint", "{}")])
        yield ChatMessage("tool", [FunctionResultContent("c", [DataContent(IMAGE[:size], "image/png")])])


def build() -> Any:
    limits = Limits(body=1 << 30, event=1 << 30, upload=1 << 30, buffered=int(os.environ["AT_ONCE"]))
    path = os.environ.get("STORE")
    store = MemoryStore(max_bytes=1 << 31) if path is None else path
    app = App(agent, store=store, limits=limits, allow_anonymous=True)
    probe = Probe()

    async def measured(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/measure":
            await app(scope, receive, send)
            return
        probe.start()
        body = json.dumps(probe.figures()).encode()
        probe.reset()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})

    return measured


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(build(), port=int(os.environ["PORT"]), log_level="warning", lifespan="off")
