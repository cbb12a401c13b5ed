"""Layer: protocol. JSON Patch operations (RFC 6902) as they travel: plain dicts.

Operations are the one closed-looking shape that must keep members it does not define (PROC-5), and they
are many, so they stay dicts; the decoder checks them by hand (SNAP-7, SNAP-8). The classes below are
typed dicts: calling one makes a plain dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict


class AddOperation(TypedDict):
    """Add a value at a path."""

    op: Literal["add"]
    path: str
    value: Any


class RemoveOperation(TypedDict):
    """Remove what is at a path."""

    op: Literal["remove"]
    path: str


class ReplaceOperation(TypedDict):
    """Replace what is at a path."""

    op: Literal["replace"]
    path: str
    value: Any


MoveOperation = TypedDict("MoveOperation", {"op": Literal["move"], "from": str, "path": str})
MoveOperation.__doc__ = "Move what is at one path to another."

CopyOperation = TypedDict("CopyOperation", {"op": Literal["copy"], "from": str, "path": str})
CopyOperation.__doc__ = "Copy what is at one path to another."


class TestOperation(TypedDict):
    """Fail the whole patch unless the value at a path is this one."""

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
"""A patch: operations applied in order, all or nothing (SNAP-3)."""
