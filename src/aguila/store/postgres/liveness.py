"""Which processes are dead: each session of a process holds its advisory lock.

A process that lost its connections is back at once, so a lock counts as released after ``GONE_SECONDS`` without any
session that holds it. After a restart or a failover of the server all locks are gone, and only leases count.
"""

from __future__ import annotations

import time
from threading import Lock

from aguila.store.postgres.connection import INCARNATION, Connector
from aguila.store.sql.tx import Tx

GONE_SECONDS = 1.0
"""Seconds without any session after which a process counts as dead: until then it may be reconnecting."""

_VALID_SECONDS = 0.25
"""How long the list of held locks is used: one look for dead owners asks for it once."""

_HELD = f"""
SELECT {INCARNATION},
  ARRAY(SELECT DISTINCT (classid::bigint << 32) | objid::bigint FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""  # noqa: S608 - an expression of ours


class PostgresLiveness:
    """Whether other processes hold their advisory locks."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._guard = Lock()
        self._read_at = float("-inf")
        self._incarnation = ""
        self._held: frozenset[int] = frozenset()
        self._gone: dict[str, float] = {}

    def is_dead(self, tx: Tx, lock: str | None) -> bool:
        """Return whether no session has held a lock for a while, on the server that granted it."""
        if lock is None or self._connector.lock is None:
            return False
        number, _, incarnation = lock.partition("@")
        if not number.isdecimal():
            return False
        with self._guard:
            self._refresh(tx)
            if incarnation != self._incarnation or int(number) in self._held:
                self._gone.pop(lock, None)
                return False
            return time.monotonic() - self._gone.setdefault(lock, time.monotonic()) >= GONE_SECONDS

    def _refresh(self, tx: Tx) -> None:
        now = time.monotonic()
        if now - self._read_at < _VALID_SECONDS:
            return
        row = tx.row(_HELD)
        assert row is not None  # noqa: S101 - expressions
        self._incarnation, held = row
        self._held = frozenset(held)
        self._read_at = now
        self._gone = {lock: at for lock, at in self._gone.items() if int(lock.partition("@")[0]) not in self._held}
