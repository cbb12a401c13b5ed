"""Events and parts that were removed from the protocol before 1.0, and the old names of parts.

``aguila.codec.compat`` translates them when they are received and when an agent emits them. They are sent only to a
peer that is known to be old. They are not part of ``Event`` or ``ContentPart``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

from aguila.protocol._base import AnyJSON, Maybe, Tagged
from aguila.protocol.capabilities import SubagentInfo
from aguila.protocol.events import BaseEvent
from aguila.protocol.parts import (
    AudioPart,
    ContentPart,
    DataSource,
    DocumentPart,
    ImagePart,
    PartSource,
    TextPart,
    UrlSource,
    VideoPart,
)


class BinaryInputContent(Tagged, tag_field="type", tag="binary", frozen=True, kw_only=True):
    """A file, from before images, audio, video and documents had their own parts (ERA-3).

    It has ``data`` (base64), ``url`` or ``id``. If there are several, the first of these counts. Without a MIME type,
    that of the uploaded file applies.
    """

    type: ClassVar[Literal["binary"]] = "binary"
    mime_type: Maybe[str] = None
    id: Maybe[str] = None
    url: Maybe[str] = None
    data: Maybe[str] = None
    filename: Maybe[str] = None


class LegacyEventType(StrEnum):
    """The types of the retired events."""

    THINKING_START = "THINKING_START"
    THINKING_TEXT_MESSAGE_START = "THINKING_TEXT_MESSAGE_START"
    THINKING_TEXT_MESSAGE_CONTENT = "THINKING_TEXT_MESSAGE_CONTENT"
    THINKING_TEXT_MESSAGE_END = "THINKING_TEXT_MESSAGE_END"
    THINKING_END = "THINKING_END"
    META = "META"


class ThinkingStartEvent(BaseEvent, frozen=True, kw_only=True):
    """Started a thinking span; now REASONING_START (ERA-2)."""

    type: ClassVar[Literal[LegacyEventType.THINKING_START]] = LegacyEventType.THINKING_START
    title: Maybe[str] = None


class ThinkingTextMessageStartEvent(BaseEvent, frozen=True, kw_only=True):
    """Started a thinking message; now REASONING_MESSAGE_START."""

    type: ClassVar[Literal[LegacyEventType.THINKING_TEXT_MESSAGE_START]] = LegacyEventType.THINKING_TEXT_MESSAGE_START
    message_id: Maybe[str] = None


class ThinkingTextMessageContentEvent(BaseEvent, frozen=True, kw_only=True):
    """Appended thinking text; now REASONING_MESSAGE_CONTENT."""

    type: ClassVar[Literal[LegacyEventType.THINKING_TEXT_MESSAGE_CONTENT]] = (
        LegacyEventType.THINKING_TEXT_MESSAGE_CONTENT
    )
    delta: str
    message_id: Maybe[str] = None


class ThinkingTextMessageEndEvent(BaseEvent, frozen=True, kw_only=True):
    """Ended a thinking message; now REASONING_MESSAGE_END."""

    type: ClassVar[Literal[LegacyEventType.THINKING_TEXT_MESSAGE_END]] = LegacyEventType.THINKING_TEXT_MESSAGE_END
    message_id: Maybe[str] = None


class ThinkingEndEvent(BaseEvent, frozen=True, kw_only=True):
    """Ended a thinking span; now REASONING_END."""

    type: ClassVar[Literal[LegacyEventType.THINKING_END]] = LegacyEventType.THINKING_END


class MetaEvent(BaseEvent, frozen=True, kw_only=True):
    """A side note such as feedback, which was drafted and never adopted.

    An agent that emits one sends CUSTOM with the name ``meta:<metaType>``. In a run it is decoded as RAW with the
    source ``meta``, outside one and by itself (``decode_event``) as this class.
    """

    type: ClassVar[Literal[LegacyEventType.META]] = LegacyEventType.META
    meta_type: str
    payload: Maybe[AnyJSON] = None


META_PREFIX = "meta:"
"""The name of the CUSTOM event for META begins with this, and ends with the ``metaType``."""

LegacyEvent = (
    ThinkingStartEvent
    | ThinkingTextMessageStartEvent
    | ThinkingTextMessageContentEvent
    | ThinkingTextMessageEndEvent
    | ThinkingEndEvent
    | MetaEvent
)
"""Any retired event."""

# The names of parts before 1.0. The classes and the JSON are the same.
InputContent = ContentPart
InputContentPart = ContentPart
TextInputContent = TextPart
ImageInputContent = ImageInputPart = ImagePart
AudioInputContent = AudioInputPart = AudioPart
VideoInputContent = VideoInputPart = VideoPart
DocumentInputContent = DocumentInputPart = DocumentPart
SubAgentInfo = SubagentInfo
InputContentSource = PartSource
InputContentDataSource = DataSource
InputContentUrlSource = UrlSource
