"""Layer: server. What a newcomer is told: a stream that any client can consume, however much of the thread it holds.

Below: ``projection``. Above: ``run_routes``, which sends the events and then, if a run is on, the log after
``Hydration.after``.
A client that kept its reducer resumes with a cursor and needs none of this. Nothing here is written to the log.

The events, and why each is there:

======================  ===============================================================================================
RUN_STARTED             a stream begins with it (LIFE-1). It has the ids of the run that is on, or that was asked for
                        again; else those of the request, since then the answer is a run of its own
STATE_SNAPSHOT          the state so far, which is the baseline of what follows (SNAP-2). Not if no run is on and the
                        thread never had a state: ``{}`` would clear what the client begins with
MESSAGES_SNAPSHOT       all messages so far: history is restated, never streamed again (LIFE-19)
SUBAGENT_*              everybody who came and went in the run: a later one may name one of them as its parent (SUB-11),
                        and those who are here will leave (SUB-4)
STEP_STARTED,           what is open in the run that is on: the log will continue and close it (STR-2). A start of what
REASONING_START,        the snapshot holds keeps it as it is, and content appends to it (TXT-3)
TEXT_MESSAGE_START,
REASONING_MESSAGE_START
TOOL_CALL_START, _END   the calls of the run that have no answer, open or complete: those left to the front end are
                        pending only if they were started on this stream (FT-3, FT-4)
MESSAGES_SNAPSHOT       again, only if a start above was of something that the run has dropped while it was open: it has
                        to be open here, and absent as well
the log after it        if a run is on; its last event is that run's
RUN_FINISHED,           if none is: for a run that was asked for again, as it ended. Otherwise RUN_FINISHED, with
RUN_ERROR               the interrupts that are open, so that they are shown and can be answered; or as cancelled, or
                        RUN_ERROR, if that is how the last run ended (LIFE-11, LIFE-14)
======================  ===============================================================================================

Of a thread that nobody has written to there is nothing to say but that: no snapshot, which would clear what the
client begins with. A thread whose last run failed is told whole, and then as failed, with what that run said: the
published client calls ``onRunErrorEvent`` and keeps everything; nothing is thrown. If it left interrupts that can still
be answered, these are told instead. Which run it was is in the metadata of the last event either way, under ``aguila``.

Losses: CUSTOM and RAW events, usage, results, closed steps and the rest of the run history are in the log only. A
client that joins a resumed run while it is on learns of the interrupts it answers only if they are raised again, or
by joining once more. To one that joins between the answer to a call and the end of its arguments, in this odd order,
the call is one without an answer in the run; its answer is among the messages, unless the run dropped it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.errors import NotFound
from aguila.protocol import (
    PROTOCOL_VERSION,
    AssistantMessage,
    Event,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    Metadata,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    SubagentStartedEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallEndEvent,
    ToolCallStartEvent,
    replace,
)
from aguila.server.history.projection import LastRun, Projection, Projections
from aguila.server.interrupts.plan import find_open_interrupts
from aguila.store import RunRecord, Store

_TEXT_ROLES = frozenset({"assistant", "user", "system", "developer"})


class Hydration(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. With ``is_live`` the rest is the log after ``after``, up to the end of the run that is on there."""

    events: list[Event]
    after: int
    is_live: bool


async def hydrate_thread(
    store: Store,
    projections: Projections,
    scope: str,
    thread_id: str,
    run_id: str,
    *,
    live: RunRecord | None = None,
    branch: str | None = None,
) -> Hydration:
    """The answer to a client that comes (back) to a thread.

    ``run_id`` is the run that the client named: if the thread has it, that is the one told about. Otherwise it is the
    run that is on, ``live``; else the thread as it is, seen along the path to ``branch`` if there is such a run.
    A run that was on when the caller looked and has ended meanwhile is told as one that is on: its end is left to the
    log. A thread that does not exist is answered like an empty one.
    """
    try:
        if live is None or run_id != live.run_id:
            view = await _view(projections, scope, thread_id, run_id)
            if view is not None:
                if view.is_running:
                    return _joined(view)
                return await _told_again(view, store, scope)
            if branch is not None:
                view = await _view(projections, scope, thread_id, branch)
                if view is not None and (live is None or branch != live.run_id):
                    return await _hydrated(view, store, scope, run_id)
        if live is not None:
            return _joined(await projections.load(scope, thread_id, live.run_id))
        return await _hydrated(await projections.load(scope, thread_id), store, scope, run_id)
    except NotFound:
        return Hydration(events=_frame(thread_id, run_id), after=0, is_live=False)


def cancelled_run(thread_id: str, run_id: str) -> list[Event]:
    """What is told of a run that was cancelled while it waited for its turn: it has begun nowhere else than here."""
    started = _frame(thread_id, run_id)[0]
    return [started, RunFinishedEvent(thread_id=thread_id, run_id=run_id, outcome=RunFinishedCancelledOutcome())]


async def _view(projections: Projections, scope: str, thread_id: str, run_id: str) -> Projection | None:
    try:
        return await projections.load(scope, thread_id, run_id)
    except NotFound:
        return None


def _frame(thread_id: str, run_id: str) -> list[Event]:
    return [
        RunStartedEvent(thread_id=thread_id, run_id=run_id, protocol_version=PROTOCOL_VERSION),
        RunFinishedEvent(thread_id=thread_id, run_id=run_id, outcome=RunFinishedSuccessOutcome()),
    ]


def _joined(view: Projection) -> Hydration:
    """The run that is on: what there is, opened again, and then the log."""
    run = _run_of(view)
    if run.ended is not None:  # just now
        events: list[Event] = [_restarted(run), *_retold(view, is_live=True), *_pending(view)]
        return Hydration(events=events, after=view.last - 1, is_live=True)
    events = [_restarted(run), *_retold(view, is_live=True), *_reopened(view)]
    return Hydration(events=events, after=view.last, is_live=True)


async def _told_again(view: Projection, store: Store, scope: str) -> Hydration:
    """A run that has ended, from its beginning to its end. A question that was answered since is not asked again."""
    run = _run_of(view)
    pending = _pending(view)
    ended: list[Event] = [] if run.ended is None else [run.ended]
    if isinstance(run.ended, RunFinishedEvent) and isinstance(run.ended.outcome, RunFinishedInterruptOutcome):
        outcome = _outcome(view, await find_open_interrupts(store, scope, view), pending)
        ended = [replace(run.ended, outcome=outcome)]
    return Hydration(events=[_restarted(run), *_retold(view), *pending, *ended], after=view.last, is_live=False)


async def _hydrated(view: Projection, store: Store, scope: str, run_id: str) -> Hydration:
    """The thread as it is, as a run of its own."""
    thread_id = view.thread_id
    interrupts = await find_open_interrupts(store, scope, view)
    started = _frame(thread_id, run_id)[0]
    pending = [] if view.is_running else _pending(view)
    error, metadata = view.conversation.run_error, _failure(view)
    ended: Event
    if error is not None and not interrupts:
        ended = RunErrorEvent(message=error.message, code=error.code, metadata=metadata)
    else:
        outcome = _outcome(view, interrupts, pending)
        ended = RunFinishedEvent(thread_id=thread_id, run_id=run_id, outcome=outcome, metadata=metadata)
    return Hydration(events=[started, *_retold(view), *pending, ended], after=view.last, is_live=False)


def _outcome(view: Projection, interrupts: list[Interrupt], pending: list[Event]) -> RunFinishedOutcome:
    last = view.conversation.last_run
    if interrupts:
        return RunFinishedInterruptOutcome(interrupts=interrupts)
    if last is not None and last.outcome == "cancelled":
        return RunFinishedCancelledOutcome()
    calls = [event.tool_call_id for event in pending if isinstance(event, ToolCallStartEvent)]
    return RunFinishedSuccessOutcome(pending_tool_call_ids=calls if calls else None)


def _failure(view: Projection) -> Metadata | None:
    error = view.conversation.run_error
    if error is None:
        return None
    failure: dict[str, Any] = {"runId": view.tip, "outcome": "error", "message": error.message}
    if error.code is not None:
        failure["code"] = error.code
    return {"aguila": {"lastRun": failure}}


def _run_of(view: Projection) -> LastRun:
    if view.run is None:
        raise LookupError("a stored thread has runs")
    return view.run


def _restarted(run: LastRun) -> Event:
    # Without the echo of the input: its messages are in the snapshot.
    return replace(run.started, input=None)


def _retold(view: Projection, *, is_live: bool = False) -> list[Event]:
    conversation = view.conversation
    messages = MessagesSnapshotEvent(messages=conversation.messages)
    if not (is_live or view.has_state):
        return [messages]
    return [StateSnapshotEvent(snapshot=conversation.state), messages]


class _Held:
    """Where to find what a snapshot holds."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages: dict[str, Message] = {}
        self.calls: dict[str, tuple[ToolCall, Message]] = {}
        for message in messages:
            if message.role != "tool" or message.id not in self.messages:  # the id means the one that is no answer
                self.messages[message.id] = message
            if isinstance(message, AssistantMessage) and message.tool_calls is not None:
                for call in message.tool_calls:
                    if isinstance(call, ToolCall):
                        self.calls.setdefault(call.id, (call, message))

    def start(self, call_id: str) -> ToolCallStartEvent | None:
        """The start of a call as it is held: on its message, with that message's owner (TOOL-4)."""
        found = self.calls.get(call_id)
        if found is None:
            return None
        call, host = found
        return ToolCallStartEvent(
            tool_call_id=call_id,
            tool_call_name=call.function.name,
            parent_message_id=host.id,
            subagent_run_id=host.subagent_run_id,
        )


def _pending(view: Projection) -> list[Event]:
    """The calls that a run has left to the front end, started and ended again."""
    held = _Held(view.conversation.messages)
    events: list[Event] = []
    for call in view.conversation.pending_tool_calls:
        start = held.start(call.id)
        if start is not None:
            events += [start, ToolCallEndEvent(tool_call_id=call.id, subagent_run_id=start.subagent_run_id)]
    return events


def _reopened(view: Projection) -> list[Event]:
    """What is open in the run, opened again, and the calls that may yet be left to the front end."""
    run = _run_of(view)
    held = _Held(view.conversation.messages)
    events: list[Event] = list(run.subagent_events)
    is_restored = False  # whether something is back that the run has dropped
    for opener in run.open_items:
        if isinstance(opener, SubagentStartedEvent | ToolCallStartEvent):
            continue
        if isinstance(opener, TextMessageStartEvent | ReasoningMessageStartEvent):
            message = held.messages.get(opener.message_id)
            is_restored = is_restored or message is None
            opener = _restart(opener, message)
        events.append(opener)
    open_calls = {opener.tool_call_id for opener in run.open_items if isinstance(opener, ToolCallStartEvent)}
    last = view.conversation.last_run
    for call_id, opener in run.calls.items():
        if last is not None and last.calls.get(call_id) == "answered" and call_id not in open_calls:
            continue
        start = held.start(call_id)
        if start is None:
            is_restored = True
            start = replace(opener, metadata=None, raw_event=None)
        events.append(start)
        if call_id not in open_calls:
            events.append(ToolCallEndEvent(tool_call_id=call_id, subagent_run_id=start.subagent_run_id))
    if is_restored:
        events.append(MessagesSnapshotEvent(messages=view.conversation.messages))
    return events


def _restart(opener: TextMessageStartEvent | ReasoningMessageStartEvent, message: Message | None) -> Event:
    """The start of a message that is held already, as it is held (TXT-3). Its metadata is in the snapshot (META-5)."""
    opener = replace(opener, metadata=None, raw_event=None)
    if message is None:
        return opener
    if isinstance(opener, ReasoningMessageStartEvent):
        return replace(opener, subagent_run_id=message.subagent_run_id) if message.role == "reasoning" else opener
    if message.role not in _TEXT_ROLES:
        return opener
    role: Any = message.role
    return replace(opener, role=role, name=getattr(message, "name", None), subagent_run_id=message.subagent_run_id)
