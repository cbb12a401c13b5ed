"""The contract of a store: the event log, leases, interrupts, sessions and files behind durable threads.

A store keeps bytes in order. It knows runs, interrupts and leases; it knows nothing of HTTP or of agents.
``tests/store/contract`` tests every sentence of this page; a new store subclasses ``StoreContract`` there.

Scopes
    Every call carries a scope. A call sees and counts nothing of another scope. A thread id is not a credential.

The log
    A thread is an append-only log of events with gapless sequence numbers. The first number is 1 if the thread id was
    never used before. If a removed thread had the id, the first number is higher than every number of that thread, so
    that a cursor of the removed thread is never valid for the new one. A removed thread leaves only a hash of its ids
    and its last number.

    ``append`` is atomic and ordered. When it returns, the events are durable, and ``read`` and ``tail`` return them in
    every process. ``tail`` continues from stored to live events without a gap or a repeat. A batch keeps the
    time at which it was appended, and the token of the lease. A token is random: if an older copy of the store is put
    back, the events that are appended then have the numbers of lost ones, and other tokens. Archives keep tokens.

Runs and leases
    ``begin`` claims a run id, claims the interrupts that the run answers and appends the first events, in one
    transaction. A run id is used once per thread. A thread has one open run at a time.

    The owner of a run holds its lease and renews it. ``append`` carries the lease. If the run is closed, or another
    owner took it over, the append is refused in its own transaction (fencing). So an owner that was suspended past its
    lease cannot write after another process ended its run. If the lease has expired but was not taken over, an append
    succeeds and renews it.

    ``expired`` returns runs whose lease has expired or whose owner is known to be dead; a store need not detect dead
    owners. ``take_over`` gives one caller the right to end such a run. A lease expires when its owner has not renewed
    it for its length, on a clock that all processes of the store share: the monotonic clock of the machine, or the
    clock of the database. Setting the clock of a machine neither ends a lease nor extends it.

Requests
    A store keeps the request of each run, and returns the same JSON value, not the same bytes. A thread stores each
    message once, and a scope each inline file (a long string, such as an image in base64), however many requests repeat
    them. The caller's ``fingerprint`` identifies the exact bytes.

Projections
    The caller computes the projection of a thread after each run from the log and the requests. A store keeps it, so
    that a thread is read without them. It is written with the end of its run (``RunEnd.projection``), or later for
    runs that were closed without one (``save_projections``). Its values are JSON, such as messages; a thread stores
    each value once, and a scope each inline file in them. A store does not interpret a projection. Projections are
    not archived, because they can be computed again.

Compaction
    The events of a closed run can be replaced by fewer events of the same meaning. The run keeps its range of sequence
    numbers, and its events have the last numbers of that range, in one batch with the token of the last event. A
    cursor inside the range is not in the log any more. A store that does not compact finds no runs to compact.

Cancelling
    Any process can ask the owner to cancel a run: always, or only if the run has no viewers. The owner knows the
    viewers of its own process. Other processes register theirs with ``watch``. The owner answers a request of the
    second kind with ``settle_cancel``; the process that asked waits for the answer with ``cancel_settled``.

Interrupts
    An interrupt is open, then claimed by the run that answers it, then settled. When a run closes or is taken over, its
    claims that are not settled are open again. An interrupt id that is raised again is a new, open interrupt.

Archives
    A thread can be read as one value and written to any store, with its sequence numbers and times. A restored thread
    keeps its numbers even if a removed thread had the same id.

Values
    An event is one line of JSON. An id is text without NUL that UTF-8 can encode. Anything else raises ``ValueError``.
    Times are seconds since the Unix epoch, read from the store's clock, except ``RunRecord.lease_until``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import TYPE_CHECKING

from aguila.store.records import (
    Batch,
    Blob,
    CancelRequest,
    InterruptRecord,
    Lease,
    MetadataFilter,
    NewRun,
    Quotas,
    Retention,
    RunEnd,
    RunProjection,
    RunRecord,
    StoredProjection,
    ThreadSummary,
    ThreadUpdate,
    Usage,
)

if TYPE_CHECKING:
    from aguila.store.archives.thread_archive import Archive, Snapshot


class Store(ABC):
    """The event log of many threads. The docstring of this module is the contract."""

    @abstractmethod
    async def open(self) -> None:
        """Open the store. Raises ``StoreUnavailable``.

        Opening is counted: the store closes when ``close`` was called once per ``open``. A store belongs to the event
        loop on which it was opened. When that loop is closed, the store can be opened on another one.
        """

    @abstractmethod
    async def close(self) -> None:
        """Undo one ``open``. The last one finishes accepted writes, ends all tails and releases every resource.

        Closing a store that is not open does nothing.
        """

    @property
    def location(self) -> str | None:
        """Where the store is, for messages: a path, or a URL without its password. None for memory."""
        return None

    @property
    def wrote_at(self) -> float:
        """The ``time.monotonic`` of the latest write, or of the latest part of a large one.

        It distinguishes a slow store from a stuck one. A store that does not track it returns ``-inf``.
        """
        return -inf

    @abstractmethod
    async def check(self) -> None:
        """Raise ``StoreUnavailable`` unless the store can write as much as a small run needs."""

    # Runs

    @abstractmethod
    def begin(self, new: NewRun) -> Awaitable[tuple[Lease, Batch]]:
        """Start a run: claim its id and the interrupts in ``claims``, and append its first events.

        If the caller is cancelled while it waits, the run may begin all the same. A store that need not wait returns a
        future that is done.

        Raises the first of these that applies:

        * ``AgentMismatch``: the thread belongs to another agent.
        * ``RunExists``: the run id was used on this thread.
        * ``ThreadBusy``: the thread has an open run.
        * ``TooManyRuns``: ``max_running`` runs of the scope are open, in all processes together.
        * ``QuotaExceeded``: the scope or the store holds as much as ``quotas`` allows.
        * ``ThreadMoved``: the last event is not ``after``, or an interrupt is open that is not in ``waiting``.
        * ``InterruptTaken``: a claimed interrupt is not open, or the thread never raised it.
        """

    @abstractmethod
    async def append(self, lease: Lease, events: Sequence[bytes], *, end: RunEnd | None = None) -> Batch:
        """Append events to a run, and close the run if ``end`` is given. The events are durable on return.

        Raises ``StaleLease``, or ``InterruptTaken`` if ``end`` settles an interrupt that this run has not claimed.
        """

    @abstractmethod
    async def renew(self, lease: Lease, lease_seconds: float) -> bool:
        """Extend a lease; return whether the run is to be cancelled always. Raises ``StaleLease``."""

    @abstractmethod
    async def settle(self, lease: Lease, interrupt_ids: Sequence[str]) -> None:
        """Record that the run used the answers to these interrupts, so that they cannot be answered again.

        Raises ``StaleLease``, or ``InterruptTaken`` for an interrupt that this run has not claimed.
        """

    @abstractmethod
    async def expired(self) -> Sequence[RunRecord]:
        """Return the open runs of every scope whose lease has expired or whose owner is known to be dead."""

    @abstractmethod
    async def take_over(self, run: RunRecord, *, owner: str, lease_seconds: float) -> Lease | None:
        """Make ``owner`` the owner of a run that ``expired`` returned.

        Return None if the run is closed, its owner holds a valid lease, or another process has taken it over.
        """

    @abstractmethod
    async def request_cancel(self, scope: str, thread_id: str, run_id: str, *, unwatched: bool = False) -> RunRecord:
        """Ask the owner of a run to cancel it; return the run. Raises ``NotFound``.

        With ``unwatched``, the owner cancels the run only if it has no viewers. A request without ``unwatched``
        replaces one with it, and is never replaced. A closed run is not changed.
        """

    @abstractmethod
    async def settle_cancel(self, scope: str, thread_id: str, run_id: str, *, granted: bool) -> None:
        """Answer an ``unwatched`` cancel request: cancel the run always, or drop the request.

        The owner calls this after it has counted the viewers. The process that asked calls it to drop the request when
        the owner does not answer. Without such a request, nothing changes.
        """

    @abstractmethod
    async def cancel_requested(self, lease: Lease) -> CancelRequest:
        """Wait until any process asks to cancel this run. Return "always" if the lease is stale.

        Raises ``StoreUnavailable`` if the store is closed meanwhile.
        """

    @abstractmethod
    def listen_for_cancel(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Call ``callback`` on the event loop whenever another process may have asked to cancel this run.

        ``cancel_requested`` then returns the request. So an idle run needs no task that waits for one.
        """

    @abstractmethod
    async def cancel_settled(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """Wait until the run has no unanswered ``unwatched`` cancel request; return the run.

        Then the run is closed, or is to be cancelled always, or the request was dropped.

        Raises ``NotFound``, or ``StoreUnavailable`` if the store is closed meanwhile.
        """

    @abstractmethod
    async def watch(self, scope: str, thread_id: str, run_id: str, *, viewer: str, seconds: float) -> None:
        """Register that the process ``viewer``, which is not the owner, has viewers of this run.

        The registration lasts for ``seconds`` unless it is repeated, and at most until the run closes. A run that is
        closed or does not exist is ignored.
        """

    @abstractmethod
    async def unwatch(self, scope: str, thread_id: str, run_id: str, *, viewer: str) -> None:
        """Record that the process ``viewer`` has no viewers of this run any more."""

    @abstractmethod
    async def watched(self, lease: Lease, *, within: float = 0.0) -> bool:
        """Return whether another process has viewers of this run, or had some in the last ``within`` seconds.

        A process that is known to be dead has no viewers; it had some until its death was found. A store need not
        detect dead processes.
        """

    @abstractmethod
    async def run(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """Return a run. Raises ``NotFound``."""

    @abstractmethod
    async def input(self, scope: str, thread_id: str, run_id: str) -> bytes:
        """Return the request of a run: JSON of the same value as the one that ``begin`` stored. Raises ``NotFound``."""

    @abstractmethod
    async def runs(self, scope: str, thread_id: str) -> Sequence[RunRecord]:
        """Return the runs of a thread in the order they began; none if the thread does not exist."""

    @abstractmethod
    async def run_thread(self, scope: str, run_id: str) -> str | None:
        """Return the id of the thread that has a run with this id; of several threads, the one updated last.

        Only the ``RECENT_THREADS`` threads of the scope that were updated last are searched. None if none has it.
        """

    # The log

    @abstractmethod
    async def last(self, scope: str, thread_id: str) -> int:
        """Return the sequence number of the newest event. Raises ``NotFound`` if the thread does not exist."""

    @abstractmethod
    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> Sequence[Batch]:
        """Return stored events after the cursor ``after``, in order; 0 is the beginning of the log.

        The result ends with the batch that reaches ``limit`` events, so it may hold a few more. Batches are cut at
        ``after`` and ``until``.

        Raises ``NotFound``, or ``CursorExpired`` if ``after`` is not in the log, such as a cursor of a removed thread
        with the same id.
        """

    @abstractmethod
    async def token(self, scope: str, thread_id: str, number: int) -> str:
        """Return the token of an event; empty for the beginning of the log, and for an event without a token.

        Raises as ``read`` does for this number as a cursor.
        """

    @abstractmethod
    def tail(self, scope: str, thread_id: str, after: int = 0) -> AsyncIterator[Batch]:
        """Iterate over stored events after the cursor ``after``, then over live events of any process.

        The iterator ends when the store closes. A slow reader delays nothing and uses no memory: it reads from the
        store again. Raises as ``read`` does, also when the thread is removed meanwhile.
        """

    # Threads

    @abstractmethod
    async def thread(self, scope: str, thread_id: str) -> ThreadSummary:
        """Return the summary of a thread. Raises ``NotFound``."""

    @abstractmethod
    async def threads(
        self,
        scope: str,
        *,
        limit: int = 50,
        before: int | None = None,
        agent: str | None = None,
        archived: bool | None = None,
        metadata: MetadataFilter | None = None,
    ) -> Sequence[ThreadSummary]:
        """Return the threads of a scope, last updated first.

        ``agent``, ``archived`` and ``metadata`` select threads; None selects all. For the next page, ``before`` is the
        position of the last thread of this page; that thread may be changed or removed meanwhile. A thread that is
        updated between two pages may be missed, but is never returned twice.
        """

    async def threads_stamp(self, scope: str) -> str | None:
        """Return text that is another one whenever ``threads`` may return something else for this scope.

        It is found without the threads, and may change although they do not, such as with the threads of another scope.
        None if the store has no such text.
        """
        return None

    @abstractmethod
    async def update_thread(self, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
        """Change the title, the archived flag or the metadata of a thread. Raises ``NotFound``.

        This changes neither the log, nor ``updated_at``, nor the position of the thread in lists.
        """

    @abstractmethod
    async def delete_thread(self, scope: str, thread_id: str) -> None:
        """Remove a thread with its log, runs, interrupts, session, effects and files.

        If files were stored for a thread that never ran, they are removed. Raises ``NotFound`` if there is neither,
        and ``ThreadBusy`` if the thread has an open run.
        """

    @abstractmethod
    async def prune(self, retention: Retention) -> int:
        """Remove the threads and files of each scope beyond the retention; return the number of removed threads."""

    @abstractmethod
    async def usage(self, scope: str | None = None) -> Usage:
        """Return the usage of a scope, in constant time; without a scope, that of the store.

        The usage of the store does not count the writes of open runs.
        """

    # Projections

    @abstractmethod
    async def projections(self, scope: str, thread_id: str, after: int = 0) -> Sequence[StoredProjection]:
        """Return the projections of the runs that began after event ``after``, in the order the runs began.

        Runs without a projection are left out, and so is a thread that does not exist.
        """

    @abstractmethod
    async def values(self, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the JSON of these values of a thread, by their digests. Values that it does not have are left out."""

    @abstractmethod
    async def save_projections(self, scope: str, thread_id: str, projections: Mapping[str, RunProjection]) -> None:
        """Store the projections of closed runs, by run id, in place of those that they have. Other runs are ignored.

        This changes neither ``updated_at`` nor the position of the thread in lists.
        """

    # Compaction

    async def compactable(self, seconds: float, limit: int = 100) -> Sequence[RunRecord]:
        """Return runs of every scope that ended longer ago than this and were not compacted, oldest first.

        A run is left out if an interrupt that it raised or answered is not settled, or was settled by a run that did
        not succeed. Such an interrupt can be answered again.
        """
        return ()

    async def compact_run(self, run: RunRecord, events: Sequence[bytes]) -> None:
        """Replace the events of a run that ``compactable`` returned. It is not returned again.

        If the events are not fewer than before, the log stays as it is. A run that was removed meanwhile is ignored.
        """
        raise NotImplementedError

    # Interrupts, session, recorded effects

    @abstractmethod
    async def interrupts(self, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
        """Return the interrupts of a thread in the order they were raised, settled ones included."""

    @abstractmethod
    async def interrupt_thread(self, scope: str, interrupt_id: str) -> str | None:
        """Return the id of the thread that raised this interrupt last, settled or not.

        None if no existing thread of the scope did.
        """

    @abstractmethod
    async def session(self, scope: str, thread_id: str) -> bytes | None:
        """Return the session of a thread as the last closed run left it; None if it has none."""

    @abstractmethod
    async def record(self, lease: Lease, root_run_id: str, key: str, value: bytes) -> None:
        """Record the result of an effect under the run that began the chain of resumed runs. Raises ``StaleLease``.

        If the key has a result, the old result stays.
        """

    @abstractmethod
    async def recorded(self, scope: str, thread_id: str, root_run_id: str) -> dict[str, bytes]:
        """Return all results that were recorded under a root run."""

    # Files

    @abstractmethod
    async def put_blob(
        self,
        scope: str,
        data: bytes,
        *,
        media_type: str,
        filename: str | None = None,
        thread_id: str | None = None,
        quotas: Quotas | None = None,
    ) -> Blob:
        """Store a file. With ``thread_id``, the file is removed with that thread, which need not exist yet.

        The file stays while another thread holds it, and if it was also stored without a thread. Raises
        ``QuotaExceeded`` for a new file that ``quotas`` does not allow.
        """

    @abstractmethod
    async def blob(self, scope: str, blob_id: str) -> tuple[Blob, bytes]:
        """Return a file with its content. Raises ``NotFound``."""

    async def blob_part(self, scope: str, blob_id: str, start: int, size: int) -> tuple[Blob, bytes]:
        """Return a file with ``size`` bytes of its content from ``start`` on; fewer at its end. Raises ``NotFound``.

        A store that can read a part does so: a download holds one part at a time.
        """
        blob, data = await self.blob(scope, blob_id)
        return blob, data[start : start + size]

    @abstractmethod
    async def delete_blob(self, scope: str, blob_id: str) -> None:
        """Remove a file, even if threads hold it. Raises ``NotFound``."""

    # Archives

    @abstractmethod
    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Return a context with one state of all scopes of the store. Other calls work meanwhile."""

    @abstractmethod
    async def restore(self, archive: Archive, *, replace: bool = False) -> None:
        """Write a part of a snapshot, in one transaction.

        A restored thread is the one updated last, and keeps its times. With ``replace``, an existing thread with its
        id is removed first. A file that exists is not changed.

        Raises ``ThreadExists``, or ``ThreadBusy`` if the existing thread has an open run. Raises ``ValueError`` for a
        thread with a gap in its numbers or an open run.
        """
