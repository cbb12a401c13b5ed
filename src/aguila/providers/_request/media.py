"""Convert files in messages and results for a provider.

A content that a model cannot read does not fail the run. It is skipped with a notice (IN-6). A result whose parts are
all skipped becomes "" (TOOL-7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aguila.chat import (
    ChatMessage,
    Content,
    DataContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.allowed_media import AllowedMedia
from aguila.chat.media import UnreadablePart, encode_base64, read_data_uri, read_part
from aguila.chat.property_keys import FILENAME, PART_KIND, PROVIDER
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array
from aguila.codec.notices import Notice, Warn
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import (
    ContentPart,
    MediaPart,
    MultimodalCapabilities,
    MultimodalInputCapabilities,
    MultimodalOutputCapabilities,
    replace,
)

File = DataContent | UriContent | HostedFileContent
Block = dict[str, Any]

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that every provider here accepts."""
PDF = "application/pdf"


def leave_out_media(messages: Iterable[ChatMessage], allowed: AllowedMedia, warn: Warn) -> list[ChatMessage]:
    """Leave out references to media in user messages and results that are not admitted, each with a notice."""

    def is_admitted(content: object) -> bool:
        if isinstance(content, UriContent):
            problem = allowed.find_url_problem(content.uri)
        elif isinstance(content, HostedFileContent):
            problem = allowed.find_provider_problem(content.additional_properties.get(PROVIDER))
        else:
            problem = allowed.find_problem(content.source) if isinstance(content, MediaPart) else None
        if problem is not None:
            warn(Notice(rule="allowed-media", message=f"a part is left out: {problem}"))
        return problem is None

    def filter_result(content: Content) -> Content:
        if not isinstance(content, FunctionResultContent) or not is_array(content.result):
            return content
        left = [one for one in content.result if is_admitted(one)]
        return content if len(left) == len(content.result) else replace(content, result=left)

    found: list[ChatMessage] = []
    for message in messages:
        if message.role in ("user", "tool"):
            contents = [filter_result(one) for one in message.contents if is_admitted(one)]
            if len(contents) != len(message.contents) or any(
                new is not old for new, old in zip(contents, message.contents, strict=True)
            ):
                message = replace(message, contents=contents)
        found.append(message)
    return found


def multimodal(*, inputs: Iterable[str], outputs: Iterable[str] = ()) -> MultimodalCapabilities:
    """Declare which files a model reads and makes. Every model reads images, PDFs and text files."""
    read, made = {"image", "pdf", "file", *inputs}, set(outputs)
    return MultimodalCapabilities(
        input=MultimodalInputCapabilities(
            **{kind: kind in read for kind in ("image", "audio", "video", "pdf", "file")}
        ),
        output=MultimodalOutputCapabilities(**{kind: kind in made for kind in ("image", "audio")}),
    )


_ARRAY: Any = list
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})


def make_blocks(contents: Iterable[Content], make: Callable[[TextContent | File], Block], warn: Warn) -> list[Block]:
    """Convert contents by ``make``. Contents for which it raises ``UnreadablePart`` are skipped (IN-6)."""
    blocks: list[Block] = []
    for content in contents:
        if isinstance(content, ReasoningContent):
            continue
        if not isinstance(content, (TextContent, DataContent, UriContent, HostedFileContent)):
            warn(Notice(rule="IN-6", message=f"skipped {type(content).__name__}, which models cannot read"))
            continue
        try:
            blocks.append(make(_inline(content)))
        except UnreadablePart as reason:
            warn(Notice(rule="IN-6", message=f"skipped a part that the model cannot read: {reason}"))
    return blocks


def _inline(content: TextContent | File) -> TextContent | File:
    """Replace a ``data:`` URL by its data."""
    if isinstance(content, UriContent) and content.uri[:5].lower() == "data:":
        data, media_type = read_data_uri(content.uri)
        known = content.media_type if content.media_type is not None else media_type
        properties = content.additional_properties
        return DataContent(data, "text/plain" if known is None else known, additional_properties=properties)
    return content


def result_contents(result: FunctionResultContent, warn: Warn) -> list[Content]:
    """Return the contents of a result: non-empty text, or the error if there is nothing else."""
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
        warn(Notice(rule="TOOL-7", message=f"a result cannot be encoded as JSON: {error}"))
        return []


def kind_of(content: File) -> str:
    """Return ``image``, ``audio``, ``video`` or ``document``."""
    kind = content.additional_properties.get(PART_KIND)
    if isinstance(kind, str):
        return kind
    family = media_type_of(content).partition("/")[0]
    return family if family in ("image", "audio", "video") else "document"


def media_type_of(content: File) -> str:
    """Return the media type in lower case without parameters; empty if unknown."""
    media_type = content.media_type
    return "" if media_type is None else media_type.partition(";")[0].strip().lower()


def encode_data(content: DataContent, before: str = "") -> str:
    """Encode the bytes as base64. Raises ``UnreadablePart`` if there are none, which every provider refuses."""
    if content.data == b"":
        raise UnreadablePart("it is empty")
    return encode_base64(content.data, before)


def data_uri(content: DataContent) -> str:
    """Encode the bytes as a ``data:`` URI. Raises ``UnreadablePart`` if there are none."""
    return encode_data(content, f"data:{media_type_of(content)};base64,")


def read_url(content: UriContent) -> str:
    """Return a URL that a provider can fetch. Raises ``UnreadablePart`` for other schemes."""
    if content.uri.partition(":")[0].lower() not in ("http", "https"):
        raise UnreadablePart("its URL is not http or https")
    return content.uri


def read_file_id(content: HostedFileContent, provider: str) -> str:
    """Return the provider's own file id. Raises ``UnreadablePart`` for a file stored elsewhere (IN-8)."""
    if content.additional_properties.get(PROVIDER) != provider or content.file_id == "":
        raise UnreadablePart(f"the file {content.file_id!r} is not stored by {provider}")
    return content.file_id


def file_name(content: File, default: str) -> str:
    """Return the file name."""
    name = content.additional_properties.get(FILENAME)
    return name if isinstance(name, str) and name.strip() != "" else default


def read_text_file(content: File) -> str | None:
    """Return a text file as text, after its name; None if it is not a text file."""
    media_type = media_type_of(content)
    if not isinstance(content, DataContent) or not (media_type.startswith("text/") or media_type in _TEXTS):
        return None
    try:
        text = content.data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return f"{file_name(content, 'file')}:\n{text}"


def require_text(content: TextContent | File) -> str:
    """Return text, or a text file as text. Raises ``UnreadablePart`` for anything else, and for empty text."""
    text = content.text if isinstance(content, TextContent) else read_text_file(content)
    if text is None:
        raise UnreadablePart("only text is allowed here")
    if text == "":
        raise UnreadablePart("it is empty")
    return text
