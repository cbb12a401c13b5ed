"""``SQLiteStore``: the event log in one SQLite file, which several processes of a machine may share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from aguila.errors import StoreUnavailable
from aguila.store.live import Live
from aguila.store.records import Durability, ThreadKey
from aguila.store.sql.store import SQLStore
from aguila.store.sqlite.engine import SQLiteDatabase
from aguila.store.sqlite.locks import OwnerLocks


class SQLiteStore(SQLStore):
    """A store in one file.

    With ``durability="process"``, stored events survive the death of the process at any point. With ``"power"`` they
    also survive the loss of power; each commit then waits for the disk.

    A call raises ``StoreUnavailable`` if the file is locked for longer than ``busy_seconds``, if the disk is full, or
    if the file would grow beyond ``max_bytes``. The store works again as soon as the cause is gone.

    When a process dies or closes its store, its runs can be taken over at once, if the platform supports owner locks
    (``locks``). Otherwise they can be taken over when their leases expire: when the owner has not renewed them for
    their length, on the monotonic clock, which all processes of a machine share. ``clock`` is for the times that are
    stored; leases do not depend on it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "process",
        busy_seconds: float = 5.0,
        max_bytes: int | None = None,
        poll_seconds: float = 0.15,
        readers: int = 4,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError("SQLiteStore needs a file; use MemoryStore to keep threads in memory")
        if durability not in ("process", "power"):
            raise ValueError(f'durability is {durability!r}; use "process" or "power"')
        self.path = Path(path)
        self.durability = durability
        self.poll_seconds = poll_seconds
        self.readers = readers
        self._busy_seconds = busy_seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._monotonic = monotonic
        self._locks = OwnerLocks(self.path)

    @property
    def location(self) -> str:
        return str(self.path.resolve())

    async def _start(self, live: Live) -> None:
        try:
            await super()._start(live)
        except StoreUnavailable as error:
            reason = _explain(self.path, error)
            raise StoreUnavailable(f"{self.path} cannot be used as a store: {reason}") from error

    def _make_database(self, on_change: Callable[[Sequence[ThreadKey]], None]) -> SQLiteDatabase:
        return SQLiteDatabase(
            self.path,
            on_change,
            locks=self._locks,
            busy_seconds=self._busy_seconds,
            durability=self.durability,
            max_bytes=self._max_bytes,
            clock=self._clock,
            monotonic=self._monotonic,
        )


def _explain(path: Path, error: StoreUnavailable) -> str:
    """Return why a file cannot be opened. SQLite has one message for all reasons."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "it is a folder" if path.is_dir() else str(error)
