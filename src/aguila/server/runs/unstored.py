"""Runs that are not stored (``POST /?store=false``): for suggestions and other throwaway answers.

Such a run has the executor, the checks and the stream of every other run, on a memory store of its own that is dropped
with it. Its thread does not become busy, and no other request can find it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from aguila.agent.context import RunContext
from aguila.codec.notices import Warn
from aguila.errors import DecodeError, RunNotStored
from aguila.protocol import PROTOCOL_VERSION, Event, RunStartedEvent
from aguila.server.errors import Rejected
from aguila.server.files import resolve_file
from aguila.server.history.agent_input import prepare_input
from aguila.server.history.projection import Projections
from aguila.server.runs.event_encoding import encode_all_checked
from aguila.server.runs.run_context import new_id
from aguila.server.runs.run_task import LiveRun
from aguila.server.runs.start_request import StartRequest
from aguila.server.settings import Settings
from aguila.store import Batch, MemoryStore, Store
from aguila.stream import EventWriter

_MAX_BYTES = 1 << 26
"""How many bytes of events a run may produce that is not stored: they stay in memory until it ends."""


class UnstoredRun(LiveRun):
    """A run on a memory store of its own. ``files`` is the store of the app, to read uploaded files from."""

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
    """A run that has begun: its own store, the first events there, and what its agent needs to know."""

    live: UnstoredRun
    store: MemoryStore
    first: Batch
    load: Callable[[], Awaitable[RunContext]]


async def begin_unstored(
    request: StartRequest, projections: Projections, settings: Settings, warn: Warn
) -> UnstoredStart:
    """Begin a run that is not stored. Raises ``Rejected`` or ``StoreUnavailable``."""
    if request.input.resume:
        message = "a run that is not stored cannot answer a question; post the answer without ?store=false"
        raise Rejected(422, "resume_not_stored", message, "/resume")
    prepared = await prepare_input(
        request.input,
        history=settings.history,
        projections=projections,
        scope=request.scope,
        allow_system_messages=settings.allow_system_messages,
    )
    for notice in prepared.notices:
        warn(notice)
    seen = prepared.input
    started = RunStartedEvent(
        thread_id=seen.thread_id,
        run_id=seen.run_id,
        protocol_version=PROTOCOL_VERSION,
        parent_run_id=seen.parent_run_id,
    )
    prelude: list[Event] = [started, *prepared.prelude]
    try:
        lines = await encode_all_checked(prelude)
    except DecodeError as error:
        raise Rejected(422, "malformed_input", error.message, "") from None
    session = await projections.store.session(request.scope, seen.thread_id)
    store = MemoryStore(max_bytes=_MAX_BYTES)
    await store.open()
    lease, first = await store.begin(
        request.scope,
        seen.thread_id,
        seen.run_id,
        owner="",
        lease_seconds=settings.lease,
        input=request.body,  # a reader that needs a state to begin with finds it there
        fingerprint="",
        events=lines,
    )
    live = UnstoredRun(
        store,
        lease,
        root_run_id=seen.run_id,
        window=settings.coalesce,
        max_event=settings.limits.event,
        max_held=settings.max_held,
    )
    live.files = projections.store
    live.session = session

    async def load() -> RunContext:
        state: Any = {} if seen.state is None else seen.state
        writer = EventWriter(seen.thread_id, seen.run_id, new_id=new_id, parent_run_id=seen.parent_run_id, state=state)
        for event in prelude:
            writer.emit(event)
        return RunContext(
            input=seen,
            thread_id=seen.thread_id,
            run_id=seen.run_id,
            writer=writer,
            new_id=new_id,
            root_run_id=seen.run_id,
            parent_run_id=seen.parent_run_id,
            session=None if session is None else msgspec.json.decode(session),
            principal=request.principal,
            headers=request.headers,
            client_state=state,
            max_state=settings.limits.state,
            is_stored=False,
            debug=settings.debug,
        )

    return UnstoredStart(live=live, store=store, first=first, load=load)
