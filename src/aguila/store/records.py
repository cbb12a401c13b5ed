"""The values that a store takes and returns: leases, runs, interrupts, threads, batches of events, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from aguila.codec.json.bounded_floats import decode_json
from aguila.store.cursors import new_token

Outcome = Literal["success", "interrupt", "cancelled", "error"]
"""How a run ended."""

CancelRequest = Literal["always", "unwatched"]
"""When to cancel a run: always, or only if it has no viewers."""

InterruptStatus = Literal["open", "claimed", "settled"]
"""The status of an interrupt: no run answers it, a run is answering it, or a run has used the answer."""

Durability = Literal["process", "power"]
"""What a stored event survives: the death of the process, or also the loss of power."""

DEFAULT_AGENT = "default"
"""The agent that ``begin`` assigns to a thread by default."""


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The exclusive right to write a run's events. A higher epoch makes every lower one stale."""

    scope: str
    thread_id: str
    run_id: str
    epoch: int
    owner: str
    token: str = ""
    """Random text that identifies the events of this run and epoch; see ``Store.token``."""


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """A run to begin; see ``Store.begin``."""

    scope: str
    thread_id: str
    run_id: str
    owner: str
    lease_seconds: float
    input: bytes
    """The request."""
    fingerprint: str
    """Identifies the exact bytes of the request, if it is not empty."""
    events: Sequence[bytes]
    """Its first events."""
    parent_run_id: str | None = None
    """The run that it continues. None is the latest run; with its own id it continues no run."""
    claims: Sequence[str] = ()
    """The interrupts that it answers."""
    waiting: frozenset[str] | None = None
    """The interrupts that were open when the caller decided to start the run; None does not check."""
    after: int | None = None
    """The last event of the thread at that time, or 0 if the thread did not exist; None does not check."""
    max_running: int | None = None
    """How many runs of the scope may be open, in all processes together."""
    agent: str = DEFAULT_AGENT
    """The agent of the thread. The first run of a thread assigns it."""
    sent_run_id: str | None = None
    """The run id of the request, if it is another one."""
    quotas: Quotas | None = None
    """What the scope and the store may hold."""
    token: str = msgspec.field(default_factory=new_token)
    """The token of its lease."""

    @property
    def lease(self) -> Lease:
        """The first lease of the run."""
        return Lease(
            scope=self.scope,
            thread_id=self.thread_id,
            run_id=self.run_id,
            epoch=1,
            owner=self.owner,
            token=self.token,
        )


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stored run. ``cancel_requested`` is true for a request to cancel it always."""

    scope: str
    thread_id: str
    run_id: str
    parent_run_id: str | None
    fingerprint: str
    first: int
    last: int
    outcome: Outcome | None
    owner: str
    epoch: int
    lease_until: float
    """When the lease expires, on the clock that judges leases."""
    cancel_requested: bool
    started_at: float
    ended_at: float | None
    agent: str = DEFAULT_AGENT
    """The agent of the thread."""
    sent_run_id: str | None = None
    """The run id of the request, if it is not the id of the run."""
    token: str = ""
    """The token of its last event."""

    @property
    def is_running(self) -> bool:
        """Whether the run is open: it has no terminal event."""
        return self.outcome is None


class InterruptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored interrupt. ``body`` is its JSON as the run sent it."""

    interrupt_id: str
    run_id: str
    status: InterruptStatus
    body: bytes
    claimed_by: str | None = None


class ThreadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in the list of threads."""

    thread_id: str
    created_at: float
    updated_at: float
    last: int
    runs: int
    running: str | None
    """The id of the open run."""
    position: int
    """Its rank among the threads of the scope.

    Beginning or ending a run moves the thread to the highest position. A store may do so with any other append, too.
    """
    agent: str = DEFAULT_AGENT
    title: str | None = None
    archived: bool = False
    metadata: bytes | None = None
    """JSON of the application."""
    token: str = ""
    """The token of the newest event."""

    @property
    def is_running(self) -> bool:
        """Whether the thread has an open run."""
        return self.running is not None


class MetadataFilter(msgspec.Struct, frozen=True):
    """Selects threads whose metadata has the member ``key``; with ``value``, only if the member is this string."""

    key: str
    value: str | None = None

    def matches(self, metadata: bytes | None) -> bool:
        """Return whether this metadata is selected."""
        if metadata is None:
            return False
        members = decode_json(metadata)
        return self.key in members and self.value in (None, members[self.key])


class ThreadUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a thread. A member that is unset is not changed; None removes the title or the metadata."""

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    default_title: str | msgspec.UnsetType = msgspec.UNSET
    """Becomes the title of a thread that has none. It is given instead of ``title``."""
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    metadata: bytes | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def size(self) -> int:
        """The bytes of the new title and metadata."""
        title = self.default_title if self.title is msgspec.UNSET else self.title
        return (len(title.encode()) if isinstance(title, str) else 0) + (
            len(self.metadata) if isinstance(self.metadata, bytes) else 0
        )


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Consecutive events of a thread, as the JSON that was appended. ``first`` is the number of the first one."""

    first: int
    events: Sequence[bytes]
    at: int = 0
    """When they were appended, in milliseconds since the Unix epoch; 0 if a store of an earlier version wrote them."""
    token: str = ""
    """The token of the lease with which they were appended; empty if a store of an earlier version wrote them."""

    @property
    def last(self) -> int:
        """The sequence number of the last event."""
        return self.first + len(self.events) - 1


class RunProjection(msgspec.Struct, frozen=True, kw_only=True):
    """A thread after a run, as the caller wrote it. ``body`` may refer to values by their digests (16 bytes each)."""

    format: int
    """The version of the format of ``body``."""
    body: bytes
    values: Mapping[bytes, bytes] = {}
    """JSON by its digest (``run_inputs.hash_json``): the values that the thread may not have yet."""

    @property
    def size(self) -> int:
        """The bytes of the body and the values."""
        return len(self.body) + sum([len(value) for value in self.values.values()])


class StoredProjection(msgspec.Struct, frozen=True, kw_only=True):
    """The projection of a closed run, without its values. It covers the events of the thread up to ``last``."""

    run_id: str
    first: int
    """The sequence number of the run's first event."""
    last: int
    """The sequence number of the run's last event."""
    format: int
    body: bytes


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Further changes in the transaction of a run's terminal event."""

    outcome: Outcome
    interrupts: Sequence[tuple[str, bytes]] = ()
    """(id, JSON) of each interrupt that the run raises."""
    session: bytes | None = None
    """The new session of the thread; None keeps the old one."""
    settles: Sequence[str] = ()
    """Interrupts that the run has claimed and that are settled with its end (see ``Store.settle``)."""
    update: ThreadUpdate | None = None
    """Changes to the thread."""
    projection: RunProjection | None = None
    """The thread after the run."""

    @property
    def size(self) -> int:
        """The bytes of the interrupts, the session, the changes to the thread and the projection."""
        size = sum(len(body) for _, body in self.interrupts) + (0 if self.session is None else len(self.session))
        size += 0 if self.projection is None else self.projection.size
        return size + (0 if self.update is None else self.update.size)


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """A stored file.

    Its id is a hash of scope, media type, name and content, so that storing a file twice stores it once.
    """

    blob_id: str
    media_type: str
    filename: str | None
    size: int
    created_at: float


RECENT_THREADS: Final = 1_000
"""How many threads of a scope ``Store.run_thread`` searches."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The usage of a scope, or of the store.

    ``files`` are uploads; ``bytes`` counts what ``Retention.max_bytes`` counts. The inline files of messages count as
    bytes only.
    """

    threads: int = 0
    files: int = 0
    bytes: int = 0


class Quotas(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a scope and the whole store may hold. None sets no limit.

    A run is refused if as many bytes are stored as allowed, or if it would create a thread too many. An upload is
    refused if it would exceed the bytes or the files. A run that has begun is never ended by a quota, so it may exceed
    the bytes. The quotas of the store count the writes of a run of another scope when that run ends.
    """

    threads_per_scope: int | None = None
    files_per_scope: int | None = None
    bytes_per_scope: int | None = None
    threads: int | None = None
    files: int | None = None
    bytes: int | None = None

    @property
    def is_total(self) -> bool:
        """Whether a quota of the store is set."""
        return self.threads is not None or self.files is not None or self.bytes is not None

    def find_exceeded(self, scope: Usage, store: Usage, *, new: Usage) -> str | None:
        """Return the first quota that ``new`` would exceed, or None."""
        # Each run asks this before its first event: a loop over the quotas would take three times as long.
        if new.threads:
            if self.threads_per_scope is not None and scope.threads + new.threads > self.threads_per_scope:
                return "threads_per_scope"
            if self.threads is not None and store.threads + new.threads > self.threads:
                return "threads"
        if new.files:
            if self.files_per_scope is not None and scope.files + new.files > self.files_per_scope:
                return "files_per_scope"
            if self.files is not None and store.files + new.files > self.files:
                return "files"
        if new.bytes:
            if self.bytes_per_scope is not None and scope.bytes + new.bytes > self.bytes_per_scope:
                return "bytes_per_scope"
            if self.bytes is not None and store.bytes + new.bytes > self.bytes:
                return "bytes"
        return None


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much ``Store.prune`` keeps of each scope. None sets no limit.

    One scope's threads and files never displace another's. Threads without an open run and files without a thread are
    removed, oldest first. A file has no thread if it was stored without one or for one that never ran. ``max_bytes``
    counts events, inputs, projections, interrupts, sessions, recorded effects, titles, metadata and files.
    """

    max_age: float | None = None
    max_threads: int | None = None
    max_bytes: int | None = None
    compact_after: float | None = None
    """Seconds after its end from which on the server compacts a run; ``prune`` does not."""

    def is_exceeded(self, *, age: float, size: int, threads: int = 0) -> bool:
        """Return whether to remove an entry of this age while its scope holds this many bytes and threads."""
        return (
            (self.max_age is not None and age > self.max_age)
            or (self.max_bytes is not None and size > self.max_bytes)
            or (self.max_threads is not None and threads > self.max_threads)
        )
