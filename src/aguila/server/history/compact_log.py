"""Layer: server. Runs that have ended, told in their shortest form.

Below: ``aguila.stream.compact``, the store. Above: ``run_routes`` and ``thread_routes``, for readers that ask with
``?compact=true``. Only the last event of a run has an id: a reader that is cut off in the middle of one gets all of
that run again.
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
    """Whether the reader asks for the shortest form. Raises ``Rejected`` for what is neither yes nor no."""
    asked = request.query.get("compact", "false").lower()
    if asked not in ("true", "1", "false", "0"):
        raise Rejected(422, "bad_compact", "compact is true or false", "/compact")
    return asked in ("true", "1")


def compact_replay(store: Store, records: Sequence[RunRecord], warn: Warn) -> Replay:
    """What writes these runs, as far as they have ended and the reader does not have them."""
    return partial(_write, store, records, warn)


async def _write(store: Store, records: Sequence[RunRecord], warn: Warn, stream: EventStream) -> None:
    framing = stream.framing
    for record in records:
        if record.is_running:
            return
        if record.last <= stream.after:
            continue
        if record.first <= stream.after:  # the reader has a part of it, as it was; so it gets the rest as it was
            await stream.write_stored(record.last)
            continue
        events: list[Event] = []
        is_large = False
        position = stream.after
        while position < record.last:
            for batch in await store.read(stream.scope, stream.thread_id, position, until=record.last):
                is_large = is_large or any(len(data) > LARGE for data in batch.events)
                decoded = await offload(_decoded, batch) if is_large else _decoded(batch)
                events += [event for event in decoded if event is not None]
                position = batch.last
        events = compact(events, warn=warn)
        if framing.dialect.state_baseline and any(isinstance(event, StateDeltaEvent) for event in events):
            # Compaction moves nothing before the first delta but a snapshot.
            given = await load_input(store, record)
            if framing.translator is not None:
                framing.translator.supply_state(record.run_id, {} if given.state is None else given.state)
        frames = partial(framing.frame_events, events, record.last)
        stream.after = record.last
        await stream.write(await offload(frames) if is_large else frames())


def _decoded(batch: Batch) -> list[Event | None]:
    return [decode_event(data, strict=True, max_size=UNLIMITED) for data in batch.events]
