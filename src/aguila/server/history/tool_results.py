"""Which tool results are the server's own, so that a client's tool message does not replace them.

For an interrupt of reason ``tool_call`` CopilotKit adds a tool message of its own, ``{"approved": true}``, beside the
answer, and sends it again with every later request. The result of such a call is the one that the agent sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from aguila.protocol import (
    Message,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    ToolCallResultEvent,
    ToolMessage,
)
from aguila.server.history.merge import is_same_message


class ServerCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The tool calls of a thread whose results come from the server.

    ``results`` has the results that runs have sent, by call id and then by message id. ``asked`` has the calls that an
    interrupt of reason ``tool_call`` asks about.
    """

    results: Mapping[str, dict[str, ToolMessage]] = {}
    asked: frozenset[str] = frozenset()


NO_CALLS: Final = ServerCalls()


class ServerCallTracker:
    """Follows the events of runs and tells which tool calls have their results from the server."""

    __slots__ = ("_asked", "_is_shared", "_results")

    def __init__(self, start: ServerCalls = NO_CALLS) -> None:
        self._results: dict[str, dict[str, ToolMessage]] = dict(start.results)
        self._asked = start.asked
        self._is_shared = False

    def calls(self) -> ServerCalls:
        """Return the calls as they are now. Later events do not change what was returned."""
        if not (self._results or self._asked):
            return NO_CALLS
        self._is_shared = True
        return ServerCalls(results=self._results, asked=self._asked)

    def call_started(self, call_id: str) -> None:
        """Note a call that is started. A call that is started again after a question may be left to the front end."""
        if call_id in self._asked:
            self._asked = self._asked.difference([call_id])

    def call_answered(self, event: ToolCallResultEvent) -> None:
        """Note the result of a call."""
        result = ToolMessage(
            id=event.message_id,
            tool_call_id=event.tool_call_id,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=event.metadata,
        )
        self._set(event.tool_call_id, {**self._results.get(event.tool_call_id, {}), event.message_id: result})

    def run_finished(self, event: RunFinishedEvent) -> None:
        """Note the calls that the run asks about."""
        if isinstance(event.outcome, RunFinishedInterruptOutcome):
            asked = [one.tool_call_id for one in event.outcome.interrupts if one.reason == "tool_call"]
            self._asked = self._asked.union([call_id for call_id in asked if call_id is not None])

    def messages_restated(self, messages: Sequence[Message]) -> None:
        """Note a snapshot. A result that is not in it was taken back; one that is in it may have been changed."""
        stated = {message.id: message for message in messages if isinstance(message, ToolMessage)}
        for call_id, results in list(self._results.items()):
            if any(stated.get(message_id) is not result for message_id, result in results.items()):
                self._set(call_id, {message_id: stated[message_id] for message_id in results if message_id in stated})

    def _set(self, call_id: str, results: dict[str, ToolMessage]) -> None:
        if self._is_shared:
            self._results = dict(self._results)
            self._is_shared = False
        if results:
            self._results[call_id] = results
        else:
            self._results.pop(call_id, None)


class RestoredResults(msgspec.Struct, frozen=True, kw_only=True):
    """Messages with the server's results, and the ids of the tool messages that were kept aside."""

    messages: Sequence[Message]
    ignored: Sequence[str]


def restore_server_results(messages: Sequence[Message], calls: ServerCalls) -> RestoredResults:
    """Put the server's own result in the place of every tool message that a client sent for the same call."""
    if not (calls.results or calls.asked):
        return RestoredResults(messages=messages, ignored=())
    present = {message.id for message in messages if message.role == "tool"}
    kept: list[Message] = []
    aside: list[str] = []
    for message in messages:
        own = calls.results.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        if own is None:
            if isinstance(message, ToolMessage) and message.tool_call_id in calls.asked:
                aside.append(message.id)
            else:
                kept.append(message)
        elif message.id in own:
            is_same = is_same_message(message, own[message.id])
            kept.append(message if is_same else own[message.id])
            if not is_same:
                aside.append(message.id)
        else:
            aside.append(message.id)
            missing = [result for result in own.values() if result.id not in present]
            present.update(result.id for result in missing)
            kept += missing
    return RestoredResults(messages=kept if aside else messages, ignored=aside)
