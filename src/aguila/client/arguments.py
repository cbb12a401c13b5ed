"""Layer: client. What an application gives us, looked at when it is given: a mistake is told there, by its name.

Below: nothing of the client. Above: ``_base``, ``thread``, ``tools``. Values that go onto the wire are ``outgoing``'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction, signature
from typing import Any


def expect(name: str, value: Any, kinds: Any, wanted: str) -> None:
    """Raises TypeError, with the argument's name and what is wanted, for a value that is none of these kinds."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name}: expected {wanted}, got {_shown(value)}")


def listed(name: str, value: Any, wanted: str) -> list[Any]:
    """The elements of a list. Raises TypeError for text, and for what is no list, such as one element by itself."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name}: expected a list of {wanted}, got {_shown(value)}")
    return list(value)  # type: ignore[reportUnknownArgumentType]


def is_async_transport(transport: Any) -> bool | None:
    """Whether a transport is one for asyncio; None if that cannot be told without using it."""
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
