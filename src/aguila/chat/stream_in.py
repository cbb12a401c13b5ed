"""Layer: chat. ``as_chat_updates``: the events of a stream, as they come, to chat updates.

Below: ``updates_in``, which says what each event means. Above: ``ChatClient``, and anyone who reads a run as chat.
Nothing is lost: every update carries the event it was made from, and collecting those gives the stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any

from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.chat.message import ChatUpdate
from aguila.chat.stream_out import each
from aguila.chat.updates_in import UpdateReader
from aguila.codec.notice import Warn
from aguila.protocol import Event


async def as_chat_updates(
    events: AsyncIterable[Event | Any] | Iterable[Event | Any],
    *,
    hooks: Hooks = NO_HOOKS,
    new_id: Callable[[], str] | None = None,
    warn: Warn | None = None,
) -> AsyncIterator[ChatUpdate]:
    """The updates that events make, each given out before the next event is asked for.

    A text or reasoning delta is a content; a call comes in pieces as it is streamed, then whole, with
    ``is_complete``; a result, usage, an error, and the questions of an interrupted run are contents too; any other
    event makes an update without contents. Every update names thread and run (``keys``).

    An exception of the source is passed on, after the updates of all that came before. Raises ``DecodeError`` and
    ``SequenceError`` as ``UpdateReader.feed`` does.
    """
    reader = UpdateReader(hooks=hooks, new_id=new_id, warn=warn)
    async for event in each(events):
        for update in reader.feed(event):
            yield update
