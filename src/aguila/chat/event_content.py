"""AG-UI events as chat contents: data of type ``application/ag-ui.<type>+json``. It is read without ``+json`` too.

For agents that use chat types and need an event that chat types cannot express. ``as_event_stream`` sends such an event
unchanged. Import the module: ``event_content.create(event)``.
"""

from __future__ import annotations

import re
from typing import get_args

from aguila.chat.types import DataContent
from aguila.codec import decode, decode_event, encode
from aguila.errors import DecodeError
from aguila.protocol import Event, EventType
from aguila.protocol.legacy import LegacyEvent

_RETIRED: dict[str, type[LegacyEvent]] = {cls.type: cls for cls in get_args(LegacyEvent)}

_MEDIA_TYPE = re.compile(r"application/ag-ui\.([a-z0-9_]+)(?:\+json)?\s*(?:;.*)?\Z", re.IGNORECASE | re.DOTALL)


def create(event: Event | LegacyEvent) -> DataContent:
    """Wrap an event in a content. Raises ``EncodeError`` if it cannot be encoded."""
    return DataContent(encode(event), f"application/ag-ui.{event.type.lower()}+json", raw_representation=event)


def is_event(content: object) -> bool:
    """Return whether the media type of a content is that of an event. The data is not checked."""
    return isinstance(content, DataContent) and _MEDIA_TYPE.match(content.media_type) is not None


def try_get(content: object) -> Event | LegacyEvent | None:
    """Return the event in a content, or None if the content has another media type.

    Raises ``DecodeError`` if the data is not an event of the type in the media type.
    """
    if not isinstance(content, DataContent):
        return None
    named = _MEDIA_TYPE.match(content.media_type)
    if named is None:
        return None
    name = named[1].upper()
    if (retired := _RETIRED.get(name)) is not None:
        return decode(content.data, retired)
    event = decode_event(content.data)
    if event is None:
        raise DecodeError(f"the content is not a known event: {content.media_type}", rule="PROC-3", path="/type")
    if name != event.type and name in EventType.__members__:
        raise DecodeError(f"a content of type {content.media_type} contains {event.type}", rule="ENV-1", path="/type")
    return event
