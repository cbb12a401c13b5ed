"""Map message parts to contents and back (MSG, IN-8). No URL is fetched and no file is opened."""

from __future__ import annotations

import binascii
import re
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from aguila.chat.own_metadata import OWN, add_own_metadata, read_own_metadata
from aguila.chat.property_keys import CONTENT_ID, FILENAME, METADATA, PART_KIND, PROVIDER, REQUIRES_RESOLUTION
from aguila.chat.types import (
    OCTET_STREAM,
    Content,
    DataContent,
    HostedFileContent,
    Properties,
    TextContent,
    UriContent,
)
from aguila.codec.compat.context import SPELLING
from aguila.codec.compat.documents import convert_binary_part
from aguila.codec.dialects.content import as_binary
from aguila.codec.json.values import is_object
from aguila.codec.notices import Notice, Warn
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import (
    AudioPart,
    ContentPart,
    DataSource,
    DocumentPart,
    FileSource,
    ImagePart,
    MediaPart,
    PartSource,
    TextPart,
    UrlSource,
    VideoPart,
)
from aguila.protocol.legacy import BinaryInputContent

_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_MEDIA_TYPE = re.compile(rf"{_NAME}/{_NAME}(?:\s*;.*)?\Z", re.DOTALL)
_WHITESPACE = {ord(c): None for c in " \t\r\n"}
_PARTS: dict[str, type[MediaPart]] = {
    "image": ImagePart,
    "audio": AudioPart,
    "video": VideoPart,
    "document": DocumentPart,
}


class UnreadablePart(Exception):
    """The bytes of a part cannot be read. The message is used without the part."""


# AG-UI to chat


def read_parts(content: str | list[ContentPart], warn: Warn, path: str, raw: object = None) -> list[Content]:
    """Convert the content of a message. ``raw`` is the raw representation of a plain string.

    A part that cannot be read is skipped with a notice.

    Raises ``DecodeError`` for a retired binary part without data, url and id (ERA-3).
    """
    if isinstance(content, str):
        return [TextContent(content, raw_representation=raw)]
    contents: list[Content] = []
    for index, part in enumerate(content):
        try:
            contents.append(read_part(part))
        except UnreadablePart as reason:
            warn(Notice(rule="MSG-2", message=f"skipped a part: {reason}", path=f"{path}/{index}"))
    return contents


def read_part(part: ContentPart | BinaryInputContent) -> Content:
    """Convert one part. Raises ``UnreadablePart``, and ``DecodeError`` as ``read_parts`` does."""
    if isinstance(part, BinaryInputContent):
        return msgspec.structs.replace(read_part(_upgrade_part(part)), raw_representation=part)
    properties = _collect_properties(part)
    if not isinstance(part, TextPart) and read_own_metadata(part.metadata).get(SPELLING) == "binary":
        return _read_marked_part(part)
    if isinstance(part, TextPart):
        return TextContent(part.text, additional_properties=properties, raw_representation=part)
    source = part.source
    media_type = _media_type(source.mime_type)
    if _part_kind(media_type) != part.type:
        properties[PART_KIND] = part.type
    if isinstance(source, FileSource):
        # Without a provider it is the id of an upload, which we resolve. A provider's file is passed on.
        if source.provider is None:
            properties[REQUIRES_RESOLUTION] = True
        else:
            properties[PROVIDER] = source.provider
        properties.setdefault(CONTENT_ID, source.value)
        return HostedFileContent(source.value, media_type, additional_properties=properties, raw_representation=part)
    if isinstance(source, UrlSource) and source.value[:5].lower() != "data:":
        return UriContent(source.value, media_type, additional_properties=properties, raw_representation=part)
    if isinstance(source, UrlSource):
        data, own_type = read_data_uri(source.value)
        media_type = own_type if media_type is None else media_type
    else:
        data = decode_base64(source.value)
    return DataContent(data, media_type, additional_properties=properties, raw_representation=part)


def _read_marked_part(part: MediaPart) -> Content:
    """Convert a part of an input that was a binary part, which is then the raw representation."""
    own = read_own_metadata(part.metadata)
    unmarked = msgspec.structs.replace(part, metadata=_without_mark(part.metadata))
    binary = as_binary(unmarked, lambda what, path: None, "")
    if part.source.mime_type is None:
        binary = msgspec.structs.replace(binary, mime_type=None)
    if isinstance(url := own.get("url"), str):
        binary = msgspec.structs.replace(binary, url=url)
    return msgspec.structs.replace(read_part(unmarked), raw_representation=binary)


def _without_mark(metadata: Any) -> Any:
    own = {name: value for name, value in read_own_metadata(metadata).items() if name != SPELLING}
    rest = {name: value for name, value in metadata.items() if name != OWN}
    return ({**rest, OWN: own} if own else rest) or None


def read_data_uri(uri: str) -> tuple[bytes, str | None]:
    """Return the bytes of a ``data:`` URI and its media type, if it has one. Raises ``UnreadablePart``."""
    head, comma, body = uri[5:].partition(",")
    if not comma:
        raise UnreadablePart("the data: URI has no data")
    is_base64 = head[-7:].lower() == ";base64"
    if is_base64:
        head = head[:-7]
    # "data:;charset=utf-8,x" has a parameter but no type.
    media_type = None if head == "" or head.startswith(";") else _media_type(head)
    data = unquote_to_bytes(body)
    return (decode_base64(data.decode("latin-1")) if is_base64 else data), media_type


def decode_base64(text: str) -> bytes:
    """Decode strict base64, with or without line breaks.

    Large texts are decoded in slices. Raises ``UnreadablePart``.
    """
    if any(c in text for c in " \t\r\n"):
        text = text.translate(_WHITESPACE)
    # Python 3.11 accepts surplus padding. Complete base64 has a length that is a multiple of four.
    if len(text) % 4 == 0 and text.find("=", 0, max(len(text) - 4, 0)) < 0:
        with suppress(ValueError):  # also raised for text that is not ASCII
            return binascii.a2b_base64(text, strict_mode=True)
    raise UnreadablePart("its data is not base64")


def _media_type(value: str | None) -> str | None:
    if value is None or value == "":
        return None
    if _MEDIA_TYPE.match(value) is None:
        raise UnreadablePart(f"{value!r} is not a media type")
    return value


def _part_kind(media_type: str | None) -> str:
    family = "" if media_type is None else media_type.partition("/")[0].lower()
    return family if family in ("image", "audio", "video") else "document"


def _collect_properties(part: ContentPart) -> Properties:
    properties: Properties = {}
    if part.id is not None:
        properties[CONTENT_ID] = part.id
    metadata: Any = part.metadata
    if is_object(metadata) and isinstance(metadata.get(FILENAME), str):
        properties[FILENAME] = metadata[FILENAME]
        metadata = {key: value for key, value in metadata.items() if key != FILENAME} or None
    if metadata is not None:
        properties[METADATA] = metadata
    return properties


def _upgrade_part(part: BinaryInputContent) -> ContentPart:
    media = convert_binary_part(msgspec.to_builtins(part))
    if media is None:
        raise DecodeError("a binary part needs one of data, url and id", rule="ERA-3")
    return msgspec.convert(media, ContentPart)


# Chat to AG-UI


def write_parts(contents: list[Content], warn: Warn, of: str) -> str | list[ContentPart]:
    """Convert contents to the content of a message: a string for plain text, else parts.

    No contents are an empty string. Raises ``EncodeError`` for a content that cannot be a part.
    """
    if not contents:
        return ""
    if len(contents) == 1:
        only = contents[0]
        if isinstance(only, TextContent) and not only.additional_properties.keys() & {CONTENT_ID, METADATA, FILENAME}:
            return only.text
    return [write_part(content, warn, of) for content in contents]


def write_part(content: Content | ContentPart, warn: Warn, of: str) -> ContentPart:
    """Convert one content to a part. A part is returned unchanged. Raises ``EncodeError`` for other contents."""
    if isinstance(content, ContentPart):
        return content
    if not isinstance(content, (TextContent, DataContent, UriContent, HostedFileContent)):
        raise EncodeError(f"{of} cannot contain {type(content).__name__}")
    properties = content.additional_properties
    part_id, metadata = properties.get(CONTENT_ID), _merge_file_name(properties, warn)
    if isinstance(content, TextContent):
        return TextPart(text=content.text, id=part_id, metadata=metadata)
    source = _make_source(content)
    if isinstance(source, FileSource) and part_id == source.value:
        part_id = None
    kind = properties.get(PART_KIND)
    if kind not in _PARTS:
        kind = _part_kind(source.mime_type)
    if isinstance(content.raw_representation, BinaryInputContent) and (metadata is None or is_object(metadata)):
        metadata = add_own_metadata(metadata, spelling="binary")
    return _PARTS[kind](source=source, id=part_id, metadata=metadata)


def _make_source(content: DataContent | UriContent | HostedFileContent) -> PartSource:
    properties = content.additional_properties
    media_type = None if content.media_type == "" else content.media_type
    if isinstance(content, HostedFileContent):
        return FileSource(value=content.file_id, provider=properties.get(PROVIDER), mime_type=media_type)
    if isinstance(content, DataContent):
        # Other libraries write a reference to an upload as a DataContent without bytes.
        if content.data == b"" and properties.get(REQUIRES_RESOLUTION) is True and CONTENT_ID in properties:
            known_type = None if media_type == OCTET_STREAM else media_type  # else that of the upload would not count
            return FileSource(value=properties[CONTENT_ID], mime_type=known_type)
        return _data_source(content.data, media_type)
    if content.uri[:5].lower() != "data:":
        return UrlSource(value=content.uri, mime_type=media_type)
    try:
        data, own_type = read_data_uri(content.uri)
    except UnreadablePart as reason:
        raise EncodeError(f"UriContent: {reason}") from None
    return _data_source(data, own_type if media_type is None else media_type)


def _data_source(data: bytes, media_type: str | None) -> DataSource:
    return DataSource(value=encode_base64(data), mime_type=OCTET_STREAM if media_type is None else media_type)


def encode_base64(data: bytes, head: str = "") -> str:
    """Encode bytes as base64, after ``head``."""
    return head + binascii.b2a_base64(data, newline=False).decode("ascii")


def _merge_file_name(properties: Properties, warn: Warn) -> Any:
    metadata, filename = properties.get(METADATA), properties.get(FILENAME)
    if filename is None:
        return metadata
    if metadata is not None and not is_object(metadata):
        warn(Notice(rule="META-1", message="dropped a file name, because the part's metadata is not an object"))
        return metadata
    return {**metadata, FILENAME: filename} if metadata is not None else {FILENAME: filename}
