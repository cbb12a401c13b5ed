"""``run.state``: a plain JSON value whose changes are found and sent.

Nothing is compared before the agent first reads the state. After that each comparison encodes it to MessagePack (about
1 us for 2 KB). Only if the bytes differ is the difference computed, in time that grows with the size of the state. For
large states ``patch_state`` sends operations without comparing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from aguila.errors import EncodeError
from aguila.protocol import JsonPatchOperation
from aguila.stream.json_values import copy_json
from aguila.stream.patch import apply_patch
from aguila.stream.writer import Events, EventWriter

MIN_PAUSE = 0.02
"""Seconds between two comparisons while text streams or the agent waits, at least."""

MAX_PAUSE = 0.25
"""Seconds between two comparisons while the agent waits and nothing changes, unless a comparison is expensive."""

_COST_FACTOR = 50
"""The pause after a comparison is at least this many times as long as the comparison."""

_UNREAD: Any = object()
_OBJECT: Any = dict  # typed Any so that isinstance leaves documents Any, as in stream.diff
_encode = msgspec.msgpack.Encoder().encode


class SharedState:
    """The agent's copy of the state, compared with the state that writers have sent.

    ``origin`` is the writer whose state the agent starts from. ``changes`` may be called with another one.
    """

    def __init__(self, origin: EventWriter) -> None:
        self._origin = origin
        self._value: Any = _UNREAD
        self._sent: bytes | None = None  # the encoded value that was last sent
        self._compared = 0.0
        self.pause = MIN_PAUSE
        """Seconds between two comparisons: more for a state that is expensive to compare."""
        self.on_read: Callable[[], None] | None = None
        """Called once, when the agent first reads or assigns the state."""
        self._passed_on: Any = _UNREAD  # the origin's state that another writer last got
        self.is_read = False
        """Whether the agent may hold a reference to the state, so that it can change at any moment."""

    @property
    def value(self) -> Any:
        """The agent's own copy, made when it is first read."""
        if self._value is _UNREAD:
            self._value = copy_json(self._origin.state)
            self._note_read()
        return self._value

    @value.setter
    def value(self, state: Any) -> None:
        self._value = state
        if not self.is_read:
            self._note_read()

    def _note_read(self) -> None:
        self.is_read = True
        if self.on_read is not None:
            self.on_read()

    def seen(self) -> Any:
        """Return the current state, to compare with later: the same object while it cannot have changed."""
        return self._origin.state if self._value is _UNREAD else copy_json(self._value)

    def is_due(self) -> bool:
        """Return whether to compare while deltas stream."""
        return self.is_read and self.due_in() <= 0

    def due_in(self) -> float:
        """Return the seconds until the state should be compared again."""
        return self._compared + self.pause - time.monotonic()

    def changes(self, writer: EventWriter) -> Events:
        """Return the event that brings the client up to date, or none if nothing changed.

        Raises ``EncodeError``, with a pointer into the state, if the state is no longer JSON.
        """
        if self._value is _UNREAD:
            if writer is self._origin or self._passed_on is self._origin.state:
                return []
            self._passed_on = self._origin.state
            return writer.set_state(self._origin.state)
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

    def patch(self, patch: Sequence[JsonPatchOperation], *, is_sent: bool) -> None:
        """Apply a patch of the origin to the agent's copy. ``is_sent`` if the client has it as well."""
        if self._value is _UNREAD:
            return
        self._become(apply_patch(self._value, copy_json(list(patch))))
        self._sent = self._encoded() if is_sent else None

    def adopt(self) -> None:
        """Take over the origin's state after the agent sent a state event of its own."""
        if self._value is not _UNREAD:
            self._become(copy_json(self._origin.state))
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
