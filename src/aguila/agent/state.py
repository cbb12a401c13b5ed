"""``run.state``: a plain JSON value whose changes are found and sent, also while an agent awaits something else.

Nothing is compared before the agent first reads the state. After that each comparison encodes it to MessagePack (about
1 us for 2 KB). Only if the bytes differ is the difference computed, in time that grows with the size of the state. For
large states ``patch_state`` sends operations without comparing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from aguila.agent.chat_values import is_delta
from aguila.errors import EncodeError
from aguila.protocol import JsonPatchOperation
from aguila.stream.delta_merger import ITEM_IDS
from aguila.stream.json_values import copy_json
from aguila.stream.patch import apply_patch
from aguila.stream.writer import Events, EventWriter

if TYPE_CHECKING:
    from aguila.agent.output import Output

MIN_PAUSE = 0.02
"""Seconds between two comparisons while text streams or the agent waits, at least."""

MAX_PAUSE = 0.25
"""Seconds between two comparisons while the agent waits and nothing changes, unless a comparison is expensive."""

_COST_FACTOR = 50
"""The pause after a comparison is at least this many times as long as the comparison."""

_TIMER_SLACK = 0.001
"""Seconds that a timer of the event loop may be early."""

_DELTA_METHODS = frozenset({EventWriter.write_text, EventWriter.write_reasoning, EventWriter.write_tool_args})
_UNREAD: Any = object()
_OBJECT: Any = dict  # typed Any so that isinstance leaves documents Any, as in stream.diff
_encode = msgspec.msgpack.Encoder().encode


def _is_delta(value: Any) -> bool:
    return (
        value.__class__ is str
        or value.__class__ in ITEM_IDS
        or getattr(value, "__func__", None) in _DELTA_METHODS
        or is_delta(value)
    )


@dataclass(slots=True, eq=False)
class SharedState:
    """The agent's copy of the state, compared with the state that writers have sent.

    ``origin`` is the writer whose state the agent starts from, and whose events the client receives. In a replay the
    client has another state, and ``changes`` is called with the writer that knows it.
    """

    origin: EventWriter
    is_replay: bool = False
    may_differ: bool = False
    """Whether there may be changes to send: always in a replay, and otherwise from the first read on."""
    is_read: bool = False
    """Whether the agent may hold a reference to the state, so that it can change at any moment."""
    pause: float = MIN_PAUSE
    """Seconds between two comparisons: more for a state that is expensive to compare."""
    on_read: Callable[[], None] | None = None
    """Called once, when the agent first reads or assigns the state."""
    _value: Any = _UNREAD
    _sent: bytes | None = None  # the encoded value that was last sent
    _compared: float = 0.0
    _passed_on: Any = _UNREAD  # the origin's state that another writer last got

    @property
    def value(self) -> Any:
        """The agent's own copy, made when it is first read."""
        if self._value is _UNREAD:
            self._value = copy_json(self.origin.state)
            self._note_read()
        return self._value

    @value.setter
    def value(self, state: Any) -> None:
        self._value = state
        if not self.is_read:
            self._note_read()

    def _note_read(self) -> None:
        self.is_read = self.may_differ = True
        if self.on_read is not None:
            self.on_read()

    def seen(self) -> Any:
        """Return the current state, to compare with later: the same object while it cannot have changed."""
        return self.origin.state if self._value is _UNREAD else copy_json(self._value)

    def is_due(self, value: Any) -> bool:
        """Return whether to compare before this output: if there may be a change, but not before every delta."""
        if self._value is _UNREAD:
            return self.is_replay and self._passed_on is not self.origin.state
        return self.due_in() <= 0 or not _is_delta(value)

    def due_in(self) -> float:
        """Return the seconds until the state should be compared again."""
        return self._compared + self.pause - time.monotonic()

    def changes(self, writer: EventWriter) -> Events:
        """Return the event that brings the client up to date, or none if nothing changed.

        Raises ``EncodeError``, with a pointer into the state, if the state is no longer JSON.
        """
        if self._value is _UNREAD:
            if not self.is_replay or self._passed_on is self.origin.state:
                return []
            self._passed_on = self.origin.state
            return writer.set_state(self.origin.state)
        began = time.thread_time()  # not the clock: on a loaded machine a comparison takes long, but does not cost more
        try:
            return self._compare(writer)
        finally:
            self._compared = time.monotonic()
            self.pause = max(MIN_PAUSE, _COST_FACTOR * (time.thread_time() - began))

    def _compare(self, writer: EventWriter) -> Events:
        encoded = self._encoded()
        if encoded is not None and encoded == self._sent:
            return []
        self._sent = None
        try:
            events = writer.set_state(self._value)
        except EncodeError:
            copy_json(self._value)  # raises the same with a path from the root of the state
            raise
        self._sent = encoded
        return events

    def patch(self, patch: Sequence[JsonPatchOperation]) -> None:
        """Apply a patch of the origin to the agent's copy."""
        if self._value is _UNREAD:
            return
        self._become(apply_patch(self._value, copy_json(list(patch))))
        self._sent = None if self.is_replay else self._encoded()

    def adopt(self) -> None:
        """Take over the origin's state after the agent sent a state event of its own."""
        if self._value is not _UNREAD:
            self._become(copy_json(self.origin.state))
        self._sent = None

    def _become(self, state: Any) -> None:
        """Change the agent's copy. An object at the root stays the same object: the agent may hold it."""
        old: Any = self._value
        if isinstance(old, _OBJECT) and isinstance(state, _OBJECT):
            members = dict(state)
            old.clear()
            old.update(members)
        else:
            self._value = state

    def _encoded(self) -> bytes | None:
        try:
            return _encode(self._value)
        except RecursionError:
            raise EncodeError("the state is nested too deep, or contains itself") from None
        except (TypeError, ValueError, OverflowError):
            return None  # set_state accepts it (lone surrogates), or finds the place


class StateSampler:
    """Compares the state on a timer.

    The pause between two comparisons doubles while nothing changes, and grows with the cost of a comparison. It may be
    made in another thread than that of ``loop``: a sync tool may be the first to read the state.
    """

    __slots__ = ("_loop", "_output", "_pause", "_timer")

    def __init__(self, output: Output, loop: asyncio.AbstractEventLoop) -> None:
        self._output = output
        self._pause = MIN_PAUSE
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        loop.call_soon_threadsafe(self._schedule)

    def stop(self) -> None:
        """Stop comparing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._sample)

    def _sample(self) -> None:
        output = self._output
        self._timer = None
        if output.is_over or output.failure is not None:
            return
        wait = output.state.due_in()
        if wait > _TIMER_SLACK:  # the state was compared since, before another event
            self._timer = self._loop.call_later(wait, self._sample)
            return
        has_changed = False
        try:
            has_changed = output.sample_state()
        except EncodeError as error:
            if error is output.failure:
                return
            # A state that is not JSON fails the agent at its next event, or the run at its end.
        except Exception:  # noqa: BLE001 - the sink refused; the agent gets the failure with its next event
            return
        least = output.state.pause
        self._pause = least if has_changed else min(2 * self._pause, max(MAX_PAUSE, least))
        self._schedule()
