"""Derived runs: answers that are sent under the run id of the run that asked.

The protocol requires a resuming run to use a new run id (INT-11). A front end resumes under the id of the run that
asked, and a chain of questions is answered under that one id. Such a request starts a run with a computed id, the
stored id. The log and every other viewer show the stored id. Only the stream of the answering request shows the sent id
(IN-3).

The sent id is stored with the run, so it survives a restart and is known to every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from aguila.errors import NotFound
from aguila.protocol import ResumeEntry, replace
from aguila.server.runs.start_request import StartRequest
from aguila.server.threads.requests import load_request
from aguila.store import RunKey, RunRecord, Store, Want
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
            run = await store.run(RunKey(run.scope, run.thread_id, sent))
        except NotFound:
            return False
    return True


async def latest_derived(store: Store, scope: str, thread_id: str, run_id: str) -> RunRecord | None:
    """Return the last run of the thread that was derived from ``run_id``, or None."""
    try:
        runs = (await store.thread(scope, thread_id, Want(runs=True))).runs
    except NotFound:
        return None
    for run in reversed(runs):
        if run.run_id == run_id:
            return None
        if await descends_from(run, run_id, store):
            return run
    return None


async def find_repeated(request: StartRequest, store: Store) -> RunRecord | None:
    """Find the run that this request has started before, or the running run that uses the same answers."""
    resolved = await resolve_run(request, store)
    if isinstance(resolved, RunRecord):
        return resolved
    return await _find_run_using(resolved, store) if resolved.input.resume else None


async def resolve_run(request: StartRequest, store: Store) -> RunRecord | StartRequest:
    """Find the run that a request has started before, or the id under which to start it.

    A request whose run id is unused, or that does not answer a question asked under its run id, is returned as it is.
    """
    scope, thread_id, sent = request.scope, request.input.thread_id, request.input.run_id
    try:
        run = await store.run(RunKey(scope, thread_id, sent))
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
            run = await store.run(RunKey(scope, thread_id, run_id))
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
    given = {entry.interrupt_id: entry for entry in (await load_request(store, run)).resume or ()}
    if not all(_is_same_answer(entry, given.get(entry.interrupt_id)) for entry in entries):
        return False
    # An agent that chooses its ids itself may have asked again under the same id: then this answers that question.
    for record in (await store.thread(run.scope, run.thread_id, Want(interrupts=True))).interrupts:
        if record.status == "open" and record.interrupt_id in given:
            raised_by = await store.run(RunKey(run.scope, run.thread_id, record.run_id))
            if raised_by.first >= run.first:
                return False
    return True


async def _find_run_using(request: StartRequest, store: Store) -> RunRecord | None:
    """Return the running run that uses the same answers as this request, sent with another run id: a double click."""
    scope, thread_id = request.scope, request.input.thread_id
    try:
        running = (await store.thread(scope, thread_id)).summary.running
        if running is None:
            return None
        run = await store.run(RunKey(scope, thread_id, running))
        given = {entry.interrupt_id: entry for entry in (await load_request(store, run)).resume or ()}
    except NotFound:  # the thread does not exist, or was deleted meanwhile
        return None
    is_same = all(_is_same_answer(entry, given.get(entry.interrupt_id)) for entry in request.input.resume or ())
    return run if is_same and run.agent == request.agent else None


def _is_same_answer(entry: ResumeEntry, first: ResumeEntry | None) -> bool:
    return first is not None and entry.status == first.status and json_equal(entry.payload, first.payload)


async def _was_raised_under(request: StartRequest, interrupt_ids: Sequence[str], store: Store) -> bool:
    """Return whether one of these interrupts was raised by the run of the sent id, or by a run derived from it."""
    scope, thread_id, sent = request.scope, request.input.thread_id, request.input.run_id
    wanted = set(interrupt_ids)
    interrupts = (await store.thread(scope, thread_id, Want(interrupts=True))).interrupts
    raised_by = {one.run_id for one in interrupts if one.interrupt_id in wanted}
    if sent in raised_by:
        return True
    for run_id in raised_by:
        if await descends_from(await store.run(RunKey(scope, thread_id, run_id)), sent, store):
            return True
    return False
