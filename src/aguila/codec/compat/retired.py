"""Convert retired events that an agent emits to the current events with the same meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

from aguila.codec.compat.context import METADATA_KEY
from aguila.protocol import (
    CustomEvent,
    Event,
    Metadata,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
)
from aguila.protocol.legacy import (
    META_PREFIX,
    LegacyEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ThinkingTextMessageContentEvent,
    ThinkingTextMessageEndEvent,
    ThinkingTextMessageStartEvent,
)

RETIRED_CLASSES: Final[frozenset[type[Any]]] = frozenset(get_args(LegacyEvent))
"""The classes of retired events."""


class RetiredEvents:
    """Converts the retired events of one run, in order.

    THINKING_* become REASONING_* (ERA-2), with ids from ``new_id`` if they have none. META becomes CUSTOM with the name
    ``meta:<metaType>``; a ``Translator`` writes META again for a reader that knows it.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._span: str | None = None
        self._message: str | None = None

    def convert(self, event: LegacyEvent) -> Event:
        """Return the current event. A delta or end without a start gets a new id, which the writer then refuses."""
        envelope: dict[str, Any] = {
            "timestamp": event.timestamp,
            "raw_event": event.raw_event,
            "metadata": event.metadata,
        }
        if isinstance(event, ThinkingStartEvent):
            self._span = self._new_id()
            if event.title is not None:
                envelope["metadata"] = _with_title(event.metadata, event.title)
            return ReasoningStartEvent(message_id=self._span, **envelope)
        if isinstance(event, ThinkingEndEvent):
            span, self._span = self._span, None
            return ReasoningEndEvent(message_id=self._new_id() if span is None else span, **envelope)
        if isinstance(event, ThinkingTextMessageStartEvent):
            self._message = self._new_id() if event.message_id is None else event.message_id
            return ReasoningMessageStartEvent(message_id=self._message, **envelope)
        if isinstance(event, ThinkingTextMessageContentEvent):
            return ReasoningMessageContentEvent(message_id=self._id_of(event), delta=event.delta, **envelope)
        if isinstance(event, ThinkingTextMessageEndEvent):
            message_id, self._message = self._id_of(event), None
            return ReasoningMessageEndEvent(message_id=message_id, **envelope)
        return CustomEvent(name=META_PREFIX + event.meta_type, value=event.payload, **envelope)

    def _id_of(self, event: ThinkingTextMessageContentEvent | ThinkingTextMessageEndEvent) -> str:
        if event.message_id is not None:
            return event.message_id
        return self._new_id() if self._message is None else self._message


def _with_title(metadata: Metadata | None, title: str) -> Metadata:
    own: Any = (metadata or {}).get(METADATA_KEY)
    return {**(metadata or {}), METADATA_KEY: {**(own if isinstance(own, dict) else {}), "title": title}}
