"""Keep the tool results that the server sent, whatever tool messages a client sends for the same calls.

A front end answers an interrupt of reason ``tool_call`` and also adds a tool message, ``{"approved": true}``, which it
sends again with every later request. The result of such a call is the one that the agent sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from aguila.protocol import (
    Interrupt,
    Message,
    ReasoningEncryptedValueEvent,
    ToolCallResultEvent,
    ToolMessage,
    replace,
)
from aguila.stream.message_equality import is_same_message


class ServerCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The tool calls of a thread whose results come from the server.

    ``results`` are the results that runs have sent, by call id and then by message id. ``interrupted`` are the calls
    that an interrupt of reason ``tool_call`` asks about.
    """

    results: Mapping[str, dict[str, ToolMessage]] = {}
    interrupted: frozenset[str] = frozenset()


NO_CALLS: Final = ServerCalls()


class ServerCallTracker:
    """Follows the events of a run to find what it changes in the ``ServerCalls`` of its thread."""

    __slots__ = ("_changed", "_interrupted", "_start")

    def __init__(self, start: ServerCalls) -> None:
        self._start = start
        self._changed: dict[str, dict[str, ToolMessage]] = {}
        self._interrupted = start.interrupted

    def results(self) -> Mapping[str, Mapping[str, ToolMessage]]:
        """Return the results of the calls that the run changed; none if they were withdrawn."""
        return self._changed

    def interrupted(self) -> list[str]:
        """Return the calls that an interrupt asks about since the run."""
        return sorted(self._interrupted - self._start.interrupted)

    def uninterrupted(self) -> list[str]:
        """Return the calls that an interrupt asked about before the run."""
        return sorted(self._start.interrupted - self._interrupted)

    def on_call_started(self, call_id: str) -> None:
        """Forget the question about a call that starts again: now it may be left to the front end."""
        if call_id in self._interrupted:
            self._interrupted = self._interrupted.difference([call_id])

    def on_call_result(self, event: ToolCallResultEvent) -> None:
        """Add the result of a call."""
        result = ToolMessage(
            id=event.message_id,
            tool_call_id=event.tool_call_id,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=event.metadata,
        )
        self._changed[event.tool_call_id] = {**self._results_of(event.tool_call_id), event.message_id: result}

    def on_encrypted_value(self, call_id: str, event: ReasoningEncryptedValueEvent) -> None:
        """Add an encrypted value to the result of a call, so that a client that sends it back has not edited it."""
        results = self._results_of(call_id)
        if event.entity_id in results:
            changed = replace(
                results[event.entity_id],
                encrypted_value=event.encrypted_value,
                encrypted_value_type=event.encrypted_value_type,
            )
            self._changed[call_id] = {**results, event.entity_id: changed}

    def on_interrupts(self, interrupts: Sequence[Interrupt]) -> None:
        """Add the calls that the interrupts at the end of a run ask about."""
        ids = [one.tool_call_id for one in interrupts if one.reason == "tool_call"]
        self._interrupted = self._interrupted.union([call_id for call_id in ids if call_id is not None])

    def on_messages_snapshot(self, messages: Sequence[Message]) -> None:
        """Take the results from a snapshot: it may change a result or, by omitting it, withdraw it."""
        stated = {message.id: message for message in messages if isinstance(message, ToolMessage)}
        for call_id, results in {**self._start.results, **self._changed}.items():
            if any(stated.get(message_id) is not result for message_id, result in results.items()):
                self._changed[call_id] = {one: stated[one] for one in results if one in stated}

    def _results_of(self, call_id: str) -> dict[str, ToolMessage]:
        found = self._changed.get(call_id)
        return self._start.results.get(call_id, {}) if found is None else found


class RestoredResults(msgspec.Struct, frozen=True, kw_only=True):
    """Messages with the server's results, and the ids of the client's tool messages that were ignored."""

    messages: Sequence[Message]
    ignored: Sequence[str]


def restore_server_results(messages: Sequence[Message], calls: ServerCalls) -> RestoredResults:
    """Replace the tool messages that a client sent for these calls by the server's results."""
    if not (calls.results or calls.interrupted):
        return RestoredResults(messages=messages, ignored=())
    present = {message.id for message in messages if message.role == "tool"}
    restored: list[Message] = []
    ignored: list[str] = []
    for message in messages:
        own = calls.results.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        if own is None:
            if isinstance(message, ToolMessage) and message.tool_call_id in calls.interrupted:
                ignored.append(message.id)
            else:
                restored.append(message)
        elif message.id in own:
            is_same = is_same_message(message, own[message.id])
            restored.append(message if is_same else own[message.id])
            if not is_same:
                ignored.append(message.id)
        else:
            ignored.append(message.id)
            missing = [result for result in own.values() if result.id not in present]
            present.update(result.id for result in missing)
            restored += missing
    return RestoredResults(messages=restored if ignored else messages, ignored=ignored)
