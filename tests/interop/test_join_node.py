"""The official client ends up with the same conversation whether it joins later or watches from the beginning."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from processes.node import run_node
from stores.stored_threads import hydrate, log_after, random_runs, store_event

from aguila.codec.sse import SSEEncoder
from aguila.protocol import Event, RunStartedEvent, StateSnapshotEvent, ToolCallResultEvent
from aguila.store import MemoryStore

pytestmark = pytest.mark.anyio

SEEDS = 40


def body(events: list[Event]) -> str:
    encoder = SSEEncoder()
    return b"".join(map(encoder.encode, events)).decode()


async def streams(seed: int) -> tuple[str, list[tuple[bool, str]], set[str]]:
    """Return the stream of a client that watched all runs, and those of clients that join in the last run."""
    rng = random.Random(seed)
    # Half surrogates are kept by our reducer and not by a fetch response.
    past, run = random_runs(rng, rng.randrange(10, 70), collisions=False, surrogates=False)
    store = MemoryStore()
    await store.open()
    watched: list[Event] = []
    joins: list[Any] = []
    lease: Any = None
    for at, event in enumerate([*past, *run]):
        if isinstance(event, RunStartedEvent):
            # One line of runs: a client that watched them all has seen no branches.
            event = RunStartedEvent(
                thread_id=event.thread_id, run_id=event.run_id, protocol_version="1.1", input=event.input
            )
        lease = await store_event(store, event, lease)
        watched.append(event)
        if isinstance(event, RunStartedEvent):
            watched.append(StateSnapshotEvent(snapshot={}))  # the input's state, which the client had sent
        if at >= len(past):
            joins.append(await hydrate(store, history="server"))  # a viewer does not see the edits of other clients
    told: list[tuple[bool, str]] = []
    for joined in joins:
        rest = await log_after(store, joined.after) if joined.is_live else []
        told.append((joined.is_live, body([*joined.events, *rest])))
    answered = {event.tool_call_id for event in run if isinstance(event, ToolCallResultEvent)}
    return body(watched), told, answered


def last_run(verdict: dict[str, Any], answered: set[str]) -> dict[str, Any]:
    """Return the last run, without pending calls that were answered in it.

    The protocol allows a result before the end of its call. A client that joins in between sees no answer in the run.
    """
    run = dict(verdict["runs"][-1])
    run["pending"] = [call for call in run.get("pending") or () if call not in answered]
    return run


def comparable(verdict: dict[str, Any], other: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages without contents of parts: the client loses parts if text follows them (TXT-3)."""
    both = [*verdict["messages"], *other["messages"]]
    parts = {message["id"] for message in both if isinstance(message.get("content"), list)}
    return [{**message, "content": None} if message["id"] in parts else message for message in verdict["messages"]]


async def test_a_client_that_joins_after_any_event_ends_up_like_one_that_watched_from_the_beginning() -> None:
    threads = [await streams(seed) for seed in range(SEEDS)]
    bodies = [text for watched, told, _ in threads for text in (watched, *(one for _, one in told))]
    lines = "\n".join(json.dumps({"body": text, "messages": [], "state": {}}) for text in bodies)
    verdicts = map(json.loads, run_node("differential.mjs", lines).splitlines())
    for seed, (_, told, answered) in enumerate(threads):
        watcher = next(verdicts)
        assert watcher["verdict"] == "accepted", (seed, watcher)
        for at, (is_live, text) in enumerate(told):
            comer = next(verdicts)
            where = (seed, at, text)
            assert comer["verdict"] == "accepted", (where, comer)
            assert comer["state"] == watcher["state"], where
            assert comparable(comer, watcher) == comparable(watcher, comer), where
            if is_live:
                assert last_run(comer, answered) == last_run(watcher, answered), where
            if watcher["runs"][-1]["outcome"] not in (None, "error"):
                assert comer["interrupts"] == watcher["interrupts"], where
    assert next(verdicts, None) is None
