"""The state that a client has just before an event of the log.

Clients that declare no protocol version need a STATE_SNAPSHOT before a run's first STATE_DELTA; this is its content.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from aguila.codec import decode_event
from aguila.errors import NotFound, PatchError
from aguila.offload import LARGE, offload
from aguila.protocol import RunAgentInput, StateDeltaEvent, StateSnapshotEvent
from aguila.server.history.stored_input import load_input
from aguila.server.limits import UNLIMITED
from aguila.store import RunRecord, Store
from aguila.stream.patch import apply_patch

_STATE = (b'{"type":"STATE_DELTA"', b'{"type":"STATE_SNAPSHOT"')


async def state_before(store: Store, scope: str, thread_id: str, run_id: str | None, number: int) -> tuple[str, Any]:
    """Return the run that event ``number`` belongs to, and the state before that event.

    ``run_id`` is given if the reader has seen the run from its start, without any state: then the run's input has it.
    Raises ``NotFound`` if the log has no such run.
    """
    if run_id is not None:
        return run_id, _state_of(await load_input(store, await store.run(scope, thread_id, run_id)))
    record = await _run_at(store, scope, thread_id, number)
    state = _state_of(await load_input(store, record))
    position = record.first - 1
    while position < number - 1:
        batches = await store.read(scope, thread_id, position, until=number - 1)
        if not batches:
            break
        for batch in batches:
            for data in batch.events:
                if data.startswith(_STATE):
                    state = await offload(_applied, state, data) if len(data) > LARGE else _applied(state, data)
            position = batch.last
    return record.run_id, state


async def _run_at(store: Store, scope: str, thread_id: str, number: int) -> RunRecord:
    for record in reversed(await store.runs(scope, thread_id)):
        if record.first <= number:
            return record
    raise NotFound(f"thread {thread_id!r} has no run with event {number}")


def _state_of(given: RunAgentInput) -> Any:
    return {} if given.state is None else given.state


def _applied(state: Any, data: bytes) -> Any:
    event = decode_event(data, strict=True, max_size=UNLIMITED)
    if isinstance(event, StateSnapshotEvent):
        return event.snapshot
    if isinstance(event, StateDeltaEvent):
        with suppress(PatchError):  # then the state stays as it was (SNAP-9)
            return apply_patch(state, event.delta)
    return state
