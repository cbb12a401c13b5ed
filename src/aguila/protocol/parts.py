"""Layer: protocol. Multimodal content: parts and the sources they come from (MSG, IN-8).

A user or tool message holds either a string or a list of parts. ``parts_of`` reads both as a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from aguila.protocol._base import AnyJSON, Maybe, Tagged


class DataSource(Tagged, tag_field="type", tag="data", frozen=True, kw_only=True):
    """Bytes carried inline as base64. Whether the base64 is valid is for the decoder of the bytes to say (MSG-2)."""

    type: ClassVar[Literal["data"]] = "data"
    value: str
    mime_type: str


class UrlSource(Tagged, tag_field="type", tag="url", frozen=True, kw_only=True):
    """Bytes that live at an address. Nothing in Aguila fetches it by itself."""

    type: ClassVar[Literal["url"]] = "url"
    value: str
    mime_type: Maybe[str] = None


class FileSource(Tagged, tag_field="type", tag="file", frozen=True, kw_only=True):
    """An opaque handle of a provider's file store: passed on or left alone, never dereferenced (IN-8)."""

    type: ClassVar[Literal["file"]] = "file"
    value: str
    provider: Maybe[str] = None
    mime_type: Maybe[str] = None


PartSource = DataSource | UrlSource | FileSource
"""Where the bytes of a media part come from."""


class TextPart(Tagged, tag_field="type", tag="text", frozen=True, kw_only=True):
    """A piece of text among other parts."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    id: Maybe[str] = None
    metadata: Maybe[AnyJSON] = None


class _MediaPart(Tagged, frozen=True, kw_only=True):
    source: PartSource
    id: Maybe[str] = None
    metadata: Maybe[AnyJSON] = None


class ImagePart(_MediaPart, tag_field="type", tag="image", frozen=True, kw_only=True):
    """A picture."""

    type: ClassVar[Literal["image"]] = "image"


class AudioPart(_MediaPart, tag_field="type", tag="audio", frozen=True, kw_only=True):
    """A sound recording."""

    type: ClassVar[Literal["audio"]] = "audio"


class VideoPart(_MediaPart, tag_field="type", tag="video", frozen=True, kw_only=True):
    """A film."""

    type: ClassVar[Literal["video"]] = "video"


class DocumentPart(_MediaPart, tag_field="type", tag="document", frozen=True, kw_only=True):
    """Any other file: PDF, spreadsheet, archive, plain text."""

    type: ClassVar[Literal["document"]] = "document"


MediaPart = ImagePart | AudioPart | VideoPart | DocumentPart
"""A part whose bytes come from a source."""

ContentPart = TextPart | ImagePart | AudioPart | VideoPart | DocumentPart
"""One element of multimodal content."""


def parts_of(content: str | Sequence[ContentPart] | None) -> list[ContentPart]:
    """Content as a list of parts, however it was spelled: a string is one text part, none is no part."""
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(text=content)]
    return list(content)


def is_plain_text(content: str | Sequence[ContentPart] | None) -> bool:
    """Whether content is one text part with neither id nor metadata: what is written as a plain string."""
    if not isinstance(content, list | tuple) or len(content) != 1:  # whatever else it is, it is not that
        return False
    part = content[0]
    return part.__class__ is TextPart and part.id is None and part.metadata is None
