"""Write threads directly into a store, run by run, without a server."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from builders import ignore
from streams.random_streams import random_stream

from aguila.codec import decode, decode_event, encode, encode_event
from aguila.errors import NotFound
from aguila.protocol import (
    Event,
    Interrupt,
    Message,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    replace,
)
from aguila.server.config.options import HistoryMode
from aguila.server.threads.cache import Threads
from aguila.server.threads.hydration import Hydration, hydrate_thread
from aguila.store import Lease, NewRun, RunChange, RunEnd, RunRecord, Store, Want
from aguila.stream import expand_chunks

SCOPE = "scope"
THREAD = "thread"


def agent_input(run_id: str, *messages: Message, **fields: Any) -> RunAgentInput:
    fields = {"thread_id": THREAD, "protocol_version": "1.1", **fields}
    return RunAgentInput(run_id=run_id, messages=list(messages), **fields)


def resume_entry(interrupt_id: str, payload: Any = None, status: Any = "resolved") -> ResumeEntry:
    return ResumeEntry(interrupt_id=interrupt_id, status=status, payload=payload)


def run_end(event: Event) -> RunEnd:
    """Return the RunEnd that belongs to a terminal event."""
    if isinstance(event, RunErrorEvent):
        return RunEnd(outcome="error")
    assert isinstance(event, RunFinishedEvent)
    if isinstance(event.outcome, RunFinishedInterruptOutcome):
        return RunEnd(outcome="interrupt", interrupts=[(one.id, encode(one)) for one in event.outcome.interrupts])
    return RunEnd(outcome="success" if event.outcome is None else event.outcome.type)


async def runs_of(store: Store, scope: str = SCOPE, thread_id: str = THREAD) -> Sequence[RunRecord]:
    """Return the runs of a thread; none if it does not exist."""
    try:
        return (await store.thread(scope, thread_id, Want(runs=True))).runs
    except NotFound:
        return ()


async def begin_run(
    store: Store,
    input: RunAgentInput,
    events: Sequence[Event] = (),
    *,
    claims: Sequence[str] = (),
    scope: str = SCOPE,
    started: RunStartedEvent | None = None,
) -> Lease:
    """Begin a run as a server would: its RUN_STARTED and further first events, and its input as it was sent."""
    if started is None:
        started = RunStartedEvent(
            thread_id=input.thread_id,
            run_id=input.run_id,
            parent_run_id=input.parent_run_id,
            protocol_version="1.1",
        )
    begun = await store.begin(
        NewRun(
            scope=scope,
            thread_id=input.thread_id,
            run_id=input.run_id,
            owner="owner",
            lease_seconds=30.0,
            request=encode(input),
            fingerprint=input.run_id,
            events=[encode_event(event) for event in [started, *events]],
            parent_run_id=input.parent_run_id,
            claims=claims,
        )
    )
    return begun.lease


async def append_events(store: Store, lease: Lease, events: Iterable[Event]) -> None:
    """Append events one by one; a terminal one closes the run."""
    for event in events:
        end = run_end(event) if isinstance(event, RunFinishedEvent | RunErrorEvent) else None
        await store.write(lease, RunChange(events=[encode_event(event)], end=end))


async def write_run(
    store: Store,
    input: RunAgentInput,
    events: Sequence[Event] = (),
    *,
    outcome: Any = "success",
    claims: Sequence[str] = (),
    settled: Sequence[str] = (),
    scope: str = SCOPE,
) -> None:
    """Write a whole run. ``outcome`` is a word, or the interrupts that it ends with."""
    lease = await begin_run(store, input, claims=claims, scope=scope)
    if settled:
        await store.write(lease, RunChange(settles=settled))
    await append_events(store, lease, events)
    ids = {"thread_id": input.thread_id, "run_id": input.run_id}
    ending: Event
    if outcome == "error":
        ending = RunErrorEvent(message="It broke.", code="broken")
    elif outcome == "cancelled":
        ending = RunFinishedEvent(**ids, outcome=RunFinishedCancelledOutcome())
    elif outcome == "success":
        ending = RunFinishedEvent(**ids)
    else:
        ending = RunFinishedEvent(**ids, outcome=RunFinishedInterruptOutcome(interrupts=list(outcome)))
    await append_events(store, lease, [ending])


def make_interrupt(interrupt_id: str, **fields: Any) -> Interrupt:
    return Interrupt(id=interrupt_id, reason="input_required", **fields)


# Random threads


def random_runs(rng: random.Random, size: int, **options: Any) -> tuple[list[Event], list[Event]]:
    """Return the events of a history, and those of one more run, as a server's log has them."""
    log = list(expand_chunks(random_stream(rng, size, **options)))
    runs: list[list[Event]] = []
    for event in log:
        if isinstance(event, RunStartedEvent):
            runs.append([])
        if runs and not any(isinstance(one, RunFinishedEvent | RunErrorEvent) for one in runs[-1]):
            runs[-1].append(decode(encode_event(event)))  # type: ignore[arg-type]
    last = runs.pop()
    return [event for run in runs for event in run], last


async def store_event(store: Store, event: Event, lease: Any) -> Any:
    if isinstance(event, RunStartedEvent):
        given = agent_input(event.run_id) if event.input is None else event.input
        given = decode(encode(replace(given, parent_run_id=event.parent_run_id)), RunAgentInput)
        return await begin_run(store, given, started=replace(event, input=None))
    await append_events(store, lease, [event])
    return lease


async def log_after(store: Store, after: int) -> list[Event]:
    """Return the events after a sequence number."""
    events: list[Event] = []
    for batch in (await store.read(SCOPE, THREAD, after, limit=1_000_000)).batches:
        events += [event for event in map(decode_event, batch.events) if event is not None]
    return events


async def hydrate(store: Store, run_id: str = "visit", *, history: HistoryMode = "client", **options: Any) -> Hydration:
    """Return the hydration of a client that joins now."""
    runs = await runs_of(store)
    live = runs[-1] if runs and runs[-1].is_running else None
    return await hydrate_thread(
        store, Threads(store, history=history, warn=ignore), SCOPE, THREAD, run_id, live=live, **options
    )
