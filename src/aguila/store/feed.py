"""Layer: store. Live fan-out within one process: who waits on a thread, and the newest events they wait for.

Below: ``aguila.store.base``. Above: the stores. It never reads a store by itself: a tail brings its own ``read``.

Everything here belongs to one event loop and needs no lock against threads. A channel exists while a run of this
process writes to its thread or somebody follows it. Its ring holds the newest batches, so that following a run of this
process does not touch the disk; whoever falls behind the ring reads from the store again, so a slow reader costs no
memory.

No gap and no repeat: a reader takes the version of the channel *before* it looks, and goes to sleep only if the version
is still the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from aguila.errors import StoreUnavailable
from aguila.store.base import Batch, Lease

Read = Callable[[int], Awaitable[tuple[Sequence[Batch], int]]]
"""Some stored batches after a sequence number, and the last sequence number of the log at that moment."""

T = TypeVar("T")

Key = tuple[str, str]
"""Scope and thread id."""


class Signal:
    """A change that many can wait for. All are woken at once; ``version`` counts the changes."""

    __slots__ = ("_waiters", "version")

    def __init__(self) -> None:
        self.version = 0
        self._waiters: set[asyncio.Future[None]] | None = None  # most signals are never waited for

    def __len__(self) -> int:
        return 0 if self._waiters is None else len(self._waiters)

    def wake(self) -> None:
        """Count a change and wake everyone."""
        self.version += 1
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int) -> None:
        """Return as soon as there was a change after version ``seen``."""
        if self.version != seen:
            return
        waiter = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = set()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            if self._waiters is not None:
                self._waiters.discard(waiter)


class Channel:
    """One thread: its newest batches and those who follow it."""

    __slots__ = (
        "begun_at",
        "control",
        "head",
        "key",
        "lease",
        "loading",
        "log",
        "ring",
        "ring_bytes",
        "ring_limit",
        "stamp",
        "users",
    )

    def __init__(self, key: Key, ring_limit: int) -> None:
        self.key = key
        self.log = Signal()
        """Changes of the log."""
        self.control = Signal()
        """Changes of who may write: a cancel request, a take-over, the end of a run."""
        self.head: int | None = None
        """The newest sequence number, if we know it; None says: look into the store."""
        self.lease: Lease | None = None
        """The run of this process that writes to the thread."""
        self.begun_at: int | None = None
        """The version of ``control`` when that run began, which is when nobody can have asked anything of it."""
        self.users = 0
        self.stamp: Sequence[object] | None = None
        """What a polling store saw last of the thread; the first of it stays the same until the thread is deleted."""
        self.ring: list[tuple[Batch, int]] = []  # a deque would take more room than all the rest of an idle run's
        self.ring_bytes = 0
        self.ring_limit = ring_limit
        self.loading: asyncio.Lock | None = None

    def after(self, position: int) -> Sequence[Batch] | None:
        """The batches after a position as far as the ring has them; none if it is the newest; None if unknown."""
        if position == self.head:
            return ()
        if not self.ring or position >= self.ring[-1][0].last or position < self.ring[0][0].first - 1:
            return None
        batches: list[Batch] = []
        for batch, _ in reversed(self.ring):  # from the newest: a live reader needs the last one or two
            if batch.first <= position + 1:
                batches.append(cut(batch, position))
                break
            batches.append(batch)
        batches.reverse()
        return batches

    async def load(self, position: int, read: Read) -> Sequence[Batch]:
        """Read from the store; those who wait behind the same read share what it found."""
        if self.loading is None:
            self.loading = asyncio.Lock()
        async with self.loading:
            found = self.after(position)
            if found is not None:
                return found
            seen = self.log.version
            found, last = await read(position)
            if seen == self.log.version:  # else what we read may be old already
                self.head = last
                for batch in found:
                    if not self.ring or self.ring[-1][0].last + 1 == batch.first:
                        self.keep(batch, sum(map(len, batch.events)))
            return found

    def keep(self, batch: Batch, size: int) -> None:
        """Put a batch into the ring, the oldest ones falling out; a gap before it empties the ring first."""
        if self.ring and self.ring[-1][0].last + 1 != batch.first:
            self.clear()
        self.ring.append((batch, size))
        self.ring_bytes += size
        # The newest stays, however large, for those who wait for it: each would read it again from the store.
        while self.ring_bytes > self.ring_limit and len(self.ring) > (len(self.log) > 0):
            self.ring_bytes -= self.ring.pop(0)[1]

    def clear(self) -> None:
        """Empty the ring."""
        self.ring.clear()
        self.ring_bytes = 0


class Feed:
    """The channels of one store in one process. ``before_wait`` is called before anyone goes to sleep."""

    def __init__(self, *, ring_bytes: int = 256 * 1024, before_wait: Callable[[], None] = lambda: None) -> None:
        self.channels: dict[Key, Channel] = {}
        self.closed = False
        self._ring_bytes = ring_bytes
        self._before_wait = before_wait

    # Writers

    def publish(self, lease: Lease, batch: Batch, size: int, *, begun: bool = False, ended: bool = False) -> None:
        """Hand over what a run of this process has made durable."""
        channel = self._channel((lease.scope, lease.thread_id))
        channel.lease = None if ended else lease
        if begun:
            channel.begun_at = channel.control.version
        if batch.events:
            channel.keep(batch, size)
            channel.head = batch.last
            channel.log.wake()
        if ended:
            channel.control.wake()
            self._drop_unused(channel)

    def own(self, lease: Lease) -> None:
        """A run was taken over by this process."""
        channel = self._channel((lease.scope, lease.thread_id))
        channel.lease = lease
        channel.control.wake()

    def disown(self, lease: Lease) -> None:
        """A lease of this process turned out to be stale."""
        channel = self.channels.get((lease.scope, lease.thread_id))
        if channel is not None and channel.lease == lease:
            channel.lease = None
            channel.control.wake()
            self._drop_unused(channel)

    def control(self, key: Key) -> None:
        """Who may write to the thread, or whether it should stop, has changed."""
        channel = self.channels.get(key)
        if channel is not None:
            if channel.stamp is not None:
                channel.stamp = channel.stamp[:1]  # what was seen before this change is news if it is seen again
            channel.control.wake()

    def look_again(self, key: Key) -> None:
        """Something about the thread has changed elsewhere: forget what we know of it and wake everyone."""
        channel = self.channels.get(key)
        if channel is not None:
            channel.head = None
            channel.clear()
            channel.log.wake()
            channel.control.wake()

    def close(self) -> None:
        """End all tails."""
        self.closed = True
        for channel in list(self.channels.values()):
            channel.log.wake()
            channel.control.wake()

    # Readers

    @property
    def waiting(self) -> list[Channel]:
        """The channels that somebody sleeps on."""
        return [channel for channel in self.channels.values() if len(channel.log) or len(channel.control)]

    async def tail(self, key: Key, after: int, read: Read) -> AsyncIterator[Batch]:
        """Stored, then live batches after a position, until the feed closes. Raises what ``read`` raises."""
        channel = self._join(key)
        position = after
        try:
            while not self.closed:
                seen = channel.log.version
                batches = channel.after(position)
                if batches is None:
                    try:
                        batches = await channel.load(position, read)
                    except StoreUnavailable:
                        if self.closed:
                            return
                        raise
                for batch in batches:
                    position = batch.last
                    yield batch
                if not batches:
                    if (channel.lease is None or channel.ring_bytes > channel.ring_limit) and (
                        len(channel.log) + len(channel.control) + 1 >= channel.users
                    ):
                        channel.clear()  # everyone has everything, and nothing is being written or it is too large
                    self._before_wait()
                    await channel.log.wait(seen)
        finally:
            self._leave(channel)

    async def controlled(self, key: Key, found: Callable[[], Awaitable[T | None]], begun: Lease | None = None) -> T:
        """What ``found`` gives as soon as that is not None; it is asked again whenever it may have changed.

        For a run that has just ``begun`` it is not asked the first time: nothing has happened to it yet. Raises
        ``StoreUnavailable`` when the feed closes, and what ``found`` raises.
        """
        channel = self._join(key)
        try:
            while True:
                seen = channel.control.version
                if begun is None or channel.lease is not begun or channel.begun_at != seen:
                    outcome = await found()
                    if outcome is not None:
                        return outcome
                self._before_wait()
                await channel.control.wait(seen)
                if self.closed:
                    raise StoreUnavailable("the store is closed")
        finally:
            self._leave(channel)

    def _join(self, key: Key) -> Channel:
        channel = self._channel(key)
        channel.users += 1
        return channel

    def _leave(self, channel: Channel) -> None:
        channel.users -= 1
        self._drop_unused(channel)

    def _channel(self, key: Key) -> Channel:
        channel = self.channels.get(key)
        if channel is None:
            channel = self.channels[key] = Channel(key, self._ring_bytes)
        return channel

    def _drop_unused(self, channel: Channel) -> None:
        if channel.users == 0 and channel.lease is None and self.channels.get(channel.key) is channel:
            del self.channels[channel.key]


def cut(batch: Batch, after: int, until: int | None = None) -> Batch:
    """The part of a batch after ``after`` and up to ``until``."""
    start = max(0, after + 1 - batch.first)
    stop = len(batch.events) if until is None else min(len(batch.events), until + 1 - batch.first)
    if start == 0 and stop == len(batch.events):
        return batch
    return Batch(batch.first + start, batch.events[start:stop])
