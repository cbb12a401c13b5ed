"""A turn: what one run changed on its branch of a thread. It is stored with the end of the run.

Messages and states are digests; their JSON is in the values of the thread. A view of a thread is the fold of the turns
on a branch (``View.fold``), so a thread is read without its log and its requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, cast

import msgspec

from aguila.codec import decode_event
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent, RunStartedEvent, ToolCallStartEvent
from aguila.server.config.limits import UNLIMITED
from aguila.server.config.options import HistoryMode, UnknownHistory
from aguila.store.contents import ListDelta, split_digests
from aguila.stream.conversation import CallStatus, ConversationRun
from aguila.stream.reducer.run_history import RunHistory

FORMAT: Final = 2
"""The version of ``Turn`` and of the rules that compute it. A turn of another version is computed again."""


class UnusableTurn(LookupError):
    """A stored turn refers to a value or to a run that the thread does not have."""


class Turn(msgspec.Struct, frozen=True, kw_only=True, array_like=True, dict=True):
    """The changes of a run. Messages and the state are digests; events are JSON."""

    history: HistoryMode
    unknown_history: UnknownHistory
    parent: str | None
    """The run that it continues."""
    messages: tuple[bytes | tuple[int, int], ...]
    """The messages after the run, as a change of those of ``parent``; see ``ListDelta``."""
    state: bytes
    has_state: bool
    """Whether the branch ever had a state: ``{}`` may be a state or the lack of one (IN-11)."""
    start: bytes
    """RUN_STARTED, without an echoed input."""
    end: bytes | None
    """The terminal event."""
    calls: dict[str, CallStatus]
    call_starts: list[bytes]
    subagents: list[bytes]
    """The events that start or end a subagent."""
    open_items: list[bytes]
    """The start events of the items that are open, in order. A closed run has none."""
    last_sent: str | None
    """The last message that every client holds; see ``cut_history``."""
    created: list[tuple[str, str]]
    """Id and role of each message that the run created."""
    brought: list[str]
    """Ids of the client's messages that no run had before."""
    instructions: list[str]
    """Ids of new system and developer messages of the client."""
    known: list[bytes]
    """The messages that the run sent, as it left them."""
    front_end_calls: dict[str, bytes]
    """Calls that the run left to the front end, with their messages."""
    results: dict[str, dict[str, bytes]]
    """Calls whose results changed, with the messages by their ids; none if the results were withdrawn."""
    interrupted: list[str]
    """Calls that an interrupt asks about, added by the run."""
    uninterrupted: list[str]
    """Calls that an interrupt asked about, removed by the run."""

    @property
    def size(self) -> int:
        """About the bytes that this turn needs in memory, without the values."""
        ids = len(self.calls) + len(self.created) + len(self.brought) + len(self.known) + len(self.messages)
        events = [self.start, self.end or b"", *self.call_starts, *self.subagents]
        return 1024 + 128 * ids + 64 * len(events) + sum(map(len, events))

    @cached_property
    def started(self) -> RunStartedEvent:
        """RUN_STARTED, without an echoed input."""
        return cast("RunStartedEvent", _decode_event(self.start))

    @cached_property
    def ended(self) -> RunFinishedEvent | RunErrorEvent | None:
        """The terminal event; None while the run is open."""
        return None if self.end is None else cast("RunFinishedEvent | RunErrorEvent", _decode_event(self.end))

    @cached_property
    def run(self) -> ConversationRun:
        """The run as an entry of its conversation."""
        history = RunHistory()
        history.start(self.started)
        for call_id, status in self.calls.items():
            if status == "answered":
                history.answer_call(call_id)
                continue
            history.start_call(call_id)
            if status == "called":
                history.end_call(call_id)
        if isinstance(self.ended, RunFinishedEvent):
            history.finish(self.ended)
        elif self.ended is not None:
            history.fail(self.ended)
        return history.view()[-1]

    def started_calls(self) -> dict[str, ToolCallStartEvent]:
        """Return the start events of the tool calls, by call id."""
        events = cast("list[ToolCallStartEvent]", decode_events(self.call_starts))
        return {event.tool_call_id: event for event in events}


encode_turn = msgspec.msgpack.Encoder().encode
decode_turn = msgspec.msgpack.Decoder(Turn).decode


def apply_lists(start: bytes, turns: Iterable[Turn]) -> bytes:
    """Return the list of message digests after the last of these turns."""
    found = bytearray(start)
    for turn in turns:
        parts = turn.messages
        kept = 0
        if parts and not isinstance(parts[0], bytes) and parts[0][0] == 0:
            kept, parts = parts[0][1], parts[1:]
        added = [part for part in parts if isinstance(part, bytes)]
        if len(added) == len(parts):  # nearly always: the list has grown at its end
            del found[kept:]
            found += b"".join(added)
        else:
            found = bytearray(ListDelta(turn.messages).apply(bytes(found)))
    return bytes(found)


def apply_results(turns: Iterable[Turn]) -> dict[str, dict[str, bytes]]:
    """Return the results of the calls whose results these turns changed; none for a call that has lost them."""
    return {call_id: results for turn in turns for call_id, results in turn.results.items()}


def list_digests(start: bytes, turns: Sequence[Turn]) -> list[bytes]:
    """Return the digests of the messages and results after the last of these turns."""
    results = apply_results(turns).values()
    return [*split_digests(apply_lists(start, turns)), *(digest for one in results for digest in one.values())]


def decode_events(events: Iterable[bytes]) -> list[Event]:
    """Decode events of a turn. Raises ``UnusableTurn`` for an unknown type."""
    return list(map(_decode_event, events))


def _decode_event(data: bytes) -> Event:
    event = decode_event(data, strict=True, max_size=UNLIMITED)
    if event is None:
        raise UnusableTurn("a stored turn has an event of an unknown type")
    return event
