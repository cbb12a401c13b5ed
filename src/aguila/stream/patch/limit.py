"""Limit the size of the documents that patches produce: a ``copy`` can double a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aguila.errors import PatchError
from aguila.stream.patch.apply import SizeBudget, TooLarge, apply_limited, apply_patch, size_of

_MAX_DOCUMENTS: Final = 15  # besides the last one
_MAX_EVICTED: Final = 10_000


@dataclass(slots=True)
class _Prepared:
    """The result of a patch of a document. ``size`` is None if the document was not measured."""

    document: Any
    patch: Sequence[Mapping[str, Any]]
    result: Any
    size: int | None = None
    error: PatchError | None = None


class PatchLimit:
    """Applies patches to documents of at most ``limit`` bytes of JSON, and at most an eighth more.

    Remembers the sizes of the last documents, so that a document that is patched again and again is measured once.
    Without a limit, documents of any size are patched.
    """

    __slots__ = ("_budget", "_evicted", "_last", "_prepared", "_sizes")

    def __init__(self, limit: int | None) -> None:
        self._budget = None if limit is None else SizeBudget(limit)
        # The last document and its size. Nearly every patch is for it, so it is not looked up with the others.
        self._last: tuple[Any, int] | None = None
        self._sizes: dict[int, tuple[Any, int]] = {}  # with the document, so that its id is not used again
        self._evicted: dict[int, None] = {}  # not a set: an empty dict takes less memory, and every run has one
        self._prepared: _Prepared | None = None

    def apply_patch(self, document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
        """Apply a patch as ``apply_patch`` does. Raise ``PatchError`` (``limit-size``) if the result is too large."""
        if self._prepared is not None:
            prepared, self._prepared = self._prepared, None
            if prepared.document is document and prepared.patch is patch:
                return self._take(prepared)
        if self._budget is None:
            return apply_patch(document, patch)
        last = self._last
        size = last[1] if last is not None and last[0] is document else self._take_size(document, self._budget)
        result = document
        try:
            result, size = apply_limited(document, patch, size, self._budget)
        finally:  # also if it failed: to measure a large document for each failing patch would take long
            self._last = (result, size)
        return result

    def prepare(self, document: Any, patch: Sequence[Mapping[str, Any]]) -> None:
        """Compute the result of ``apply_patch``, if it is called next and with the same objects.

        For long patches: it may be called in another thread, also while this one applies patches.
        """
        prepared = _Prepared(document, patch, document)
        try:
            if self._budget is None:
                prepared.result = apply_patch(document, patch)
            else:
                last = self._last
                known = last if last is not None and last[0] is document else self._sizes.get(id(document))
                prepared.size = self._measure(document, self._budget) if known is None else known[1]
                prepared.result, prepared.size = apply_limited(document, patch, prepared.size, self._budget)
        except PatchError as error:
            prepared.error = error
        self._prepared = prepared

    def take_measured(self) -> int:
        """Return how many bytes of copies were measured since the last call."""
        if self._budget is None:
            return 0
        measured, self._budget.measured = self._budget.measured, 0
        return measured

    def _take(self, prepared: _Prepared) -> Any:
        if prepared.size is not None:
            self._sizes.pop(id(prepared.document), None)
            if self._last is not None and self._last[0] is not prepared.document:
                self._remember(*self._last)
            self._last = (prepared.result, prepared.size)
        if prepared.error is not None:
            raise prepared.error
        return prepared.result

    def _take_size(self, document: Any, budget: SizeBudget) -> int:
        """Return the size of a document that is not the last one. The last one joins the others."""
        known = self._sizes.pop(id(document), None)
        size = self._measure(document, budget) if known is None else known[1]
        if self._last is not None:
            self._remember(*self._last)
        return size

    def _measure(self, document: Any, budget: SizeBudget) -> int:
        if id(document) not in self._evicted:
            return size_of(document)  # a new document, which was not measured
        try:
            size = budget.measure(document)
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
