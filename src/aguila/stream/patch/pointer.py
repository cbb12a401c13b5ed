"""Parse the paths of patch operations, with a cache of recent paths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from aguila.codec.pointer import parse_pointer

Path = tuple[str, ...]

_MAX_SHOWN = 80  # characters of a path or name that an error shows: a peer may send any length

# A stream patches the same few paths again and again, and parsing the path takes a third of the time of an operation.
# Bounded in number and length, because a peer chooses the paths.
recent_paths: dict[str, Path] = {}
_MAX_RECENT_PATHS = 1024
_MAX_RECENT_LENGTH = 128
find_recent_path = recent_paths.get
"""A name of its own, because a method of an imported object is looked up again for every call."""

# Most indexes are small. A lookup takes a third of the time of validation and conversion.
_SMALL_INDEXES = {str(index): index for index in range(256)}


class OperationError(Exception):
    """The reason why an operation does not apply. ``apply_patch`` adds its index."""


def shorten(value: Any) -> str:
    """Return the repr of a value, shortened for an error message."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


def is_prototype_path(tokens: Sequence[str]) -> bool:
    """Return whether a path contains ``__proto__`` or ``constructor/prototype``, which JavaScript peers refuse."""
    return "__proto__" in tokens or ("constructor", "prototype") in pairwise(tokens)


def parse_path(pointer: Any) -> Path:
    """Parse a JSON Pointer. Raises OperationError, or TypeError if it is not a string."""
    if not isinstance(pointer, str):
        raise TypeError(pointer)  # apply_patch replaces this error by a PatchError with the reason
    try:
        steps = parse_pointer(pointer)
    except ValueError as error:
        raise OperationError(str(error).replace(repr(pointer), shorten(pointer))) from None
    if "proto" in pointer and is_prototype_path(steps):
        raise OperationError(f"{shorten(pointer)} names a prototype, which JavaScript peers refuse")
    if len(pointer) <= _MAX_RECENT_LENGTH:
        if len(recent_paths) >= _MAX_RECENT_PATHS:
            recent_paths.clear()
        recent_paths[pointer] = steps
    return steps


def parse_index(step: str, limit: int) -> int:
    """Parse an array index below the limit: digits without sign and leading zeros (RFC 6901)."""
    small = _SMALL_INDEXES.get(step)
    if small is not None and small < limit:
        return small
    if not (step.isdigit() and step.isascii()) or (step[0] == "0" and step != "0"):
        raise OperationError(f"{shorten(step)} is not an array index")
    # The length is checked first, because int() raises its own error for thousands of digits.
    if len(step) > 18 or (index := int(step)) >= limit:
        raise OperationError(f"array index {shorten(step)} is out of range, it must be below {limit}")
    return index
