"""Unstored runs (``POST /?store=false``): for suggestions and other throwaway answers.

Such a run has the executor, the checks and the stream of every other run, on a memory store of its own that is dropped
with it. Its thread does not become busy, and no other request can find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from aguila.chat.own_metadata import notices_metadata
from aguila.codec.logs import RunLogContext
from aguila.errors import DecodeError, RunNotStored
from aguila.protocol import PROTOCOL_VERSION, Event, RunStartedEvent
from aguila.server.errors import Rejected
from aguila.server.files import resolve_file
from aguila.server.history.client_history.agent_input import prepare_input
from aguila.server.interrupts.plan import plan_without_answers
from aguila.server.runs.environment import Environment
from aguila.server.runs.event_encoding import encode_all_checked
from aguila.server.runs.run_task import LiveRun
from aguila.server.runs.starting.run_context import RunContextLoader
from aguila.server.runs.starting.start_request import StartRequest
from aguila.server.store_health import StoreHealth
from aguila.store import Batch, MemoryStore, NewRun, Store

_MAX_BYTES = 1 << 26
"""How many bytes of events an unstored run may produce. They stay in memory until it ends."""


class UnstoredRun(LiveRun):
    """A run on a memory store of its own. ``files`` is the store of the app, which has the uploaded files."""

    __slots__ = ("files",)
    files: Store

    async def record(self, key: str, value: bytes) -> None:
        """See ``aguila.agent.Services``."""
        raise RunNotStored("record an effect")

    async def settle(self, interrupt_ids: Sequence[str]) -> None:
        """See ``aguila.agent.Services``."""
        raise RunNotStored("use the answer to a question")

    async def file(self, file_id: str) -> tuple[bytes, str, str | None] | None:
        """See ``aguila.agent.Services``."""
        return await resolve_file(self.files, self.lease.scope, file_id)


class UnstoredStart(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has begun: its store, its first events, and the loader of its context."""

    live: UnstoredRun
    store: MemoryStore
    first: Batch
    loader: RunContextLoader


async def begin_unstored(request: StartRequest, environment: Environment) -> UnstoredStart:
    """Begin an unstored run. Raises ``Rejected`` or ``StoreUnavailable``."""
    settings, projections = environment.settings, environment.projections
    if request.input.resume:
        message = "an unstored run cannot answer a question; send the answer without ?store=false"
        raise Rejected(422, "resume_not_stored", message, "/resume")
    prepared = await prepare_input(request.input, settings, projections=projections, scope=request.scope)
    with RunLogContext(request.input.thread_id, request.input.run_id):
        for notice in prepared.notices:
            environment.warn(notice)
    sent = prepared.input
    started = RunStartedEvent(
        thread_id=sent.thread_id,
        run_id=sent.run_id,
        protocol_version=PROTOCOL_VERSION,
        parent_run_id=sent.parent_run_id,
        metadata=notices_metadata(prepared.notices) if prepared.notices else None,
    )
    prelude: list[Event] = [started, *prepared.prelude]
    try:
        lines = await encode_all_checked(prelude)
    except DecodeError as error:
        raise Rejected(422, "malformed_input", error.message, "") from None
    session = await environment.store.session(request.scope, sent.thread_id)
    store = MemoryStore(max_bytes=_MAX_BYTES)
    await store.open()
    lease, first = await store.begin(
        NewRun(
            request.scope,
            sent.thread_id,
            sent.run_id,
            owner="",
            lease_seconds=settings.lease,
            input=request.body,  # readers take the initial state from it
            fingerprint="",
            events=lines,
        )
    )
    own = replace(environment, store=store, store_health=StoreHealth())
    live = UnstoredRun(own, lease, root_run_id=sent.run_id)
    live.files = environment.store
    live.session = session
    loader = RunContextLoader(
        environment=environment,
        live=live,
        input=sent,
        plan=plan_without_answers(sent),
        prelude=prelude,
        has_history=False,
        principal=request.principal,
        headers=request.headers,
        is_stored=False,
    )
    return UnstoredStart(live=live, store=store, first=first, loader=loader)
