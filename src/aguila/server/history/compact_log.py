"""Send ended runs in compacted form, to readers that ask with ``?compact=true``.

Only the last event of a run has an id. A reader that is cut off within a run gets the whole run again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from aguila.codec import decode_event
from aguila.codec.notices import Warn
from aguila.offload import LARGE, offload
from aguila.protocol import Event, StateDeltaEvent
from aguila.server.auth import Request
from aguila.server.errors import Rejected
from aguila.server.history.stored_input import load_input
from aguila.server.http.event_stream import EventStream
from aguila.server.limits import UNLIMITED
from aguila.store import Batch, RunRecord, Store
from aguila.stream import compact

Replay = Callable[[EventStream], Awaitable[None]]


def wants_compact(request: Request) -> bool:
    """Return whether a request has ``?compact=true``. Raises ``Rejected`` for another value than true or false."""
    value = request.query.get("compact", "false").lower()
    if value not in ("true", "1", "false", "0"):
        raise Rejected(422, "bad_compact", "compact must be true or false", "/compact")
    return value in ("true", "1")


def build_compact_replay(store: Store, records: Sequence[RunRecord], warn: Warn) -> Replay:
    """Return a function that writes the ended ones of these runs to a stream, as far as its reader lacks them."""
    return partial(_write, store, records, warn)


async def _write(store: Store, records: Sequence[RunRecord], warn: Warn, stream: EventStream) -> None:
    framing = stream.framing
    for record in records:
        if record.is_running:
            return
        if record.last <= stream.after:
            continue
        if record.first <= stream.after:  # the reader has a part of the stored run, so it gets the stored rest
            await stream.write_stored(record.last)
            continue
        events: list[Event] = []
        is_large = False
        position = stream.after
        while position < record.last:
            for batch in await store.read(stream.scope, stream.thread_id, position, until=record.last):
                is_large = is_large or any(len(data) > LARGE for data in batch.events)
                decoded = await offload(_decode, batch) if is_large else _decode(batch)
                events += [event for event in decoded if event is not None]
                position = batch.last
        events = compact(events, warn=warn)
        if framing.dialect.state_baseline and any(isinstance(event, StateDeltaEvent) for event in events):
            # Compaction moves only a snapshot before the first delta, so the state before it is the input's.
            sent = await load_input(store, record)
            if framing.translator is not None:
                framing.translator.supply_state(record.run_id, {} if sent.state is None else sent.state)
        frames = partial(framing.frame_events, events, record.last)
        stream.after = record.last
        await stream.write(await offload(frames) if is_large else frames())


def _decode(batch: Batch) -> list[Event | None]:
    return [decode_event(data, strict=True, max_size=UNLIMITED) for data in batch.events]
