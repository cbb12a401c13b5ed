"""Deliver live events and control changes to the readers of one process, and poll for those of other processes.

A channel exists while a run of this process writes to its thread or a reader follows it. Its ring buffer holds the
newest batches, so that readers of a run of this process do not touch the disk. A reader that falls behind the ring
reads from the store again, so that a slow reader uses no memory.

Everything here belongs to one event loop and needs no locks. A reader notes the version of a signal *before* it looks
for news and sleeps only if the version is unchanged, so that it misses and repeats nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from aguila.errors import StoreUnavailable
from aguila.store.records import Batch, Lease, LogPart, Stamp, ThreadKey

T = TypeVar("T")


class Read(Protocol):
    """``StoreReader.read``."""

    def __call__(self, scope: str, thread_id: str, after: int = 0) -> Awaitable[LogPart]:
        """Read stored batches after a cursor."""
        ...


ReadStamps = Callable[[Sequence[ThreadKey]], Awaitable[Mapping[ThreadKey, Stamp]]]
"""``Store.stamps``."""


class Signal:
    """A change that any number of tasks can wait for. ``version`` counts the changes."""

    __slots__ = ("_waiters", "version")

    def __init__(self) -> None:
        self.version = 0
        self._waiters: list[asyncio.Future[None]] | None = None  # created on demand: most signals have no waiters

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return 0 if self._waiters is None else len(self._waiters)

    def wake(self) -> None:
        """Count a change and wake all waiting tasks."""
        self.version += 1
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int) -> None:
        """Wait for a change after version ``seen``."""
        if self.version != seen:
            return
        waiter = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if self._waiters is not None and waiter in self._waiters:
                self._waiters.remove(waiter)


class Channel:
    """The newest batches of one thread, and the signals for its readers."""

    __slots__ = (
        "begun_at",
        "control",
        "head",
        "key",
        "lease",
        "loading",
        "log",
        "on_control",
        "ring",
        "ring_bytes",
        "ring_limit",
        "stamp",
        "users",
    )

    def __init__(self, key: ThreadKey, ring_limit: int) -> None:
        self.key = key
        self.log = Signal()
        """Changes when events are appended, or the thread is removed."""
        self.control = Signal()
        """Changes with a cancel request, a take-over or the end of a run."""
        self.head: int | None = None
        """The newest sequence number; None if only the store knows it."""
        self.lease: Lease | None = None
        """The lease of the run of this process that writes to the thread."""
        self.begun_at: int | None = None
        """The version of ``control`` when that run began: until it changes, the run has no cancel request."""
        self.on_control: Callable[[], None] | None = None
        """Called when that run may have a cancel request."""
        self.users = 0
        self.stamp: Stamp | None = None
        """The thread at the last poll, unless a message was told since then."""
        self.ring: list[tuple[Batch, int]] = []  # a deque would need more memory than the rest of the channel
        self.ring_bytes = 0
        self.ring_limit = ring_limit
        self.loading: asyncio.Lock | None = None

    def after(self, position: int) -> Sequence[Batch] | None:
        """Return the batches after a cursor: none if it is the newest number, None if the ring does not have them."""
        if position == self.head:
            return ()
        if not self.ring or position >= self.ring[-1][0].last or position < self.ring[0][0].first - 1:
            return None
        batches: list[Batch] = []
        for batch, _ in reversed(self.ring):  # newest first: a live reader needs one or two
            if batch.first <= position + 1:
                batches.append(cut(batch, position))
                break
            batches.append(batch)
        batches.reverse()
        return batches

    async def load(self, position: int, read: Read) -> Sequence[Batch]:
        """Read from the store. Readers at the same cursor share one read."""
        if self.loading is None:
            self.loading = asyncio.Lock()
        async with self.loading:
            found = self.after(position)
            if found is not None:
                return found
            seen = self.log.version
            part = await read(*self.key, position)
            if seen == self.log.version:  # otherwise the log has grown during the read
                self.head = part.last
                for batch in part.batches:
                    if not self.ring or self.ring[-1][0].last + 1 == batch.first:
                        self.keep(batch, sum(map(len, batch.events)))
            return part.batches

    def keep(self, batch: Batch, size: int) -> None:
        """Put a batch into the ring and drop the oldest ones. A gap before the batch clears the ring first."""
        if self.ring and self.ring[-1][0].last + 1 != batch.first:
            self.clear()
        self.ring.append((batch, size))
        self.ring_bytes += size
        # A waiting reader keeps the newest batch in the ring, however large: each would read it from the store again.
        while self.ring_bytes > self.ring_limit and len(self.ring) > (self.log.waiting > 0):
            self.ring_bytes -= self.ring.pop(0)[1]

    def wake_control(self) -> None:
        """Wake the tasks that wait for a control change, and call ``on_control``."""
        self.control.wake()
        if self.on_control is not None:
            self.on_control()

    def clear(self) -> None:
        """Empty the ring."""
        self.ring.clear()
        self.ring_bytes = 0


class Live:
    """The channels of one open store in one process. It belongs to the event loop on which the store was opened.

    While readers wait, ``stamps`` of their threads are compared every ``poll_seconds``, if ``has_changed``: a wake-up
    that is lost only delays.
    """

    def __init__(
        self,
        read: Read,
        stamps: ReadStamps,
        has_changed: Callable[[], Awaitable[bool]],
        *,
        poll_seconds: float,
        ring_bytes: int = 256 * 1024,
    ) -> None:
        self.channels: dict[ThreadKey, Channel] = {}
        self.loop = asyncio.get_running_loop()  # once: before Python 3.12 this is a system call
        self.is_closed = False
        self.poll_seconds = poll_seconds
        self._read = read
        self._stamps = stamps
        self._has_changed = has_changed
        self._ring_bytes = ring_bytes
        self._poller: asyncio.Task[None] | None = None

    # Writers

    def publish(self, lease: Lease, batch: Batch, size: int, *, begun: bool = False, ended: bool = False) -> None:
        """Deliver durable events of a run of this process."""
        channel = self._channel((lease.scope, lease.thread_id))
        channel.lease = None if ended else lease
        if begun:
            channel.begun_at = channel.control.version
        if batch.events:
            channel.keep(batch, size)
            channel.head = batch.last
            channel.log.wake()
        if ended:
            channel.on_control = None
            channel.control.wake()
            self._drop_unused(channel)

    def own(self, lease: Lease) -> None:
        """Record that this process took over a run."""
        channel = self._channel((lease.scope, lease.thread_id))
        channel.lease = lease
        channel.wake_control()

    def disown(self, lease: Lease) -> None:
        """Record that a lease of this process is stale."""
        channel = self.channels.get((lease.scope, lease.thread_id))
        if channel is not None and channel.lease == lease:
            channel.lease = None
            channel.wake_control()
            channel.on_control = None
            self._drop_unused(channel)

    def wake_control(self, key: ThreadKey) -> None:
        """Wake the tasks that wait for a cancel request or its answer."""
        channel = self.channels.get(key)
        if channel is not None:
            channel.stamp = None  # what the last poll saw is out of date
            channel.wake_control()

    def invalidate(self, key: ThreadKey) -> None:
        """Forget a thread that another process changed or removed, and wake its readers."""
        channel = self.channels.get(key)
        if channel is not None:
            channel.head = None
            channel.clear()
            channel.log.wake()
            channel.wake_control()

    def invalidate_all(self, keys: Sequence[ThreadKey]) -> None:
        """Forget threads that another process changed; without keys, all of them."""
        for key in keys or list(self.channels):
            self.invalidate(key)

    def close(self) -> None:
        """End all tails and waits."""
        self.is_closed = True
        if self._poller is not None and not self.loop.is_closed():
            self._poller.cancel()
        for channel in list(self.channels.values()):
            channel.log.wake()
            channel.control.wake()

    # Readers

    @property
    def waiting(self) -> list[Channel]:
        """The channels that have sleeping readers, or whose run listens for cancel requests."""
        return [
            channel
            for channel in self.channels.values()
            if channel.on_control is not None or channel.log.waiting or channel.control.waiting
        ]

    async def tail(self, key: ThreadKey, after: int) -> AsyncIterator[Batch]:
        """Iterate over stored, then live batches after a cursor, until the store closes. Raises as ``read`` does."""
        channel = self._join(key)
        position = after
        try:
            while not self.is_closed:
                seen = channel.log.version
                batches = channel.after(position)
                if batches is None:
                    try:
                        batches = await channel.load(position, self._read)
                    except StoreUnavailable:
                        if self.is_closed:
                            return
                        raise
                for batch in batches:
                    position = batch.last
                    yield batch
                if not batches:
                    if (channel.lease is None or channel.ring_bytes > channel.ring_limit) and (
                        channel.log.waiting + channel.control.waiting + 1 >= channel.users
                    ):
                        channel.clear()  # all readers are up to date, and no run writes or the newest batch is large
                    self._start_polling()
                    await channel.log.wait(seen)
        finally:
            self._leave(channel)

    async def wait_for(self, key: ThreadKey, query: Callable[[], Awaitable[T | None]]) -> T:
        """Call ``query`` now and after each control change; return its first result that is not None.

        Raises ``StoreUnavailable`` when the store closes, and what ``query`` raises.
        """
        channel = self._join(key)
        try:
            while True:
                seen = channel.control.version
                result = await query()
                if result is not None:
                    return result
                self._start_polling()
                await channel.control.wait(seen)
                if self.is_closed:
                    raise StoreUnavailable("the store was closed while the call waited")
        finally:
            self._leave(channel)

    def on_change(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the run of a lease may have a cancel request, or may have lost its lease."""
        channel = self.channels.get((lease.scope, lease.thread_id))
        if channel is None or channel.lease is not lease:
            callback()  # the run has ended, or the lease is stale
            return
        channel.on_control = callback
        self._start_polling()
        if channel.begun_at != channel.control.version:
            callback()

    def _join(self, key: ThreadKey) -> Channel:
        channel = self._channel(key)
        channel.users += 1
        return channel

    def _leave(self, channel: Channel) -> None:
        channel.users -= 1
        self._drop_unused(channel)

    def _channel(self, key: ThreadKey) -> Channel:
        channel = self.channels.get(key)
        if channel is None:
            channel = self.channels[key] = Channel(key, self._ring_bytes)
        return channel

    def _drop_unused(self, channel: Channel) -> None:
        if channel.users == 0 and channel.lease is None and self.channels.get(channel.key) is channel:
            del self.channels[channel.key]

    # Changes of other processes

    @property
    def is_polling(self) -> bool:
        """Whether the store is polled."""
        return self._poller is not None

    def _start_polling(self) -> None:
        if self._poller is None:
            self._poller = self.loop.create_task(self._poll(), name="aguila-store-poll")

    async def _poll(self) -> None:
        """Compare the threads of ``waiting`` until no reader waits."""
        try:
            while True:
                await asyncio.sleep(self.poll_seconds)
                waiting = self.waiting
                if not waiting:
                    return
                try:
                    if not await self._has_changed():
                        continue
                    stamps = await self._stamps([channel.key for channel in waiting])
                except StoreUnavailable:
                    continue  # the next read raises it to its caller
                for channel in waiting:
                    self._compare(channel, stamps.get(channel.key))
        finally:
            self._poller = None

    def _compare(self, channel: Channel, stamp: Stamp | None) -> None:
        """Wake the readers of a channel if its thread has changed since the last poll."""
        if stamp is None:
            self.invalidate(channel.key)
            return
        old, lease = channel.stamp, channel.lease
        is_ours = lease is not None and (lease.run_id, lease.epoch, lease.token) == (
            stamp.run_id,
            stamp.epoch,
            stamp.token,
        )
        if (not is_ours and channel.log.waiting and channel.head != stamp.last) or (
            old is not None and old.first != stamp.first
        ):
            self.invalidate(channel.key)
        elif old is None or not _is_same_run(old, stamp):
            if is_ours and stamp.cancel is None:  # the run need not look for a cancel request
                channel.control.wake()
            else:
                channel.wake_control()
        channel.stamp = stamp


def _is_same_run(old: Stamp, new: Stamp) -> bool:
    return (old.run_id, old.epoch, old.token, old.cancel) == (new.run_id, new.epoch, new.token, new.cancel)


def cut(batch: Batch, after: int, until: int | None = None) -> Batch:
    """Return the part of a batch after ``after`` and up to ``until``."""
    start = max(0, after + 1 - batch.first)
    stop = len(batch.events) if until is None else min(len(batch.events), until + 1 - batch.first)
    if start == 0 and stop == len(batch.events):
        return batch
    return Batch(batch.first + start, batch.events[start:stop], batch.at, batch.token)
