"""Layer: store. An open SQLite store: its writer, its readers, its live feed, and its ties to other processes.

All of it belongs to the event loop on which it was opened.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from aguila.errors import NotFound, StoreUnavailable
from aguila.store.feed import Channel, Feed, Key
from aguila.store.sqlite import queries, thread_writes
from aguila.store.sqlite.checkpoint import Checkpointer
from aguila.store.sqlite.connection import Writing, connect_reader, is_outage, unavailable
from aguila.store.sqlite.wakeup import Listener, Sender
from aguila.store.sqlite.writer import Job, Writer

T = TypeVar("T")
P = ParamSpec("P")


class Engine:
    """What an open store consists of."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], Writing],
        *,
        busy_seconds: float,
        poll_seconds: float,
        readers: int,
        is_patient: bool,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.feed = Feed(before_wait=self._watch)
        self._listener = Listener(self._look)
        self._is_known = False
        self._connect_reader = partial(connect_reader, path, busy_seconds=busy_seconds)
        self._writer = Writer(
            connect,
            Checkpointer(self._connect_reader, path),
            Sender(self._listener.token),
            busy_seconds=busy_seconds,
            is_patient=is_patient,
        )
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="aguila-store-reader")
        self._readers: set[sqlite3.Connection] = set()
        self._local = threading.local()
        self._poll_seconds = poll_seconds
        self._polling: asyncio.Task[None] | None = None
        self._poll_db: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Make the file ready and become known to the other processes. Raises ``StoreUnavailable``."""
        try:
            self._listener.open()
            token, port = self._listener.token, self._listener.port
            if port is None:
                await self.write(lambda db: None)  # this, too, makes the file
            else:
                await self.write(lambda db: thread_writes.add_peer(db, token, port))
                self._is_known = True
        except BaseException:
            await self.close()
            raise

    @property
    def is_orphaned(self) -> bool:
        """Whether its event loop is closed."""
        return self._loop.is_closed()

    def abandon(self) -> None:
        """Release the file and the socket without the event loop, when that is closed."""
        self._writer.end()
        self._listener.abandon()
        self._close_readers()

    async def close(self) -> None:
        """Finish the writes, end the tails, and release the file and the socket.

        If the caller is cancelled while the writer is at work, everything else is released all the same.
        """
        if self._is_known:
            leaving = self.write(lambda db: thread_writes.remove_peer(db, self._listener.token))
            # If it fails, a peer will find our port closed and remove us.
            leaving.add_done_callback(lambda future: future.cancelled() or future.exception())
        try:
            await self._writer.close()
        finally:
            self.feed.close()
            self._listener.close()
            if self._polling is not None:
                self._polling.cancel()
            readers_closed = self._loop.run_in_executor(None, self._close_readers)
        await readers_closed

    def _close_readers(self) -> None:
        self._pool.shutdown()
        for db in self._readers:
            db.close()

    @property
    def wrote_at(self) -> float:
        """When the writer last got on, by ``time.monotonic``."""
        return self._writer.wrote_at

    def write(
        self,
        operation: Callable[[sqlite3.Connection], T],
        changed: Sequence[Key] = (),
        after: Callable[[T], None] | None = None,
        *,
        frees: bool = False,
        is_short: bool = False,
        size: int = 0,
    ) -> asyncio.Future[T]:
        """Have the writer do something; see ``Job``."""
        future: asyncio.Future[T] = self._loop.create_future()
        return self._writer.submit(Job(operation, future, changed, after, frees=frees, is_short=is_short, size=size))

    async def read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Read one snapshot of the file, on a thread."""
        return await self.compute(self._snapshot, lambda db: function(db, *args, **kwargs))

    async def compute(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something on a thread."""
        try:
            return await self._loop.run_in_executor(self._pool, partial(function, *args, **kwargs))
        except RuntimeError as error:
            if self.feed.closed:  # and so is the pool
                raise StoreUnavailable("the store is closed") from error
            raise

    def _snapshot(self, function: Callable[[sqlite3.Connection], T]) -> T:
        try:
            db: sqlite3.Connection | None = getattr(self._local, "db", None)
            if db is None:
                db = self._local.db = self._connect_reader()
                self._readers.add(db)
            db.execute("BEGIN")
            try:
                return function(db)
            finally:
                db.execute("COMMIT")
        except UnicodeEncodeError as error:
            raise NotFound("no id here has half a surrogate pair in it") from error
        except sqlite3.Error as error:
            if not is_outage(error):
                raise
            self._local.db = None  # closed with the others; the next read connects anew
            raise unavailable(error) from error

    # Other processes

    def _look(self, keys: Sequence[Key]) -> None:
        for key in keys or list(self.feed.channels):
            self.feed.look_again(key)

    def _watch(self) -> None:
        """Poll while somebody waits."""
        if self._polling is None:
            self._polling = self._loop.create_task(self._poll())

    async def _poll(self) -> None:
        version: int | None = None
        try:
            while True:
                await asyncio.sleep(self._poll_seconds)
                waiting = self.feed.waiting
                if not waiting:
                    return
                try:
                    version, stamps = await self.compute(self._changes, version, [channel.key for channel in waiting])
                except StoreUnavailable:
                    continue  # whoever reads next is told; a poll can wait
                if stamps is not None:
                    for channel in waiting:
                        self._compare(channel, stamps.get(channel.key))
        finally:
            self._polling = None

    def _changes(self, version: int | None, keys: Sequence[Key]) -> tuple[int, dict[Key, tuple[Any, ...]] | None]:
        """The version of the file and, if it is not the one we know, what there is to notice."""
        try:
            if self._poll_db is None:  # one connection: the number means nothing to another one
                self._poll_db = self._connect_reader()
                self._readers.add(self._poll_db)
            found: int = self._poll_db.execute("PRAGMA data_version").fetchone()[0]
            return found, None if found == version else queries.stamps(self._poll_db, keys)
        except sqlite3.Error as error:
            if not is_outage(error):
                raise
            self._poll_db = None
            raise unavailable(error) from error

    def _compare(self, channel: Channel, stamp: tuple[Any, ...] | None) -> None:
        if stamp is None:
            self.feed.look_again(channel.key)
            return
        last, *control = stamp
        lease = channel.lease
        is_ours = lease is not None and [lease.run_id, lease.epoch, lease.owner] == control[1:4]
        if (not is_ours and len(channel.log) and channel.head != last) or (
            channel.stamp is not None and channel.stamp[0] != control[0]
        ):
            self.feed.look_again(channel.key)
        elif channel.stamp != control:
            channel.control.wake()
        channel.stamp = control
