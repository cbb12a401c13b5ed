"""Poll for changes of other processes while readers wait, for stores that cannot rely on wake-ups alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aguila.errors import StoreUnavailable
from aguila.store.feed import Channel, Feed, ThreadKey

Stamps = dict[ThreadKey, tuple[Any, ...]]
"""The state of some threads: last, first, and run id, epoch, owner and cancel request of the open run."""


class Poller:
    """Compares the threads of ``Feed.waiting``, every ``seconds``. ``start`` before a reader sleeps.

    ``read_stamps`` returns the stamps of some threads, or None if nothing has changed since its last call.
    """

    def __init__(
        self, feed: Feed, seconds: float, read_stamps: Callable[[Sequence[ThreadKey]], Awaitable[Stamps | None]]
    ) -> None:
        self._feed = feed
        self._seconds = seconds
        self._read_stamps = read_stamps
        self._task: asyncio.Task[None] | None = None

    @property
    def is_polling(self) -> bool:
        """Whether the store is polled."""
        return self._task is not None

    def start(self) -> None:
        """Poll until no reader waits."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._poll())

    def stop(self) -> None:
        """Stop polling."""
        if self._task is not None:
            self._task.cancel()

    async def _poll(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._seconds)
                waiting = self._feed.waiting
                if not waiting:
                    return
                try:
                    stamps = await self._read_stamps([channel.key for channel in waiting])
                except StoreUnavailable:
                    continue  # the next read raises it to its caller
                if stamps is not None:
                    for channel in waiting:
                        self._compare(channel, stamps.get(channel.key))
        finally:
            self._task = None

    def _compare(self, channel: Channel, stamp: tuple[Any, ...] | None) -> None:
        """Wake the readers of a channel if its thread has changed since the last poll."""
        if stamp is None:
            self._feed.invalidate(channel.key)
            return
        last, *control = stamp
        lease = channel.lease
        is_ours = lease is not None and [lease.run_id, lease.epoch, lease.owner] == control[1:4]
        if (not is_ours and channel.log.waiting and channel.head != last) or (
            channel.stamp is not None and channel.stamp[0] != control[0]
        ):
            self._feed.invalidate(channel.key)
        elif channel.stamp != control:
            if is_ours and not control[4]:  # no cancel request: the run need not look for one
                channel.control.wake()
            else:
                channel.wake_control()
        channel.stamp = control
