"""A closed run, read from its stored changes."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from aguila.codec import decode_event
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent, RunStartedEvent
from aguila.server.config.limits import UNLIMITED
from aguila.server.threads.branch_reducer import LastRun
from aguila.server.threads.run_changes import RunChanges, UnusableProjection
from aguila.stream.conversation import ConversationRun
from aguila.stream.reducer.run_history import RunHistory


class ClosedRun(msgspec.Struct, frozen=True):
    """A run that has ended, with the sequence number of its last event."""

    changes: RunChanges
    run: ConversationRun
    last: int


def conversation_run(changes: RunChanges, started: RunStartedEvent) -> ConversationRun:
    """Return a closed run as an entry of its conversation."""
    history = RunHistory()
    history.start(started)
    for call_id, status in changes.calls.items():
        if status == "answered":
            history.answer_call(call_id)
            continue
        history.start_call(call_id)
        if status == "called":
            history.end_call(call_id)
    ended = None if changes.ended is None else decode_stored_event(changes.ended)
    if isinstance(ended, RunFinishedEvent):
        history.finish(ended)
    elif isinstance(ended, RunErrorEvent):
        history.fail(ended)
    return history.view()[-1]


def last_run(changes: RunChanges) -> LastRun:
    """Return a closed run as the last one of a projection."""
    calls = cast("list[Any]", [decode_stored_event(data) for data in changes.call_starts])
    return LastRun(
        started=cast("RunStartedEvent", decode_stored_event(changes.started)),
        ended=None if changes.ended is None else cast("Any", decode_stored_event(changes.ended)),
        open_items=[],
        calls={event.tool_call_id: event for event in calls},
        subagent_events=[decode_stored_event(data) for data in changes.subagent_events],
    )


def decode_stored_event(data: bytes) -> Event:
    """Decode an event of the changes. Raise ``UnusableProjection`` for an unknown type."""
    event = decode_event(data, strict=True, max_size=UNLIMITED)
    if event is None:
        raise UnusableProjection("a stored projection has an event of an unknown type")
    return event
