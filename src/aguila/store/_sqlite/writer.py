"""Layer: store. The one thread of a process that writes to the file, with natural group commit.

Whatever jobs gathered while the last transaction was being committed are the next transaction: alone, a job is
committed at once; under load, the cost of a commit is shared. A job that is refused does not harm the others. The
thread never dies of an error: the jobs concerned fail with ``StoreUnavailable`` and the next ones are tried afresh.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from aguila.errors import StoreError, StoreUnavailable
from aguila.store._sqlite import writes
from aguila.store._sqlite.checkpoint import Checkpointer
from aguila.store._sqlite.file import is_outage, is_passing, unavailable
from aguila.store._sqlite.wake import Sender
from aguila.store.feed import Key

_log = logging.getLogger("aguila.store")

T = TypeVar("T")

_VACUUM_PAGES = 256
"""How many free pages are given back at a time, so that a write never waits long for it."""


class Job(Generic[T]):
    """Something to do within a transaction. ``after`` is called on the event loop when it is durable.

    ``changed`` are the threads other processes must look at; ``operation`` may fill it in. ``frees`` says that it
    leaves free pages behind.
    """

    __slots__ = ("after", "changed", "frees", "future", "operation")

    def __init__(
        self,
        operation: Callable[[sqlite3.Connection], T],
        future: asyncio.Future[T],
        changed: Sequence[Key] = (),
        after: Callable[[T], None] | None = None,
        *,
        frees: bool = False,
    ) -> None:
        self.operation = operation
        self.future = future
        self.changed = changed
        self.after = after
        self.frees = frees


class _Failed:
    """The outcome of a job that raised."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class Writer:
    """Runs jobs on its own thread and connection, and tells their outcome to the event loop it was made on."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], checkpointer: Checkpointer, sender: Sender) -> None:
        self._connect = connect
        self._checkpointer = checkpointer
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._db: sqlite3.Connection | None = None
        self._frees = False
        threading.Thread(target=self._work, name="aguila-store-writer", daemon=True).start()

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Queue a job; its future gets the outcome."""
        self._jobs.put(job)
        return job.future

    async def close(self) -> None:
        """Finish all jobs and end the thread."""
        self._jobs.put(None)
        await asyncio.shield(self._ended)

    # The thread

    def _work(self) -> None:
        is_open = True
        while is_open:
            if self._frees and self._jobs.empty():
                self._vacuum()
                continue
            first = self._jobs.get()
            # The only consumer: what is counted is there.
            gathered = [first, *(self._jobs.get_nowait() for _ in range(self._jobs.qsize()))]
            jobs = [job for job in gathered if job is not None]
            is_open = len(jobs) == len(gathered)
            if jobs:
                self._run(jobs)
            del first, gathered, jobs  # what they wrote may be large, and the next may be long in coming
        self._checkpointer.close()
        self._disconnect()
        self._sender.close()
        self._tell(self._ended.set_result, None)

    def _run(self, jobs: Sequence[Job[Any]]) -> None:
        outcomes, peers = self._transact(jobs)
        self._tell(self._resolve, jobs, outcomes)
        changed: set[Key] = set()
        for job, outcome in zip(jobs, outcomes, strict=True):
            if not isinstance(outcome, _Failed):
                changed.update(job.changed)
                self._frees = self._frees or job.frees
        if changed and peers:
            self._sender.send(peers, changed)
        self._checkpoint()

    def _transact(self, jobs: Sequence[Job[Any]]) -> tuple[list[Any], Sequence[tuple[str, int]]]:
        """Run jobs in one transaction; gives the outcome of each, and the processes to tell."""
        try:
            db = self._db = self._db or self._connect()
            db.execute("BEGIN IMMEDIATE")
        except StoreUnavailable as error:
            return [_Failed(error) for _ in jobs], ()
        except sqlite3.Error as error:
            self._recover(error)
            return [_Failed(_public(error)) for _ in jobs], ()
        try:
            outcomes: list[Any] = []
            for job in jobs:
                before = db.total_changes
                try:
                    outcomes.append(job.operation(db))
                except StoreError as error:
                    if db.total_changes != before:
                        raise RuntimeError("a job was refused after it had written") from error
                    outcomes.append(_Failed(error))
            for token in self._sender.take_dead():
                writes.remove_peer(db, token)
            peers = db.execute("SELECT token, port FROM peers").fetchall()
            db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, it goes to the job that raised it
            self._recover(error)
            if len(jobs) == 1:
                return [_Failed(_public(error))], ()
            # One of them did this: each for itself, so that only that one fails.
            alone = [self._transact([job]) for job in jobs]
            return [outcome for outcomes, _ in alone for outcome in outcomes], max((p for _, p in alone), key=len)
        return outcomes, peers

    def _recover(self, error: Exception) -> None:
        """Make the next transaction possible: roll back, and if that is not enough, connect anew."""
        db = self._db
        if db is None:
            return
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error as failure:
            _log.warning("rollback failed: %s", failure)
            self._disconnect()
        else:
            if isinstance(error, sqlite3.Error) and is_outage(error) and not is_passing(error):
                self._disconnect()

    def _checkpoint(self) -> None:
        if self._db is not None:
            try:
                self._checkpointer.committed(self._db)
            except (sqlite3.Error, OSError) as error:
                _log.warning("checkpoint failed: %s", error)

    def _vacuum(self) -> None:
        """Give some free pages back to the file system."""
        db = self._db
        try:
            if db is None or not db.execute("PRAGMA freelist_count").fetchone()[0]:
                self._frees = False
                if db is not None:
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # only this shortens the file
            else:
                db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
        except sqlite3.Error as error:
            _log.info("free pages were not given back: %s", error)
            self._frees = False

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            try:
                db.close()
            except sqlite3.Error as error:
                _log.warning("closing the connection failed: %s", error)

    def _tell(self, callback: Callable[..., object], *values: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *values)
        except RuntimeError:
            _log.debug("the event loop has ended before its store was closed")

    # The event loop

    def _resolve(self, jobs: Sequence[Job[Any]], outcomes: Sequence[Any]) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            future = job.future
            if isinstance(outcome, _Failed):
                if not future.done():
                    future.set_exception(outcome.error)
                continue
            if job.after is not None:
                job.after(outcome)
            if not future.done():
                future.set_result(outcome)


def _public(error: Exception) -> Exception:
    return unavailable(error) if isinstance(error, sqlite3.Error) and is_outage(error) else error
