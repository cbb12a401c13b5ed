"""Move pages from the write-ahead log (WAL) into the file, on a thread of its own.

If SQLite did this, the commit that makes the WAL too long would do all the work, and every run would wait for it. At
p99 with 50 runs, that took 45 to 70 ms, and takes 10 to 30 ms here. A checkpoint beside an active writer never reaches
the end of the WAL, so the WAL would never start over. When the WAL is long, the writer itself moves the few pages that
are left.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger("aguila.store")

MAX_ROWS = 300
"""Rows that are changed between two checkpoints."""
_MAX_GROWTH = 4 * 1024 * 1024
"""Bytes by which the WAL may grow between two checkpoints: a few rows can be many pages."""
LONG_WAL = 16384
"""Pages of a WAL that the writer helps to start over."""


class Checkpointer:
    """Checkpoint a file when enough was written. The writer calls ``after_commit`` or ``check_due``."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: Path) -> None:
        self._connect = connect
        self._wal = path.with_name(path.name + "-wal")
        self._db: sqlite3.Connection | None = None
        self._changes = 0
        self._size = 0
        self._is_wal_long = False
        self.may_start_over = False
        """Whether the next commit may start the WAL over, which waits for the disk even with ``NORMAL``.

        That is so from the beginning of a checkpoint until the next commit, if the checkpoint moves all pages.
        """
        self._is_open = self._has_file = True
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._work, name="aguila-store-checkpoint", daemon=True)
        self._thread.start()

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due or running."""
        return self._due.is_set()

    def after_commit(self, db: sqlite3.Connection) -> None:
        """Help a long WAL to start over; start a checkpoint if one is due. Raises ``sqlite3.Error``, ``OSError``."""
        if self._is_wal_long:
            self._is_wal_long = False
            run_checkpoint(db)
        self.check_due(db)

    def check_due(self, db: sqlite3.Connection) -> None:
        """Start a checkpoint if one is due. Raises ``OSError``."""
        if not self._due.is_set() and (
            not 0 <= db.total_changes - self._changes < MAX_ROWS or self._wal.stat().st_size > self._size + _MAX_GROWTH
        ):
            self._changes = db.total_changes
            self._due.set()

    def close(self, *, has_file: bool) -> None:
        """Run a last checkpoint if the file was opened, and end the thread."""
        self._has_file = has_file
        self._is_open = False
        self._due.set()
        self._thread.join()

    def _work(self) -> None:
        while self._is_open:  # tested after clear(), so that close() is never missed
            self._due.wait()
            if not self._has_file:
                break
            self.may_start_over = True
            try:
                self._db = self._db or self._connect()
                pages, moved = run_checkpoint(self._db)
                if pages > LONG_WAL:
                    # Move the pages that were written during the first one, so that little is left for the writer.
                    pages, moved = run_checkpoint(self._db)
                    self._is_wal_long = True
                if moved == pages or self._is_wal_long:
                    self.may_start_over = True
                self._size = self._wal.stat().st_size
            except (sqlite3.Error, OSError) as error:
                _log.warning("checkpoint failed: %s", error)
                self._disconnect()
            self._due.clear()
        self._disconnect()

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def run_checkpoint(db: sqlite3.Connection) -> tuple[int, int]:
    """Move all pages that can be moved without waiting; return the pages of the WAL and the moved ones."""
    _, pages, moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return pages, moved
