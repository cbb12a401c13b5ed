"""Merge the deltas of an item that wait to be sent together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

MAX_DELTA: Final = MAX_MERGED // 4
"""Maximum characters of a delta that is merged with others: they take at most ``MAX_MERGED`` bytes."""

ITEM_IDS: Final[dict[type[Any], str]] = {
    TextMessageContentEvent: TEXT.id_field,
    ReasoningMessageContentEvent: REASONING_MESSAGE.id_field,
    ToolCallArgsEvent: TOOL_CALL.id_field,
}
"""The events that can be merged, each with the name of its item's id."""


class DeltaMerger:
    """Collects deltas and merges those of the same item and owner, unless its owner sent another delta in between.

    A merged delta has the place of its first part, so it may come before deltas of other owners that were sent
    meanwhile. The caller takes the deltas before it sends any other event. So the output leads to the same messages as
    the input.
    """

    __slots__ = ("_deltas", "_merges", "_open")

    def __init__(self) -> None:
        self._deltas: list[Any] = []
        self._merges: list[tuple[int, list[str]]] = []  # places in _deltas, and the texts that were added there
        self._open: dict[str | None, tuple[type[Any], str, list[str]]] = {}  # by owner: the item of its last delta

    def add(self, delta: Any, item_id: str) -> list[str]:
        """Add a delta that has no metadata, raw event or timestamp. Return the list to append more text of it to."""
        owner, cls = delta.subagent_run_id, delta.__class__
        last = self._open.get(owner)
        if last is not None and last[1] == item_id and last[0] is cls:
            last[2].append(delta.delta)
            return last[2]
        if self._open:
            # Some deltas of an item may be tagged with its owner, and others not (SUB-9). They must keep their order.
            self._open = {key: one for key, one in self._open.items() if one[1] != item_id}
        texts: list[str] = [delta.delta]
        self._open[owner] = (cls, item_id, texts)
        self._merges.append((len(self._deltas), texts))
        self._deltas.append(delta)
        return texts

    def take(self) -> Sequence[Event]:
        """Return the merged deltas and forget them."""
        deltas = self._deltas
        for at, texts in reversed(self._merges):
            if len(texts) > 1:
                deltas[at : at + 1] = [replace(deltas[at], delta=text) for text in _join(texts)]
        self._deltas, self._merges, self._open = [], [], {}
        return deltas


def _join(texts: Sequence[str]) -> Iterator[str]:
    """Join texts to texts of at most ``MAX_MERGED`` bytes."""
    joined = "".join(texts)
    if len(joined) <= MAX_DELTA or _count_bytes(joined) <= MAX_MERGED:
        yield joined
        return
    first = size = 0
    for at, text in enumerate(texts):
        size += _count_bytes(text)
        if size > MAX_MERGED:
            yield "".join(texts[first:at])
            first, size = at, _count_bytes(text)
    yield "".join(texts[first:])


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
