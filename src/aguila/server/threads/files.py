"""The files that messages refer to: load one, and add the stored media type where a message names none.

No URL is ever fetched: a reference names an upload of the same scope, or it is not resolved.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from aguila.agent.chat_values import FILE_PROVIDER
from aguila.errors import NotFound
from aguila.protocol import (
    ContentPart,
    Event,
    FileSource,
    MediaPart,
    Message,
    MessagesSnapshotEvent,
    UserMessage,
    replace,
)
from aguila.store import Store

MAX_TYPES: Final = 4096
"""How many media types are remembered. The id of a file is a hash of its content and type, so they never change."""


async def resolve_file(store: Store, scope: str, file_id: str) -> tuple[bytes, str, str | None] | None:
    """Return the bytes, the media type and the file name of an upload; None if this scope has no such upload."""
    try:
        file, data = await store.file(scope, file_id)
    except (NotFound, UnicodeError):  # no stored id has a lone surrogate
        return None
    return data, file.media_type, file.filename


class FileTypes:
    """The media types of the uploads in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._types: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def complete(self, scope: str, events: Sequence[Event]) -> list[Event]:
        """Return events whose message snapshots name the type of each upload of the scope."""
        return [
            replace(event, messages=[await self._complete(scope, message) for message in event.messages])
            if isinstance(event, MessagesSnapshotEvent) and any(map(_lacks_type, event.messages))
            else event
            for event in events
        ]

    async def _complete(self, scope: str, message: Message) -> Message:
        if not isinstance(message, UserMessage) or not _lacks_type(message):
            return message
        return replace(message, content=[await self._complete_part(scope, part) for part in message.content])

    async def _complete_part(self, scope: str, part: ContentPart | str) -> ContentPart | str:
        source = _untyped_source(part)
        if source is None or not isinstance(part, MediaPart):
            return part
        media_type = self._types.get((scope, source.value))
        if media_type is None:
            found = await resolve_file(self._store, scope, source.value)
            if found is None:
                return part
            media_type = self._types[scope, source.value] = found[1]
            if len(self._types) > MAX_TYPES:
                self._types.popitem(last=False)
        return replace(part, source=replace(source, mime_type=media_type))


def _lacks_type(message: Message) -> bool:
    if not isinstance(message, UserMessage) or isinstance(message.content, str):
        return False
    return any(_untyped_source(part) is not None for part in message.content)


def _untyped_source(part: ContentPart | str) -> FileSource | None:
    source = part.source if isinstance(part, MediaPart) else None
    is_upload = isinstance(source, FileSource) and source.provider in (None, FILE_PROVIDER)
    return source if is_upload and isinstance(source, FileSource) and source.mime_type is None else None
