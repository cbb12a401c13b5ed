"""The one connection of a process that writes to the file, its thread, and group commit.

All jobs that were queued during the last commit become the next transaction. A single job is committed at once; under
load, jobs share the cost of a commit. A refused job does not affect the others. After an error the jobs concerned fail
with ``StoreUnavailable``, and the thread continues with the next ones.

A short job runs on the event loop if nothing could block it (``Writer._try_inline``). It holds the loop for 125 us at
p50 and 300 us at p99. To wake the thread and be woken by it takes longer than the job. On an idle server, a run would
begin 250 us later, with 1.5 times the processor time.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from aguila.errors import StoreError, StoreUnavailable
from aguila.store.feed import ThreadKey
from aguila.store.sqlite import thread_writes
from aguila.store.sqlite.database.checkpoint import Checkpointer
from aguila.store.sqlite.database.connection import WriteConnection, is_outage, is_temporary, unavailable
from aguila.store.sqlite.database.wakeup import Sender

_log = logging.getLogger("aguila.store")

T = TypeVar("T")

_VACUUM_PAGES = 256
"""Free pages that are returned to the file system at a time, so that a write never waits long for it."""

MAX_TRANSACTION = 16 * 1024 * 1024
"""Bytes after which a transaction is full. Further jobs wait for the next one, which bounds memory and latency."""

_MAX_PAUSE = 0.025
"""Seconds between two attempts to lock a file that another process has locked."""

Peers = Sequence[tuple[str, int]]
"""(token, port) of each process that has the file open."""


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """An operation to run within a transaction.

    ``after`` is called on the event loop when the transaction is durable. ``changed`` are the threads that other
    processes are notified of; ``operation`` may fill it in. ``frees_pages``: it may leave free pages. ``is_short``: it
    leaves none, and writes so little that it may run on the event loop. ``size`` is the number of bytes that it writes,
    if there may be many.
    """

    operation: Callable[[sqlite3.Connection], T]
    future: asyncio.Future[T]
    changed: Sequence[ThreadKey] = ()
    after: Callable[[T], None] | None = None
    frees_pages: bool = False
    is_short: bool = False
    size: int = 0
    submitted_at: float = field(default_factory=lambda: time.monotonic())


@dataclass(slots=True)
class _Failed:
    """The outcome of a job that raised an error."""

    error: Exception


class Writer:
    """Run jobs and deliver their outcomes on the event loop on which it was created.

    ``syncs_commits``: each commit waits for the disk, so no job runs on the event loop.
    """

    def __init__(
        self,
        connect: Callable[[], WriteConnection],
        checkpointer: Checkpointer,
        sender: Sender,
        *,
        busy_seconds: float,
        syncs_commits: bool,
    ) -> None:
        self._connect = connect
        self.checkpointer = checkpointer
        self._sender = sender
        self._busy_seconds = busy_seconds
        self._syncs_commits = syncs_commits
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._queued = 0  # jobs without an outcome; used on the event loop only
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._turn = threading.Lock()
        """Held while the connection or one of the attributes below is used."""
        self.connection: WriteConnection | None = None
        self._is_alone = False
        """Whether no other process had the file open at the last write."""
        self._is_crowded = False
        """Whether the last transaction of the thread had several jobs."""
        self._ran_inline = False  # in this iteration of the event loop
        self._has_free_pages = False
        self._done_at = -inf
        threading.Thread(target=self._work, name="aguila-store-writer", daemon=True).start()

    @property
    def wrote_at(self) -> float:
        """The ``time.monotonic`` of the latest job, commit or part of a large value."""
        db = self.connection
        return self._done_at if db is None else max(self._done_at, db.wrote_at)

    @property
    def is_busy(self) -> bool:
        """Whether the connection is in use."""
        return self._turn.locked()

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Run a job now or queue it; return the future of its outcome."""
        if not job.is_short or not self._try_inline(job):
            self._queued += 1
            self._jobs.put(job)
        return job.future

    async def close(self) -> None:
        """Finish all jobs and end the thread."""
        self.stop()
        await asyncio.shield(self._ended)

    def stop(self) -> None:
        """Tell the thread to end after all queued jobs."""
        self._queued += 1  # so that no later job runs inline
        self._jobs.put(None)

    def _try_inline(self, job: Job[Any]) -> bool:
        """Run a short job on the event loop unless it could block; return whether it ran.

        It could block if jobs are queued, if the thread is busy, if commits wait for the disk, if the file is locked or
        not open, or if the commit may start the WAL over, which needs an fsync. Other processes may run a checkpoint at
        any time, so no other process may have the file open. If several jobs arrive together, the thread runs them in
        one transaction instead.
        """
        if self._queued or self._ran_inline or self._is_crowded or not self._is_alone or self._syncs_commits:
            return False
        if self.checkpointer.may_start_over or not self._turn.acquire(blocking=False):
            return False
        try:
            db = self.connection
            if db is None:
                return False
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.Error:
                return False  # the thread waits for the lock, or reports the error
            outcomes, peers = self._commit(db, [job])
            if not self._is_alone:  # another process has just opened the file
                self._notify_peers([job], outcomes, peers)
        finally:
            self._turn.release()
        self._ran_inline = True
        self._loop.call_soon(self._after_inline)
        self._deliver(job, outcomes[0])
        return True

    def _after_inline(self) -> None:
        self._ran_inline = False
        if self._turn.acquire(blocking=False):  # otherwise the thread is busy, and checks by itself
            self._checkpoint(self.checkpointer.check_due)
            self._turn.release()

    # On the thread

    def _work(self) -> None:
        is_open = True
        while is_open:
            if self._has_free_pages and self._jobs.empty():
                with self._turn:
                    self._vacuum()
                continue
            taken = self._take_jobs()
            jobs = [job for job in taken if job is not None]
            is_open = len(jobs) == len(taken)
            if jobs:
                with self._turn:
                    self.run_jobs(jobs)
            del taken, jobs  # free the values that they wrote before waiting for the next job
        self.checkpointer.close(has_file=self.connection is not None)
        self._disconnect()
        self._sender.close()
        self._call_on_loop(self._ended.set_result, None)

    def _take_jobs(self) -> list[Job[Any] | None]:
        """Wait for the jobs of the next transaction. None is the request to stop."""
        taken: list[Job[Any] | None] = []
        size = 0
        while size < MAX_TRANSACTION and (not taken or not self._jobs.empty()):  # this is the only consumer
            job = self._jobs.get()
            size += 0 if job is None else job.size
            taken.append(job)
        return taken

    def run_jobs(self, jobs: Sequence[Job[Any]]) -> None:
        """Run jobs in one transaction and deliver their outcomes."""
        jobs, outcomes, peers = self._transact(jobs)
        for job in jobs:
            del job.operation  # free the values that it wrote before its caller continues
        self._call_on_loop(self._resolve, jobs, outcomes)
        self._has_free_pages = self._has_free_pages or any(job.frees_pages for job in jobs)
        self._is_crowded = len(jobs) > 1
        self._notify_peers(jobs, outcomes, peers)
        self._checkpoint(self.checkpointer.after_commit)

    def _transact(self, jobs: Sequence[Job[Any]]) -> tuple[Sequence[Job[Any]], list[Any], Peers]:
        """Wait for the lock and run jobs in one transaction; return the jobs that did not time out."""
        self.checkpointer.may_start_over = False  # if a commit starts it over, it is this one, in the thread
        try:
            db = self.connection = self.connection or self._connect()
            jobs = self._lock_for(db, jobs)
        except StoreUnavailable as error:
            return jobs, [_Failed(error) for _ in jobs], ()
        except sqlite3.Error as error:
            self._recover(error)
            return jobs, [_Failed(_convert(error)) for _ in jobs], ()
        return (jobs, *self._commit(db, jobs)) if jobs else ((), [], ())

    def _lock_for(self, db: sqlite3.Connection, jobs: Sequence[Job[Any]]) -> Sequence[Job[Any]]:
        """Begin a transaction; return the jobs that did not time out before. Raises ``sqlite3.Error``.

        Each job waits for the lock for ``busy_seconds`` of its own. A job that times out fails at once.
        """
        while True:
            try:
                self.lock_file(db, self._waits_since(jobs[0]) + self._busy_seconds)
            except sqlite3.OperationalError as error:
                if not _is_locked(error):
                    raise
                since = time.monotonic() - self._busy_seconds
                late = [job for job in jobs if self._waits_since(job) <= since]
                self._call_on_loop(self._resolve, late, [_Failed(_convert(error)) for _ in late])
                jobs = jobs[len(late) :]
                if not jobs:
                    return jobs
            else:
                return jobs

    def _waits_since(self, job: Job[Any]) -> float:
        """Return since when a job waits for the lock. The time that our own earlier jobs took does not count."""
        return max(job.submitted_at, self._done_at)

    def lock_file(self, db: sqlite3.Connection, deadline: float) -> None:
        """Begin a transaction; wait while another process has the file locked. Raises ``sqlite3.Error``.

        SQLite's busy timeout is not used: it would apply to jobs on the event loop, too.
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
            pause = min(pause * 2, _MAX_PAUSE)

    # While holding the turn

    def _commit(self, db: sqlite3.Connection, jobs: Sequence[Job[Any]]) -> tuple[list[Any], Peers]:
        """Run jobs in the transaction that was begun, and commit it; return their outcomes and the other processes."""
        try:
            outcomes: list[Any] = []
            for job in jobs:
                before = db.total_changes
                try:
                    outcomes.append(job.operation(db))
                    self._done_at = time.monotonic()
                except StoreError as error:
                    if db.total_changes != before:
                        raise RuntimeError(
                            "a job raised StoreError after it had written; it must check first"
                        ) from error
                    outcomes.append(_Failed(error))
            for token in self._sender.take_dead():
                thread_writes.remove_peer(db, token)
            peers = db.execute("SELECT token, port FROM peers").fetchall()
            db.execute("COMMIT")
            self._done_at = time.monotonic()
        except Exception as error:  # noqa: BLE001 - it becomes the outcome of the job that raised it
            self._recover(error)
            if len(jobs) == 1:
                return [_Failed(_convert(error))], ()
            # Run each job in a transaction of its own, so that only the job at fault fails.
            alone = [self._transact_alone(job) for job in jobs]
            return [outcome for outcome, _ in alone], max((p for _, p in alone), key=len)
        self._is_alone = not self._sender.has_others(peers)
        return outcomes, peers

    def _transact_alone(self, job: Job[Any]) -> tuple[Any, Peers]:
        """Run a job in a transaction of its own, after one with others has failed."""
        try:
            db = self.connection = self.connection or self._connect()
            self.lock_file(db, time.monotonic() + self._busy_seconds)
        except StoreUnavailable as error:
            return _Failed(error), ()
        except sqlite3.Error as error:
            self._recover(error)
            return _Failed(_convert(error)), ()
        outcomes, peers = self._commit(db, [job])
        return outcomes[0], peers

    def _notify_peers(self, jobs: Sequence[Job[Any]], outcomes: Sequence[Any], peers: Peers) -> None:
        changed: set[ThreadKey] = set()
        for job, outcome in zip(jobs, outcomes, strict=True):
            if not isinstance(outcome, _Failed):
                changed.update(job.changed)
        if changed and peers:
            self._sender.send(peers, changed)

    def _recover(self, error: Exception) -> None:
        """Roll back. If that fails or the connection is not usable, the next transaction connects again."""
        db = self.connection
        if db is None:
            return
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error as failure:
            _log.warning("rollback failed: %s", failure)
            self._disconnect()
        else:
            if isinstance(error, sqlite3.Error) and is_outage(error) and not is_temporary(error):
                self._disconnect()

    def _checkpoint(self, check: Callable[[sqlite3.Connection], None]) -> None:
        if self.connection is not None:
            try:
                check(self.connection)
            except (sqlite3.Error, OSError) as error:
                _log.warning("checkpoint failed: %s", error)

    def _vacuum(self) -> None:
        """Return some free pages to the file system."""
        db = self.connection
        try:
            if db is None or not db.execute("PRAGMA freelist_count").fetchone()[0]:
                self._has_free_pages = False
                if db is not None:
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # this shortens the file
            else:
                self.lock_file(db, time.monotonic() + self._busy_seconds)
                db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
                db.execute("COMMIT")
        except sqlite3.Error as error:
            _log.info("cannot return free pages to the file system: %s", error)
            self._has_free_pages = False
            self._recover(error)

    def _disconnect(self) -> None:
        db, self.connection = self.connection, None
        if db is not None:
            try:
                db.close()
            except sqlite3.Error as error:
                _log.warning("cannot close the connection: %s", error)

    def _call_on_loop(self, callback: Callable[..., object], *values: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *values)
        except RuntimeError:
            _log.debug("the event loop was closed before its store; outcomes of writes are lost")

    # On the event loop

    def _resolve(self, jobs: Sequence[Job[Any]], outcomes: Sequence[Any]) -> None:
        self._queued -= len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            self._deliver(job, outcome)

    @staticmethod
    def _deliver(job: Job[Any], outcome: Any) -> None:
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


def _convert(error: Exception) -> Exception:
    return unavailable(error) if isinstance(error, sqlite3.Error) and is_outage(error) else error
