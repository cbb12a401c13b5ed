"""What a database supplies to the one SQL implementation: transactions, liveness, wake-ups.

Statements are written once, with ``$1`` for parameters and the schema ``aguila.`` before each table. SQLite gets
``?1``, no prefix and no ``FOR UPDATE``. Three things differ between the databases and are snippets (``Dialect``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from aguila.errors import StoreUnavailable
from aguila.store.records import ThreadKey

Row = tuple[Any, ...]
"""A row. Text is ``str``, a blob is ``bytes``, a flag is ``int``."""


class Outage(StoreUnavailable):
    """The database could not be used; what was committed is unknown. The jobs are tried again until they are late."""


class Dialect(Protocol):
    """The snippets of SQL that differ."""

    @property
    def next_position(self) -> str:
        """An expression: the next position of a thread in the scope ``$1``."""
        ...

    @property
    def next_run(self) -> str:
        """An expression: the key of the next run."""
        ...

    @property
    def next_thread(self) -> str:
        """An expression: the key of the next thread."""
        ...


class Liveness(Protocol):
    """Which processes are known to be dead. ``hold`` is called on the event loop, ``is_dead`` on any thread."""

    def hold(self, owner: str) -> str | None:
        """Lock the name of a process of this store until it closes; return the lock to store, or None without locks."""
        ...

    def is_dead(self, owner: str, lock: str | None) -> bool:
        """Return whether an owner is known to be dead. ``lock`` is what ``hold`` returned to it."""
        ...


class Tx(Protocol):
    """A transaction. ``row``, ``rows`` and ``each`` return results; ``do``, ``many`` and locks may be queued.

    An error of a queued statement is raised by a later call, or by the end of the transaction.
    """

    @property
    def dialect(self) -> Dialect:
        """The snippets of this database."""
        ...

    @property
    def liveness(self) -> Liveness:
        """Which processes are known to be dead."""
        ...

    @property
    def now(self) -> float:
        """Seconds since the Unix epoch, on the store's clock."""
        ...

    @property
    def lease_now(self) -> float:
        """The clock that judges leases, which all processes share."""
        ...

    def row(self, sql: str, *values: Any) -> Row | None:
        """Return the first row of a statement, or None."""
        ...

    def rows(self, sql: str, *values: Any) -> Sequence[Row]:
        """Return the rows of a statement."""
        ...

    def each(self, sql: str, keys: Iterable[Sequence[Any]]) -> Sequence[Sequence[Row]]:
        """Run a statement with each of these values, in one round trip; return the rows of each, in order."""
        ...

    def do(self, sql: str, *values: Any) -> None:
        """Run a statement that returns nothing."""
        ...

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement that returns nothing with each of these values."""
        ...

    def lock_thread(self, scope: str, thread_id: str) -> None:
        """Lock the row of a thread, if it exists, until the end of the transaction. Nothing on SQLite."""
        ...

    def lock_scope(self, scope: str) -> None:
        """Lock a scope, so that its open runs can be counted, until the end of the transaction. Nothing on SQLite."""
        ...


class Database(Protocol):
    """An open database, as the store uses it: one writing transaction at a time, and reads on other threads.

    The store makes it on the event loop, with ``on_change``, to be called on any thread with the threads that another
    process changed; without keys, with all.
    """

    @property
    def liveness(self) -> Liveness:
        """Which processes are known to be dead."""
        ...

    @property
    def slot(self) -> int:
        """The rows of ``usage`` that this process writes: processes do not wait for each other."""
        ...

    @property
    def patience(self) -> float:
        """Seconds for which a job is tried again during an outage."""
        ...

    @property
    def opens_inline(self) -> bool:
        """Whether ``open``, ``has_changed`` and ``version`` never block: the event loop calls them."""
        ...

    @property
    def wrote_at(self) -> float:
        """The ``time.monotonic`` of the latest commit, or of the latest part of a large write."""
        ...

    def open(self) -> None:
        """Connect, create or check the schema, and listen for wake-ups. Called once, on a reader thread.

        Raises ``StoreUnavailable``.
        """
        ...

    def try_transaction(self) -> AbstractContextManager[Tx] | None:
        """Begin a writing transaction on the event loop if nothing can block it; None otherwise, as on PostgreSQL."""
        ...

    def transaction(self) -> AbstractContextManager[Tx]:
        """Begin a writing transaction; commit it at the end of the block. Called on the writer's thread.

        An exception of the block rolls back. Raises ``Outage``, also from the commit.
        """
        ...

    def reading(self) -> AbstractContextManager[Tx]:
        """Begin a transaction that reads one state of the database. Called on any reader thread. Raises ``Outage``."""
        ...

    def try_reading(self) -> AbstractContextManager[Tx] | None:
        """Begin a transaction that reads on the event loop if it cannot block; None otherwise."""
        ...

    def snapshot(self) -> AbstractContextManager[Tx]:
        """Begin a transaction that reads and stays open between calls. Called on a thread of its own."""
        ...

    def notify(self, keys: Sequence[ThreadKey]) -> None:
        """Wake the readers of these threads in other processes. Called on the writer's thread after a commit."""
        ...

    def has_changed(self) -> bool:
        """Return whether any process may have committed since the last call. Called on a reader thread."""
        ...

    def version(self) -> str | None:
        """Return text that differs after each commit of any process; None if there is none. On a reader thread."""
        ...

    def check(self, tx: Tx) -> None:
        """Raise ``StoreUnavailable`` if a database-specific limit leaves no room for a small run."""
        ...

    def rest(self) -> bool:
        """Do a step of maintenance while no jobs wait (checkpoint, vacuum). Return whether more is to be done."""
        ...

    def close(self) -> None:
        """Release every resource. Called on a thread, after the last job and the last read."""
        ...
