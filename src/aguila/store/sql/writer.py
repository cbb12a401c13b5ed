"""Group commit: all jobs that were queued during the last commit become the next transaction.

A single job is committed at once; under load, jobs share round trips and the cost of a commit. A refused job does not
affect the others. After an error that is not an outage, each job runs alone, so that only the job at fault fails.

A short job runs on the event loop if the database says that nothing can block it. To wake the thread and be woken by it
takes longer than the job: on an idle server, a run would begin 250 us later, with 1.5 times the processor time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from aguila.errors import StoreError, StoreUnavailable
from aguila.store.records import ThreadKey
from aguila.store.sql.tx import Database, Outage, Tx

_log = logging.getLogger("aguila.store")

T = TypeVar("T")

MAX_TRANSACTION = 16 * 1024 * 1024
"""Bytes after which a transaction is full. Further jobs wait for the next one, which bounds memory and latency."""

_WAKE = "wake"

_MAX_PAUSE = 0.025
"""Seconds between two attempts during an outage."""

Run = Callable[[Tx, Sequence[Any]], Sequence[Any]]
"""Run the items of some jobs; return the outcome of each, in order: a result or the ``StoreError`` to raise."""


def run_one(function: Callable[[Tx], T]) -> Callable[[Tx, Sequence[Any]], Sequence[T | StoreError]]:
    """Return a job of its own for a function that checks before it writes.

    So a refusal leaves the transaction to the other jobs.
    """

    def run(tx: Tx, _: Sequence[Any]) -> Sequence[T | StoreError]:
        try:
            return [function(tx)]
        except StoreUnavailable:
            raise
        except StoreError as refusal:
            return [refusal]

    return run


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """An item to write. Jobs with the same ``run`` are written together.

    ``key`` is the thread that it changes; None if it may change any. ``after`` is called on the event loop when the
    transaction is durable. ``changed`` returns the threads that other processes are notified of. ``is_short``: it
    writes so little that it may run on the event loop. ``size`` is the bytes that it writes, if there may be many.
    """

    run: Run
    item: Any
    future: asyncio.Future[T]
    key: ThreadKey | None
    after: Callable[[T], None] | None
    changed: Callable[[T], Sequence[ThreadKey]] | None
    is_short: bool
    size: int
    submitted_at: float = field(default_factory=time.monotonic)


class Writer:
    """Run jobs and deliver their outcomes on the event loop on which it was created.

    ``rest`` is called on the thread while no jobs wait, as long as it returns that there is more to do.
    """

    def __init__(self, database: Database, rest: Callable[[], bool]) -> None:
        self._database = database
        self._rest = rest
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job[Any] | str | None] = SimpleQueue()
        self._queued = 0  # jobs without an outcome; used on the event loop only
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread: threading.Thread | None = None  # started with the first job that needs it
        self._is_stopped = False
        self._is_crowded = False
        """Whether the last transaction of the thread had several jobs: then more are likely to come together."""
        self.may_rest = False
        self.done_at = -inf
        """The ``time.monotonic`` of the latest job."""

    def submit(
        self,
        run: Callable[[Tx, Sequence[Any]], Sequence[T | StoreError]],
        item: Any = None,
        *,
        key: ThreadKey | None = None,
        after: Callable[[T], None] | None = None,
        changed: Callable[[T], Sequence[ThreadKey]] | None = None,
        is_short: bool = False,
        size: int = 0,
    ) -> asyncio.Future[T]:
        """Run a job now or queue it (see ``Job``); return the future of its outcome."""
        job = Job(run, item, self._loop.create_future(), key, after, changed, is_short, size)
        if not is_short or self._queued or self._is_crowded or not self._try_inline(job):
            self._put(job)
        return job.future

    def _put(self, job: Job[Any] | str | None) -> None:
        if self._is_stopped:
            if isinstance(job, Job):
                job.future.set_exception(StoreUnavailable("the store is closed"))
            return
        self._queued += job is not _WAKE
        self._jobs.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="aguila-store-writer", daemon=True)
            self._thread.start()

    def rest_soon(self) -> None:
        """Call ``rest`` when no jobs wait."""
        self.may_rest = True
        self._put(_WAKE)

    async def close(self) -> None:
        """Finish all jobs and end the thread."""
        self.stop()
        if self._thread is not None:
            await asyncio.shield(self._ended)

    def stop(self) -> None:
        """Tell the thread to end after all queued jobs."""
        if self._thread is not None:
            self._put(None)
        self._is_stopped = True

    def join(self) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join()

    def _try_inline(self, job: Job[Any]) -> bool:
        """Run a short job on the event loop if nothing can block it; return whether it ran."""
        transaction = self._database.try_transaction()
        if transaction is None:
            return False
        try:
            with transaction as tx:
                outcome = job.run(tx, [job.item])[0]
        except Outage:
            return False  # the thread tries again
        except Exception as error:  # noqa: BLE001 - it becomes the outcome of the job
            outcome = error
        self.done_at = time.monotonic()
        if job.changed is not None and not isinstance(outcome, Exception):
            self._database.notify(job.changed(outcome))
        self._deliver(job, outcome)
        return True

    # On the thread

    def _work(self) -> None:
        is_open = True
        while is_open:
            if self.may_rest and self._jobs.empty():
                self.may_rest = self._rest_once()
                continue
            taken = self._take_jobs()
            jobs = [job for job in taken if isinstance(job, Job)]
            is_open = None not in taken
            if jobs:
                self._is_crowded = len(jobs) > 1
                self._run(jobs)
            del taken, jobs  # free the values that they wrote before waiting for the next job
        self._call_on_loop(self._ended.set_result, None)

    def _rest_once(self) -> bool:
        try:
            return self._rest()
        except StoreError as error:
            _log.info("cannot tidy the store, trying again after the next removal: %s", error)
            return False

    def _take_jobs(self) -> list[Job[Any] | str | None]:
        """Wait for the jobs of the next transaction. None is the request to stop, ``_WAKE`` to look for rest."""
        taken: list[Job[Any] | str | None] = []
        size = 0
        while size < MAX_TRANSACTION and (not taken or not self._jobs.empty()):  # this is the only consumer
            job = self._jobs.get()
            size += job.size if isinstance(job, Job) else 0
            taken.append(job)
        return taken

    def _run(self, jobs: list[Job[Any]]) -> None:
        """Run jobs in one transaction and deliver their outcomes. An outage is waited for."""
        pause = 0.001
        while jobs:
            try:
                with self._database.transaction() as tx:
                    jobs, outcomes = _run_groups(tx, jobs)
            except Outage as error:
                jobs = self._fail_late(jobs, error)
                time.sleep(pause if jobs else 0)
                pause = min(pause * 2, _MAX_PAUSE)
            except Exception as error:  # noqa: BLE001 - it becomes the outcome of the job at fault
                if len(jobs) == 1:
                    self._finish(jobs, [error])
                else:
                    for job in jobs:
                        self._run([job])
                return
            else:
                self._finish(jobs, outcomes)
                return

    def _fail_late(self, jobs: Sequence[Job[Any]], error: Outage) -> list[Job[Any]]:
        """Fail the jobs whose patience is over; return the others.

        Each job has its own patience. The time that our own earlier jobs took does not count.
        """
        now = time.monotonic()
        late = [job for job in jobs if max(job.submitted_at, self.done_at) + self._database.patience <= now]
        if late:
            self._call_on_loop(self._resolve, late, [error] * len(late))
        return [job for job in jobs if job not in late]

    def _finish(self, jobs: Sequence[Job[Any]], outcomes: Sequence[Any]) -> None:
        self.done_at = time.monotonic()
        changed: dict[ThreadKey, None] = {}
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.changed is not None and not isinstance(outcome, Exception):
                changed.update(dict.fromkeys(job.changed(outcome)))
            job.item = None  # free the values that it wrote before its caller continues
        self._call_on_loop(self._resolve, jobs, outcomes)
        if changed:
            self._database.notify(list(changed))

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
        if isinstance(outcome, Exception):
            if isinstance(outcome, StoreError):
                # Its frames hold the request, and it them: that of a client that has left would wait for the collector.
                outcome.__traceback__ = None
            if not future.done():
                future.set_exception(outcome)
            return
        if job.after is not None:
            job.after(outcome)
        if not future.done():
            future.set_result(outcome)


def _run_groups(tx: Tx, jobs: Sequence[Job[Any]]) -> tuple[list[Job[Any]], list[Any]]:
    """Run jobs of one kind together, sorted by their threads; return them with their outcomes in the order they ran.

    The jobs of a thread keep their order: a job joins the first group of its kind that comes after them.
    """
    if len(jobs) == 1:
        return list(jobs), list(jobs[0].run(tx, [jobs[0].item]))
    groups: list[list[Job[Any]]] = []
    latest: dict[ThreadKey, int] = {}
    barrier = 0
    for job in jobs:
        start = len(groups) if job.key is None else max(barrier, latest.get(job.key, 0))
        at = next((at for at in range(start, len(groups)) if groups[at][0].run == job.run), len(groups))
        if at == len(groups):
            groups.append([])
        groups[at].append(job)
        if job.key is None:
            barrier = len(groups)
        else:
            latest[job.key] = at
    ran: list[Job[Any]] = []
    outcomes: list[Any] = []
    for group in groups:
        group.sort(key=lambda job: job.key or ("", ""))  # stable; locks are taken in this order in every process
        outcomes += group[0].run(tx, [job.item for job in group])
        ran += group
    return ran, outcomes
