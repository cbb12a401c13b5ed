"""The actions that the client's logic asks a driver to perform.

The logic is written once, as programs: generators that yield an action and are sent its result. The exception of an
action is thrown into them. A program that follows a run also yields generators of events for the caller; those
generators raise nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from aguila.client.tools import PlannedCall
from aguila.client.transports.base import Request

T = TypeVar("T")


class Head(msgspec.Struct, frozen=True):
    """Status and headers of a response. Header names are in lower case. ``note`` is a remark of ours, if any."""

    status: int
    headers: Mapping[str, str]
    note: str = ""


class Open(msgspec.Struct, frozen=True):
    """Close the open response, send a request, and return the ``Head`` of its response."""

    request: Request
    timeout: float | None


class Read(msgspec.Struct, frozen=True):
    """Return the next bytes of the open response, empty at its end."""

    timeout: float | None


class Close(msgspec.Struct, frozen=True):
    """Close the open response."""


class Authorize(msgspec.Struct, frozen=True):
    """Return the application's credentials as headers."""


class Sleep(msgspec.Struct, frozen=True):
    """Wait. With 0 seconds, let other tasks of the event loop run, if there is one."""

    seconds: float


class Compute(msgspec.Struct, frozen=True):
    """Run slow work, off the event loop if there is one, and return its result."""

    work: Callable[[], Any]


class CallTools(msgspec.Struct, frozen=True):
    """Call these tools in parallel, and return a tool message for each, in order."""

    calls: Sequence[PlannedCall]


Program = Generator[Any, Any, T]
"""A piece of the client's logic: yields actions, is sent their results, and returns a ``T``."""
