"""Layer: store. Moving pages from the write-ahead log into the file, on a thread of its own.

Left to SQLite, the commit that makes the log too long does this work, and every run waits for it (45-70 ms at p99 with
50 runs, against 10-30 ms here). A checkpoint beside the writer cannot finish while the writer goes on, so the log would
never start over: once it is long, the writer finishes the rest itself, which is little by then.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger("aguila.store")

_ROWS = 300
"""Rows changed since the last checkpoint that ask for the next one."""
_GROWTH = 4 * 1024 * 1024
"""Bytes by which the log file may have grown instead: few rows can be many pages."""
_LONG = 16384
"""Pages after which the writer helps the log to start over."""


class Checkpointer:
    """Checkpoints a file when enough has been written. ``committed`` is for the one who writes."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: Path) -> None:
        self._connect = connect
        self._wal = path.with_name(path.name + "-wal")
        self._db: sqlite3.Connection | None = None
        self._changes = 0
        self._size = 0
        self._is_long = False
        self.may_start_over = False
        """Whether the next commit may start the log over, for which even ``NORMAL`` waits for the disk.

        That takes a checkpoint that has moved everything: one that began, and no commit since.
        """
        self._is_open = self._is_needed = True
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._work, name="aguila-store-checkpoint", daemon=True)
        self._thread.start()

    def committed(self, db: sqlite3.Connection) -> None:
        """Something was committed with this connection, by one who may wait. Raises ``sqlite3.Error``."""
        if self._is_long:
            self._is_long = False
            self._checkpoint(db)
        self.look(db)

    def look(self, db: sqlite3.Connection) -> None:
        """See whether a checkpoint is due. Raises ``OSError``."""
        if not self._due.is_set() and (
            not 0 <= db.total_changes - self._changes < _ROWS or self._wal.stat().st_size > self._size + _GROWTH
        ):
            self._changes = db.total_changes
            self._due.set()

    def close(self, *, is_needed: bool) -> None:
        """Checkpoint once more, if there is a file to do it in, and end the thread."""
        self._is_needed = is_needed
        self._is_open = False
        self._due.set()
        self._thread.join()

    def _work(self) -> None:
        while self._is_open:  # asked after clear(), so that close() is never missed
            self._due.wait()
            if not self._is_needed:
                break
            self.may_start_over = True
            try:
                self._db = self._db or self._connect()
                length, moved = self._checkpoint(self._db)
                if length > _LONG:
                    # What came during the first one, so that little is left to the writer.
                    length, moved = self._checkpoint(self._db)
                    self._is_long = True
                if moved == length or self._is_long:
                    self.may_start_over = True
                self._size = self._wal.stat().st_size
            except (sqlite3.Error, OSError) as error:
                _log.warning("checkpoint failed: %s", error)
                self._disconnect()
            self._due.clear()
        self._disconnect()

    @staticmethod
    def _checkpoint(db: sqlite3.Connection) -> tuple[int, int]:
        """Move what can be moved without waiting; gives the pages of the log, and of those moved."""
        _, length, moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return length, moved

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()
