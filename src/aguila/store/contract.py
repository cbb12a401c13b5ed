"""The contract of a store: the event log, leases, interrupts, sessions and files behind durable threads.

A store keeps bytes in order. It knows runs, interrupts and leases; it knows nothing of HTTP or of agents.
``aguila.testing.StoreContract`` tests every sentence of this page, for any store. ``rules`` decides what may be
written; docs/stores.md shows how to write a store.

Scopes
    Every call carries a scope. A call sees and counts nothing of another scope. A thread id is not a credential.

The log
    A thread is an append-only log of events with gapless sequence numbers. The first number is 1 if the thread id was
    never used before. If a removed thread had the id, the first number is higher than every number of that thread, so
    that a cursor of the removed thread is never valid for the new one. A removed thread leaves only a hash of its ids
    and its last number.

    ``write`` is atomic and ordered. When it returns, the events are durable, and ``read`` and ``tail`` return them in
    every process. ``tail`` continues from stored to live events without a gap or a repeat. A batch keeps the time at
    which it was written, and the token of the lease. A token is random: if an older copy of the store is put back, the
    events that are written then have the numbers of lost ones, and other tokens. Archives keep tokens.

Runs and leases
    ``begin`` claims a run id, claims the interrupts that the run answers and appends the first events, in one
    transaction. A run id is used once per thread. A thread has one open run at a time.

    The owner of a run holds its lease, and every write carries it. If the run is closed, or another owner took it
    over, the write is refused in its own transaction (fencing). So an owner that was suspended past its lease cannot
    write after another process ended its run. If the lease has expired but was not taken over, a write succeeds, and
    one with events renews it.

    ``take_over`` gives each run whose lease has expired, or whose owner is known to be dead, to one caller; a store
    need not detect dead owners. A lease expires when its owner has not renewed it for its length, on a clock that all
    processes of the store share: the monotonic clock of the machine, or the clock of the database. Setting the clock of
    a machine neither ends a lease nor extends it. A run without an owner waits to be taken over.

Repeats
    The outcome of a call that failed with ``StoreUnavailable`` is unknown. Each write may be repeated: ``begin`` with
    the same token and ``write`` with the same ``after`` return the first outcome if they were stored, and are stored
    once. No late copy is applied after its repetition.

Contents
    A store keeps the request of each run, and returns the same JSON value, not the same bytes. A thread stores each
    message, each large member and each inline file (a long string, such as an image in base64) once, however many
    requests and turns repeat them. The caller's ``fingerprint`` identifies the exact bytes.

Turns
    The caller computes what each run changed on its branch. A store keeps it, so that a thread is read without its log
    and its requests. It is written with the end of its run, or later (``amend``). A store does not interpret it.

Compaction
    The events of a closed run can be replaced by fewer events of the same meaning. The run keeps its range of sequence
    numbers, and its events have the last numbers of that range, in one batch with the token of the last event. A
    cursor inside the range is not in the log any more. A store that does not compact finds no runs to compact.

Cancelling
    Any process can ask the owner to cancel a run: always, or only if the run has no viewers. The owner knows the
    viewers of its own process; other processes tell it theirs. The owner answers a request of the second kind; the
    process that asked waits for the answer.

Interrupts
    An interrupt is open, then claimed by the run that answers it, then settled. When a run closes, its claims that are
    not settled are open again; a new owner of the run keeps them. An interrupt id that is raised again is a new, open
    interrupt.

Values
    An event is one line of JSON. An id is text without NUL that UTF-8 can encode. Anything else raises ``ValueError``.
    Times are seconds since the Unix epoch, read from the store's clock, except ``RunRecord.lease_until``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import TYPE_CHECKING, TypeVar

from aguila.errors import NotFound
from aguila.store import refusals
from aguila.store.contents import join_request, request_digests
from aguila.store.live import Live
from aguila.store.records import (
    Amendment,
    Archive,
    Batch,
    Begun,
    CancelRequest,
    Durability,
    FileRecord,
    Lease,
    LogPart,
    Message,
    NewRun,
    Quotas,
    Rest,
    Retention,
    RunChange,
    RunKey,
    RunRecord,
    Stamp,
    Swept,
    Taken,
    Target,
    ThreadFilter,
    ThreadKey,
    ThreadPage,
    ThreadRecord,
    ThreadSummary,
    Want,
    Watch,
    Written,
)

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")


class StoreReader(ABC):
    """The calls that read. ``Store.snapshot`` returns one, so that export, copy and check are written once."""

    @abstractmethod
    async def thread(self, scope: str, thread_id: str, want: Want = Want()) -> ThreadRecord:  # noqa: B008 - frozen
        """Return the rows of a thread that ``want`` names, at one moment. Raises ``NotFound``.

        A run that ``Want.run_id`` names and the thread does not have is left out: ``ThreadRecord.run`` raises.
        """

    @abstractmethod
    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> LogPart:
        """Return stored events after the cursor ``after``, in order; 0 is the beginning of the log.

        The batches end with the one that reaches ``limit`` events, so there may be a few more. They are cut at
        ``after`` and ``until``. With ``limit=0``, only the numbers and the token of ``after`` are returned.

        Raises ``NotFound``, or ``CursorExpired`` if ``after`` is not in the log, such as a cursor of a removed thread
        with the same id.
        """

    @abstractmethod
    async def values(self, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return contents of a thread by their digests. Those that it does not have are left out.

        A thread that does not exist has none.
        """

    @abstractmethod
    async def threads(self, scope: str, filter: ThreadFilter = ThreadFilter()) -> ThreadPage:  # noqa: A002, B008
        """Return the threads of a scope, last updated first.

        For the next page, ``ThreadFilter.before`` is the position of the last thread of this page; that thread may be
        changed or removed meanwhile. A thread that is updated between two pages may be missed, but is never returned
        twice.
        """

    @abstractmethod
    async def file(self, scope: str, file_id: str, start: int = 0, size: int | None = None) -> tuple[FileRecord, bytes]:
        """Return a file with ``size`` bytes of its content from ``start`` on; fewer at its end. Raises ``NotFound``.

        A large download is read in parts, so that memory holds one part at a time.
        """

    @abstractmethod
    def rest(self, scope: str | None = None) -> AsyncIterator[Rest]:
        """Iterate over what is not in a thread: scopes with what they hold, files, and numbers of removed threads.

        All scopes come first, in the order of their names; the numbers come last. With ``scope``, only that of one
        scope, without the numbers, which do not name theirs.
        """

    # Concrete

    async def run(self, key: RunKey, *, turns: bool = False) -> RunRecord:
        """Return a run. Raises ``NotFound``."""
        found = await self.thread(key.scope, key.thread_id, Want(run_id=key.run_id, turns=turns))
        return found.run(key.run_id)

    async def request(self, key: RunKey) -> bytes:
        """Return the request of a run: JSON of the same value as the one that ``begin`` stored. Raises ``NotFound``."""
        found = await self.thread(key.scope, key.thread_id, Want(run_id=key.run_id, requests=True))
        run = found.run(key.run_id)
        digests = request_digests(run)
        values = await self.values(key.scope, key.thread_id, digests) if digests else {}
        if len(values) < len(set(digests)):  # removed between the two reads
            raise NotFound(f"no run {key.run_id!r} on thread {key.thread_id!r}")
        return join_request(run, values)


class Store(StoreReader):
    """The event log of many threads. The docstring of this module is the contract.

    Opening is counted, and a store belongs to the event loop on which it was opened. A subclass implements ``_start``,
    ``_stop`` and ``_abandon`` instead of ``open`` and ``close``; between them, ``live`` delivers its writes to readers.
    """

    poll_seconds: float = 0.15
    """How often waiting readers compare stamps, in case a wake-up is lost."""
    durability: Durability = "process"
    """What a stored event survives."""

    def __init__(self) -> None:
        self._users = 0
        self._opening = asyncio.Lock()
        self._live: Live | None = None

    # Open and close

    async def open(self) -> None:
        """Open the store. Raises ``StoreUnavailable``.

        The store closes when ``close`` was called once per ``open``. When the event loop of an open store is closed, it
        can be opened on another one.
        """
        self._drop_orphan()
        async with self._opening:
            if self._live is None:
                self._live = Live(self.read, self.stamps, self._has_changed, poll_seconds=self.poll_seconds)
                try:
                    await self._start(self._live)
                except BaseException:
                    self._live.close()
                    self._live = None
                    raise
            self._users += 1

    async def close(self) -> None:
        """Undo one ``open``. The last one finishes accepted writes, ends all tails and releases every resource.

        Closing a store that is not open does nothing.
        """
        self._drop_orphan()
        async with self._opening:
            self._users = max(0, self._users - 1)
            live = self._live
            if live is not None and not self._users:
                try:
                    await self._stop()
                finally:
                    self._live = None
                    live.close()

    def _drop_orphan(self) -> None:
        if self._live is not None and self._live.loop.is_closed():
            self._abandon()
            self._live, self._users, self._opening = None, 0, asyncio.Lock()

    @property
    def live(self) -> Live:
        """The readers of this process that wait. Raises ``StoreUnavailable`` if the store is not open."""
        if self._live is None:
            raise refusals.not_open()
        return self._live

    @abstractmethod
    async def _start(self, live: Live) -> None:
        """Connect. ``live`` is told of every durable change. Raises ``StoreUnavailable``."""

    @abstractmethod
    async def _stop(self) -> None:
        """Finish accepted writes and release every resource."""

    def _abandon(self) -> None:
        """Release the resources after the event loop was closed."""
        return

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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
    def begin(self, new: NewRun) -> Awaitable[Begun]:
        """Start a run: claim its id and the interrupts in ``claims``, store its request and append its first events.

        If the caller is cancelled while it waits, the run may begin all the same. A store that need not wait returns a
        future that is done. A call with the token of an open run of this id returns what the first call did.

        Raises the first refusal of ``rules.BEGIN_REFUSALS`` that applies: ``AgentMismatch``, ``RunExists``,
        ``ThreadBusy``, ``TooManyRuns``, ``QuotaExceeded``, ``ThreadMoved``, ``InterruptTaken``.
        """

    @abstractmethod
    def write(self, lease: Lease, change: RunChange) -> Awaitable[Written]:
        """Change a run as its owner: everything in ``change``, or nothing. It is durable on return.

        Raises ``StaleLease``, or ``InterruptTaken`` if it settles an interrupt that this run has not claimed.
        """

    @abstractmethod
    async def take_over(
        self, owner: str, seconds: float, *, only: RunKey | None = None, limit: int = 100
    ) -> Sequence[Taken]:
        """Make ``owner`` the owner of lost runs, each with a lease of ``seconds``; each lost run goes to one caller.

        A run is lost if its lease has expired or its owner is known to be dead. Runs of ``owner`` itself are left out.
        With ``only``, at most this run is taken: also before its lease has expired if it has no owner. Its claims stay.
        """

    @abstractmethod
    async def tell(self, run: RunKey, message: Message) -> RunRecord:
        """Record a message for the owner of a run, wake the owner and return the run. Raises ``NotFound``.

        A closed run is not changed.
        """

    @abstractmethod
    async def open_runs(self, scope: str | None = None) -> Sequence[RunRecord]:
        """Return the open runs of a scope, or of all scopes together, the one that began first at the front."""

    # Waiting

    @abstractmethod
    async def stamps(self, keys: Sequence[ThreadKey]) -> Mapping[ThreadKey, Stamp]:
        """Return what a waiting reader compares of these threads. Threads that do not exist are left out."""

    async def _has_changed(self) -> bool:
        """Return whether any process may have written since the last call: only then are stamps compared."""
        return True

    def tail(self, scope: str, thread_id: str, after: int = 0) -> AsyncIterator[Batch]:
        """Iterate over stored events after the cursor ``after``, then over live events of any process.

        The iterator ends when the store closes. A slow reader delays nothing and uses no memory: it reads from the
        store again. Raises as ``read`` does, also when the thread is removed meanwhile.
        """
        return self.live.tail((scope, thread_id), after)

    async def wait_for(self, key: ThreadKey, query: Callable[[], Awaitable[T | None]]) -> T:
        """Call ``query`` now and after each change of the open run; return its first result that is not None.

        A change is a message, a take-over or an end. Raises ``StoreUnavailable`` if the store is closed meanwhile, and
        what ``query`` raises.
        """
        return await self.live.wait_for(key, query)

    def on_change(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Call ``callback`` on the event loop whenever the run may have a cancel request or may have lost its lease.

        ``wait_for_cancel`` then returns the request. So an idle run needs no task that waits for one.
        """
        self.live.on_change(lease, callback)

    async def wait_for_cancel(self, lease: Lease) -> CancelRequest:
        """Wait until any process asks to cancel this run. Return "always" if the lease is stale."""
        key = (lease.scope, lease.thread_id)

        async def find_request() -> CancelRequest | None:
            stamp = (await self.stamps([key])).get(key)
            if stamp is None or (stamp.run_id, stamp.epoch, stamp.token) != (lease.run_id, lease.epoch, lease.token):
                return "always"
            return stamp.cancel

        return await self.live.wait_for(key, find_request)

    async def wait_for_answer(self, key: RunKey) -> RunRecord:
        """Wait until the run has no unanswered ``Cancel(unwatched=True)``; return the run. Raises ``NotFound``.

        Then the run is closed, or is to be cancelled always, or the request was dropped.
        """

        async def find_answer() -> RunRecord | None:
            run = await self.run(key)
            return None if run.is_running and run.cancel == "unwatched" else run

        return await self.live.wait_for((key.scope, key.thread_id), find_answer)

    async def is_watched(self, key: RunKey, *, within: float = 0.0) -> bool:
        """Return whether another process has viewers of this open run, or had some in the last ``within`` seconds.

        A process that is known to be dead has no viewers; it had some until its death was found.
        """
        found = await self.thread(key.scope, key.thread_id, Want(viewers=True))
        if found.summary.running != key.run_id:
            return False
        for viewer in found.viewers:
            if viewer.is_dead and viewer.left is None:
                await self.tell(key, Watch(viewer.viewer, 0.0))  # so that ``within`` counts from here
        return any(
            (viewer.left is None and not viewer.is_dead) or (within > 0 and (viewer.left or 0.0) < within)
            for viewer in found.viewers
        )

    # Threads and files

    @abstractmethod
    async def amend(self, scope: str, thread_id: str, change: Amendment) -> ThreadSummary:
        """Change details, store missing turns, or compact a run; return the thread. Raises ``NotFound``."""

    @abstractmethod
    async def delete(self, scope: str, target: Target) -> None:
        """Remove a thread, a file or a whole scope: gone at once for readers, its rows at the latest with ``sweep``.

        Raises ``NotFound`` for a thread (without files either) or a file that does not exist, and ``ThreadBusy`` for an
        open run, before anything is removed.
        """

    @abstractmethod
    async def put_file(
        self,
        scope: str,
        data: bytes,
        *,
        media_type: str,
        filename: str | None = None,
        thread_id: str | None = None,
        quotas: Quotas | None = None,
    ) -> FileRecord:
        """Store a file. With ``thread_id``, the file is removed with that thread, which need not exist yet.

        The file stays while another thread holds it, and if it was also stored without a thread. Raises ``ValueError``
        for a scope or a thread id that is no id, and ``QuotaExceeded`` for a new file that ``quotas`` does not allow.
        """

    @abstractmethod
    async def sweep(self, retention: Retention, *, limit: int = 100) -> Swept:
        """Remove the oldest threads and files of each scope beyond the retention, and the rows of deleted threads.

        With ``Retention.compact_after``, also return at most ``limit`` runs that ended at least so long ago and were
        not compacted, in the order in which they ended; at equal times, in the order in which they began. A run is left
        out if an interrupt that it raised or answered is not settled, or was settled by a run that did not succeed:
        such an interrupt can be answered again.
        """

    # Archives

    @abstractmethod
    def snapshot(self) -> AbstractAsyncContextManager[StoreReader]:
        """Return a context with one state of all scopes of the store. Other calls work meanwhile."""

    @abstractmethod
    async def restore(self, archive: Archive, *, replace: bool = False) -> None:
        """Write a part of a snapshot, in one transaction.

        A restored thread is the one updated last, and keeps its times. With ``replace``, an existing thread with its
        id is removed first. A file that exists only gets the holders of the archived one.

        Raises ``ThreadExists``, or ``ThreadBusy`` if the existing thread has an open run. Raises ``ValueError`` for a
        thread with a gap in its numbers or an open run (``archives.archive.check_archive``).
        """
