"""The runs of a conversation, the progress of their tool calls, and the open interrupts (LIFE, INT, FT, USE)."""

from __future__ import annotations

from aguila.protocol import (
    Interrupt,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    replace,
)
from aguila.stream.conversation import CallStatus, Conversation, ConversationRun


class RunHistory:
    """Runs in order. The last one may still be open."""

    __slots__ = ("_call_status", "_earlier", "_is_dirty", "_last", "_view", "interrupts")

    def __init__(self) -> None:
        self.interrupts: list[Interrupt] = []
        self._earlier: list[ConversationRun] = []
        self._last: ConversationRun | None = None  # without its calls
        self._call_status: dict[str, CallStatus] = {}  # the calls of the last run
        self._view: list[ConversationRun] = []
        self._is_dirty = True

    def load(self, conversation: Conversation) -> None:
        """Continue from the runs of a conversation."""
        if conversation.runs:
            self._earlier = conversation.runs[:-1]
            self._last = conversation.runs[-1]
            self._call_status = dict(conversation.runs[-1].calls)
        self.interrupts = conversation.interrupts

    def view(self) -> list[ConversationRun]:
        """Return the runs in order: the same list again if nothing has changed, else a new one."""
        if self._is_dirty:
            self._is_dirty = False
            last = self._last
            self._view = [] if last is None else [*self._earlier, replace(last, calls=dict(self._call_status))]
        return self._view

    def start(self, event: RunStartedEvent) -> None:
        self._archive_last()
        self._is_dirty = True
        self._last = ConversationRun(run_id=event.run_id, thread_id=event.thread_id, parent_run_id=event.parent_run_id)

    def finish(self, event: RunFinishedEvent) -> None:
        run = self._last
        self._is_dirty = True
        if run is None or run.outcome is not None:
            self._archive_last()
            run = ConversationRun(run_id=event.run_id, thread_id=event.thread_id)
        outcome = event.outcome
        self.interrupts = outcome.interrupts if isinstance(outcome, RunFinishedInterruptOutcome) else []
        pending = outcome.pending_tool_call_ids if isinstance(outcome, RunFinishedSuccessOutcome) else None
        self._last = replace(
            run,
            outcome="success" if outcome is None else outcome.type,
            result=event.result,
            usage=[] if event.usage is None else event.usage,
            interrupts=self.interrupts,
            reported_pending=pending if pending else None,  # an empty list has no meaning (FT-4)
        )

    def fail(self, event: RunErrorEvent) -> None:
        """Fail the open run, or the last one if it has finished (LIFE-15)."""
        run = self._last
        self._is_dirty = True
        if run is None or run.outcome == "error":
            self._archive_last()
            run = ConversationRun()
        usage = run.usage if event.usage is None else event.usage
        self._last = replace(run, outcome="error", error=event, usage=usage)

    def start_call(self, call_id: str) -> None:
        if self._call_status.get(call_id) != "answered":
            self._call_status[call_id] = "streaming"
            self._is_dirty = True

    def end_call(self, call_id: str) -> None:
        """Record that the arguments of a tool call are complete."""
        if self._call_status.get(call_id) == "streaming":
            self._call_status[call_id] = "called"
            self._is_dirty = True

    def answer_call(self, call_id: str) -> None:
        """Record the result of a tool call, also if it comes before the start: FT-3 asks for a result in the run."""
        self._call_status[call_id] = "answered"
        self._is_dirty = True

    def _archive_last(self) -> None:
        if self._last is not None:
            self._earlier.append(replace(self._last, calls=self._call_status))
        self._call_status = {}
