"""Derived runs: answers that are sent under the run id of the run that asked.

The protocol requires a resuming run to use a new run id (INT-11). CopilotKit resumes under the id of the run that
asked, and a chain of questions is answered under that one id. Such a request starts a run with a computed id, the
stored id. The log and every other viewer show the stored id. Only the stream of the answering request shows the sent id
(IN-3).

The sent id is stored with the run, so it survives a restart and is known to every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from aguila.codec import decode_event, encode_event
from aguila.codec.json.encoder import encode_large
from aguila.errors import NotFound
from aguila.offload import LARGE
from aguila.protocol import Event, ResumeEntry, RunFinishedEvent, RunStartedEvent, replace
from aguila.server.history.stored_input import load_input
from aguila.server.http.framing import Framing, WrappedFraming
from aguila.server.limits import UNLIMITED
from aguila.server.runs.starting.start_request import StartRequest
from aguila.store import RunRecord, Store
from aguila.stream.json_values import json_equal


def derived_run_id(sent_run_id: str, interrupt_ids: Sequence[str], attempt: int) -> str:
    """Compute the stored id of a run that answers these interrupts under ``sent_run_id``."""
    key = msgspec.json.encode([sent_run_id, sorted(interrupt_ids), attempt])
    return "run_" + sha256(key).hexdigest()[:32]


async def descends_from(run: RunRecord, run_id: str, store: Store) -> bool:
    """Return whether ``run`` is ``run_id``, or was derived from it through any number of sent ids."""
    while run.run_id != run_id:
        sent = run.sent_run_id
        if sent is None:
            return False
        try:
            run = await store.run(run.scope, run.thread_id, sent)
        except NotFound:
            return False
    return True


async def latest_derived(store: Store, scope: str, thread_id: str, run_id: str) -> RunRecord | None:
    """Return the last run of the thread that was derived from ``run_id``, or None."""
    for run in reversed(await store.runs(scope, thread_id)):
        if run.run_id == run_id:
            return None
        if await descends_from(run, run_id, store):
            return run
    return None


async def resolve_run(request: StartRequest, store: Store) -> RunRecord | StartRequest:
    """Find the run that a request has started before, or the id under which to start it.

    A request whose run id is unused, or that does not answer a question asked under its run id, is returned as it is.
    """
    scope, thread_id, sent = request.scope, request.input.thread_id, request.input.run_id
    try:
        run = await store.run(scope, thread_id, sent)
    except NotFound:
        return request
    if run.agent != request.agent:
        return request
    if await request.matches(run, store):
        return run
    entries = request.input.resume
    if not entries:
        return request
    interrupt_ids = [entry.interrupt_id for entry in entries]
    attempt = 0
    while True:
        run_id = derived_run_id(sent, interrupt_ids, attempt)
        try:
            run = await store.run(scope, thread_id, run_id)
        except NotFound:
            break
        if await _is_answered_by(run, request, entries, store):
            return run
        attempt += 1
    if attempt == 0 and not await _was_raised_under(request, interrupt_ids, store):
        return request
    return replace(request, input=replace(request.input, run_id=run_id), sent_run_id=sent)


async def _is_answered_by(run: RunRecord, request: StartRequest, entries: Sequence[ResumeEntry], store: Store) -> bool:
    """Return whether a derived run is the one that these answers have started before."""
    if run.outcome == "error":
        # The answers may be tried again, unless the client is still reading this run.
        is_reading = request.cursor is not None and run.first <= request.cursor < run.last
        return is_reading and await request.matches(run, store)
    if await request.matches(run, store):
        return True
    given = {entry.interrupt_id: entry for entry in (await load_input(store, run)).resume or ()}
    if not all(_is_same_answer(entry, given.get(entry.interrupt_id)) for entry in entries):
        return False
    # An agent that chooses its ids itself may have asked again under the same id: then this answers that question.
    for record in await store.interrupts(run.scope, run.thread_id):
        if record.status == "open" and record.interrupt_id in given:
            raised_by = await store.run(run.scope, run.thread_id, record.run_id)
            if raised_by.first >= run.first:
                return False
    return True


async def find_run_using(request: StartRequest, store: Store) -> RunRecord | None:
    """Return the running run that uses the same answers as this request, sent with another run id: a double click."""
    scope, thread_id = request.scope, request.input.thread_id
    running = (await store.thread(scope, thread_id)).running
    if running is None:
        return None
    run = await store.run(scope, thread_id, running)
    given = {entry.interrupt_id: entry for entry in (await load_input(store, run)).resume or ()}
    is_same = all(_is_same_answer(entry, given.get(entry.interrupt_id)) for entry in request.input.resume or ())
    return run if is_same and run.agent == request.agent else None


def _is_same_answer(entry: ResumeEntry, first: ResumeEntry | None) -> bool:
    return first is not None and entry.status == first.status and json_equal(entry.payload, first.payload)


async def _was_raised_under(request: StartRequest, interrupt_ids: Sequence[str], store: Store) -> bool:
    """Return whether one of these interrupts was raised by the run of the sent id, or by a run derived from it."""
    scope, thread_id, sent = request.scope, request.input.thread_id, request.input.run_id
    wanted = set(interrupt_ids)
    raised_by = {one.run_id for one in await store.interrupts(scope, thread_id) if one.interrupt_id in wanted}
    if sent in raised_by:
        return True
    for run_id in raised_by:
        if await descends_from(await store.run(scope, thread_id, run_id), sent, store):
            return True
    return False


_BOUNDARIES = (b'{"type":"RUN_STARTED"', b'{"type":"RUN_FINISHED"')


class SentRunId(WrappedFraming):
    """Frames events as another framing does, with the sent run id in place of the stored one."""

    def __init__(self, framing: Framing, *, stored: str, sent: str) -> None:
        super().__init__(framing)
        self._stored = stored
        self._sent = sent
        self._old = b'"runId":' + msgspec.json.encode(stored)
        self._new = b'"runId":' + msgspec.json.encode(sent)

    def frame_batch(self, first: int, events: Sequence[bytes], token: str = "") -> bytes:
        """See ``Framing``."""
        return self.inner.frame_batch(first, [self._rename(event) for event in events], token)

    def frame_large(self, number: int, event: bytes, token: str = "") -> tuple[bytes, ...]:
        """See ``Framing``."""
        return self.inner.frame_large(number, self._rename(event), token)

    def frame_events(self, events: Sequence[Event], cursor: str | None = None) -> bytes:
        """See ``Framing``."""
        return self.inner.frame_events([self._renamed(event) for event in events], cursor)

    def stored_run_id(self, run_id: str) -> str:
        """See ``Framing``."""
        return self._stored if run_id == self._sent else run_id

    def _rename(self, event: bytes) -> bytes:
        if not event.startswith(_BOUNDARIES):
            return event
        # No string can hold these bytes, since its quotes would be escaped. An echoed input and metadata can.
        return event.replace(self._old, self._new) if event.count(self._old) == 1 else self._rename_decoded(event)

    def _rename_decoded(self, data: bytes) -> bytes:
        event = decode_event(data, strict=True, max_size=UNLIMITED)
        if event is None:
            return data
        event = self._renamed(event)
        return encode_large(event) if len(data) > LARGE else encode_event(event)

    def _renamed(self, event: Event) -> Event:
        if not isinstance(event, RunStartedEvent | RunFinishedEvent) or event.run_id != self._stored:
            return event
        if isinstance(event, RunStartedEvent) and event.input is not None:
            return replace(event, run_id=self._sent, input=replace(event.input, run_id=self._sent))
        return replace(event, run_id=self._sent)
