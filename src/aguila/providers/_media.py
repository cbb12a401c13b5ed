"""Layer: providers. Contents of messages and results, looked at as a provider has to.

Below: ``aguila.chat``. Above: ``request`` of every provider. A content that a model cannot take never fails a run: it
is skipped with a notice (IN-6), and a result that loses all its parts this way is answered with "" (TOOL-7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aguila.chat import (
    Content,
    DataContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.media import UnreadablePart, encode_base64, read_data_uri, read_part
from aguila.chat.property_keys import FILENAME, PART_KIND, PROVIDER
from aguila.codec.json import encode
from aguila.codec.notice import Notice, Warn
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import ContentPart

File = DataContent | UriContent | HostedFileContent
Block = dict[str, Any]

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What every provider here takes as an image."""
PDF = "application/pdf"

_ARRAY: Any = list
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})


def blocks_of(contents: Iterable[Content], make: Callable[[TextContent | File], Block], warn: Warn) -> list[Block]:
    """The blocks that ``make`` gives for contents; those for which it raises ``UnreadablePart`` are skipped (IN-6)."""
    blocks: list[Block] = []
    for content in contents:
        if isinstance(content, ReasoningContent):
            continue
        if not isinstance(content, (TextContent, DataContent, UriContent, HostedFileContent)):
            warn(Notice(rule="IN-6", message=f"skipped {type(content).__name__}, which is no input of a model"))
            continue
        try:
            blocks.append(make(_inline(content)))
        except UnreadablePart as reason:
            warn(Notice(rule="IN-6", message=f"skipped a part that the model cannot take: {reason}"))
    return blocks


def _inline(content: TextContent | File) -> TextContent | File:
    """A ``data:`` address as the data it is."""
    if isinstance(content, UriContent) and content.uri[:5].lower() == "data:":
        data, media_type = read_data_uri(content.uri)
        known = content.media_type if content.media_type is not None else media_type
        properties = content.additional_properties
        return DataContent(data, "text/plain" if known is None else known, additional_properties=properties)
    return content


def result_contents(result: FunctionResultContent, warn: Warn) -> list[Content]:
    """What a result holds as contents; text that is not empty, or the error if there is nothing else."""
    value: Any = result.result
    if isinstance(value, str):
        contents: list[Content] = [TextContent(value)] if value != "" else []
    elif isinstance(value, list) and all(isinstance(one, (Content, ContentPart)) for one in value):  # type: ignore[reportUnknownVariableType]
        contents = _contents(value, warn)  # type: ignore[reportUnknownArgumentType]
    else:
        contents = _json_text(value, warn)
    if result.error is not None and not any(isinstance(one, TextContent) and one.text != "" for one in contents):
        contents.append(TextContent(result.error))
    return contents


def _contents(parts: list[Content | ContentPart], warn: Warn) -> list[Content]:
    contents: list[Content] = []
    for part in parts:
        try:
            contents.append(part if isinstance(part, Content) else read_part(part))
        except (UnreadablePart, DecodeError) as reason:
            warn(Notice(rule="MSG-2", message=f"skipped a part of a result: {reason}"))
    return contents


def _json_text(value: Any, warn: Warn) -> list[Content]:
    try:
        return [TextContent(encode(value).decode())]
    except EncodeError as error:
        warn(Notice(rule="TOOL-7", message=f"a result has no JSON form: {error}"))
        return []


def kind_of(content: File) -> str:
    """``image``, ``audio``, ``video`` or ``document``."""
    kind = content.additional_properties.get(PART_KIND)
    if isinstance(kind, str):
        return kind
    family = media_type_of(content).partition("/")[0]
    return family if family in ("image", "audio", "video") else "document"


def media_type_of(content: File) -> str:
    """The media type without parameters, in lower case; empty if nobody has said it."""
    media_type = content.media_type
    return "" if media_type is None else media_type.partition(";")[0].strip().lower()


def base64_of(content: DataContent, before: str = "") -> str:
    """The bytes as base64. Raises ``UnreadablePart`` if there are none: no provider takes a file without."""
    if content.data == b"":
        raise UnreadablePart("it is empty")
    return encode_base64(content.data, before)


def data_uri(content: DataContent) -> str:
    """The bytes as a ``data:`` URI. Raises ``UnreadablePart`` if there are none."""
    return base64_of(content, f"data:{media_type_of(content)};base64,")


def address_of(content: UriContent) -> str:
    """An address that a provider can fetch. Raises ``UnreadablePart`` for any other."""
    if content.uri.partition(":")[0].lower() not in ("http", "https"):
        raise UnreadablePart("its address is not of the web")
    return content.uri


def handle_of(content: HostedFileContent, provider: str) -> str:
    """The provider's own handle. Raises ``UnreadablePart`` if it is another's, or nobody's (IN-8)."""
    if content.additional_properties.get(PROVIDER) != provider or content.file_id == "":
        raise UnreadablePart(f"the file {content.file_id!r} is not one that {provider} holds")
    return content.file_id


def filename_of(content: File, default: str) -> str:
    """The name of the file."""
    name = content.additional_properties.get(FILENAME)
    return name if isinstance(name, str) and name.strip() != "" else default


def text_of_file(content: File) -> str | None:
    """A file of text as text, with its name before it; None if it is no such file."""
    media_type = media_type_of(content)
    if not isinstance(content, DataContent) or not (media_type.startswith("text/") or media_type in _TEXTS):
        return None
    try:
        text = content.data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return f"{filename_of(content, 'file')}:\n{text}"
