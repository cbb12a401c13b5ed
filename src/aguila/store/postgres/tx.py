"""A transaction on PostgreSQL: statements are queued, and sent together when a result is needed.

The pipeline of the driver, which it calls experimental, is used here and nowhere else. Behind a pooler in transaction
mode everything works the same without it, with one round trip per statement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from aguila.store.postgres.arrays import select_each, split_rows
from aguila.store.postgres.connection import Connection, drop
from aguila.store.postgres.liveness import PostgresLiveness
from aguila.store.sql.tx import Row

_WRITING = "BEGIN"
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
_LOCK_THREAD = "SELECT 1 FROM aguila.threads WHERE scope = $1 AND thread_id = $2 FOR UPDATE"
_LOCK_SCOPE = "SELECT pg_advisory_xact_lock(hashtext('aguila.scopes'), hashtext($1))"  # not the keys of ``liveness``

_SEQUENCES = {"NEXT_POSITION": "positions", "NEXT_RUN": "runs_key_seq", "NEXT_THREAD": "threads_key_seq"}


@lru_cache(maxsize=1024)
def in_schema(sql: str, schema: str) -> bytes:
    """Return SQL as PostgreSQL reads it; it was written for the schema ``aguila``."""
    for name, sequence in _SEQUENCES.items():
        sql = sql.replace(name, f"nextval('aguila.{sequence}')")
    return (sql if schema == "aguila" else sql.replace("aguila.", f"{schema}.")).encode()


class PostgresTx:
    """The statements of one transaction."""

    def __init__(
        self, db: Connection, schema: str, liveness: PostgresLiveness, clock: Callable[[], float] | None
    ) -> None:
        self._liveness = liveness
        self._db = db
        self._schema = schema
        self._has_clock = clock is not None
        self._clock = time.time if clock is None else clock
        self._time: psycopg.Cursor[Row] | None = None
        self._now: float | None = None
        self.pipeline: psycopg.Pipeline | None = None
        self._queue: list[tuple[str, list[Sequence[Any]]]] = []

    @property
    def now(self) -> float:
        """When the transaction began, on the clock of the database."""
        if self._now is None:
            self._now = float(self._time.fetchall()[0][0]) if self._time is not None else self._clock()
        return self._now

    @property
    def lease_now(self) -> float:
        """The clock that judges leases: that of the database, too."""
        return self.now

    def is_dead(self, owner: str, lock: str | None) -> bool:
        """Return whether an owner is known to be dead."""
        return self._liveness.is_dead(self, lock)

    def begin(self, *, writes: bool, limits: Mapping[str, int]) -> None:
        """Queue the beginning of the transaction, and settings for it."""
        self.do(_WRITING if writes else _READING)
        for name, value in limits.items():
            self.do(f"SET LOCAL {name} = {value}")
        if not self._has_clock:
            self._send()
            self._time = self._db.cursor(binary=True).execute(_NOW)

    def row(self, sql: str, *values: Any) -> Row | None:
        """Return the first row of a statement, or None."""
        return self._fetch(sql, values).fetchone()

    def rows(self, sql: str, *values: Any) -> Sequence[Row]:
        """Return the rows of a statement."""
        return self._fetch(sql, values).fetchall()

    def each(self, sql: str, keys: Iterable[Sequence[Any]]) -> Sequence[Sequence[Row]]:
        """Run a statement with each of these values, in one round trip; return the rows of each, in order."""
        keys = list(keys)
        query = select_each(sql, keys) if len(keys) > 1 else None
        if query is not None:
            found: list[list[Row]] = [[] for _ in keys]
            for row in self.rows(query[0], *query[1]):
                number: int = row[0]
                found[number - 1].append(row[1:])
            return found
        if len(keys) < 2 or self.pipeline is None:
            return [self.rows(sql, *values) for values in keys]
        self._send()
        cursor = self._db.cursor(binary=True)
        cursor.executemany(in_schema(sql, self._schema), keys, returning=True)
        return [result.fetchall() for result in cursor.results()]

    def do(self, sql: str, *values: Any) -> None:
        """Queue a statement that returns nothing."""
        self.many(sql, [values])

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Queue a statement that returns nothing with each of these values."""
        if not self._queue or self._queue[-1][0] != sql:
            self._queue.append((sql, []))
        self._queue[-1][1].extend(rows)

    def lock_thread(self, scope: str, thread_id: str) -> None:
        """Lock the row of a thread, if it exists, until the end of the transaction."""
        self.do(_LOCK_THREAD, scope, thread_id)

    def lock_scope(self, scope: str) -> None:
        """Lock a scope until the end of the transaction."""
        self.do(_LOCK_SCOPE, scope)

    def commit(self) -> None:
        """End the transaction."""
        self.do("COMMIT")
        self._send()

    def _fetch(self, sql: str, values: Sequence[Any]) -> psycopg.Cursor[Row]:
        self._send()
        cursor = self._db.cursor(binary=True).execute(in_schema(sql, self._schema), values)
        if self.pipeline is not None:
            self.pipeline.sync()  # only then does the server see that the transaction is idle
        return cursor

    def _send(self) -> None:
        """Send what is queued. It is sent at once, so that a process is rarely suspended in between."""
        queue, self._queue = self._queue, []
        for sql, rows in queue:
            statements = split_rows(sql, rows) if len(rows) > 1 else None
            for text, values in statements or [(sql, values) for values in rows]:
                self._db.cursor(binary=True).execute(in_schema(text, self._schema), values)


@contextmanager
def _pipelined(db: Connection) -> Generator[psycopg.Pipeline | None]:
    """Queue the statements of a block. An error of one that was queued is raised at the end of the block."""
    if not db.has_pipeline:
        yield None
        return
    failure: BaseException | None = None
    try:
        with db.pipeline() as pipeline:
            try:
                yield pipeline
            except BaseException as error:  # noqa: BLE001 - raised below: the pipeline would log its own errors
                failure = error
    except psycopg.Error as error:
        failure = failure or error
    if failure is not None:
        raise failure


@contextmanager
def transact(db: Connection, tx: PostgresTx, *, writes: bool, limits: Mapping[str, int]) -> Generator[PostgresTx]:
    """Commit the statements of a block, or roll them back. Raises errors of the driver."""
    try:
        with _pipelined(db) as tx.pipeline:
            tx.begin(writes=writes, limits=limits)
            yield tx
            tx.commit()
    except BaseException as error:
        _roll_back(db, error)
        raise


def _roll_back(db: Connection, error: BaseException) -> None:
    """End a transaction that failed; close its connection if that is not possible, or if it accepts no writes."""
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        drop(db)
        return
    with suppress(psycopg.Error, OSError):
        if not db.closed and db.info.transaction_status != TransactionStatus.IDLE:
            db.rollback()
    if not db.closed and db.info.transaction_status != TransactionStatus.IDLE:
        drop(db)
