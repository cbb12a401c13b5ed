"""Build the stream that hydrates a client: a thread as events that every client can read, whatever it already has.

A client that kept its conversation resumes with a cursor instead. Nothing here is written to the log.

======================  ===============================================================================================
RUN_STARTED             first event of a stream (LIFE-1), with the ids of the running run, or of the run that the client
                        named. If there is neither, the stream is a run with the ids of the request
STATE_SNAPSHOT          the state, as the baseline of later deltas (SNAP-2). Omitted if no run is running and the
                        thread never had a state: ``{}`` would clear the client's initial state
MESSAGES_SNAPSHOT       all messages: history is restated, never streamed again (LIFE-19)
SUBAGENT_*              all subagents of the run: a later one may name an earlier one as its parent (SUB-11), and the
                        open ones will end (SUB-4)
STEP_STARTED,           the open items of the running run, which the log continues and closes (STR-2). A start of a
REASONING_START,        message that the snapshot has keeps that message, and content appends to it (TXT-3)
TEXT_MESSAGE_START,
REASONING_MESSAGE_START
TOOL_CALL_START, _END   the run's unanswered calls, open or complete: a call for the front end is pending only if it was
                        started on this stream (FT-3, FT-4)
MESSAGES_SNAPSHOT       again, if a start above was of a message that the run has removed while it was open: the item
                        must be open here, but the message absent
the rest of the log     if a run is running; its last event is that run's
RUN_FINISHED,           if no run is running: the end of the run that the client named. Otherwise RUN_FINISHED with the
RUN_ERROR               open interrupts, so that they can be answered; or cancelled, or RUN_ERROR, if the last run ended
                        like that (LIFE-11, LIFE-14)
======================  ===============================================================================================

A thread that does not exist is hydrated without snapshots, which would clear the client's initial values. A thread
whose last run failed is sent completely, then RUN_ERROR: the published client calls ``onRunErrorEvent`` and keeps
everything. If the failed run left interrupts that can be answered, those are sent instead. The metadata of the last
event names the failed run in both cases (``aguila.lastRun``).

Not sent: CUSTOM and RAW events, usage, results, closed steps and earlier runs, which are in the log only. A client that
attaches to a resumed run sees the interrupts that the run answers only if they are raised again. A call whose result
came before the end of its arguments looks unanswered in the run; its result is among the messages.
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
from aguila.server.threads.cache import Threads
from aguila.server.threads.interrupts.plan import find_open_interrupts
from aguila.server.threads.turn import Turn, decode_events
from aguila.server.threads.view import View
from aguila.store import RunRecord, Store

_TEXT_ROLES = frozenset({"assistant", "user", "system", "developer"})


class Hydration(msgspec.Struct, frozen=True, kw_only=True):
    """The events to send. With ``is_live`` the log after event ``after`` follows, up to the end of the running run."""

    events: list[Event]
    after: int
    is_live: bool


async def hydrate_thread(
    store: Store,
    threads: Threads,
    scope: str,
    thread_id: str,
    run_id: str,
    *,
    live: RunRecord | None = None,
    branch: str | None = None,
) -> Hydration:
    """Build the stream for a client that attaches to a thread.

    If the thread has the run that the client named (``run_id``), the stream is about that run. Otherwise it is about
    the running run (``live``). Without one, it is the whole thread, along the branch to the run ``branch`` if the
    thread has it. If ``live`` has ended since the caller looked, its end is left to the log.
    """
    try:
        if live is None or run_id != live.run_id:
            view = await _find(threads, scope, thread_id, run_id)
            if view is not None:
                if view.is_running:
                    return _attach(view)
                return await _repeat_run(view, store, scope)
            if branch is not None:
                view = await _find(threads, scope, thread_id, branch)
                if view is not None and (live is None or branch != live.run_id):
                    return await _hydrate(view, store, scope, run_id)
        if live is not None:
            return _attach(await threads.at(scope, thread_id, live.run_id))
        return await _hydrate(await threads.at(scope, thread_id), store, scope, run_id)
    except NotFound:
        return Hydration(events=_frame(thread_id, run_id), after=0, is_live=False)


def build_cancelled_run(thread_id: str, run_id: str) -> list[Event]:
    """Return the events of a run that was cancelled in the queue. They are in no log."""
    started = _frame(thread_id, run_id)[0]
    return [started, RunFinishedEvent(thread_id=thread_id, run_id=run_id, outcome=RunFinishedCancelledOutcome())]


async def _find(threads: Threads, scope: str, thread_id: str, run_id: str) -> View | None:
    try:
        return await threads.at(scope, thread_id, run_id)
    except NotFound:
        return None


def _frame(thread_id: str, run_id: str) -> list[Event]:
    return [
        RunStartedEvent(thread_id=thread_id, run_id=run_id, protocol_version=PROTOCOL_VERSION),
        RunFinishedEvent(thread_id=thread_id, run_id=run_id, outcome=RunFinishedSuccessOutcome()),
    ]


def _attach(view: View) -> Hydration:
    """Send the conversation and the open items; the log continues the run."""
    run = _get_run(view)
    if run.ended is not None:  # it has ended since the caller looked
        events: list[Event] = [run.started, *_snapshots(view, is_live=True), *_restart_pending_calls(view)]
        return Hydration(events=events, after=view.last - 1, is_live=True)
    events = [run.started, *_snapshots(view, is_live=True), *_reopen_items(view)]
    return Hydration(events=events, after=view.last, is_live=True)


async def _repeat_run(view: View, store: Store, scope: str) -> Hydration:
    """Send an ended run again, from its start to its end. Interrupts that were answered since are omitted."""
    run = _get_run(view)
    pending = _restart_pending_calls(view)
    ended: list[Event] = [] if run.ended is None else [run.ended]
    if isinstance(run.ended, RunFinishedEvent) and isinstance(run.ended.outcome, RunFinishedInterruptOutcome):
        outcome = _outcome(view, await find_open_interrupts(store, scope, view), pending)
        ended = [replace(run.ended, outcome=outcome)]
    return Hydration(events=[run.started, *_snapshots(view), *pending, *ended], after=view.last, is_live=False)


async def _hydrate(view: View, store: Store, scope: str, run_id: str) -> Hydration:
    """Send the whole thread, as a run of its own."""
    thread_id = view.thread_id
    interrupts = await find_open_interrupts(store, scope, view)
    started = _frame(thread_id, run_id)[0]
    pending = [] if view.is_running else _restart_pending_calls(view)
    error, metadata = view.conversation.run_error, _failure_metadata(view)
    ended: Event
    if error is not None and not interrupts:
        ended = RunErrorEvent(message=error.message, code=error.code, metadata=metadata)
    else:
        outcome = _outcome(view, interrupts, pending)
        ended = RunFinishedEvent(thread_id=thread_id, run_id=run_id, outcome=outcome, metadata=metadata)
    return Hydration(events=[started, *_snapshots(view), *pending, ended], after=view.last, is_live=False)


def _outcome(view: View, interrupts: list[Interrupt], pending: list[Event]) -> RunFinishedOutcome:
    last = view.conversation.last_run
    if interrupts:
        return RunFinishedInterruptOutcome(interrupts=interrupts)
    if last is not None and last.outcome == "cancelled":
        return RunFinishedCancelledOutcome()
    calls = [event.tool_call_id for event in pending if isinstance(event, ToolCallStartEvent)]
    return RunFinishedSuccessOutcome(pending_tool_call_ids=calls if calls else None)


def _failure_metadata(view: View) -> Metadata | None:
    error = view.conversation.run_error
    if error is None:
        return None
    failure: dict[str, Any] = {"runId": view.tip, "outcome": "error", "message": error.message}
    if error.code is not None:
        failure["code"] = error.code
    return {"aguila": {"lastRun": failure}}


def _get_run(view: View) -> Turn:
    if view.turn is None:
        raise LookupError(f"thread {view.thread_id!r} has no runs, but is stored")
    return view.turn


def _snapshots(view: View, *, is_live: bool = False) -> list[Event]:
    conversation = view.conversation
    messages = MessagesSnapshotEvent(messages=conversation.messages)
    if not (is_live or view.has_state):
        return [messages]
    return [StateSnapshotEvent(snapshot=conversation.state), messages]


class _SnapshotIndex:
    """The messages and tool calls of a snapshot, by id."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages: dict[str, Message] = {}
        self.calls: dict[str, tuple[ToolCall, Message]] = {}
        for message in messages:
            if message.role != "tool" or message.id not in self.messages:  # a result does not replace another message
                self.messages[message.id] = message
            if isinstance(message, AssistantMessage) and message.tool_calls is not None:
                for call in message.tool_calls:
                    if isinstance(call, ToolCall):
                        self.calls.setdefault(call.id, (call, message))

    def start_event(self, call_id: str) -> ToolCallStartEvent | None:
        """Return the start of a call, on its message and with that message's owner (TOOL-4)."""
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


def _restart_pending_calls(view: View) -> list[Event]:
    """Return starts and ends of the calls that a run has left to the front end."""
    snapshot = _SnapshotIndex(view.conversation.messages)
    events: list[Event] = []
    for call in view.conversation.pending_tool_calls:
        start = snapshot.start_event(call.id)
        if start is not None:
            events += [start, ToolCallEndEvent(tool_call_id=call.id, subagent_run_id=start.subagent_run_id)]
    return events


def _reopen_items(view: View) -> list[Event]:
    """Return starts of the run's open items, and of the calls that may still be left to the front end."""
    run = _get_run(view)
    snapshot = _SnapshotIndex(view.conversation.messages)
    events: list[Event] = decode_events(run.subagents)
    open_items = decode_events(run.open_items)
    has_removed = False  # whether a start brings back a message that the run has removed
    for opener in open_items:
        if isinstance(opener, SubagentStartedEvent | ToolCallStartEvent):
            continue
        if isinstance(opener, TextMessageStartEvent | ReasoningMessageStartEvent):
            message = snapshot.messages.get(opener.message_id)
            has_removed = has_removed or message is None
            opener = _restart_message(opener, message)
        events.append(opener)
    open_calls = {opener.tool_call_id for opener in open_items if isinstance(opener, ToolCallStartEvent)}
    last = view.conversation.last_run
    for call_id, opener in run.started_calls().items():
        if last is not None and last.calls.get(call_id) == "answered" and call_id not in open_calls:
            continue
        start = snapshot.start_event(call_id)
        if start is None:
            has_removed = True
            start = replace(opener, metadata=None, raw_event=None)
        events.append(start)
        if call_id not in open_calls:
            events.append(ToolCallEndEvent(tool_call_id=call_id, subagent_run_id=start.subagent_run_id))
    if has_removed:
        events.append(MessagesSnapshotEvent(messages=view.conversation.messages))
    return events


def _restart_message(opener: TextMessageStartEvent | ReasoningMessageStartEvent, message: Message | None) -> Event:
    """Return the start of a message as the snapshot has it (TXT-3). Its metadata is in the snapshot (META-5)."""
    opener = replace(opener, metadata=None, raw_event=None)
    if message is None:
        return opener
    if isinstance(opener, ReasoningMessageStartEvent):
        return replace(opener, subagent_run_id=message.subagent_run_id) if message.role == "reasoning" else opener
    if message.role not in _TEXT_ROLES:
        return opener
    role: Any = message.role
    return replace(opener, role=role, name=getattr(message, "name", None), subagent_run_id=message.subagent_run_id)
