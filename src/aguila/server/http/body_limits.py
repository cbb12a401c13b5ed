"""Layer: server. Large bodies, let in so many bytes at a time: what they need together stays within bounds.

Below: ``rejection``, ``responses``. Above: ``exchange`` has the one ``Admission`` of an app; ``inputs`` and ``files``
ask for a share before they read. Small bodies need none, and never wait.

A run needs most when it begins: its body, what was read from it, the files in it as bytes. So a share is kept until the
run has ended, but not for longer than ``LENT``: runs may take minutes, and may send large requests to this very server.
Who sends slowly while others wait loses its share: it would keep them out for nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Self

from aguila.server.errors import Rejected
from aguila.server.http.responses import Message, Receive

LENT: Final = 1.0
"""Seconds for which a run that has begun keeps its share at most."""

_GRACE: Final = 5.0
_SLOWEST: Final = 256 * 1024
"""Bytes a second that a body must come with, after the first seconds, while others wait."""


class Admission:
    """Lets in ``most`` bytes at a time, in the order in which they were asked for. One that is larger goes alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    async def enter(self, size: int) -> None:
        """Wait for one's turn."""
        if not self._waiting and self._has_room(size):
            self._held += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # it was let in, and went away in the same moment
            else:
                self._waiting.remove((size, turn))
                self._let_in()
            raise

    def leave(self, size: int) -> None:
        """Make room for others."""
        self._held -= size
        self._let_in()

    def _has_room(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._most

    def _let_in(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._held += size
                turn.set_result(None)


class Share:
    """One request's part of what is let in: nothing until ``take``, and given back at the end of the ``with`` block.

    ``lend`` and ``until`` say when else it is given back; after ``until`` the end of the block does not do it.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.size = 0
        """How many bytes it is; 0 if nothing was taken, or it is given back: then nothing has to be watched."""
        self._is_lent = False
        self._received = 0
        self._began = 0.0

    async def take(self, size: int) -> None:
        """Wait until so many bytes may come in."""
        await self._admission.enter(size)
        self.size = size
        self._received = 0
        self._began = asyncio.get_running_loop().time()

    async def receive(self, receive: Receive) -> Message:
        """The next piece of the body. Raises ``Rejected`` (408) if others wait and it comes too slowly."""
        if not self.size:
            return await receive()
        while True:
            try:
                async with asyncio.timeout(_GRACE):
                    message = await receive()
            except TimeoutError:
                self._check_pace()
            else:
                self._received += len(message.get("body", b""))
                self._check_pace()
                return message

    def _check_pace(self) -> None:
        if self._admission.is_wanted:
            late = asyncio.get_running_loop().time() - self._began - _GRACE
            if late > self._received / _SLOWEST:
                raise Rejected(408, "too_slow", "the body came too slowly, and others were waiting")

    def lend(self) -> None:
        """Give it back after a while, if not before."""
        if self.size:
            asyncio.get_running_loop().call_later(LENT, self.give_back)

    def until(self, ended: asyncio.Future[None]) -> None:
        """Give it back when this is done."""
        if self.size:
            self._is_lent = True
            ended.add_done_callback(lambda _: self.give_back())

    def give_back(self) -> None:
        """Give it back; does nothing a second time."""
        size, self.size = self.size, 0
        if size:
            self._admission.leave(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_lent:
            self.give_back()
