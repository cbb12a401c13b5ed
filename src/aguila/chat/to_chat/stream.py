"""``as_chat_updates``: convert a stream of events to chat updates.

Lossless: every update has its event as ``raw_representation``.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any

from aguila.chat.from_chat.stream import iterate
from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.chat.to_chat.updates import UpdateReader
from aguila.chat.types import ChatUpdate
from aguila.codec.notices import Warn
from aguila.protocol import Event


async def as_chat_updates(
    events: AsyncIterable[Event | Any] | Iterable[Event | Any],
    *,
    hooks: Hooks = NO_HOOKS,
    new_id: Callable[[], str] | None = None,
    warn: Warn | None = None,
) -> AsyncIterator[ChatUpdate]:
    """Convert events to chat updates. The updates of an event are yielded before the next event is read.

    A text or reasoning delta becomes a content. A call comes in pieces while it streams, then complete
    (``is_complete``). Results, usage, errors and the questions of an interrupted run become contents too. Any other
    event becomes an update without contents. Every update has the ids of thread and run (``property_keys``).

    An exception of the source is raised after the updates before it. Raises ``DecodeError`` and ``SequenceError`` as
    ``UpdateReader.feed`` does.
    """
    reader = UpdateReader(hooks=hooks, new_id=new_id, warn=warn)
    async for event in iterate(events):
        for update in reader.feed(event):
            yield update
