"""``Conversation``: an immutable view of the messages, state and runs that a stream has produced.

The reducer builds it, and can continue from it. Views share messages, states and lists with each other: do not change
them in place.
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
"""How a run ended: one of three outcomes of RUN_FINISHED (LIFE-3, INT-1, LIFE-8), or RUN_ERROR."""

CallStatus = Literal["streaming", "called", "answered"]
"""Progress of a tool call: arguments are arriving (TOOL-3), arguments are complete, or it has a result."""


class ConversationRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a conversation.

    ``outcome`` is None while the run is open, and stays None if the stream was cut off. If RUN_ERROR follows
    RUN_FINISHED, the run has failed (LIFE-15); ``result`` and ``interrupts`` stay as RUN_FINISHED gave them. A
    RUN_ERROR without a run makes an entry without ids. ``calls`` are the tool calls started or answered in the run, in
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

    ``interrupts`` are the open questions of the last run that finished. A successful or cancelled run clears them, a
    failed run does not (INT-7).
    """

    messages: list[Message]
    state: Any
    runs: list[ConversationRun]
    interrupts: list[Interrupt]

    @property
    def last_run(self) -> ConversationRun | None:
        """The open run, or else the last one."""
        return self.runs[-1] if self.runs else None

    @property
    def is_running(self) -> bool:
        """Whether the last run is open."""
        return bool(self.runs) and self.runs[-1].outcome is None

    @property
    def thread_id(self) -> str | None:
        """The thread id of the last run that has one."""
        return next((run.thread_id for run in reversed(self.runs) if run.thread_id is not None), None)

    @property
    def run_error(self) -> RunErrorEvent | None:
        """The RUN_ERROR of the last run, or None (LIFE-14)."""
        return self.runs[-1].error if self.runs else None

    @cached_property
    def usage(self) -> list[TokenUsage]:
        """The usage that all runs reported, added up per provider and model (USE-1)."""
        return aggregate_token_usage(entry for run in self.runs for entry in run.usage)

    @cached_property
    def pending_tool_calls(self) -> list[ToolCall]:
        """The tool calls of the last run that have no result, in call order (FT-4, FT-5).

        These are the calls that the producer listed. Without a list they are the calls that were started in the run and
        got no result in it. Calls with incomplete arguments (TOOL-3) and calls answered by a tool message are left out.
        While the run is open, the agent may still answer them itself. If no run was seen, see
        ``find_unanswered_calls``.
        """
        run = self.last_run
        if run is None:
            return find_unanswered_calls(self.messages)
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


def find_unanswered_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Find the unanswered tool calls at the end of a history, for a reader that has not seen the run that made them.

    These are the calls of the last assistant messages, back to the last user, developer or system message: parallel
    calls may be on one message each (TOOL-4). Unanswered calls of earlier turns do not count.
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
