"""Store a run of many events without an agent, because the page takes long enough to show it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aguila.server.http.access import ANONYMOUS
from aguila.store import NewRun, RunChange, SQLiteStore
from aguila.store.records import RunEnd

THREAD = "long"
RUN = "run"
_TURN = 50
_BATCH = 500


def long_run(size: int) -> Iterator[dict[str, Any]]:
    """Yield a valid run of about ``size`` events: texts, reasoning, calls with results, steps, subagents and state."""
    yield {"type": "RUN_STARTED", "threadId": THREAD, "runId": RUN, "protocolVersion": "1.1"}
    yield {"type": "STATE_SNAPSHOT", "snapshot": {"count": 0, "items": {}}}
    for turn in range(max(1, size // _TURN)):
        step = {"stepName": f"step {turn}"} if turn % 4 == 0 else None
        owner = {"subagentRunId": f"sub-{turn}"} if turn % 7 == 3 else {}
        if step:
            yield {"type": "STEP_STARTED", **step}
        if owner:
            yield {"type": "SUBAGENT_STARTED", "name": "helper", **owner}
        yield {"type": "REASONING_MESSAGE_START", "messageId": f"r{turn}", "role": "reasoning", **owner}
        for word in range(6):
            yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": f"r{turn}", "delta": f"thought {word} ", **owner}
        yield {"type": "REASONING_MESSAGE_END", "messageId": f"r{turn}", **owner}
        yield {"type": "TEXT_MESSAGE_START", "messageId": f"m{turn}", "role": "assistant", **owner}
        for word in range(25):
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": f"m{turn}", "delta": f"word{word} ", **owner}
        yield {"type": "TEXT_MESSAGE_END", "messageId": f"m{turn}", **owner}
        call = {"toolCallId": f"c{turn}"}
        yield {"type": "TOOL_CALL_START", **call, "toolCallName": "search", "parentMessageId": f"m{turn}", **owner}
        for piece in ('{"q":', f' "{turn}"', "}"):
            yield {"type": "TOOL_CALL_ARGS", **call, "delta": piece, **owner}
        yield {"type": "TOOL_CALL_END", **call, **owner}
        yield {"type": "TOOL_CALL_RESULT", "messageId": f"t{turn}", **call, "content": f"found {turn}", **owner}
        changes = [
            {"op": "replace", "path": "/count", "value": turn},
            {"op": "add", "path": f"/items/{turn % 40}", "value": turn},
        ]
        yield {"type": "STATE_DELTA", "delta": changes}
        if owner:
            yield {"type": "SUBAGENT_FINISHED", **owner}
        if step:
            yield {"type": "STEP_FINISHED", **step}
    usage = [{"model": "large", "inputTokens": 1200, "outputTokens": size}]
    yield {"type": "RUN_FINISHED", "threadId": THREAD, "runId": RUN, "usage": usage}


def store_events(path: Path, events: list[dict[str, Any]], **members: Any) -> None:
    """Write a run to the SQLite file of an app without authentication."""
    sent = {"threadId": THREAD, "runId": RUN, "protocolVersion": "1.1", "messages": [], "state": {}, **members}
    data = [json.dumps(event, separators=(",", ":")).encode() for event in events]

    async def write() -> None:
        store = SQLiteStore(path)
        await store.open()
        begun = await store.begin(
            NewRun(
                scope=ANONYMOUS,
                thread_id=THREAD,
                run_id=RUN,
                owner="test",
                lease_seconds=600,
                request=json.dumps(sent).encode(),
                fingerprint="f",
                events=data[:1],
            )
        )
        for at in range(1, len(data) - 1, _BATCH):
            await store.write(begun.lease, RunChange(events=data[at : min(at + _BATCH, len(data) - 1)]))
        await store.write(begun.lease, RunChange(events=data[-1:], end=RunEnd(outcome="success")))
        await store.close()

    # In a thread of its own: the caller may have an event loop, as Playwright has.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, write()).result()
