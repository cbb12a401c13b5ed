"""Limit the size of the documents that patches produce: a ``copy`` can double a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aguila.errors import PatchError
from aguila.stream.patch.apply import SizeBudget, TooLarge, apply_limited, size_of

_MAX_DOCUMENTS: Final = 16
_MAX_EVICTED: Final = 10_000


class PatchLimit:
    """Applies patches to documents of at most ``limit`` bytes of JSON, and at most an eighth more.

    Remembers the sizes of the last documents, so that a document that is patched again and again is measured once.
    """

    __slots__ = ("_budget", "_evicted", "_sizes")

    def __init__(self, limit: int) -> None:
        self._budget = SizeBudget(limit)
        self._sizes: dict[int, tuple[Any, int]] = {}  # with the document, so that its id is not used again
        self._evicted: dict[int, None] = {}  # not a set: an empty dict takes less memory, and every run has one

    def apply_patch(self, document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
        """Apply a patch as ``apply_patch`` does. Raise ``PatchError`` (``limit-size``) if the result is too large."""
        known = self._sizes.pop(id(document), None)
        size = self._measure(document) if known is None else known[1]
        result = document
        try:
            result, size = apply_limited(document, patch, size, self._budget)
        finally:  # also if it failed: to measure a large document for each failing patch would take long
            self._remember(result, size)
        return result

    def _measure(self, document: Any) -> int:
        if id(document) not in self._evicted:
            return size_of(document)  # it has just arrived
        try:
            size = self._budget.measure(document)
        except TooLarge as error:
            raise PatchError(str(error), rule="limit-size") from None
        self._evicted.pop(id(document), None)
        return size

    def _remember(self, document: Any, size: int) -> None:
        sizes = self._sizes
        if len(sizes) >= _MAX_DOCUMENTS:
            oldest = next(iter(sizes))
            del sizes[oldest]
            if len(self._evicted) < _MAX_EVICTED:
                self._evicted[oldest] = None
        sizes[id(document)] = (document, size)
