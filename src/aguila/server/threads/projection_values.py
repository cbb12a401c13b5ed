"""The values that a reader of a thread takes and returns: the log, a run that is about to end, and a projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from aguila.errors import CursorExpired
from aguila.protocol import RunAgentInput
from aguila.server.threads.branch_reducer import LastRun
from aguila.server.threads.client.known_messages import KnownMessages
from aguila.server.threads.client.other_branches import FirstRuns
from aguila.server.threads.client.tool_results import NO_CALLS, ServerCalls
from aguila.store import Batch, Lease, Store
from aguila.stream import Conversation
from aguila.stream.lineage import RunTree

MAX_PROJECTED: Final = 1 << 20
"""A run of more bytes is not reduced at its end, which would take time and several times that memory."""


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """A thread after event ``last``, along the branch from its root to the run ``tip``.

    ``client_instructions`` are the ids of system and developer messages that clients sent. ``has_state`` is whether the
    thread ever had a state: ``{}`` may be a state or the lack of one (IN-11). ``server_calls`` are the tool calls whose
    results come from the server. ``known`` are the messages that the runs of all branches have sent; they are loaded
    only if the caller asks for them.
    """

    thread_id: str
    conversation: Conversation
    last: int
    tip: str | None
    run: LastRun | None
    client_instructions: frozenset[str]
    known: KnownMessages
    has_state: bool = False
    server_calls: ServerCalls = NO_CALLS
    first_runs: FirstRuns
    """The first run of every message of the thread."""
    tree: RunTree
    """All runs of the thread."""
    run_ends: Mapping[str, str | None]
    """The last message that every client holds after each closed run; see ``cut_history``."""

    @property
    def is_running(self) -> bool:
        """Whether the last run is still running."""
        return self.run is not None and self.run.ended is None


class OwnRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of this process. The projection that is stored with its end is computed from this and its last events."""

    lease: Lease
    first: int
    """The number of its first event."""
    sent: RunAgentInput | None
    """Its input; None if the run is too large (``MAX_PROJECTED``)."""
    parent_run_id: str | None = None
    """The stored id of its parent; see ``RunRecord``."""
    stored: Sequence[bytes] | None = None
    """Its events in the log; None if they are to be read from there."""


class ThreadLog(msgspec.Struct, frozen=True):
    """The stored log of one thread."""

    store: Store
    scope: str
    thread_id: str

    async def read(self, after: int, until: int) -> Sequence[Batch]:
        """Read the next batches. Raises ``CursorExpired`` if the log ends before event ``until``."""
        batches = await self.store.read(self.scope, self.thread_id, after, until=until)
        if not batches:
            raise CursorExpired(f"thread {self.thread_id!r} ends before event {until}")
        return batches
