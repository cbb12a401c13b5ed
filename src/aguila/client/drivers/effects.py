"""Layer: client. What a program asks of the twin that drives it.

Above: ``asyncio`` and ``sync`` carry these out. Below: nothing. The client's logic is written once, as generators that
yield what they want done and are sent what came of it; a transport's failure is thrown into them. A program that
follows a run also yields generators of events, which are for the caller; they raise nothing of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from aguila.client.tools import PlannedCall
from aguila.client.transports.base import Request

T = TypeVar("T")


class Head(msgspec.Struct, frozen=True):
    """What ``Open`` gives: how an answer begins. Header names are in lower case. ``note`` is our word on it, if any."""

    status: int
    headers: Mapping[str, str]
    note: str = ""


class Open(msgspec.Struct, frozen=True):
    """Send a request, in place of any answer that is still open; gives its ``Head``."""

    request: Request
    timeout: float | None


class Read(msgspec.Struct, frozen=True):
    """The next bytes of the open answer, nothing at its end."""

    timeout: float | None


class Close(msgspec.Struct, frozen=True):
    """Let go of the open answer."""


class Authorize(msgspec.Struct, frozen=True):
    """Ask the application for its credentials; gives headers."""


class Sleep(msgspec.Struct, frozen=True):
    """Wait."""

    seconds: float


class Compute(msgspec.Struct, frozen=True):
    """Do something that takes long, off the event loop if there is one; gives what it returns."""

    work: Callable[[], Any]


class CallTools(msgspec.Struct, frozen=True):
    """Make these calls, all at once; gives a tool message for each, in order."""

    calls: Sequence[PlannedCall]


Program = Generator[Any, Any, T]
"""A piece of the client's logic: yields effects (and generators of events), is sent their results, returns a ``T``."""
