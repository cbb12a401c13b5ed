"""Layer: stream. What a stream of events amounts to: ``Conversation``, a view that never changes.

Below: the protocol types. Above: the reducer builds it, and the client, the server's projections and the tests read
it. It holds everything a reducer needs to go on from it, and nothing else; what can be told from the rest is computed
when somebody asks. Treat what it holds as values: views share their messages, states and lists with one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec

from aguila.protocol import (
    AssistantMessage,
    Interrupt,
    Message,
    RunErrorEvent,
    TokenUsage,
    ToolCall,
    ToolMessage,
)
from aguila.stream.usage import aggregate_token_usage

RunOutcome = Literal["success", "interrupt", "cancelled", "error"]
"""How a run ended: three ways to finish (LIFE-3, INT-1, LIFE-8), and RUN_ERROR."""

CallStatus = Literal["streaming", "called", "answered"]
"""How far a tool call of a run is: arguments still arriving (TOOL-3), complete, or answered within the run."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the history.

    ``outcome`` is None while the run is open, and stays so for a run that was cut off. A run that failed after it
    finished has failed (LIFE-15): ``result`` and ``interrupts`` then still say how it had finished. A RUN_ERROR
    without a run before it makes a record without ids. ``calls`` are the tool calls started or answered in the run, in
    order.
    """

    run_id: str | None = None
    thread_id: str | None = None
    parent_run_id: str | None = None
    outcome: RunOutcome | None = None
    result: Any = None
    error: RunErrorEvent | None = None
    usage: list[TokenUsage] = []
    interrupts: list[Interrupt] = []
    calls: dict[str, CallStatus] = {}
    reported_pending: list[str] | None = None


class Conversation(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Messages, state and run history at one moment of a stream.

    ``interrupts`` are the questions left open by the last run that finished; a success or a cancelled run clears
    them, a failed one does not (INT-7).
    """

    messages: list[Message]
    state: Any
    runs: list[RunRecord]
    interrupts: list[Interrupt]

    @property
    def last_run(self) -> RunRecord | None:
        """The run that is open, or the last one there was."""
        return self.runs[-1] if self.runs else None

    @property
    def is_running(self) -> bool:
        """Whether a run has started and neither finished nor failed."""
        return bool(self.runs) and self.runs[-1].outcome is None

    @property
    def thread_id(self) -> str | None:
        """The thread of the last run that named one."""
        return next((run.thread_id for run in reversed(self.runs) if run.thread_id is not None), None)

    @property
    def run_error(self) -> RunErrorEvent | None:
        """How the last run failed, or None if it did not (LIFE-14)."""
        return self.runs[-1].error if self.runs else None

    @cached_property
    def usage(self) -> list[TokenUsage]:
        """What all runs reported, added up per (provider, model) (USE-1)."""
        return aggregate_token_usage(entry for run in self.runs for entry in run.usage)

    @cached_property
    def pending_tool_calls(self) -> list[ToolCall]:
        """The last run's tool calls that nobody has answered, in call order (FT-4, FT-5).

        The producer's list if it gave one, else the calls started in the run without a result in the run. A call
        whose arguments never ended is not among them (TOOL-3), nor one that a tool message answers. While the run
        is open, these are the calls without an answer so far, and the agent may still answer them itself. Where no
        run was seen, the messages tell: see ``unanswered_calls``.
        """
        run = self.last_run
        if run is None:
            return unanswered_calls(self.messages)
        wanted = run.reported_pending
        if wanted is None:
            wanted = [call_id for call_id, status in run.calls.items() if status == "called"]
        if not wanted:
            return []
        open_ids = set(wanted)
        calls: dict[str, ToolCall] = {}
        for message in self.messages:
            if isinstance(message, AssistantMessage) and message.tool_calls is not None:
                for call in message.tool_calls:
                    if isinstance(call, ToolCall) and call.id in open_ids:
                        calls.setdefault(call.id, call)
            elif isinstance(message, ToolMessage):
                open_ids.discard(message.tool_call_id)
        return [calls[call_id] for call_id in dict.fromkeys(wanted) if call_id in open_ids and call_id in calls]


def unanswered_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls that a history ends with and that nothing in it answers, for who has not seen the run that made them.

    These are the calls of the last assistant message and of those before it up to what was said to the agent: calls
    that come together may be on a message each (TOOL-4). What an earlier turn left open was given up with it.
    """
    answered: set[str] = set()
    found: list[list[ToolCall]] = []
    is_answering = False
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage):
            is_answering = True
            found.append([call for call in message.tool_calls or () if isinstance(call, ToolCall)])
        elif is_answering and message.role in ("user", "developer", "system"):
            break
    calls = {call.id: call for turn in reversed(found) for call in turn if call.id not in answered}
    return list(calls.values())
