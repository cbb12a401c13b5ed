"""Chat updates to events and back, in one call, for tests of ``aguila.chat``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from aguila.chat import ChatUpdate, as_chat_updates, as_event_stream
from aguila.protocol import Event, Message, RunAgentInput, RunFinishedEvent, RunStartedEvent
from aguila.stream import Verifier


def run_input(*messages: Message, **members: Any) -> RunAgentInput:
    return RunAgentInput(thread_id="thread", run_id="run", messages=list(messages), **members)


async def stream(
    updates: Iterable[Any] | AsyncIterator[Any],
    input: RunAgentInput | None = None,
    *,
    prefix: str = "new",
    **options: Any,
) -> list[Event]:
    """Return the events of some updates, verified by the rules for producers. New ids are new-0, new-1 and so on."""
    ids = iter(f"{prefix}-{n}" for n in range(1000))
    source = as_event_stream(updates, input or run_input(), new_id=lambda: next(ids), **options)
    events = [event async for event in source]
    verify_as_producer(events)
    return events


def verify_as_producer(events: list[Event]) -> None:
    verifier = Verifier(producer=True)
    for event in events:
        verifier.feed(event)
    verifier.close()


async def updates_of(events: Iterable[Any], **options: Any) -> list[ChatUpdate]:
    return [update async for update in as_chat_updates(events, **options)]


def chat_update(
    *contents: Any, role: str = "assistant", message_id: str | None = None, **properties: Any
) -> ChatUpdate:
    return ChatUpdate(role, list(contents), message_id, additional_properties=properties)


def without_boundaries(events: list[Event]) -> list[Event]:
    """Return the events of a finished run between its boundaries."""
    assert isinstance(events[0], RunStartedEvent)
    assert isinstance(events[-1], RunFinishedEvent)
    return events[1:-1]


def of_type(kind: type[Any], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]
