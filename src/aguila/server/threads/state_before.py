"""Find the state before an event of the log.

Clients that declare no protocol version need a STATE_SNAPSHOT before a run's first STATE_DELTA. This is its content.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from aguila.codec import decode_event
from aguila.errors import NotFound, PatchError
from aguila.offload import LARGE, offload
from aguila.protocol import RunAgentInput, StateDeltaEvent, StateSnapshotEvent
from aguila.server.config.limits import UNLIMITED
from aguila.server.threads.requests import load_request
from aguila.store import RunKey, RunRecord, Store, Want
from aguila.stream.patch import apply_patch

_STATE_EVENTS = (b'{"type":"STATE_DELTA"', b'{"type":"STATE_SNAPSHOT"')


async def find_state_before(
    store: Store, scope: str, thread_id: str, run_id: str | None, number: int
) -> tuple[str, Any]:
    """Return the run that event ``number`` belongs to, and the state before that event.

    ``run_id`` is given if the reader has all events of the run and none of them had a state: then the state is the
    input's. Raises ``NotFound`` if the log has no such run.
    """
    if run_id is not None:
        return run_id, _input_state(await load_request(store, await store.run(RunKey(scope, thread_id, run_id))))
    record = await _find_run(store, scope, thread_id, number)
    state = _input_state(await load_request(store, record))
    position = record.first - 1
    while position < number - 1:
        batches = (await store.read(scope, thread_id, position, until=number - 1)).batches
        if not batches:
            break
        for batch in batches:
            for data in batch.events:
                if data.startswith(_STATE_EVENTS):
                    state = await offload(_apply, state, data) if len(data) > LARGE else _apply(state, data)
            position = batch.last
    return record.run_id, state


async def _find_run(store: Store, scope: str, thread_id: str, number: int) -> RunRecord:
    for record in reversed((await store.thread(scope, thread_id, Want(runs=True))).runs):
        if record.first <= number:
            return record
    raise NotFound(f"thread {thread_id!r} has no run with event {number}")


def _input_state(sent: RunAgentInput) -> Any:
    return {} if sent.state is None else sent.state


def _apply(state: Any, data: bytes) -> Any:
    event = decode_event(data, strict=True, max_size=UNLIMITED)
    if isinstance(event, StateSnapshotEvent):
        return event.snapshot
    if isinstance(event, StateDeltaEvent):
        with suppress(PatchError):  # a patch that fails changes nothing (SNAP-9)
            return apply_patch(state, event.delta)
    return state
