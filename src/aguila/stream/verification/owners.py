"""The owner of each message, tool call, reasoning item and activity within one run (SUB-8 to SUB-10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from aguila.protocol import AssistantMessage, Message, ToolCall, ToolCallStartEvent
from aguila.stream.verification.rules import Bucket, Owner, describe_owner

_BUCKET_OF_ROLE: dict[str, Bucket] = {"reasoning": "reasoning", "activity": "activity"}


class ItemOwners:
    """Owners by bucket and item id. Items of closed messages stay, until the run ends."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        self.buckets: defaultdict[Bucket, dict[str, Owner]] = defaultdict(dict)

    def describe_mismatch(self, bucket: Bucket, item_id: str, event: Any) -> str | None:
        """Return the error message if the event's tag is not the owner of the item; None if they agree.

        An event without a tag agrees with every owner, and so does every tag while the owner is unknown (SUB-8, SUB-9).
        """
        tag: Owner = event.subagent_run_id
        owners = self.buckets[bucket]
        if tag is None or item_id not in owners or owners[item_id] == tag:
            return None
        owner = owners[item_id]
        return (
            f"{event.type} is tagged {tag!r}, but {bucket} {item_id!r} belongs to {describe_owner(owner)};"
            f" send it {'without a tag' if owner is None else 'with that tag or none'}"
        )

    def find_parent_conflict(self, event: ToolCallStartEvent, parent: str) -> tuple[str, str] | None:
        """Return the rule and error message if a call may not belong to this parent message, whose owner is known.

        A call without a tag takes the owner of its parent, which must be the owner it had before (SUB-10). A call with
        a tag must have the tag of its parent (TOOL-2).
        """
        call_id, tag = event.tool_call_id, event.subagent_run_id
        owner, calls = self.buckets["message"][parent], self.buckets["tool call"]
        if tag is None:
            if calls.get(call_id, owner) == owner:
                return None
            return (
                "SUB-10",
                f"tool call {call_id!r} belongs to {describe_owner(calls[call_id])}, but its new parent message"
                f" {parent!r} belongs to {describe_owner(owner)}; keep a call on messages of its owner",
            )
        if tag == owner:
            return None
        return (
            "TOOL-2",
            f"tool call {call_id!r} is tagged {tag!r}, but its parent message {parent!r} belongs to"
            f" {describe_owner(owner)}; give the call the message's tag",
        )

    def add_messages(self, messages: Iterable[Message], *, overwrite: bool) -> None:
        """Record the owners of complete messages and of their tool calls."""
        for message in messages:
            owner = message.subagent_run_id
            self._add(_BUCKET_OF_ROLE.get(message.role, "message"), message.id, owner, overwrite)
            if isinstance(message, AssistantMessage) and message.tool_calls is not None:
                for call in message.tool_calls:
                    if isinstance(call, ToolCall):  # a call has the owner of its message (SUB-10)
                        self._add("tool call", call.id, owner, overwrite)

    def clear(self) -> None:
        """Forget all owners, at the start of a run (LIFE-20)."""
        self.buckets.clear()

    def _add(self, bucket: Bucket, item_id: str, owner: Owner, overwrite: bool) -> None:
        if overwrite or item_id not in self.buckets[bucket]:
            self.buckets[bucket][item_id] = owner
