"""Layer: chat. AG-UI events inside chat: data of type ``application/ag-ui.<type>+json``.

Below: the codec. Above: agents that speak chat types and want to say what these have no word for; ``stream_out``
emits such an event as it is. Used by its name: ``event_content.create(event)``.
"""

from __future__ import annotations

import re

from aguila.chat.content import DataContent
from aguila.codec import decode_event, encode
from aguila.errors import DecodeError
from aguila.protocol import Event, EventType
from aguila.protocol.legacy import LegacyEvent

_MEDIA_TYPE = re.compile(r"application/ag-ui\.([a-z0-9_]+)\+json\s*(?:;.*)?\Z", re.IGNORECASE | re.DOTALL)


def create(event: Event | LegacyEvent) -> DataContent:
    """The event as a content. Raises ``EncodeError`` if it cannot be written."""
    return DataContent(encode(event), f"application/ag-ui.{event.type.lower()}+json", raw_representation=event)


def is_event(content: object) -> bool:
    """Whether a content is an event by its media type; the body is not looked at."""
    return isinstance(content, DataContent) and _MEDIA_TYPE.match(content.media_type) is not None


def try_get(content: object) -> Event | None:
    """The event in a content, or None if its media type is another.

    Raises ``DecodeError`` for a body that is not an event of the type the media type names.
    """
    if not isinstance(content, DataContent):
        return None
    named = _MEDIA_TYPE.match(content.media_type)
    if named is None:
        return None
    event = decode_event(content.data)
    if event is None:
        raise DecodeError(f"the content is no event that we know: {content.media_type}", rule="PROC-3", path="/type")
    # A retired type names an event that has another type by now.
    if (name := named[1].upper()) != event.type and name in EventType.__members__:
        raise DecodeError(f"a content of type {content.media_type} holds {event.type}", rule="ENV-1", path="/type")
    return event
