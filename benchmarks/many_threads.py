"""A scope with 100,000 threads, next to one with 100: a page of the list, a thread, and the start of a run.

Figures are operations per second of CPU, of all threads of the process, so that other load does not count. Of several
rounds the best one counts, and the two stores take turns. ``python -m benchmarks.many_threads [threads]`` prints them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aguila import App
from aguila.codec import encode
from aguila.protocol import RunAgentInput, UserMessage
from aguila.server import Limits, Quota
from aguila.server.http.access import ANONYMOUS
from aguila.store import (
    MemoryStore,
    MetadataFilter,
    NewRun,
    RunChange,
    RunEnd,
    SQLiteStore,
    Store,
    ThreadFilter,
    ThreadSummary,
    ThreadUpdate,
)

MANY = 100_000
FEW = 100
ROUNDS = 7
EACH = 20
"""How often an operation is repeated in a round."""
AT_MOST = 1.5

Operation = Callable[[Store, App, int], Awaitable[object]]


async def call(app: App, method: str, path: str, body: bytes = b"") -> bytes:
    """Send a request to an app in this process; return the body of the response."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    requests = [{"type": "http.request", "body": body, "more_body": False}]
    received: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if not requests:
            await asyncio.Event().wait()
        return requests.pop()

    async def send(message: dict[str, Any]) -> None:
        received.append(message.get("body", b""))

    await app(scope, receive, send)  # type: ignore[arg-type]
    return b"".join(received)


async def agent(run: Any) -> None:
    await run.say("Hello")


async def fill(store: Store, threads: int) -> None:
    """Write threads with one run each. One in a thousand is archived and has metadata of its own."""
    started = b'{"type":"RUN_STARTED","threadId":"t","runId":"r","protocolVersion":"1.1"}'
    ended = b'{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"success"}}'
    body = encode(RunAgentInput(thread_id="t", run_id="r", messages=[UserMessage(id="u", content="Hello")]))

    async def write(number: int) -> None:
        begun = await store.begin(
            NewRun(
                scope=ANONYMOUS,
                thread_id=f"t{number}",
                run_id="r",
                owner="o",
                lease_seconds=60,
                request=body,
                events=[started],
            )
        )
        is_rare = number % (threads // FEW * 10) == 7
        update = ThreadUpdate(archived=is_rare, metadata=b'{"rare":"yes"}' if is_rare else b'{"usual":"yes"}')
        await store.write(begun.lease, RunChange(events=[ended], end=RunEnd(outcome="success", update=update)))

    for first in range(0, threads, 200):  # together, so that they share commits
        await asyncio.gather(*(write(number) for number in range(first, min(first + 200, threads))))


async def list_threads(store: Store, which: ThreadFilter) -> Sequence[ThreadSummary]:
    return (await store.threads(ANONYMOUS, which)).threads


async def list_first(store: Store, _: App, __: int) -> None:
    assert len(await list_threads(store, ThreadFilter())) == 50


async def list_deep(store: Store, _: App, threads: int) -> None:
    newest = (await list_threads(store, ThreadFilter(limit=1)))[0].position
    assert len(await list_threads(store, ThreadFilter(before=newest - threads // 4))) == 50


async def list_archived(store: Store, _: App, __: int) -> None:
    assert len(await list_threads(store, ThreadFilter(archived=True))) == 10


async def list_by_rare_metadata(store: Store, _: App, __: int) -> None:
    assert len(await list_threads(store, ThreadFilter(metadata=MetadataFilter("rare", "yes")))) == 10


async def list_by_usual_metadata(store: Store, _: App, __: int) -> None:
    assert len(await list_threads(store, ThreadFilter(metadata=MetadataFilter("usual", "yes")))) == 50


async def open_thread(_: Store, app: App, threads: int) -> None:
    body = await call(app, "GET", f"/threads/t{threads // 2}")
    assert b'"Hello"' in body, body


_started = 0


async def start_run(_: Store, app: App, __: int) -> None:
    global _started
    _started += 1
    message = UserMessage(id="u", content="Hello")
    sent = RunAgentInput(thread_id=f"new-{_started}", run_id="r", messages=[message], protocol_version="1.1")
    body = await call(app, "POST", "/", encode(sent))
    assert b"RUN_FINISHED" in body, body


OPERATIONS: dict[str, Operation] = {
    "list the first page": list_first,
    "list a page in the middle": list_deep,
    "list archived threads": list_archived,
    "list by metadata that few threads have": list_by_rare_metadata,
    "list by metadata that most threads have": list_by_usual_metadata,
    "open a thread": open_thread,
    "run in a new thread": start_run,
}


@asynccontextmanager
async def filled(store: Store, threads: int) -> AsyncIterator[App]:
    await store.open()
    await fill(store, threads)
    limits = Limits(anonymous=Quota(), per_address=Quota())  # the quotas would refuse one more thread
    app = App(agent, store=store, allow_anonymous=True, limits=limits)
    try:
        yield app
    finally:
        await app.close()
        await store.close()


async def measure(few: Store, many: Store, threads: int) -> dict[str, tuple[float, float]]:
    """Return the operations per second of CPU, with few and with many threads."""
    found: dict[str, tuple[float, float]] = {}
    async with filled(few, FEW) as small, filled(many, threads) as large:
        for name, operation in OPERATIONS.items():
            best = [0.0, 0.0]
            for _ in range(ROUNDS):
                for at, (store, app, count) in enumerate(((few, small, FEW), (many, large, threads))):
                    began = time.process_time()
                    for _ in range(EACH):
                        await operation(store, app, count)
                    best[at] = max(best[at], EACH / (time.process_time() - began))
            found[name] = (best[0], best[1])
    return found


def rows(threads: int = MANY) -> Iterator[dict[str, Any]]:
    for kind in ("memory", "sqlite"):
        with tempfile.TemporaryDirectory() as folder:
            if kind == "memory":
                few, many = (MemoryStore(max_bytes=4 << 30, max_threads=2 * MANY) for _ in range(2))
            else:
                few, many = (SQLiteStore(Path(folder) / name) for name in ("few.db", "many.db"))
            for name, (small, large) in asyncio.run(measure(few, many, threads)).items():
                yield {
                    "name": f"{threads:,} threads, {kind}: {name}",
                    "ours": large,
                    "peer": small,
                    "peer_name": f"{FEW} threads",
                    "floor": round(1 / AT_MOST, 2),
                    "unit": "per CPU second",
                }


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]) if len(sys.argv) > 1 else MANY):
        print(f"{row['name']:70}{row['ours']:10,.0f}{row['peer']:10,.0f}{row['ours'] / row['peer']:8.2f}x")
