"""Send ended runs in compacted form, to readers that ask with ``?compact=true``.

Only the last event of a run has an id. A reader that is cut off within a run gets the whole run again. Long runs are
compacted in a thread. A compacted run is held as a whole until its reader has it, so a run beyond ``MAX_EVENTS``, or
beyond what ``Limits.buffered`` leaves for it, is sent as it is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from msgspec import UNSET

from aguila.codec import decode_event
from aguila.codec.notices import Notice, Warn
from aguila.offload import LARGE, offload
from aguila.protocol import Event, State, StateDeltaEvent
from aguila.server.config.errors import Rejected
from aguila.server.config.limits import UNLIMITED
from aguila.server.http.request import Request
from aguila.server.http.stream import EventStream
from aguila.server.threads.log import read_log
from aguila.server.threads.requests import load_request
from aguila.store import Batch, RunRecord, Store
from aguila.store.cursors import format_cursor
from aguila.stream import compact

MAX_EVENTS: Final = 200_000
_MANY: Final = 200
"""Runs of at most this many events are compacted on the event loop, in about a millisecond."""
_COPIES: Final = 2
"""How many times the bytes of its log a run takes in memory while it is compacted and sent."""

Replay = Callable[[EventStream], Awaitable[None]]


def wants_compact(request: Request) -> bool:
    """Return whether a request has ``?compact=true``. Raises ``Rejected`` for another value than true or false."""
    value = request.query.get("compact", "false").lower()
    if value not in ("true", "1", "false", "0"):
        raise Rejected(422, "bad_compact", "compact must be true or false", "/compact")
    return value in ("true", "1")


def build_compact_replay(store: Store, records: Sequence[RunRecord], warn: Warn) -> Replay:
    """Return a function that writes the ended runs among these to a stream, after the reader's cursor."""
    return partial(_write, store, records, warn)


async def _write(store: Store, records: Sequence[RunRecord], warn: Warn, stream: EventStream) -> None:
    for record in records:
        if record.is_running:
            return
        if record.last <= stream.after:
            continue
        is_partial = record.first <= stream.after  # a reader of a part of the stored run gets the rest
        if is_partial or record.last - record.first >= MAX_EVENTS or not await _write_run(store, record, warn, stream):
            await stream.write_stored(record.last)


async def _write_run(store: Store, record: RunRecord, warn: Warn, stream: EventStream) -> bool:
    """Write a run in compacted form. Return False, having written nothing, if there is no room for it."""
    budget, held = stream.service.compacting, 0
    try:
        events: list[Event] = []
        is_large = record.last - record.first >= _MANY
        async for batches in read_log(store, stream.scope, stream.thread_id, stream.after, record.last):
            for batch in batches:
                size = _COPIES * sum(map(len, batch.events))
                if not budget.try_add(size):
                    return False
                held += size
                is_large = is_large or any(len(data) > LARGE for data in batch.events)
                decoded = await offload(_decode, batch) if is_large else _decode(batch)
                events += [event for event in decoded if event is not None]
        frames = await _compact(store, record, warn, stream, events, is_large=is_large)
        stream.after = record.last
        await stream.write(frames, events=len(events))
    finally:
        budget.remove(held)
    return True


async def _compact(
    store: Store, record: RunRecord, warn: Warn, stream: EventStream, events: list[Event], *, is_large: bool
) -> bytes:
    """Return the frames of a run in compacted form; leave its events in the list."""
    framing = stream.framing
    state: State = UNSET
    if any(isinstance(event, StateDeltaEvent) for event in events):
        # If the agent started from another state than the client sent, a snapshot comes first.
        sent = await load_request(store, record)
        state = {} if sent.state is None else sent.state
    if is_large:
        notices: list[Notice] = []  # the thread must not call ``warn``
        events[:] = await offload(compact, events, state=state, warn=notices.append)
        for notice in notices:
            warn(notice)
    else:
        events[:] = compact(events, state=state, warn=warn)
    if state is not UNSET and framing.translator is not None and framing.dialect.state_baseline:
        # Compaction moves only a snapshot before the first delta, so the state before it is the input's.
        framing.translator.supply_state(record.run_id, state)
    frames = partial(framing.frame_events, events, format_cursor(record.last, record.token))
    return await offload(frames) if is_large else frames()


def _decode(batch: Batch) -> list[Event | None]:
    return [decode_event(data, strict=True, max_size=UNLIMITED) for data in batch.events]
