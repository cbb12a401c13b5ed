"""Check the arguments of public calls, so that an error names the argument."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction, signature
from typing import Any


def expect(name: str, value: Any, kinds: Any, wanted: str) -> None:
    """Raise TypeError with the name of the argument and the expected kind, unless the value is of one of the types."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name}: expected {wanted}, got {_shown(value)}")


def listed(name: str, value: Any, wanted: str) -> list[Any]:
    """Return the elements of a list. Raise TypeError for text, and for anything that is not iterable."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name}: expected a list of {wanted}, got {_shown(value)}")
    return list(value)  # type: ignore[reportUnknownArgumentType]


def is_async_transport(transport: Any) -> bool | None:
    """Return whether a transport is async; None if that is unknown without using it."""
    send = getattr(transport, "send", None)
    if not callable(send):
        return None
    if iscoroutinefunction(send):
        return True
    try:
        return False if "timeout" in signature(send).parameters else None
    except (TypeError, ValueError):
        return None


def _shown(value: Any) -> str:
    kind = type(value).__name__
    return "None" if value is None else f"a {kind}"
