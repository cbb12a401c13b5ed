"""Decide which messages stay when a MESSAGES_SNAPSHOT replaces the list (MSGS-2, MSGS-3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from aguila.protocol import ActivityMessage, MessagesSnapshotEvent
from aguila.stream.reducer.message_builder import MessageBuilder


def make_keep_filter(event: MessagesSnapshotEvent) -> Callable[[MessageBuilder], bool]:
    """Return which messages stay although the snapshot does not have them (MSGS-2, MSGS-3).

    A snapshot with reasoning has all reasoning, one with activities has all activities. The reference client's
    projections limit the latter to some activity types, by a list in the snapshot's metadata.
    """
    roles = {message.role for message in event.messages}
    keeps_reasoning = "reasoning" not in roles
    keeps_activities = "activity" not in roles
    complete_types: set[Any] = set()

    scope: Any = {} if event.metadata is None else event.metadata.get("@ag-ui/client", {})
    if not isinstance(scope, dict):
        keeps_activities = True
    elif "authoritativeActivityTypes" in scope:
        types: Any = cast("dict[str, Any]", scope)["authoritativeActivityTypes"]
        keeps_activities = types is not None
        if isinstance(types, list) and all(isinstance(t, str) for t in cast("list[Any]", types)):
            complete_types = set(cast("list[Any]", types))

    def is_kept(builder: MessageBuilder) -> bool:
        if builder.role == "reasoning":
            return keeps_reasoning
        if builder.role == "activity":
            return keeps_activities and cast("ActivityMessage", builder.message).activity_type not in complete_types
        return False

    return is_kept
