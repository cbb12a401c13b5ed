"""Layer: chat. ``as_event_stream``: chat updates, as they come, to the events of a run.

Below: ``updates_out``, which says what each update adds. Above: anyone who has an agent that speaks chat types. Every
event is given out before the next update is asked for, and nothing is held back.

Lost on the way to events, and nothing else:

=========================================  ============================================================================
an error beside a result                   travels as metadata ``aguila``, and as the content if there is no other
the end of a call that no update ended     is sent with its result, or before the run's end
additional properties                      those that are not in ``keys``; metadata of an update
empty text                                 not sent, but for an artefact that it has
artefacts                                  of several that come with one message or call the first is sent, with a
                                           notice
=========================================  ============================================================================
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any

from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.chat.messages_out import new_message_id
from aguila.chat.updates_out import Update, UpdateWriter
from aguila.codec.notice import Warn
from aguila.codec.records import members
from aguila.errors import EncodeError, RunFailed
from aguila.protocol import Event, RunAgentInput
from aguila.stream import EventWriter

_log = logging.getLogger("aguila")


async def as_event_stream(
    updates: AsyncIterable[Update] | Iterable[Update],
    input: RunAgentInput,  # noqa: A002 - the protocol's word for it
    *,
    hooks: Hooks = NO_HOOKS,
    new_id: Callable[[], str] = new_message_id,
    now: Callable[[], int] | None = None,
    warn: Warn | None = None,
) -> AsyncIterator[Event]:
    """The events of the run that ``input`` asks for, from RUN_STARTED to its one terminal event.

    ``updates`` may hold chat updates and messages, contents, text, and events, which are sent as they are: given
    directly, as the ``raw_representation`` of an update or content, or as an event content. ``new_id`` mints ids,
    ``now`` gives timestamps in milliseconds.

    An exception of the source becomes RUN_ERROR, after all that was said before, and is logged; its text is not sent.
    So does content that events cannot carry, whose kind is named. Cancellation is passed on.
    """
    writer = EventWriter(
        input.thread_id,
        input.run_id,
        new_id=new_id,
        parent_run_id=input.parent_run_id,
        state={} if input.state is None else input.state,
        now=now,
    )
    mapping = UpdateWriter(writer, messages=input.messages, hooks=hooks, new_id=new_id, warn=warn)
    for event in writer.start():
        yield event
    last: list[Event] | None = None
    try:
        async for update in each(updates):
            try:
                events = mapping.feed(update)
            except EncodeError as error:
                _log.exception("run %r cannot be expressed in events", input.run_id, extra=members())
                last = mapping.fail(error.message, "unmappable_content")
                break
            for event in events:
                yield event
            if mapping.is_over:
                break
        if last is None:
            last = mapping.end()
    except RunFailed as error:
        last = mapping.fail(error.message, error.code)  # the words of a run, meant for people
    except Exception:  # noqa: BLE001 - whatever an agent raises ends its run, and is logged
        _log.exception("the agent of run %r failed", input.run_id, extra=members())
        last = mapping.fail("The agent failed.", "agent_error")
    finally:
        await _close(updates)
    for event in last:
        yield event


async def _close(source: Any) -> None:
    """Let a source that is not asked any more go; what it says about that is logged."""
    close = getattr(source, "aclose", None)
    if close is not None:
        try:
            await close()
        except Exception:  # noqa: BLE001 - the run has ended whatever the source does now
            _log.exception("a source of updates failed when it was closed", extra=members())


def each(source: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterable[Any]:
    """A source of either kind as an asynchronous one."""
    return source if isinstance(source, AsyncIterable) else _each(source)


async def _each(source: Iterable[Any]) -> AsyncIterator[Any]:
    for element in source:
        yield element
