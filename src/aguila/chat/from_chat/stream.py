"""``as_event_stream``: convert a stream of chat updates to the events of a run.

The events of an update are yielded before the next update is read.

Losses:

=========================================  ============================================================================
an error beside a result                   sent as metadata ``aguila``, and as content if the result is empty
the end of a call that no update ends      sent with its result, or before the end of the run
additional properties                      dropped if not in ``property_keys``, and metadata of an update
empty text                                 not sent, except for its encrypted value
encrypted values                           only the first per message or call is sent, with a notice
=========================================  ============================================================================
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any

from aguila.chat.from_chat.messages import new_message_id
from aguila.chat.from_chat.updates import Update, UpdateWriter
from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.codec.logs import log_fields
from aguila.codec.notices import Warn
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
    """Convert updates to the events of the run that ``input`` requests, from RUN_STARTED to its terminal event.

    ``updates`` may contain chat updates and messages, contents, strings and events. Events are sent unchanged: given
    directly, as ``raw_representation`` of an update or content, or as event content. ``new_id`` makes ids, ``now``
    returns timestamps in milliseconds.

    An exception of the source becomes RUN_ERROR, after all events before it. It is logged, and its text is not sent. A
    content that events cannot express becomes RUN_ERROR too, which names its kind. Cancellation is passed on.
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
        async for update in iterate(updates):
            try:
                events = mapping.feed(update)
            except EncodeError as error:
                _log.exception("run %r: an update cannot be expressed as events", input.run_id, extra=log_fields())
                last = mapping.fail(error.message, "unmappable_content")
                break
            for event in events:
                yield event
            if mapping.is_over:
                break
        if last is None:
            last = mapping.end()
    except RunFailed as error:
        last = mapping.fail(error.message, error.code)  # the message of RunFailed is meant for users
    except Exception:  # noqa: BLE001 - any exception of an agent ends its run and is logged
        _log.exception("the agent of run %r failed", input.run_id, extra=log_fields())
        last = mapping.fail("The agent failed.", "agent_error")
    finally:
        await _close(updates)
    for event in last:
        yield event


async def _close(source: Any) -> None:
    """Close a source that is not read any more. An exception is logged."""
    close = getattr(source, "aclose", None)
    if close is not None:
        try:
            await close()
        except Exception:  # noqa: BLE001 - the run has ended, whatever the source does
            _log.exception("closing a source of updates failed", extra=log_fields())


def iterate(source: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterable[Any]:
    """Iterate over a synchronous or asynchronous source asynchronously."""
    return source if isinstance(source, AsyncIterable) else _iterate(source)


async def _iterate(source: Iterable[Any]) -> AsyncIterator[Any]:
    for element in source:
        yield element
