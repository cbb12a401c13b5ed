"""JSON Patch operations (RFC 6902) as plain dicts.

Operations have to keep members that are not defined (PROC-5), and there are many, so they stay dicts. The decoder
checks them (SNAP-7, SNAP-8). The classes below are typed dicts: calling one makes a plain dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict


class AddOperation(TypedDict):
    """Add a value at a path."""

    op: Literal["add"]
    path: str
    value: Any


class RemoveOperation(TypedDict):
    """Remove the value at a path."""

    op: Literal["remove"]
    path: str


class ReplaceOperation(TypedDict):
    """Replace the value at a path."""

    op: Literal["replace"]
    path: str
    value: Any


MoveOperation = TypedDict("MoveOperation", {"op": Literal["move"], "from": str, "path": str})
MoveOperation.__doc__ = "Move the value at one path to another."

CopyOperation = TypedDict("CopyOperation", {"op": Literal["copy"], "from": str, "path": str})
CopyOperation.__doc__ = "Copy the value at one path to another."


class TestOperation(TypedDict):
    """Fail the whole patch unless the path has this value."""

    op: Literal["test"]
    path: str
    value: Any


if TYPE_CHECKING:
    JsonPatchOperation = (
        AddOperation
        | RemoveOperation
        | ReplaceOperation
        | MoveOperation
        | CopyOperation
        | TestOperation
        | dict[str, Any]
    )
else:
    JsonPatchOperation = dict[str, Any]

JsonPatch = list[JsonPatchOperation]
"""Operations that are applied in order, all or none (SNAP-3)."""
