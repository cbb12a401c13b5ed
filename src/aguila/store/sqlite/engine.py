"""The parts of an open SQLite store: its writer, its readers, its live feed and its wake-ups.

All of it belongs to the event loop on which it was opened.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from aguila.store.cursors import new_token
from aguila.store.feed import Feed, ThreadKey
from aguila.store.polling import Poller, Stamps
from aguila.store.sqlite import queries, thread_writes
from aguila.store.sqlite.database.checkpoint import Checkpointer
from aguila.store.sqlite.database.connection import WriteConnection, connect_reader, is_outage, unavailable
from aguila.store.sqlite.database.locks import OwnerLocks
from aguila.store.sqlite.database.readers import Readers
from aguila.store.sqlite.database.wakeup import Listener, Sender
from aguila.store.sqlite.database.writer import Job, Writer

T = TypeVar("T")


class Engine:
    """An open store: queue writes, read snapshots, and poll for changes of other processes."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], WriteConnection],
        *,
        locks: OwnerLocks,
        busy_seconds: float,
        poll_seconds: float,
        readers: int,
        syncs_commits: bool,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._locks = locks
        self.feed = Feed(before_wait=self._start_polling)
        self._listener = Listener(self._invalidate)
        self._is_registered = False
        connect_to_read = self.connect_reader = partial(connect_reader, path, busy_seconds=busy_seconds)
        self.writer = Writer(
            connect,
            Checkpointer(connect_to_read, path),
            Sender(self._listener.token),
            busy_seconds=busy_seconds,
            syncs_commits=syncs_commits,
        )
        self._readers = Readers(connect_to_read, readers)
        self.read = self._readers.read
        self.compute = self._readers.compute
        self._poller = Poller(self.feed, poll_seconds, self._read_stamps)
        self._poll_db: sqlite3.Connection | None = None
        self._poll_token = ""
        self._poll_lock = threading.Lock()
        self._polled_version: str | None = None

    async def open(self) -> None:
        """Create or upgrade the file, register for wake-ups and lock the owners. Raises ``StoreUnavailable``."""
        try:
            self._listener.open()
            token, port = self._listener.token, self._listener.port
            if port is None:
                await self.write(lambda db: None)  # the first write creates the file
            else:
                await self.write(lambda db: thread_writes.add_peer(db, token, port))
                self._is_registered = True
            await self.compute(self._locks.open)
        except BaseException:
            await self.close()
            raise

    @property
    def is_orphaned(self) -> bool:
        """Whether the event loop of this engine is closed."""
        return self._loop.is_closed()

    @property
    def is_polling(self) -> bool:
        """Whether the file is polled for changes of other processes."""
        return self._poller.is_polling

    def abandon(self) -> None:
        """Release the file and the socket after the event loop was closed."""
        self.writer.stop()
        self._listener.abandon()
        self._readers.close()
        self._locks.close()

    async def close(self) -> None:
        """Finish the queued writes, end the tails, and release the file and the socket.

        If the caller is cancelled while it waits for the writer, everything else is still released.
        """
        if self._is_registered:
            leaving = self.write(lambda db: thread_writes.remove_peer(db, self._listener.token))
            # If this fails, a peer finds our port closed and removes our row.
            leaving.add_done_callback(lambda future: future.cancelled() or future.exception())
        try:
            await self.writer.close()
        finally:
            self.feed.close()
            self._listener.close()
            self._poller.stop()
            readers_closed = self._loop.run_in_executor(None, self._readers.close)
            self._locks.close()
        await readers_closed

    def write(
        self,
        operation: Callable[[sqlite3.Connection], T],
        changed: Sequence[ThreadKey] = (),
        after: Callable[[T], None] | None = None,
        *,
        frees_pages: bool = False,
        is_short: bool = False,
        size: int = 0,
    ) -> asyncio.Future[T]:
        """Submit a job to the writer; see ``Job``."""
        future: asyncio.Future[T] = self._loop.create_future()
        return self.writer.submit(
            Job(operation, future, changed, after, frees_pages=frees_pages, is_short=is_short, size=size)
        )

    # Changes of other processes

    def _invalidate(self, keys: Sequence[ThreadKey]) -> None:
        """Invalidate some threads; without keys, all of them."""
        for key in keys or list(self.feed.channels):
            self.feed.invalidate(key)

    def _start_polling(self) -> None:
        """Poll while readers wait, in case a wake-up is lost."""
        if not self._poller.is_polling:
            self._polled_version = None
            self._poller.start()

    async def read_version(self) -> str:
        """Return text that is another one after each commit of any process. It says nothing about one scope."""
        version, _ = await self.compute(self._find_changes, None, ())
        return version

    async def _read_stamps(self, keys: Sequence[ThreadKey]) -> Stamps | None:
        self._polled_version, stamps = await self.compute(self._find_changes, self._polled_version, keys)
        return stamps

    def _find_changes(self, version: str | None, keys: Sequence[ThreadKey]) -> tuple[str, Stamps | None]:
        """Return the version of the file and, if it is not ``version``, the stamps of the threads."""
        with self._poll_lock:
            try:
                if self._poll_db is None:  # always the same connection: data_version is only comparable within one
                    self._poll_db = self._readers.connect()
                    self._poll_token = new_token()
                found = f"{self._poll_token}-{self._poll_db.execute('PRAGMA data_version').fetchone()[0]}"
                return found, None if found == version or not keys else queries.read_stamps(self._poll_db, keys)
            except sqlite3.Error as error:
                if not is_outage(error):
                    raise
                self._poll_db = None
                raise unavailable(error) from error
