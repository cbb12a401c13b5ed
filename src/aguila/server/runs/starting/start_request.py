"""A request to start a run, and its result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from aguila.codec import encode
from aguila.offload import LARGE_JSON, offload
from aguila.protocol import RunAgentInput
from aguila.server.history.stored_input import decode_body
from aguila.server.runs.run_task import LiveRun
from aguila.server.runs.viewers import Key
from aguila.store import DEFAULT_AGENT, Batch, RunRecord, Store

_SHORT = 2048
"""Bytes of a body that is not hashed: every run would wait for that, and only a repeated request needs it."""


class QueueTicket:
    """The place of a request in the queue of its thread.

    A request that is withdrawn while its run begins in the store is answered as that run, which is then cancelled.
    """

    __slots__ = ("is_beginning", "reasons_to_leave", "task", "withdrawn")

    def __init__(self, disconnected: asyncio.Future[None] | None) -> None:
        self.withdrawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reasons_to_leave = [self.withdrawn] if disconnected is None else [self.withdrawn, disconnected]
        """When one of these is done, nobody waits for the run any more."""
        self.is_beginning = False
        self.task: asyncio.Future[StartResult] | None = None


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to start a run, or to attach to it again."""

    input: RunAgentInput
    body: bytes
    scope: str
    principal: Any = None
    headers: Mapping[str, str] = {}
    agent: str = DEFAULT_AGENT
    sent_run_id: str | None = None
    """The run id that was sent, if the run has another one."""

    disconnected: asyncio.Future[None] | None = None
    """Done when the client has disconnected. A queued request is dropped then."""
    ticket: QueueTicket | None = None
    """The place in the queue of the thread, with ``busy="queue"``."""
    cursor: int | None = None
    """The last event that the client has received, if it reconnects."""
    received_at: float = msgspec.field(default_factory=time.monotonic)
    """When the request came, on the monotonic clock."""
    queued_after: int | None = None
    """The last event of the thread when the request was queued behind others; None if it was not."""
    digest: str | None = None
    """The hash of the body that was sent, if it is large, or if ``body`` is another one."""

    @property
    def key(self) -> Key:
        """The scope, the thread id and the run id that the request names."""
        return (self.scope, self.input.thread_id, self.input.run_id)

    @property
    def is_abandoned(self) -> bool:
        """Whether the request was withdrawn from its queue, or its client has disconnected."""
        return self.ticket is not None and any(reason.done() for reason in self.ticket.reasons_to_leave)

    @property
    def fingerprint(self) -> str:
        """The hash of the body that was sent. It is empty for a short body, which is compared with the stored one."""
        if self.digest is not None:
            return self.digest
        return "" if len(self.body) <= _SHORT else hash_body(self.body)

    def with_digest(self) -> StartRequest:
        """Return the request with the hash of its body. Call this before the body is replaced."""
        return self if self.digest is not None else replace(self, digest=hash_body(self.body))

    async def matches(self, record: RunRecord, store: Store) -> bool:
        """Return whether this request started the run, whatever the spelling of its JSON."""
        if record.agent != self.agent:
            return False
        if record.fingerprint != "" and record.fingerprint == self.fingerprint:
            return True
        body = await store.input(record.scope, record.thread_id, record.run_id)
        return await offload(self._has_body, body) if len(body) > LARGE_JSON else self._has_body(body)

    def _has_body(self, body: bytes) -> bool:
        return body == self.body or encode(decode_body(body)) == encode(self.input)


class StartResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request to start a run.

    A new run has ``live`` and the ``first`` batch of its log. A run that was started before has its ``record``. With
    ``is_hydration`` nothing runs: the request is answered with the thread as it is. With ``is_withdrawn`` the request
    was cancelled while it was queued: nothing runs, and nothing is stored.
    """

    live: LiveRun | None = None
    first: Batch | None = None
    record: RunRecord | None = None
    is_hydration: bool = False
    is_withdrawn: bool = False

    @property
    def run_id(self) -> str | None:
        """The stored id of the run."""
        if self.live is not None:
            return self.live.lease.run_id
        return None if self.record is None else self.record.run_id


def hash_body(body: bytes) -> str:
    """Return the hash of a request body."""
    return blake2b(body, digest_size=32).hexdigest()  # sha256 is OpenSSL's, whose set-up takes longer than the hash
