"""Layer: store. The contract of the event log: what every store promises, whoever implements it.

Below: ``aguila.stream``. Above: ``aguila.agent`` and ``aguila.server``. A store keeps bytes in order; it knows what a
run, an interrupt and a lease are, and nothing of HTTP or of agents. ``tests/store/contract.py`` holds every store to
this page.

A thread is an append-only log of events, numbered without gaps: from 1 if its id was never used before, else from
beyond every number that was issued under that id, so that no cursor of a removed thread is one of its successor. A
removed thread leaves a hash of its ids and that number behind, nothing else. Every call carries the scope it may see: a
thread id is not a credential, and nothing can be read or counted across scopes.

* ``begin`` claims a run id (once per thread), its interrupts, and appends the run's first events, in one transaction.
* ``append`` is atomic and ordered. It carries a lease; a lease that was taken over, or whose run is closed, is
  refused in the same transaction, so that an owner that slept through its lease cannot write after someone else ended
  its run.
* What ``append`` has returned is durable, and visible to ``read`` and ``tail`` everywhere.
* ``tail`` hands over from stored to live events without a gap or a repeat.
* A run's owner renews its lease; ``expired`` finds runs whose owner did not, or is known to be gone (a store need not
  know that of any), and ``take_over`` gives one of the finders the right to end it. An owner that is late may still
  append if nobody has taken over; that renews the lease. A clock that is set back neither ends a lease nor makes it
  endless.
* Cancelling is asked of the owner, wherever it is: in any case, or only if nobody watches the run. The owner knows who
  watches in its own process; the others note it here (``watch``). It answers the second kind with ``settle_cancel``,
  and who asked waits for that with ``cancel_settled``.
* An interrupt goes from open to claimed (by a run that answers it) to settled. A claim that was not settled when its
  run closes, or is taken over, is open again. An id that is raised again is a new, open interrupt.

An event is a single line of JSON, and an id is text that UTF-8 can hold; anything else is a ``ValueError``. Times are
seconds since the epoch, passed in by the store's ``clock``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from math import inf
from typing import Final, Literal

import msgspec

Outcome = Literal["success", "interrupt", "cancelled", "error"]
"""How a run ended."""

CancelRequest = Literal["always", "unwatched"]
"""Whether a run is to be cancelled in any case, or only if nobody watches it."""

InterruptStatus = Literal["open", "claimed", "settled"]
"""Whether an interrupt still waits for its answer."""

DEFAULT_AGENT = "default"
"""The agent of a thread unless ``begin`` names another one."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to write a run's events. A higher epoch makes every lower one stale."""

    scope: str
    thread_id: str
    run_id: str
    epoch: int
    owner: str


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that the store knows of a run. ``input`` is the exact body it was asked for with.

    ``cancel_requested`` says that it is to be cancelled in any case.
    """

    scope: str
    thread_id: str
    run_id: str
    parent_run_id: str | None
    input: bytes
    fingerprint: str
    first: int
    last: int
    outcome: Outcome | None
    owner: str
    epoch: int
    lease_until: float
    cancel_requested: bool
    started_at: float
    ended_at: float | None
    agent: str = DEFAULT_AGENT
    """The agent that the thread belongs to."""

    @property
    def is_running(self) -> bool:
        """Whether the run has no terminal event yet."""
        return self.outcome is None


class InterruptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An interrupt that a run raised. ``body`` is its JSON as it was sent."""

    interrupt_id: str
    run_id: str
    status: InterruptStatus
    body: bytes
    claimed_by: str | None = None


class ThreadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of threads shows of each."""

    thread_id: str
    created_at: float
    updated_at: float
    last: int
    runs: int
    running: str | None
    """The id of the open run."""
    position: int
    """Its place among the threads of the scope. An event gives its thread a higher one than all others have."""
    agent: str = DEFAULT_AGENT
    title: str | None = None
    archived: bool = False
    metadata: bytes | None = None
    """JSON that belongs to the application."""

    @property
    def is_running(self) -> bool:
        """Whether a run is open."""
        return self.running is not None


class ThreadUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a thread to change; an unset one stays as it is. None removes a title or the metadata."""

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    metadata: bytes | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def size(self) -> int:
        """How many bytes it stores."""
        title = self.title.encode() if isinstance(self.title, str) else b""
        return len(title) + (len(self.metadata) if isinstance(self.metadata, bytes) else 0)


class Batch(msgspec.Struct, frozen=True):
    """Events ``first`` to ``last`` of a thread, as the JSON that was appended."""

    first: int
    events: Sequence[bytes]

    @property
    def last(self) -> int:
        """The sequence number of the last event."""
        return self.first + len(self.events) - 1


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What closing a run does, in the transaction of its terminal event.

    ``interrupts`` are the (id, JSON) pairs it leaves open; ``session`` replaces the thread's private session value;
    ``settles`` are interrupts that the run has claimed and whose answers count as used with its end (see ``settle``).
    """

    outcome: Outcome
    interrupts: Sequence[tuple[str, bytes]] = ()
    session: bytes | None = None

    @property
    def size(self) -> int:
        """How many bytes it leaves."""
        return sum(len(body) for _, body in self.interrupts) + (0 if self.session is None else len(self.session))

    settles: Sequence[str] = ()


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """A stored file.

    The id is derived from scope, type, name and content, so that storing it twice stores it once.
    """

    blob_id: str
    media_type: str
    filename: str | None
    size: int
    created_at: float


RECENT_THREADS: Final = 1_000
"""How many threads of a scope ``Store.run_thread`` looks at."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much to keep, of all scopes together; None keeps everything.

    Whole idle threads are removed, oldest first, never a running one; and among them, by when they were stored, files
    that no thread has: stored without one, or for one that never ran. ``max_bytes`` counts events, inputs, interrupts,
    sessions, results and files.
    """

    max_age: float | None = None
    max_threads: int | None = None
    max_bytes: int | None = None


class Store(ABC):
    """An event log with leases, interrupts, sessions and files. See the module for what it promises."""

    @abstractmethod
    async def open(self) -> None:
        """Make the store ready. Several may: it is closed when each has closed it. Raises ``StoreUnavailable``.

        It belongs to the event loop that it was opened on; when that is closed, it can be opened on another.
        """

    @abstractmethod
    async def close(self) -> None:
        """The last one who opened it finishes what was accepted and releases everything; tails end.

        Closing what is not open does nothing.
        """

    @property
    def wrote_at(self) -> float:
        """When something was last written, by ``time.monotonic``: a store that gets on, however slowly, is working.

        One that cannot tell says that it was never.
        """
        return -inf

    @abstractmethod
    async def check(self) -> None:
        """Raise ``StoreUnavailable`` unless the store can write now, as much as a small run does."""

    # Runs

    @abstractmethod
    async def begin(
        self,
        scope: str,
        thread_id: str,
        run_id: str,
        *,
        owner: str,
        lease_seconds: float,
        input: bytes,  # noqa: A002
        fingerprint: str,
        events: Sequence[bytes],
        parent_run_id: str | None = None,
        claims: Sequence[str] = (),
        waiting: frozenset[str] | None = None,
        max_running: int | None = None,
        agent: str = DEFAULT_AGENT,
    ) -> tuple[Lease, Batch]:
        """Start a run: claim its id and the interrupts it answers, and append its first events.

        The first run of a thread decides which ``agent`` the thread belongs to.

        Raises, the first that applies, ``AgentMismatch``, ``RunExists``, ``ThreadBusy``, ``TooManyRuns`` if
        ``max_running`` runs of the scope are on in whatever process, or ``InterruptTaken`` (also for an interrupt this
        thread never raised).

        ``waiting`` are the interrupts that were open when it was decided that the run may begin: if another is open
        now, it raises ``ThreadMoved``.
        """

    @abstractmethod
    async def append(self, lease: Lease, events: Sequence[bytes], *, end: RunEnd | None = None) -> Batch:
        """Append events of a run, and close it if ``end`` is given. Durable when it returns.

        Raises ``StaleLease``, or ``InterruptTaken`` if ``end`` settles what this run has not claimed.
        """

    @abstractmethod
    async def renew(self, lease: Lease, lease_seconds: float) -> bool:
        """Keep a lease alive; gives whether cancelling was asked for, in any case. Raises ``StaleLease``."""

    @abstractmethod
    async def settle(self, lease: Lease, interrupt_ids: Sequence[str]) -> None:
        """Record that the run has used these answers: they can never be given again.

        Raises ``StaleLease``, or ``InterruptTaken`` for one that this run has not claimed.
        """

    @abstractmethod
    async def expired(self) -> Sequence[RunRecord]:
        """Runs, in every scope, whose lease has run out, or whose owner is known to be gone."""

    @abstractmethod
    async def take_over(self, run: RunRecord, *, owner: str, lease_seconds: float) -> Lease | None:
        """The right to end a run whose lease has run out, or whose owner is known to be gone.

        None if it is closed, its owner still has its lease, or someone else has taken it.
        """

    @abstractmethod
    async def request_cancel(self, scope: str, thread_id: str, run_id: str, *, unwatched: bool = False) -> RunRecord:
        """Ask the run's owner, wherever it is, to cancel it; does nothing to a closed run. Raises ``NotFound``.

        With ``unwatched`` only if nobody watches it. To ask without that wins, whichever came first.
        """

    @abstractmethod
    async def settle_cancel(self, scope: str, thread_id: str, run_id: str, *, granted: bool) -> None:
        """Have a request made with ``unwatched`` hold in any case, or forget it; does nothing if none is open.

        The owner does so when it has looked; who asked forgets it when nobody answers.
        """

    @abstractmethod
    async def cancel_requested(self, lease: Lease) -> CancelRequest:
        """Return when cancelling this run is asked for, from any process, or ("always") its lease is stale.

        Raises ``StoreUnavailable`` if the store is closed meanwhile.
        """

    @abstractmethod
    async def cancel_settled(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """Return the run when no request made with ``unwatched`` is open.

        It is closed then, or to be cancelled in any case, or the request was forgotten.

        Raises ``NotFound``, or ``StoreUnavailable`` if the store is closed meanwhile.
        """

    @abstractmethod
    async def watch(self, scope: str, thread_id: str, run_id: str, *, viewer: str, seconds: float) -> None:
        """Note that ``viewer``, a process other than the owner, has somebody who watches this run.

        It counts for some seconds, unless it is noted again, and until the run ends; nothing is noted of a run that
        does not exist or is closed.
        """

    @abstractmethod
    async def unwatch(self, scope: str, thread_id: str, run_id: str, *, viewer: str) -> None:
        """Note that nobody there watches any more; does nothing if that is known."""

    @abstractmethod
    async def watched(self, lease: Lease, *, within: float = 0.0) -> bool:
        """Whether some process has noted that this run is watched there, now or in the last seconds.

        One that is known to be gone (a store need not know that) does not watch now, but has until that was found.
        """

    @abstractmethod
    async def run(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """One run. Raises ``NotFound``."""

    @abstractmethod
    async def runs(self, scope: str, thread_id: str) -> Sequence[RunRecord]:
        """The runs of a thread in the order they began; none for a thread that does not exist."""

    @abstractmethod
    async def run_thread(self, scope: str, run_id: str) -> str | None:
        """Find the thread of this scope that has a run with this id; of several, the one updated last.

        Looks at the ``RECENT_THREADS`` threads of the scope that were updated last. None if they have no such run.
        """

    # The log

    @abstractmethod
    async def last(self, scope: str, thread_id: str) -> int:
        """The sequence number of the newest event. Raises ``NotFound`` if there is no such thread."""

    @abstractmethod
    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> Sequence[Batch]:
        """Stored events after a sequence number, in order, about ``limit`` of them at most (whole batches, the first
        and last cut to what was asked for); none if there is nothing after it. After 0 is from the beginning.

        Raises ``NotFound``, or ``CursorExpired`` if the log does not hold all events after ``after``, or ends before
        it; a cursor of a thread that had this id before is one of those.
        """

    @abstractmethod
    def tail(self, scope: str, thread_id: str, after: int = 0) -> AsyncIterator[Batch]:
        """Stored events after a sequence number and then every further one, as it becomes durable, from any process.

        Never ends by itself while the store is open and the thread exists. A reader that is slow holds nobody up and
        costs no memory: it is served from the store again. Raises as ``read`` does.
        """

    # Threads

    @abstractmethod
    async def thread(self, scope: str, thread_id: str) -> ThreadSummary:
        """The summary of one thread. Raises ``NotFound``."""

    @abstractmethod
    async def threads(
        self,
        scope: str,
        *,
        limit: int = 50,
        before: int | None = None,
        agent: str | None = None,
        archived: bool | None = None,
    ) -> Sequence[ThreadSummary]:
        """Threads of a scope, last updated first, ``before`` being the position that ended the previous page.

        That thread may be gone or changed by then. What is updated between two pages is at the front, so it may be
        missed, and never comes twice. ``agent`` and ``archived`` select; None selects all.
        """

    @abstractmethod
    async def update_thread(self, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
        """Change the title, the archived flag or the metadata of a thread. Raises ``NotFound``.

        This changes neither the log, nor ``updated_at``, nor the position of the thread in lists.
        """

    @abstractmethod
    async def delete_thread(self, scope: str, thread_id: str) -> None:
        """Remove a thread with everything in it, its files too; of one that never ran, the files that it was given.

        Raises ``NotFound``, or ``ThreadBusy`` while a run is on.
        """

    @abstractmethod
    async def prune(self, retention: Retention) -> int:
        """Remove idle threads and loose files beyond what is to be kept, in every scope; gives how many threads."""

    # Interrupts, session, recorded effects

    @abstractmethod
    async def interrupts(self, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
        """The interrupts raised on a thread, in the order they were raised, settled ones included."""

    @abstractmethod
    async def interrupt_thread(self, scope: str, interrupt_id: str) -> str | None:
        """The thread of this scope that raised an interrupt of this id, settled or not; the last one, if several did.

        None if no thread that still exists did.
        """

    @abstractmethod
    async def session(self, scope: str, thread_id: str) -> bytes | None:
        """The thread's private session value, as the last closed run left it."""

    @abstractmethod
    async def record(self, lease: Lease, root_run_id: str, key: str, value: bytes) -> None:
        """Remember the result of a side effect under the run that the chain of resumes began with. The first one stays.

        Raises ``StaleLease``.
        """

    @abstractmethod
    async def recorded(self, scope: str, thread_id: str, root_run_id: str) -> dict[str, bytes]:
        """All results recorded under a root run."""

    # Files

    @abstractmethod
    async def put_blob(
        self, scope: str, data: bytes, *, media_type: str, filename: str | None = None, thread_id: str | None = None
    ) -> Blob:
        """Store a file; with a thread (which need not exist yet) it is removed with that thread.

        It stays as long as another thread holds it too, or if it was also stored without a thread.
        """

    @abstractmethod
    async def blob(self, scope: str, blob_id: str) -> tuple[Blob, bytes]:
        """A file with its content. Raises ``NotFound``."""

    @abstractmethod
    async def delete_blob(self, scope: str, blob_id: str) -> None:
        """Remove a file. Raises ``NotFound``."""
