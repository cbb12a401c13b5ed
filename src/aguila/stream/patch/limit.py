"""Limit the size of the documents that patches produce: a ``copy`` can double a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aguila.stream.patch.apply import apply_limited, size_of

_MAX_DOCUMENTS: Final = 16


class PatchLimit:
    """Applies patches to documents of at most ``limit`` bytes of JSON, and at most an eighth more.

    Remembers the sizes of the last documents, so that a document that is patched again and again is measured once.
    """

    __slots__ = ("_limit", "_sizes")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[int, tuple[Any, int]] = {}  # with the document, so that its id is not used again

    def apply_patch(self, document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
        """Apply a patch as ``apply_patch`` does. Raise ``PatchError`` (``limit-size``) if the result is too large."""
        sizes = self._sizes
        known = sizes.pop(id(document), None)
        result, size = apply_limited(document, patch, self._limit, size_of(document) if known is None else known[1])
        if len(sizes) >= _MAX_DOCUMENTS:
            del sizes[next(iter(sizes))]
        sizes[id(result)] = (result, size)
        return result
