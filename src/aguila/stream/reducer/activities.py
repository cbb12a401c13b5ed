"""Apply activity events to the messages (ACT)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from aguila.errors import PatchError
from aguila.protocol import ActivityDeltaEvent, ActivityMessage, ActivitySnapshotEvent, Event, replace
from aguila.stream.reducer.message_builder import MessageBuilder
from aguila.stream.reducer.message_list import MessageList


class SendNotice(Protocol):
    """Reports a tolerated fault of an event."""

    def __call__(self, rule: str, message: str, event: Event, path: str = "") -> None:
        """Report it under a rule id, at a path in the event."""


def set_activity(messages: MessageList, event: ActivitySnapshotEvent, notice: SendNotice) -> None:
    """Add or replace the activity of a snapshot."""
    builder = messages.by_id.get(event.message_id)
    if builder is not None and event.replace is False:
        if builder.role != "activity":
            notice("ENV-12", f"{event.message_id!r} is a {builder.role} message; nothing changed", event)
        elif event.metadata is not None:
            builder.merge(event.metadata)
            messages.mark_changed(builder)
        return
    activity = ActivityMessage(
        id=event.message_id,
        activity_type=event.activity_type,
        content=event.content,
        subagent_run_id=event.subagent_run_id,
        metadata=event.metadata,
    )
    if builder is None:
        messages.append(MessageBuilder(activity))
        return
    if builder.role == "activity":
        # Metadata outlives the content that it came with, the owner does not (ACT-5).
        builder.message = replace(activity, metadata=builder.message.metadata)
        if event.metadata is not None:
            builder.merge(event.metadata)
    else:
        notice("ENV-12", f"an activity replaces a {builder.role} message with the same id", event)
        messages.replace(builder, activity)
        return
    messages.mark_changed(builder)


def patch_activity(
    messages: MessageList, event: ActivityDeltaEvent, apply_patch: Callable[[Any, Any], Any], notice: SendNotice
) -> None:
    """Apply a JSON Patch to the content of an activity."""
    builder = messages.by_id.get(event.message_id)
    if builder is None or builder.role != "activity":
        notice("ACT-9", f"there is no activity {event.message_id!r} to patch", event, "/messageId")
        return
    message = cast("ActivityMessage", builder.message)
    if event.metadata is not None:  # also if the patch fails (ACT-10)
        builder.merge(event.metadata)
        messages.mark_changed(builder)
    try:
        content = apply_patch(message.content, event.patch)
    except PatchError as error:
        notice("SNAP-9", f"the patch does not apply; the activity is unchanged: {error}", event, "/patch")
        return
    if not isinstance(content, dict):
        notice("ACT-8", "the patched content is not an object; the activity is unchanged", event, "/patch")
        return
    builder.message = replace(message, content=content, activity_type=event.activity_type)
    messages.mark_changed(builder)
