"""Multimodal content: parts and their sources (MSG, IN-8).

A user or tool message has a string or a list of parts. ``messages.parts_of`` reads both as a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from aguila.protocol._base import AnyJSON, Maybe, Tagged


class DataSource(Tagged, tag_field="type", tag="data", frozen=True, kw_only=True):
    """Inline bytes as base64. The base64 is validated when it is decoded (MSG-2)."""

    type: ClassVar[Literal["data"]] = "data"
    value: str
    mime_type: str


class UrlSource(Tagged, tag_field="type", tag="url", frozen=True, kw_only=True):
    """Bytes at a URL. Aguila does not fetch it."""

    type: ClassVar[Literal["url"]] = "url"
    value: str
    mime_type: Maybe[str] = None


class FileSource(Tagged, tag_field="type", tag="file", frozen=True, kw_only=True):
    """A file id of a provider's file store. It is passed on, and never dereferenced (IN-8)."""

    type: ClassVar[Literal["file"]] = "file"
    value: str
    provider: Maybe[str] = None
    mime_type: Maybe[str] = None


PartSource = DataSource | UrlSource | FileSource
"""The source of a media part's bytes."""


class TextPart(Tagged, tag_field="type", tag="text", frozen=True, kw_only=True):
    """A text part."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    id: Maybe[str] = None
    metadata: Maybe[AnyJSON] = None


class _MediaPart(Tagged, frozen=True, kw_only=True):
    source: PartSource
    id: Maybe[str] = None
    metadata: Maybe[AnyJSON] = None


class ImagePart(_MediaPart, tag_field="type", tag="image", frozen=True, kw_only=True):
    """An image."""

    type: ClassVar[Literal["image"]] = "image"


class AudioPart(_MediaPart, tag_field="type", tag="audio", frozen=True, kw_only=True):
    """An audio file."""

    type: ClassVar[Literal["audio"]] = "audio"


class VideoPart(_MediaPart, tag_field="type", tag="video", frozen=True, kw_only=True):
    """A video."""

    type: ClassVar[Literal["video"]] = "video"


class DocumentPart(_MediaPart, tag_field="type", tag="document", frozen=True, kw_only=True):
    """Any other file: PDF, spreadsheet, archive, plain text."""

    type: ClassVar[Literal["document"]] = "document"


MediaPart = ImagePart | AudioPart | VideoPart | DocumentPart
"""A part with a source."""

ContentPart = TextPart | ImagePart | AudioPart | VideoPart | DocumentPart
"""A part of multimodal content."""


def is_plain_text(content: str | Sequence[ContentPart] | None) -> bool:
    """Return whether content is one text part without id and metadata, which is encoded as a plain string."""
    if not isinstance(content, list | tuple) or len(content) != 1:
        return False
    part = content[0]
    return part.__class__ is TextPart and part.id is None and part.metadata is None
