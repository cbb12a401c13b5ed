"""The values that a store takes and returns: runs, leases, changes, threads, batches of events, files, archives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from aguila.codec.json.bounded_floats import decode_json
from aguila.errors import NotFound
from aguila.store.cursors import new_token

ThreadKey = tuple[str, str]
"""Scope and thread id."""

UNOWNED: Final = ""
"""The owner of a run that waits for one. ``begin`` stores it, and ``take_over`` assigns it."""

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

RECENT_THREADS: Final = 1_000
"""How many threads of a scope ``ThreadFilter.run_id`` searches."""

# Runs


class RunKey(msgspec.Struct, frozen=True, gc=False):
    """The ids of a run."""

    scope: str
    thread_id: str
    run_id: str


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The exclusive right to write a run's events. A higher epoch makes every lower one stale."""

    scope: str
    thread_id: str
    run_id: str
    epoch: int
    owner: str
    token: str = ""
    """Random text that identifies the events of this run and epoch; see ``cursors``."""


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


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The usage of a scope, or of the store.

    ``files`` are uploads; ``bytes`` counts what ``Retention.max_bytes`` counts. The inline files of messages count as
    bytes only.
    """

    threads: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            threads=self.threads + other.threads, files=self.files + other.files, bytes=self.bytes + other.bytes
        )


class Quotas(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a scope and the whole store may hold. None sets no limit.

    A run is refused if as many bytes are stored as allowed, or if it would create a thread too many. An upload is
    refused if it would exceed the bytes or the files. A run that has begun is never ended by a quota, so it may exceed
    the bytes. The quotas of the store count the writes of a run of another scope when that run ends. Calls of several
    processes at one time may exceed a quota together.
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
        for kind in ("threads", "files", "bytes"):
            added = getattr(new, kind)
            for quota, held in ((f"{kind}_per_scope", scope), (kind, store)):
                most = getattr(self, quota)
                if added and most is not None and getattr(held, kind) + added > most:
                    return quota
        return None


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to begin; see ``Store.begin``."""

    scope: str
    thread_id: str
    run_id: str
    owner: str
    """The process that runs it, or ``UNOWNED``."""
    lease_seconds: float
    request: bytes
    """The request, as JSON. A store keeps its value, not its bytes."""
    events: Sequence[bytes]
    """Its first events, at least one."""
    fingerprint: str = ""
    """Identifies the exact bytes of the request."""
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
    launch: bytes | None = None
    """Opaque bytes with which another process can invoke the agent again. Removed when the run ends."""
    token: str = msgspec.field(default_factory=new_token)
    """The token of its lease. It also identifies this attempt to begin the run: repeat a call with the same token."""

    @property
    def key(self) -> ThreadKey:
        """Scope and thread id."""
        return (self.scope, self.thread_id)

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


class Begun(msgspec.Struct, frozen=True, gc=False):
    """A run that has begun: its lease and its first events."""

    lease: Lease
    batch: Batch


class Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of an effect of a run, under the root run of a chain of resumed runs.

    An effect whose ``value`` is None has begun and has no result yet. If its owner is lost, its outcome is unknown.
    """

    root_run_id: str
    name: str
    value: bytes | None
    epoch: int = 0
    """The attempt that recorded it. A store fills it in from the lease."""


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


class InterruptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored interrupt. ``body`` is its JSON as the run sent it."""

    interrupt_id: str
    run_id: str
    status: InterruptStatus
    body: bytes
    claimed_by: str | None = None
    """The run that claimed it, also when it is settled; None if it is open."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What a closed run changed on its branch, as the server computed it.

    A store does not interpret ``body``, which refers to values by their digests (``contents.hash_content``).
    """

    format: int
    """The version of the format of ``body``."""
    body: bytes
    values: Mapping[bytes, bytes] = {}
    """JSON by its digest: the values that the thread may not have yet."""

    @property
    def size(self) -> int:
        """The bytes of the body and the values."""
        return len(self.body) + sum([len(value) for value in self.values.values()])


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run, in the transaction of its terminal event."""

    outcome: Outcome
    interrupts: Sequence[tuple[str, bytes]] = ()
    """(id, JSON) of each interrupt that the run raises."""
    update: ThreadUpdate | None = None
    """Changes to the thread."""
    turn: Turn | None = None
    """What the run changed; None if it is computed later (``NewTurns``)."""

    @property
    def size(self) -> int:
        """The bytes of the interrupts, the changes to the thread and the turn."""
        size = sum([len(body) for _, body in self.interrupts]) + (0 if self.turn is None else self.turn.size)
        return size + (0 if self.update is None else self.update.size)


class RunChange(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the owner of a run may change in one transaction; see ``Store.write``."""

    events: Sequence[bytes] = ()
    """Events to append."""
    after: int | None = None
    """The number of the event before them, by which a repeated call is recognised; None if it is never repeated."""
    lease_seconds: float | None = None
    """Renew the lease for so long."""
    settles: Sequence[str] = ()
    """Interrupts that the run has claimed and whose answers it has used, so that they cannot be answered again."""
    effects: Sequence[Effect] = ()
    """Effects that began, or have a result. A result is never replaced."""
    session: bytes | None = None
    """The new session of the thread; None keeps the old one."""
    end: RunEnd | None = None

    @property
    def size(self) -> int:
        """The bytes that it writes, without the events."""
        size = 0 if self.session is None else len(self.session)
        if self.effects:
            size += sum([len(effect.value or b"") for effect in self.effects])
        return size + (0 if self.end is None else self.end.size)


class Written(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a write: the appended events, none if there were none, and the cancel request of the run."""

    batch: Batch
    cancel: CancelRequest | None = None


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored run. The last members are None unless ``Want`` asks for them."""

    scope: str
    thread_id: str
    run_id: str
    number: int
    """1 for the first run of the thread."""
    parent_run_id: str | None
    sent_run_id: str | None = None
    """The run id of the request, if it is not the id of the run."""
    agent: str = DEFAULT_AGENT
    """The agent of the thread."""
    fingerprint: str
    first: int
    last: int
    outcome: Outcome | None
    owner: str
    epoch: int
    """How often it was given an owner: 1 for the first one."""
    lease_until: float
    """When the lease expires, on the clock that judges leases."""
    cancel: CancelRequest | None
    started_at: float
    ended_at: float | None
    token: str = ""
    """The token of its last event."""
    compacted: bool = False
    request: bytes | None = None
    """The request without its large members (``contents.StoredRequest``), if ``Want.requests``."""
    messages: bytes | None = None
    """The digests of the messages of the request, if ``Want.requests``; None if ``request`` is the whole request."""
    turn: Turn | None = None
    """Its turn without values, if ``Want.turns``; None if the run is open or its turn was not computed."""

    @property
    def key(self) -> RunKey:
        """The ids of the run."""
        return RunKey(self.scope, self.thread_id, self.run_id)

    @property
    def is_running(self) -> bool:
        """Whether the run is open: it has no terminal event."""
        return self.outcome is None

    @property
    def cancel_requested(self) -> bool:
        """Whether the run is to be cancelled always."""
        return self.cancel == "always"


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ``take_over`` gave to its caller.

    ``run`` is as it was before, with its former owner. ``launch`` is what ``NewRun.launch`` was.
    """

    lease: Lease
    run: RunRecord
    launch: bytes | None


# Messages to the owner of a run


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """Cancel the run: always, or only if it has no viewers.

    A request to cancel always replaces one with ``unwatched``, and is never replaced.
    """

    unwatched: bool = False


class AnswerCancel(msgspec.Struct, frozen=True, gc=False):
    """Answer a ``Cancel(unwatched=True)``: cancel the run always, or drop the request."""

    granted: bool


class Watch(msgspec.Struct, frozen=True, gc=False):
    """The process ``viewer``, which is not the owner, has viewers of this run for ``seconds``; with 0, none any more.

    It lasts at most until the run closes.
    """

    viewer: str
    seconds: float


Message = Cancel | AnswerCancel | Watch
"""What ``Store.tell`` records for the owner of a run."""

# Threads


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


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much ``Store.sweep`` keeps of each scope. None sets no limit.

    One scope's threads and files never displace another's. Threads without an open run and files without a thread are
    removed, oldest first. A file has no thread if it was stored without one or for one that never ran. ``max_bytes``
    counts events, requests, turns, interrupts, sessions, recorded effects, titles, metadata and files.
    """

    max_age: float | None = None
    max_threads: int | None = None
    max_bytes: int | None = None
    compact_after: float | None = None
    """Seconds after its end from which on the server compacts a run; ``sweep`` only returns them."""

    def is_exceeded(self, *, age: float, size: int, threads: int = 0) -> bool:
        """Return whether to remove an entry of this age while its scope holds this many bytes and threads."""
        return (
            (self.max_age is not None and age > self.max_age)
            or (self.max_bytes is not None and size > self.max_bytes)
            or (self.max_threads is not None and threads > self.max_threads)
        )


class Want(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which rows of a thread to read; the summary is always read."""

    runs: bool = False
    """The runs in the order they began."""
    runs_after: int = 0
    """Only the runs whose ``number`` is higher."""
    run_id: str | None = None
    """Only this run, whether or not ``runs`` is set."""
    requests: bool = False
    """With ``RunRecord.request`` and ``RunRecord.messages``."""
    turns: bool = False
    """With ``RunRecord.turn``."""
    interrupts: bool = False
    session: bool = False
    effects: bool = False
    root_run_id: str | None = None
    """Only the effects under this root run, whether or not ``effects`` is set."""
    viewers: bool = False
    files: bool = False


class ViewerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process that has, or had, viewers of the open run."""

    viewer: str
    left: float | None
    """For how many seconds it has had none; None if it has some, or did until it died."""
    is_dead: bool = False
    """Whether the process is known to be dead. When it died is not known: tell ``Watch(viewer, 0)``."""


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored file. Its id is a hash of scope, media type, name and content: storing it twice stores it once."""

    scope: str
    file_id: str
    media_type: str
    filename: str | None
    size: int
    created_at: float
    is_kept: bool = True
    """Whether it was stored at least once without a thread, so that no thread's removal deletes it."""
    thread_ids: tuple[str, ...] = ()
    """The threads that hold it; filled in by ``StoreReader.rest`` only, empty elsewhere."""


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a thread at one moment. Members that ``Want`` does not name are empty."""

    scope: str
    summary: ThreadSummary
    first: int
    """The number of the first event: 1, or higher if a removed thread had the id."""
    runs: Sequence[RunRecord] = ()
    """In the order they began."""
    interrupts: Sequence[InterruptRecord] = ()
    """In the order they were raised, settled ones included."""
    session: bytes | None = None
    effects: Sequence[Effect] = ()
    viewers: Sequence[ViewerRecord] = ()
    files: Sequence[FileRecord] = ()
    """Ordered by their ids."""

    def run(self, run_id: str) -> RunRecord:
        """Return a run that was read. Raises ``NotFound``."""
        for run in self.runs:
            if run.run_id == run_id:
                return run
        raise NotFound(f"no run {run_id!r} on thread {self.summary.thread_id!r}")

    def results(self, root_run_id: str) -> dict[str, bytes]:
        """Return the results of the effects under a root run, by their names."""
        return {
            effect.name: effect.value
            for effect in self.effects
            if effect.root_run_id == root_run_id and effect.value is not None
        }


class LogPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the log, as ``StoreReader.read`` returns it."""

    batches: Sequence[Batch]
    first: int
    """The number of the first event of the thread."""
    last: int
    """The number of its newest event."""
    token: str
    """The token of the event ``after``; empty for the beginning of the log."""


class ThreadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which threads of a scope to list."""

    limit: int = 50
    """At most so many. With 0, only the stamp is found."""
    before: int | None = None
    """Only threads below this position: that of the last thread of the page before."""
    agent: str | None = None
    archived: bool | None = None
    metadata: MetadataFilter | None = None
    run_id: str | None = None
    """Only threads with this run, among the ``RECENT_THREADS`` that were updated last."""
    interrupt_id: str | None = None
    """Only threads that raised this interrupt, settled or not; the one that raised it last comes first.

    ``position`` does not tell which, since it also changes when a run answers. A restored thread raises its interrupts
    again.
    """
    usage: bool = False
    """Also return the usage of the scope and of the store."""


class ThreadPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the threads of a scope, last updated first."""

    threads: Sequence[ThreadSummary] = ()
    stamp: str | None = None
    """Another text whenever the list may have changed; None if the store has none. It says nothing about one scope."""
    usage: Usage = Usage()
    """What the scope holds, with the writes of open runs."""
    total: Usage = Usage()
    """What the store holds, without the writes of open runs."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """The state of a thread that a waiting reader compares: its events, and its open run."""

    first: int
    last: int
    run_id: str | None = None
    epoch: int = 0
    token: str | None = None
    cancel: CancelRequest | None = None


class NewTurns(msgspec.Struct, frozen=True):
    """The turns of closed runs, by run id, in place of those that they have. Other runs are ignored."""

    turns: Mapping[str, Turn]


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the events of a closed run that was not compacted, with these numbers, by ``events``.

    After that, only ``first - 1`` and ``last`` are valid cursors of the run, although other numbers have events, too:
    for those between them, ``read`` raises ``encoding.inside_compacted``. If the events are not fewer than before, the
    log and its cursors stay as they are, and the run counts as compacted. A run that was removed or compacted meanwhile
    is ignored.
    """

    run_id: str
    first: int
    last: int
    events: Sequence[bytes]


Amendment = ThreadUpdate | NewTurns | Compaction
"""What ``Store.amend`` changes. None of it changes ``updated_at`` or the position of the thread."""


class ThreadTarget(msgspec.Struct, frozen=True, gc=False):
    """Delete a thread with everything in it, or the files of a thread that never ran."""

    thread_id: str


class FileTarget(msgspec.Struct, frozen=True, gc=False):
    """Delete a file, even if threads hold it."""

    file_id: str


class ScopeTarget(msgspec.Struct, frozen=True, gc=False):
    """Delete every thread and file of the scope. Only hashes of its thread ids stay, with their last numbers."""


Target = ThreadTarget | FileTarget | ScopeTarget
"""What ``Store.delete`` removes."""


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What ``Store.sweep`` did: how many threads it removed, and the runs that can be compacted, oldest first."""

    removed: int = 0
    compactable: Sequence[RunRecord] = ()


# What belongs to no thread, and archives


class ScopeRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A scope that holds something."""

    scope: str
    usage: Usage
    runs: int = 0
    """The runs of its threads."""
    events: int = 0
    """The events of its threads. Those of a compacted run count as before."""


class RemovedThreads(msgspec.Struct, frozen=True):
    """The last sequence number of each removed thread, by scope, and by its hash (``encoding.hash_thread``)."""

    last: Mapping[int, int]


Rest = ScopeRecord | FileRecord | RemovedThreads
"""What ``StoreReader.rest`` iterates over."""


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with its content."""

    record: FileRecord
    data: bytes


class ThreadArchive(msgspec.Struct, frozen=True, kw_only=True):
    """A thread as one value, with its sequence numbers, times and tokens. Its runs are closed.

    ``thread`` has the requests, interrupts, session and effects; turns are not archived, because they can be computed
    again. ``archives/archive.py`` reads and checks it.
    """

    thread: ThreadRecord
    values: Mapping[bytes, bytes]
    """The contents that the requests refer to, by their digests."""
    batches: Sequence[Batch]
    files: Sequence[ArchivedFile]
    """The files that the thread holds, ordered by their ids. Their records do not name it."""


class FileArchive(msgspec.Struct, frozen=True, kw_only=True):
    """A file to restore with the threads that hold it, ``record.thread_ids``, which need not exist."""

    file: ArchivedFile


Archive = ThreadArchive | FileArchive | RemovedThreads
"""A part of a store that ``Store.restore`` writes."""
