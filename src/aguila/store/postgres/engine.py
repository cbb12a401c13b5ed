"""The open database of a store: its schema, its connections, and its wake-ups."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import psycopg

from aguila.store.postgres import schema as schemas
from aguila.store.postgres.connection import LOCKED_MILLISECONDS, Connection, Connector, drop
from aguila.store.postgres.connection import Wakeups as Mode
from aguila.store.postgres.errors import convert, is_outage, unavailable
from aguila.store.postgres.liveness import PostgresLiveness
from aguila.store.postgres.tx import PostgresTx, in_schema, transact
from aguila.store.postgres.wakeups import Wakeups
from aguila.store.sql.tx import Database, Outage, Tx

ThreadKey = tuple[str, str]

_SLOTS = 64
"""How many rows the usage of a scope has at most."""

_PAUSE = 0.05
"""Seconds between two attempts to connect."""

_LOCK_TABLES = "LOCK TABLE aguila.threads, aguila.runs, aguila.log IN ROW EXCLUSIVE MODE"
_VERSION = "SELECT concat_ws(' ', pg_postmaster_start_time(), pg_current_snapshot())"


_END_SUSPENDED = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
WHERE pg_has_role(a.usesysid, 'MEMBER') AND a.state IN ('active', 'idle in transaction') AND a.wait_event = 'ClientRead'
  AND a.query_start < clock_timestamp() - $1 * interval '1 millisecond'
  AND EXISTS (
    SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.granted AND (
      l.relation = 'aguila.threads'::regclass AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
      OR l.locktype = 'advisory' AND l.objsubid = 2))
"""
"""End the transactions of processes that were suspended, or cut off, while they held locks.

The server ends such a transaction by itself if it has answered everything. It does not within a pipeline.
"""


class PostgresDatabase(Database):
    """One connection that writes, and one that reads for each reader thread."""

    def __init__(
        self,
        url: str,
        *,
        schema: str,
        wakeups: Mode,
        patience: float,
        migrates: bool,
        clock: Callable[[], float] | None,
        on_change: Callable[[Sequence[ThreadKey]], None],
    ) -> None:
        self.patience = patience
        self.slot = secrets.randbelow(_SLOTS)
        self.schema = schema
        self.connector = Connector(url, schema=schema, wakeups=wakeups, patience=patience)
        self.hold = self.connector.hold
        self._liveness = PostgresLiveness(self.connector)
        self._migrates = migrates
        self._clock = clock
        self.writer: Connection | None = None
        self._local = threading.local()
        self._readers: set[Connection] = set()
        self.wakeups = None if self.connector.is_pooled else Wakeups(self.connector, on_change)

    def open(self) -> None:
        """Connect, create or check the schema, and listen for wake-ups. Raises ``StoreUnavailable``."""
        with self._first_connection() as db:
            version = schemas.read_version(db, self.schema, self.location)
            if version == 0 and self._migrates:
                schemas.create(db, self.schema, self.location)
            else:
                schemas.check_version(version, self.schema, self.location)
        if self.wakeups is not None:
            self.wakeups.open()

    def migrate(self) -> tuple[int, int]:
        """Create the schema unless it exists; return its version before and after. Raises ``StoreUnavailable``."""
        with self._first_connection() as db:
            before = schemas.create(db, self.schema, self.location)
            return before, max(before, schemas.VERSION)

    @property
    def location(self) -> str:
        """The URL of the schema, without its password."""
        return self.connector.location

    @contextmanager
    def _first_connection(self) -> Generator[Connection]:
        """Connect while the schema may not exist, for ``patience`` seconds. Raises ``StoreUnavailable``."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                db = self.connector.connect(commits=False)
                break
            except (psycopg.Error, OSError) as error:
                if not is_outage(error) or time.monotonic() + _PAUSE > deadline:
                    raise unavailable(error) from error
            time.sleep(_PAUSE)
        try:
            yield db
        except (psycopg.Error, OSError) as error:
            raise unavailable(error) from error
        finally:
            drop(db)

    @contextmanager
    def transaction(self) -> Generator[Tx]:
        """Begin a writing transaction, and commit it at the end of the block."""
        with self._as_store_errors(writes=True):
            db = self.writer
            if db is None or db.closed:
                db = self.writer = self.connector.connect(locks=True)
            limits = self.connector.limits if self.connector.is_pooled else {}
            try:
                with transact(db, self._tx(db), writes=True, limits=limits) as tx:
                    yield tx
            except psycopg.errors.LockNotAvailable:
                if not db.closed:
                    db.execute(in_schema(_END_SUSPENDED, self.schema), (LOCKED_MILLISECONDS,))
                raise

    @contextmanager
    def reading(self) -> Generator[Tx]:
        """Begin a transaction that reads one state of the database."""
        with self._as_store_errors(writes=False):
            db: Connection | None = getattr(self._local, "db", None)
            if db is None or db.closed:
                self._readers.discard(db)
                db = self._local.db = self.connector.connect()
                self._readers.add(db)
            with transact(db, self._tx(db), writes=False, limits={}) as tx:
                yield tx

    @contextmanager
    def snapshot(self) -> Generator[Tx]:
        """Begin a transaction that reads one state of the database, with a connection of its own."""
        with self._as_store_errors(writes=False):
            db = self.connector.connect()
            try:
                with transact(db, self._tx(db), writes=False, limits={"idle_in_transaction_session_timeout": 0}) as tx:
                    yield tx
            finally:
                drop(db)

    def _tx(self, db: Connection) -> PostgresTx:
        return PostgresTx(db, self.schema, self._liveness, self._clock)

    @contextmanager
    def _as_store_errors(self, *, writes: bool) -> Generator[None]:
        try:
            yield
        except (psycopg.Error, OSError, UnicodeEncodeError) as error:
            if is_outage(error):
                raise Outage(str(unavailable(error))) from error
            raise convert(error, writes=writes) from error

    def notify(self, keys: Sequence[ThreadKey]) -> None:
        """Wake the readers of these threads in other processes."""
        if self.wakeups is not None:
            self.wakeups.send(keys)

    def version(self, tx: Tx) -> str | None:
        """Return text that is another one after each commit: the set of transactions whose changes are visible."""
        row = tx.row(_VERSION)
        return None if row is None else row[0]

    def check(self, tx: Tx) -> None:
        """Lock the tables of a run as a write does, so that a locked table is noticed."""
        tx.do(_LOCK_TABLES)

    def close(self) -> None:
        """Close all connections."""
        if self.wakeups is not None:
            self.wakeups.close()
        for db in (*self._readers, self.writer):
            if db is not None:
                drop(db)
        self.writer = None
