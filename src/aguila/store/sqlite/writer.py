"""Layer: store. The one connection of a process that writes to the file, its thread, and natural group commit.

Whatever jobs gathered while the last transaction was being committed are the next transaction: alone, a job is
committed at once; under load, the cost of a commit is shared. A job that is refused does not harm the others. The
thread never dies of an error: the jobs concerned fail with ``StoreUnavailable`` and the next ones are tried afresh.

A short job that nothing is in the way of is done where it is submitted, on the event loop. It holds that for 125 us at
p50 and 300 us at p99; to wake the thread and be woken by it takes longer than the job, and moves everything between two
cores (an idle server, which begins and ends a run: 250 us until the run has begun, and half as much processor time
again). ``Writer._do_now`` is the only place that decides this.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from aguila.errors import StoreError, StoreUnavailable
from aguila.store.feed import Key
from aguila.store.sqlite import thread_writes
from aguila.store.sqlite.checkpoint import Checkpointer
from aguila.store.sqlite.connection import Writing, is_outage, is_passing, unavailable
from aguila.store.sqlite.wakeup import Sender

_log = logging.getLogger("aguila.store")

T = TypeVar("T")

_VACUUM_PAGES = 256
"""How many free pages are given back at a time, so that a write never waits long for it."""

_MUCH = 16 * 1024 * 1024
"""Bytes after which a transaction is full: the next jobs need not be held in memory, nor wait, with all before them."""

_LONGEST_PAUSE = 0.025
"""Seconds between two tries to lock a file that another process has locked."""

Transaction = tuple[list[Any], Sequence[tuple[str, int]]]
"""The outcome of each job, and the processes to tell."""


class Job(Generic[T]):
    """Something to do within a transaction. ``after`` is called on the event loop when it is durable.

    ``changed`` are the threads other processes must look at; ``operation`` may fill it in. ``frees`` says that it may
    leave free pages behind; ``is_short`` that it does not, and writes so little that an event loop may wait for it;
    ``size`` how many bytes it writes, if they can be many.
    """

    __slots__ = ("after", "changed", "frees", "future", "is_short", "operation", "size", "submitted")

    def __init__(
        self,
        operation: Callable[[sqlite3.Connection], T],
        future: asyncio.Future[T],
        changed: Sequence[Key] = (),
        after: Callable[[T], None] | None = None,
        *,
        frees: bool = False,
        is_short: bool = False,
        size: int = 0,
    ) -> None:
        self.operation = operation
        self.future = future
        self.changed = changed
        self.after = after
        self.frees = frees
        self.is_short = is_short
        self.size = size
        self.submitted = time.monotonic()


class _Failed:
    """The outcome of a job that raised."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class Writer:
    """Does jobs, and tells their outcome on the event loop it was made on.

    ``is_patient`` says that a commit waits for the disk: then it is never done on the event loop.
    """

    def __init__(
        self,
        connect: Callable[[], Writing],
        checkpointer: Checkpointer,
        sender: Sender,
        *,
        busy_seconds: float,
        is_patient: bool,
    ) -> None:
        self._connect = connect
        self._checkpointer = checkpointer
        self._sender = sender
        self._busy_seconds = busy_seconds
        self._is_patient = is_patient
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._queued = 0  # and not resolved yet; of the event loop
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._turn = threading.Lock()
        """Whoever uses the connection, or anything else below, holds this."""
        self._db: Writing | None = None
        self._is_alone = False
        """Whether no other process had the file open when we last wrote."""
        self._is_crowded = False
        """Whether the thread's last transaction had several jobs."""
        self._has_done_one = False  # since the event loop came round
        self._frees = False
        self._done_at = -inf
        threading.Thread(target=self._work, name="aguila-store-writer", daemon=True).start()

    @property
    def wrote_at(self) -> float:
        """When the connection last got on, by ``time.monotonic``: with a job, a commit, or a part of a large value."""
        db = self._db
        return self._done_at if db is None else max(self._done_at, db.wrote_at)

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Do a job now or queue it; its future gets the outcome."""
        if not job.is_short or not self._do_now(job):
            self._queued += 1
            self._jobs.put(job)
        return job.future

    async def close(self) -> None:
        """Finish all jobs and end the thread."""
        self.end()
        await asyncio.shield(self._ended)

    def end(self) -> None:
        """Have the thread end when all jobs are done."""
        self._queued += 1  # nothing overtakes this
        self._jobs.put(None)

    def _do_now(self, job: Job[Any]) -> bool:
        """Do a short job on the event loop, unless that might take longer; gives whether it was done.

        It might if others are queued, if the thread is at work, if commits wait for the disk, if the file is locked or
        not open, and if the commit may start the log over, after a checkpoint, which takes an fsync. Of other processes
        nobody knows when they make one, so they must not be there. And where jobs come together, one commit for all of
        them on a thread is better than one each.
        """
        if self._queued or self._has_done_one or self._is_crowded or not self._is_alone or self._is_patient:
            return False
        if self._checkpointer.may_start_over or not self._turn.acquire(blocking=False):
            return False
        try:
            db = self._db
            if db is None:
                return False
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.Error:
                return False  # whatever it is: the thread has the time to wait, or to tell what it is
            outcomes, peers = self._commit(db, [job])
            if not self._is_alone:  # any more: somebody has just come
                self._tell_others([job], outcomes, peers)
        finally:
            self._turn.release()
        self._has_done_one = True
        self._loop.call_soon(self._come_round)
        self._settle(job, outcomes[0])
        return True

    def _come_round(self) -> None:
        self._has_done_one = False
        if self._turn.acquire(blocking=False):  # else the thread is at work, and sees to it
            self._checkpoint(self._checkpointer.look)
            self._turn.release()

    # The thread

    def _work(self) -> None:
        is_open = True
        while is_open:
            if self._frees and self._jobs.empty():
                with self._turn:
                    self._vacuum()
                continue
            gathered = self._gather()
            jobs = [job for job in gathered if job is not None]
            is_open = len(jobs) == len(gathered)
            if jobs:
                with self._turn:
                    self._run(jobs)
            del gathered, jobs  # what they wrote may be large, and the next may be long in coming
        self._checkpointer.close(is_needed=self._db is not None)
        self._disconnect()
        self._sender.close()
        self._tell(self._ended.set_result, None)

    def _gather(self) -> list[Job[Any] | None]:
        """What the next transaction is to do."""
        gathered: list[Job[Any] | None] = []
        size = 0
        while size < _MUCH and (not gathered or not self._jobs.empty()):  # the only consumer: what is there stays
            job = self._jobs.get()
            size += 0 if job is None else job.size
            gathered.append(job)
        return gathered

    def _run(self, jobs: Sequence[Job[Any]]) -> None:
        jobs, outcomes, peers = self._transact(jobs)
        for job in jobs:
            del job.operation  # and what it wrote, before whoever waits for it goes on: that may be large
        self._tell(self._resolve, jobs, outcomes)
        self._frees = self._frees or any(job.frees for job in jobs)
        self._is_crowded = len(jobs) > 1
        self._tell_others(jobs, outcomes, peers)
        self._checkpoint(self._checkpointer.committed)

    def _transact(self, jobs: Sequence[Job[Any]]) -> tuple[Sequence[Job[Any]], list[Any], Sequence[tuple[str, int]]]:
        """Do jobs in one transaction, when the file is not locked any more; gives those that were not told before."""
        self._checkpointer.may_start_over = False  # with this commit, which nobody waits for on the event loop
        try:
            db = self._db = self._db or self._connect()
            jobs = self._lock_for(db, jobs)
        except StoreUnavailable as error:
            return jobs, [_Failed(error) for _ in jobs], ()
        except sqlite3.Error as error:
            self._recover(error)
            return jobs, [_Failed(_public(error)) for _ in jobs], ()
        return (jobs, *self._commit(db, jobs)) if jobs else ((), [], ())

    def _lock_for(self, db: sqlite3.Connection, jobs: Sequence[Job[Any]]) -> Sequence[Job[Any]]:
        """Begin a transaction for those jobs that it was not too late for; each waits as long as it may by itself.

        Those for which it was have been told then: they do not wait for the others. Raises ``sqlite3.Error``.
        """
        while True:
            try:
                self._lock(db, self._waits_since(jobs[0]) + self._busy_seconds)
            except sqlite3.OperationalError as error:
                if not _is_locked(error):
                    raise
                since = time.monotonic() - self._busy_seconds
                late = [job for job in jobs if self._waits_since(job) <= since]
                self._tell(self._resolve, late, [_Failed(_public(error)) for _ in late])
                jobs = jobs[len(late) :]
                if not jobs:
                    return jobs
            else:
                return jobs

    def _waits_since(self, job: Job[Any]) -> float:
        """Since when a job waits for others to let go of the file: what went before it, by us, is no lock."""
        return max(job.submitted, self._done_at)

    def _lock(self, db: sqlite3.Connection, deadline: float) -> None:
        """Begin a transaction, waiting while another process has the file locked. Raises ``sqlite3.Error``.

        SQLite could wait by itself, but then it would on the event loop too: its timeout cannot be changed for one
        statement.
        """
        pause = 0.001
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is_locked(error) or time.monotonic() >= deadline:
                    raise
            else:
                return
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    # Whoever has the turn

    def _commit(self, db: sqlite3.Connection, jobs: Sequence[Job[Any]]) -> Transaction:
        """Do jobs in the transaction that was begun, and commit it."""
        try:
            outcomes: list[Any] = []
            for job in jobs:
                before = db.total_changes
                try:
                    outcomes.append(job.operation(db))
                    self._done_at = time.monotonic()
                except StoreError as error:
                    if db.total_changes != before:
                        raise RuntimeError("a job was refused after it had written") from error
                    outcomes.append(_Failed(error))
            for token in self._sender.take_dead():
                thread_writes.remove_peer(db, token)
            peers = db.execute("SELECT token, port FROM peers").fetchall()
            db.execute("COMMIT")
            self._done_at = time.monotonic()
        except Exception as error:  # noqa: BLE001 - whatever it is, it goes to the job that raised it
            self._recover(error)
            if len(jobs) == 1:
                return [_Failed(_public(error))], ()
            # One of them did this: each for itself, so that only that one fails.
            alone = [self._alone(job) for job in jobs]
            return [outcome for outcome, _ in alone], max((p for _, p in alone), key=len)
        self._is_alone = not self._sender.has_others(peers)
        return outcomes, peers

    def _alone(self, job: Job[Any]) -> tuple[Any, Sequence[tuple[str, int]]]:
        """Do a job in a transaction of its own, after one with others has failed."""
        try:
            db = self._db = self._db or self._connect()
            self._lock(db, time.monotonic() + self._busy_seconds)
        except StoreUnavailable as error:
            return _Failed(error), ()
        except sqlite3.Error as error:
            self._recover(error)
            return _Failed(_public(error)), ()
        outcomes, peers = self._commit(db, [job])
        return outcomes[0], peers

    def _tell_others(self, jobs: Sequence[Job[Any]], outcomes: Sequence[Any], peers: Sequence[tuple[str, int]]) -> None:
        changed: set[Key] = set()
        for job, outcome in zip(jobs, outcomes, strict=True):
            if not isinstance(outcome, _Failed):
                changed.update(job.changed)
        if changed and peers:
            self._sender.send(peers, changed)

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

    def _checkpoint(self, look: Callable[[sqlite3.Connection], None]) -> None:
        if self._db is not None:
            try:
                look(self._db)
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
                self._lock(db, time.monotonic() + self._busy_seconds)
                db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
                db.execute("COMMIT")
        except sqlite3.Error as error:
            _log.info("free pages were not given back: %s", error)
            self._frees = False
            self._recover(error)

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
        self._queued -= len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            self._settle(job, outcome)

    @staticmethod
    def _settle(job: Job[Any], outcome: Any) -> None:
        future = job.future
        if isinstance(outcome, _Failed):
            if not future.done():
                future.set_exception(outcome.error)
            return
        if job.after is not None:
            job.after(outcome)
        if not future.done():
            future.set_result(outcome)


def _is_locked(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _public(error: Exception) -> Exception:
    return unavailable(error) if isinstance(error, sqlite3.Error) and is_outage(error) else error
