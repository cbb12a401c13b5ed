"""``MemoryStore``: an SQLite database in the memory of this process.

One connection serves writers and readers, who take turns; nearly every call runs at once on the event loop. SQLite's
shared cache is not used: its locks on tables would fail calls instead of letting them wait.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TypeVar

from aguila.errors import StoreError, StoreUnavailable
from aguila.store.cursors import new_token
from aguila.store.encoding import SMALL_RUN, hash_thread, size_of_rows
from aguila.store.records import Begun, ThreadKey, Written
from aguila.store.sql import runs
from aguila.store.sql import threads as sql_threads
from aguila.store.sql.schema import sqlite_schema
from aguila.store.sql.store import SQLStore
from aguila.store.sql.tx import Database, Tx
from aguila.store.sqlite.tx import SQLiteTx, is_outage, unavailable

T = TypeVar("T")

MAX_REMOVED = 10_000
"""How many threads that made room leave their last number: each takes about 30 bytes."""

_FULL = "the memory store is full and every thread has an open run; raise max_bytes or max_threads, or use SQLiteStore"


class MemoryStore(SQLStore):
    """A store in the memory of this process. Closing it deletes everything.

    ``max_bytes`` (events, requests, turns, sessions, effects and files) and ``max_threads`` bound it. Beyond them,
    threads without an open run and files without a thread are removed, oldest first. If there are none, a call that
    needs room raises ``StoreUnavailable``; closing a run always succeeds. The last sequence number is remembered for
    the last ``MAX_REMOVED`` threads that were removed so.
    """

    def __init__(
        self,
        *,
        max_bytes: int = 256 * 1024 * 1024,
        max_threads: int = 10_000,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._max_threads = max_threads
        self._clock = clock
        self._monotonic = monotonic

        self._kept: MemoryDatabase | None = None
        """The database, also after its event loop was closed: the store can be opened again on another one."""
        self._evicted: deque[int] = deque()
        """The hashes of the threads that were removed to make room, the oldest first."""
        self._bytes_left = self._threads_left = 0  # at least so much, without another look

    async def check(self) -> None:
        """Raise ``StoreUnavailable`` if a small run would not fit: what belongs to no open run could be removed."""
        await super().check()
        row = await self._read(_measure_open)
        room = min(SMALL_RUN, self._max_bytes // 16)
        if row[1] + room > self._max_bytes or row[0] >= self._max_threads:
            raise StoreUnavailable(_FULL)

    def _run_begins(self, tx: Tx, items: Sequence[runs.BeginItem]) -> Sequence[Begun | StoreError]:
        outcomes: list[Begun | StoreError] = []
        for item in items:
            try:
                self._reserve(tx, item.request.size + size_of_rows(item.rows), threads=1, keep=item.key)
            except StoreUnavailable as full:
                outcomes.append(full)
            else:
                outcomes += runs.begin(tx, [item])
        return outcomes

    def _run_writes(self, tx: Tx, items: Sequence[runs.WriteItem]) -> Sequence[Written | StoreError]:
        outcomes: list[Written | StoreError] = []
        for item in items:
            try:
                self._reserve(tx, size_of_rows(item.rows) + item.change.size)
            except StoreUnavailable as full:
                if item.change.end is None:
                    outcomes.append(full)
                    continue
            outcomes += runs.write(tx, [item], 0)
        return outcomes

    def _make_room(self, tx: Tx, size: int) -> None:
        self._reserve(tx, size)

    def _reserve(self, tx: Tx, size: int, *, threads: int = 0, keep: ThreadKey | None = None) -> None:
        """Remove the oldest threads until so much fits. Raises ``StoreUnavailable``."""
        self._bytes_left -= size
        self._threads_left -= threads
        if self._bytes_left >= 0 and self._threads_left >= 0:
            return
        count, used = sql_threads.measure(tx)
        if threads and keep is not None and tx.row(_EXISTS, *keep) is not None:
            threads = 0
        too_many, too_large = count + threads - self._max_threads, used + size - self._max_bytes
        if too_many > 0 or too_large > 0:  # a few more than needed: the next calls need not look
            removed, freed = sql_threads.remove_oldest(
                tx,
                0,
                threads=too_many + self._max_threads // 64 if too_many > 0 else 0,
                size=too_large + self._max_bytes // 64 if too_large > 0 else 0,
                keep=keep,
            )
            self.live.loop.call_soon_threadsafe(self._removed, removed)
            self._evicted.extend([hash_thread(*key) for key in removed])
            while len(self._evicted) > MAX_REMOVED:
                tx.do("DELETE FROM aguila.removed WHERE thread_hash = $1", self._evicted.popleft())
            count, used = count - len(removed), used - freed
            if count + threads > self._max_threads or used + size > self._max_bytes:
                self._bytes_left = self._threads_left = 0
                raise StoreUnavailable(_FULL)
        self._bytes_left, self._threads_left = self._max_bytes - used - size, self._max_threads - count - threads

    def _make_database(self, on_change: Callable[[Sequence[ThreadKey]], None]) -> MemoryDatabase:
        if self._kept is None:
            self._bytes_left = self._threads_left = 0
            self._kept = MemoryDatabase(self._clock, self._monotonic)
        return self._kept

    async def _stop(self) -> None:
        await super()._stop()
        if self._kept is not None:
            self._kept.clear()
            self._kept = None


_EXISTS = "SELECT 1 FROM aguila.threads WHERE scope = $1 AND thread_id = $2"


def _measure_open(tx: Tx) -> tuple[int, int]:
    """Return how many threads have an open run, and their bytes with their files."""
    row = tx.row(
        """
        SELECT count(*), coalesce(sum(t.bytes + coalesce((SELECT sum(f.size) FROM aguila.holds h
          JOIN aguila.files f ON f.key = h.file WHERE h.scope = t.scope AND h.thread_id = t.thread_id), 0)), 0)
        FROM aguila.threads t WHERE t.running IS NOT NULL
        """
    )
    assert row is not None  # noqa: S101 - aggregates
    return row[0], row[1]


class MemoryDatabase(Database):
    """One connection, and whose turn it is to use it."""

    opens_inline = True

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self.turn = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self._token = new_token()
        self._version = self._seen = 0

    def open(self) -> None:
        if self.connection is None:
            db = _connect()
            _template().backup(db)
            self.connection = db

    def try_transaction(self) -> AbstractContextManager[SQLiteTx] | None:
        return _Turn(self, writes=True) if self.turn.acquire(blocking=False) else None

    def transaction(self) -> AbstractContextManager[SQLiteTx]:
        self.turn.acquire()
        return _Turn(self, writes=True)

    def try_reading(self) -> AbstractContextManager[SQLiteTx] | None:
        return _Turn(self, writes=False) if self.turn.acquire(blocking=False) else None

    def reading(self) -> AbstractContextManager[SQLiteTx]:
        self.turn.acquire()
        return _Turn(self, writes=False)

    def make_tx(self) -> SQLiteTx:
        """Return a transaction on the connection. Raises ``StoreUnavailable`` if it is closed."""
        if self.connection is None:
            raise StoreUnavailable("the store is closed")
        return SQLiteTx(self.connection, _is_dead, self._clock(), self._monotonic())

    def wrote(self) -> None:
        """Record a commit."""
        self._version += 1

    @contextmanager
    def snapshot(self) -> Generator[SQLiteTx]:
        """Copy the database, so that writers need not wait."""
        copy = _connect()
        try:
            with self.turn:
                if self.connection is None:
                    raise StoreUnavailable("the store is closed")
                self.connection.backup(copy)
            yield SQLiteTx(copy, _is_dead, self._clock(), self._monotonic())
        finally:
            copy.close()

    def has_changed(self) -> bool:
        seen, self._seen = self._seen, self._version
        return seen != self._version

    def version(self, tx: Tx) -> str:
        return f"{self._token}-{self._version}"

    def clear(self) -> None:
        """Delete everything. ``close`` does not: ``MemoryStore`` keeps it if only its event loop was closed."""
        with self.turn:
            db, self.connection = self.connection, None
        if db is not None:
            db.close()


def _is_dead(owner: str, lock: str | None) -> bool:
    """No other process can use the database."""
    return False


class _Turn:
    """A turn to use the connection, from ``__enter__`` to ``__exit__``. A class: a generator costs 3 us more."""

    __slots__ = ("_database", "_db", "_writes")

    def __init__(self, database: MemoryDatabase, *, writes: bool) -> None:
        self._database = database
        self._writes = writes

    def __enter__(self) -> SQLiteTx:
        try:
            tx = self._database.make_tx()
        except BaseException:
            self._database.turn.release()
            raise
        self._db = tx.connection
        if self._writes:
            self._db.execute("BEGIN")
        return tx

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        database, db = self._database, self._db
        try:
            if not self._writes:
                return
            if error is None:
                db.execute("COMMIT")
                database.wrote()
                return
            if db.in_transaction:
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error) and is_outage(error):
                raise unavailable(error) from error
        finally:
            database.turn.release()


def _connect() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)


@cache
def _template() -> sqlite3.Connection:
    """Return an empty database: to copy it takes a tenth of the time of creating the tables.

    ``deserialize`` would be as fast, and limit the copy to 1 GiB.
    """
    db = _connect()
    for statement in sqlite_schema():
        db.execute(statement)
    return db
