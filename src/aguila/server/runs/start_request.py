"""A request to start a run, and its result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from aguila.codec import encode
from aguila.offload import LARGE, offload
from aguila.protocol import RunAgentInput
from aguila.server.config.errors import Disconnected, Withdrawn
from aguila.server.config.limits import Limits
from aguila.server.runs.live_run import LiveRun
from aguila.server.threads.requests import decode_body
from aguila.store import DEFAULT_AGENT, Batch, Quotas, RunRecord, Store

if TYPE_CHECKING:
    from aguila.telemetry.spans import RunSpan


class StartRequest(msgspec.Struct, kw_only=True, eq=False):
    """A request to start a run, or to attach to it again."""

    input: RunAgentInput
    body: bytes
    scope: str
    principal: Any = None
    limits: Limits = Limits()
    """The limits of the caller."""
    quotas: Quotas | None = None
    """What the scope of the caller and the store may hold."""
    headers: Mapping[str, str] = {}
    agent: str = DEFAULT_AGENT
    sent_run_id: str | None = None
    """The run id that was sent, if the run has another one."""
    address: str | None = None
    """The address of a caller without credentials, if its runs are counted."""
    is_stored: bool = True
    """Whether the run is stored."""

    disconnected: asyncio.Future[None] | None = None
    """Done when the client has disconnected. A queued request is dropped then."""
    cursor: int | None = None
    """The last event that the client has received, if it reconnects."""
    received_at: float = msgspec.field(default_factory=time.monotonic)
    """When the request came, on the monotonic clock."""
    fingerprint: str = ""
    """The hash of the body that was sent, if it is large, or if ``body`` is another one. Others are compared."""

    span: RunSpan | None = None
    """The span of the run, if it is traced."""
    task: asyncio.Task[StartResult] | None = None
    """The task that starts the run. It is cancelled if nobody waits for the run any more, unless the run is begun."""
    turn: asyncio.Future[None] | None = None
    """Done when the request may start its run, if it had to wait for others of its thread."""
    seen_until: int | None = None
    """The last event of the thread that the client can know, if the request had to wait."""
    is_beginning: bool = False
    """Whether the store is beginning the run."""
    is_withdrawn: bool = False
    """Whether the request was cancelled by its run id before its run had begun."""

    def check_waiting(self) -> None:
        """Raise ``Withdrawn`` or ``Disconnected`` if nobody waits for the run any more."""
        if self.is_withdrawn:
            raise Withdrawn(self.input)
        if self.disconnected is not None and self.disconnected.done():
            raise Disconnected

    def abandon(self, _: object = None) -> None:
        """Stop starting the run, unless the store is beginning it: then it has a task in any case."""
        if self.task is not None and not self.is_beginning:
            self.task.cancel()

    def with_fingerprint(self) -> StartRequest:
        """Return the request with the hash of its body. Call this before the body is replaced."""
        return self if self.fingerprint else replace(self, fingerprint=hash_body(self.body))

    async def matches(self, record: RunRecord, store: Store) -> bool:
        """Return whether this request started the run, whatever the spelling of its JSON."""
        if record.agent != self.agent:
            return False
        if self.fingerprint and self.fingerprint == record.fingerprint:
            return True
        body = await store.request(record.key)
        return await offload(self._has_body, body) if len(body) > LARGE else self._has_body(body)

    def _has_body(self, body: bytes) -> bool:
        return body == self.body or encode(decode_body(body)) == encode(self.input)


class Started(msgspec.Struct, frozen=True):
    """A run that has begun, and the first batch of its log."""

    live: LiveRun
    first: Batch


StartResult = Started | RunRecord | None
"""A new run, or one that was started before. None: nothing runs, and the thread is the answer."""


def hash_body(body: bytes) -> str:
    """Return the hash of a request body."""
    return blake2b(body, digest_size=32).hexdigest()  # sha256 is OpenSSL's, whose set-up takes longer than the hash
