"""An open SQLite file: the connection that writes, those that read, checkpoints, wake-ups and the locks of owners.

Other processes learn of a change by a datagram (``wakeup``). The peers that receive it are read in the transaction that
changes something, so that none that has opened the file before is missed.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from aguila.errors import StoreError, StoreUnavailable
from aguila.store.cursors import new_token
from aguila.store.encoding import SMALL_RUN
from aguila.store.records import Durability, ThreadKey
from aguila.store.sql.tx import Database, Outage, Tx
from aguila.store.sqlite.checkpoint import Checkpointer
from aguila.store.sqlite.connection import connect, connect_reader
from aguila.store.sqlite.locks import OwnerLocks
from aguila.store.sqlite.tx import SQLiteTx, is_outage, unavailable
from aguila.store.sqlite.wakeup import Listener, Sender

_log = logging.getLogger("aguila.store")

_VACUUM_PAGES: Final = 256
"""Free pages that are returned to the file system at a time, so that a write never waits long for it."""


class SQLiteDatabase(Database):
    """One open file. Made on the event loop."""

    def __init__(
        self,
        path: Path,
        on_change: Callable[[Sequence[ThreadKey]], None],
        *,
        locks: OwnerLocks,
        busy_seconds: float,
        durability: Durability,
        max_bytes: int | None,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.patience = busy_seconds
        self.clock, self.monotonic = clock, monotonic
        self._locks = locks
        self._loop = asyncio.get_running_loop()
        self._listener = Listener(on_change)
        self._sender = Sender(self._listener.token)
        self._sending = threading.Lock()
        self._peers: Sequence[tuple[str, int]] = ()
        self._is_registered = False
        self._connect = partial(connect, path, busy_seconds=busy_seconds, durability=durability, max_bytes=max_bytes)
        self.connect_reader = partial(connect_reader, path, busy_seconds=busy_seconds)
        self.checkpointer = Checkpointer(self.connect_reader, path)
        self._syncs_commits = durability == "power"
        self.turn = threading.Lock()
        """Held while the connection that writes is used."""
        self.connection: sqlite3.Connection | None = None
        self._is_alone = False
        """Whether no other process had the file open at the last write."""
        self._ran_inline = False  # in this iteration of the event loop
        self._local = threading.local()
        self._readers: set[sqlite3.Connection] = set()
        self._poll_db: sqlite3.Connection | None = None
        self._poll_token = ""
        self._poll_lock = threading.Lock()
        self._polled: str | None = None
        self._listener.open()

    def open(self) -> None:
        token, port = self._listener.token, self._listener.port
        deadline = time.monotonic() + self.patience
        while True:
            try:
                with self.transaction() as tx:  # creates the file
                    if port is not None:
                        tx.do("DELETE FROM peers WHERE port = $1", port)  # the former process of this port is dead
                        tx.do("INSERT INTO peers (token, port) VALUES ($1, $2)", token, port)
                break
            except Outage:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.01)
        self._is_registered = port is not None
        self._locks.open()

    def hold(self, owner: str) -> str | None:
        return self._locks.hold(owner)

    # Writes

    def transaction(self) -> AbstractContextManager[SQLiteTx]:
        return _Writing(self)

    def try_transaction(self) -> AbstractContextManager[SQLiteTx] | None:
        """Begin a transaction on the event loop unless it could block.

        It could block if the writer's thread is busy, if commits wait for the disk, if the file is locked or not open,
        or if the commit may start the WAL over, which needs an fsync. Other processes may run a checkpoint at any time,
        so no other process may have the file open. If several jobs arrive together, the thread runs them in one
        transaction instead.
        """
        if self._ran_inline or not self._is_alone or self._syncs_commits or self.checkpointer.may_start_over:
            return None
        if not self.turn.acquire(blocking=False):
            return None
        db = self.connection
        try:
            if db is not None:
                db.execute("BEGIN IMMEDIATE")
                self._ran_inline = True
                self._loop.call_soon(self._after_inline)
                return _Writing(self, begun=db)
        except sqlite3.Error as error:  # the thread waits for the lock, or reports the error
            _log.debug("cannot write on the event loop: %s", error)
        self.turn.release()
        return None

    def _after_inline(self) -> None:
        self._ran_inline = False
        if self.turn.acquire(blocking=False):  # otherwise the thread is busy, and checks by itself
            self._checkpoint(self.checkpointer.check_due)
            self.turn.release()

    def begin(self) -> sqlite3.Connection:
        """Lock the file for a transaction of the thread. Raises ``Outage``, ``StoreUnavailable``."""
        self.checkpointer.may_start_over = False  # if a commit starts it over, it is this one, in the thread
        try:
            db = self.connection = self.connection or self._connect()
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self.recover(error)
            if is_outage(error):
                raise unavailable(error) from error
            raise
        return db

    def commit(self, db: sqlite3.Connection, *, inline: bool) -> None:
        """Commit, with the peers of this moment. Raises ``sqlite3.Error``."""
        for token in self._sender.take_dead():
            db.execute("DELETE FROM peers WHERE token = ?", (token,))
        peers = db.execute("SELECT token, port FROM peers").fetchall()
        db.execute("COMMIT")
        self._peers = peers
        self._is_alone = not self._sender.has_others(peers)
        if not inline:
            self._checkpoint(self.checkpointer.after_commit)

    def recover(self, error: BaseException) -> None:
        """Roll back. If that fails or the connection is not usable, the next transaction connects again."""
        db = self.connection
        if db is None:
            return
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error as failure:
            _log.warning("rollback failed: %s", failure)
            self._disconnect()
        else:
            if isinstance(error, sqlite3.Error) and is_outage(error) and not _is_temporary(error):
                self._disconnect()

    def _checkpoint(self, check: Callable[[sqlite3.Connection], None]) -> None:
        if self.connection is not None:
            try:
                check(self.connection)
            except (sqlite3.Error, OSError) as error:
                _log.warning("checkpoint failed: %s", error)

    def _disconnect(self) -> None:
        db, self.connection = self.connection, None
        if db is not None:
            try:
                db.close()
            except sqlite3.Error as error:
                _log.warning("cannot close the connection: %s", error)

    def notify(self, keys: Sequence[ThreadKey]) -> None:
        if not self._is_alone and keys:
            with self._sending:
                self._sender.send(self._peers, keys)

    def check(self, tx: Tx) -> None:
        pages, free, max_pages, page_size = (
            (tx.row(f"PRAGMA {name}") or (0,))[0]
            for name in ("page_count", "freelist_count", "max_page_count", "page_size")
        )
        if (max_pages - pages + free) * page_size < SMALL_RUN:  # writing the row again needs no new page
            raise StoreUnavailable("the file is as large as max_bytes allows (SQLITE_FULL); raise it or remove threads")

    def rest(self) -> bool:
        """Return some free pages to the file system; then empty the WAL, which may have what was removed."""
        with self.turn:
            db = self.connection
            try:
                if db is None:
                    return False
                if not db.execute("PRAGMA freelist_count").fetchone()[0]:
                    self.checkpointer.may_start_over = True
                    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                    return False
                db.execute("BEGIN IMMEDIATE")
                db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
                db.execute("COMMIT")
            except sqlite3.Error as error:
                self.recover(error)
                raise unavailable(error) from error
            return True

    # Reads

    @contextmanager
    def reading(self) -> Generator[SQLiteTx]:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        try:
            if db is None:
                db = self._local.db = self._open_reader()
            db.execute("BEGIN")
            try:
                yield self.make_tx(db)
            finally:
                db.execute("COMMIT")
        except sqlite3.Error as error:
            if not is_outage(error):
                raise
            self._local.db = None  # the next read connects again; ``close`` closes this connection
            raise unavailable(error) from error

    @contextmanager
    def snapshot(self) -> Generator[SQLiteTx]:
        try:
            db = self._open_reader()
            db.execute("BEGIN")
            db.execute("SELECT version FROM schema_info").fetchall()  # the first statement chooses the state
        except sqlite3.Error as error:
            raise unavailable(error) from error
        try:
            yield self.make_tx(db)
        finally:
            self._readers.discard(db)
            db.close()

    def make_tx(self, db: sqlite3.Connection) -> SQLiteTx:
        """Return a transaction on a connection."""
        return SQLiteTx(db, self._locks.is_dead, self.clock(), self.monotonic())

    def _open_reader(self) -> sqlite3.Connection:
        db = self.connect_reader()
        self._readers.add(db)
        return db

    def has_changed(self) -> bool:
        found = self._data_version()
        polled, self._polled = self._polled, found
        return found != polled

    def version(self, tx: Tx) -> str:
        return self._data_version()

    def _data_version(self) -> str:
        with self._poll_lock:
            try:
                if self._poll_db is None:  # always the same connection: data_version is only comparable within one
                    self._poll_db = self._open_reader()
                    self._poll_token = new_token()
                return f"{self._poll_token}-{self._poll_db.execute('PRAGMA data_version').fetchone()[0]}"
            except sqlite3.Error as error:
                if not is_outage(error):
                    raise
                self._poll_db = None
                raise unavailable(error) from error

    # Close

    def close(self) -> None:
        if self._is_registered:
            try:  # if this fails, a peer finds our port closed and removes our row
                with self.transaction() as tx:
                    tx.do("DELETE FROM peers WHERE token = $1", self._listener.token)
            except StoreError as error:
                _log.info("cannot sign off from the file: %s", error)
        with self.turn:
            self.checkpointer.close(has_file=self.connection is not None)
            self._disconnect()
        self._sender.close()
        for db in self._readers:
            db.close()
        self._locks.close()
        try:
            self._loop.call_soon_threadsafe(self._listener.close)
        except RuntimeError:  # the event loop is closed
            self._listener.abandon()


class _Writing:
    """A transaction on the connection that writes. A class: a generator costs 3 us more for each write."""

    __slots__ = ("_begun", "_database", "_db")

    def __init__(self, database: SQLiteDatabase, *, begun: sqlite3.Connection | None = None) -> None:
        self._database = database
        self._begun = begun

    def __enter__(self) -> SQLiteTx:
        database = self._database
        if self._begun is not None:
            self._db = self._begun
        else:
            database.turn.acquire()
            try:
                self._db = database.begin()
            except BaseException:
                database.turn.release()
                raise
        return database.make_tx(self._db)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        database = self._database
        try:
            if error is None:
                try:
                    database.commit(self._db, inline=self._begun is not None)
                except sqlite3.Error as failure:
                    error = failure
                else:
                    return
            database.recover(error)
            if isinstance(error, sqlite3.Error):
                raise (unavailable(error) if is_outage(error) else error) from error
        finally:
            database.turn.release()


def _is_temporary(error: sqlite3.Error) -> bool:
    """Return whether the connection is still usable: the file is only locked or full."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)
