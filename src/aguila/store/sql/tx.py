"""What a database supplies to the one SQL implementation: transactions, liveness, wake-ups.

Statements are written once, with ``$1`` for parameters and the schema ``aguila.`` before each table. SQLite gets
``?1``, no prefix and no ``FOR UPDATE``. Three expressions differ between the databases, which replace their names:
``NEXT_POSITION`` of a thread in the scope ``$1``, ``NEXT_RUN`` and ``NEXT_THREAD``, the keys of the next ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from aguila.errors import StoreUnavailable
from aguila.store.records import ThreadKey

Row = tuple[Any, ...]
"""A row. Text is ``str``, a blob is ``bytes``, a flag is ``int``."""


class Outage(StoreUnavailable):
    """The database could not be used; what was committed is unknown. The jobs are tried again until they are late."""


class Tx(Protocol):
    """A transaction. ``row``, ``rows`` and ``each`` return results; ``do``, ``many`` and locks may be queued.

    An error of a queued statement is raised by a later call, or by the end of the transaction.
    """

    @property
    def now(self) -> float:
        """Seconds since the Unix epoch, on the store's clock."""
        ...

    @property
    def lease_now(self) -> float:
        """The clock that judges leases, which all processes share."""
        ...

    def is_dead(self, owner: str, lock: str | None) -> bool:
        """Return whether an owner is known to be dead. ``lock`` is what ``Database.hold`` returned to it."""
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


class Database(ABC):
    """An open database, as the store uses it: one writing transaction at a time, and reads on other threads.

    The store makes it on the event loop, with ``on_change``, to be called on any thread with the threads that another
    process changed; without keys, with all.
    """

    slot: int = 0
    """The rows of ``usage`` that this process writes: processes do not wait for each other."""
    patience: float = 0.0
    """Seconds for which a job is tried again during an outage."""
    opens_inline: bool = False
    """Whether ``open``, ``has_changed`` and ``version`` never block: the event loop calls them."""

    @abstractmethod
    def open(self) -> None:
        """Connect, create or check the schema, and listen for wake-ups. Called once, on a reader thread.

        Raises ``StoreUnavailable``.
        """

    def hold(self, owner: str) -> str | None:
        """Lock the name of a process of this store until it closes; return the lock to store, or None without locks.

        Called on the event loop. ``Tx.is_dead`` is given the lock.
        """
        return None

    def try_transaction(self) -> AbstractContextManager[Tx] | None:
        """Begin a writing transaction on the event loop if nothing can block it; None otherwise, as on PostgreSQL."""
        return None

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Tx]:
        """Begin a writing transaction; commit it at the end of the block. Called on the writer's thread.

        An exception of the block rolls back. Raises ``Outage``, also from the commit.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Tx]:
        """Begin a transaction that reads one state of the database. Called on any reader thread. Raises ``Outage``."""

    def try_reading(self) -> AbstractContextManager[Tx] | None:
        """Begin a transaction that reads on the event loop if it cannot block; None otherwise."""
        return None

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Tx]:
        """Begin a transaction that reads and stays open between calls. Called on a thread of its own."""

    def notify(self, keys: Sequence[ThreadKey]) -> None:  # noqa: B027
        """Wake the readers of these threads in other processes. Called on the writer's thread after a commit."""

    def has_changed(self) -> bool:
        """Return whether any process may have committed since the last call. Called on a reader thread."""
        return True

    @abstractmethod
    def version(self, tx: Tx) -> str | None:
        """Return text that differs after each commit of any process; None if there is none. ``tx`` has just begun."""

    def check(self, tx: Tx) -> None:  # noqa: B027
        """Raise ``StoreUnavailable`` if a database-specific limit leaves no room for a small run."""

    def rest(self) -> bool:
        """Do a step of maintenance while no jobs wait (checkpoint, vacuum). Return whether more is to be done."""
        return False

    def close(self) -> None:  # noqa: B027
        """Release every resource. Called on a thread, after the last job and the last read."""
