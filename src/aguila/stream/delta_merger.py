"""Merge the deltas of an item that wait to be sent together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aguila.protocol import (
    Event,
    ReasoningMessageContentEvent,
    TextMessageContentEvent,
    ToolCallArgsEvent,
    replace,
)
from aguila.stream.verification.rules import REASONING_MESSAGE, TEXT, TOOL_CALL

MAX_MERGED: Final = 16 * 1024
"""Maximum bytes of UTF-8 text in a merged delta."""

_MAX_DELTA: Final = MAX_MERGED // 4
"""Maximum characters of a delta that is merged with others: they take at most ``MAX_MERGED`` bytes."""

ITEM_IDS: Final[dict[type[Any], str]] = {
    TextMessageContentEvent: TEXT.id_field,
    ReasoningMessageContentEvent: REASONING_MESSAGE.id_field,
    ToolCallArgsEvent: TOOL_CALL.id_field,
}
"""The events that can be merged, each with the name of its item's id."""


_OpenDelta = tuple[type[Any], str, list[str]]


@dataclass(slots=True, eq=False)
class DeltaMerger:
    """Collects deltas and merges those of the same item and owner, unless its owner sent another delta in between.

    A merged delta has the place of its first part, so it may come before deltas of other owners that were sent
    meanwhile. The caller takes the deltas before it sends any other event. So the output leads to the same messages as
    the input.
    """

    _merges: list[tuple[Event, list[str]]] = field(default_factory=list[tuple[Event, list[str]]])
    """The first deltas, each with its text and what was added."""
    _open: dict[str | None, _OpenDelta] = field(default_factory=dict[str | None, _OpenDelta])
    """The item of the last delta of each owner."""

    def add(self, event: Any) -> str | None:
        """Add a short delta that has only text, and return the id of its item. Return None for any other event.

        The members of a delta that was added have their declared types, so it can be encoded later.
        """
        cls = event.__class__
        id_field = ITEM_IDS.get(cls)
        if id_field is None:
            return None
        item_id, text, owner = getattr(event, id_field), event.delta, event.subagent_run_id
        if (
            text.__class__ is not str
            or len(text) > _MAX_DELTA
            or not (owner is None or owner.__class__ is str)
            or not (event.metadata is event.raw_event is event.timestamp is None)
        ):
            return None
        last = self._open.get(owner)
        if last is not None and last[1] == item_id and last[0] is cls:
            last[2].append(text)
            return item_id
        if item_id.__class__ is not str:
            return None
        if self._open:
            # Some deltas of an item may be tagged with its owner, and others not (SUB-9). They must keep their order.
            self._open = {key: one for key, one in self._open.items() if one[1] != item_id}
        texts: list[str] = [text]
        self._open[owner] = (cls, item_id, texts)
        self._merges.append((event, texts))
        return item_id

    def take(self) -> Sequence[Event]:
        """Return the merged deltas and forget them."""
        merges, self._merges, self._open = self._merges, [], {}
        deltas: list[Event] = []
        for first, texts in merges:
            joined = "".join(texts)
            parts = (joined,) if len(joined) <= _MAX_DELTA else _join(texts)
            deltas += [replace(first, delta=text) for text in parts]
        return deltas


def _join(texts: Sequence[str]) -> Iterator[str]:
    """Join texts to texts of at most ``MAX_MERGED`` bytes."""
    first = size = 0
    for at, text in enumerate(texts):
        length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if size + length > MAX_MERGED:
            yield "".join(texts[first:at])
            first, size = at, 0
        size += length
    yield "".join(texts[first:])
