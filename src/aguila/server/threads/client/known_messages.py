"""Distinguish the messages that the runs of a thread have sent from those that only clients have sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from aguila.protocol import AssistantMessage, Message, ToolCall, ToolMessage, replace
from aguila.stream.message_equality import is_same_message


class KnownMessages:
    """The messages that the runs of a thread have sent, on all its branches.

    A message that several runs changed is known as each run left it. ``front_end_calls`` are the calls whose results
    the server leaves to front ends, each with its message.
    """

    __slots__ = ("_versions", "front_end_calls")

    def __init__(self) -> None:
        self._versions: dict[str, list[Message]] = {}
        self.front_end_calls: dict[str, Message] = {}

    def add(self, message: Message) -> None:
        """Add a message as a run left it."""
        versions = self._versions.setdefault(message.id, [])
        if message not in versions:
            versions.append(message)

    def has(self, message: Message) -> bool:
        """Return whether a run has sent this message, with this id and content (``is_same_message``)."""
        return any(is_same_message(message, version) for version in reversed(self._versions.get(message.id, ())))


class KnownSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a client that are left, and the ids of the removed ones.

    ``open_calls`` are the ids of calls that lost their results.
    """

    messages: Sequence[Message]
    removed: Sequence[str] = ()
    open_calls: frozenset[str] = frozenset()


def remove_unknown(
    messages: Sequence[Message], known: KnownMessages, is_in_thread: Callable[[str], bool] = lambda _: False
) -> KnownSelection:
    """Remove assistant and tool messages that no run has sent, and the results of their calls.

    Results of front-end calls stay. If the message of such a call was changed, the thread's own replaces it, unless
    the agent sees that anyway (``is_in_thread``, by id).
    """
    unknown = {id(message) for message in messages if message.role in ("assistant", "tool") and not known.has(message)}
    if not unknown:
        return KnownSelection(messages=messages)
    present = {message.id for message in messages if message.role == "assistant" and id(message) not in unknown}
    left: list[Message] = []
    removed: list[str] = []
    lost_calls: set[str] = set()
    for message in messages:
        if not isinstance(message, AssistantMessage) or id(message) not in unknown:
            left.append(message)
            continue
        removed.append(message.id)
        for call_id in _call_ids(message):
            own = known.front_end_calls.get(call_id)
            if own is None:
                lost_calls.add(call_id)
            elif own.id not in present and not is_in_thread(own.id):
                present.add(own.id)
                left.append(own)
    for message in left:
        lost_calls.difference_update(_call_ids(message))
    answered: set[str] = set()
    open_calls: set[str] = set()
    selected: list[Message] = []
    for message in left:
        if isinstance(message, ToolMessage):
            call_id = message.tool_call_id
            if call_id in lost_calls or (id(message) in unknown and call_id not in known.front_end_calls):
                removed.append(message.id)
                open_calls.add(call_id)
                continue
            answered.add(call_id)
        selected.append(message)
    return KnownSelection(messages=selected, removed=removed, open_calls=frozenset(open_calls - answered))


def remove_calls(messages: Sequence[Message], call_ids: frozenset[str]) -> Sequence[Message]:
    """Remove these calls, and the messages that consist of nothing else."""
    if call_ids.isdisjoint(call_id for message in messages for call_id in _call_ids(message)):
        return messages
    left: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage) and not call_ids.isdisjoint(_call_ids(message)):
            calls = [
                call for call in message.tool_calls or () if isinstance(call, ToolCall) and call.id not in call_ids
            ]
            if not calls and not message.content:
                continue
            message = replace(message, tool_calls=calls if calls else None)
        left.append(message)
    return left


def _call_ids(message: Message) -> list[str]:
    calls = message.tool_calls or () if isinstance(message, AssistantMessage) else ()
    return [call.id for call in calls if isinstance(call, ToolCall)]
