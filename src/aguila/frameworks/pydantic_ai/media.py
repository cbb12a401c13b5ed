"""Files in messages and results, for models that read only some of them.

A file that a model cannot read does not fail the run: one video would poison the thread. It is left out with a notice
(IN-6). What a model reads is said by the profile that pydantic-ai has of it. pydantic-ai itself replaces unreadable
files in the results of tools by a line of text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as replace_part
from typing import Any, cast

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FileUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import Model

from aguila.chat import (
    ChatMessage,
    Content,
    DataContent,
    FunctionResultContent,
    HostedFileContent,
    TextContent,
    UriContent,
)
from aguila.chat.allowed_media import AllowedMedia
from aguila.chat.media import UnreadablePart, read_data_uri, read_part
from aguila.chat.property_keys import PART_KIND, PROVIDER
from aguila.codec.json.values import is_array
from aguila.codec.logs import log_fields
from aguila.codec.notices import Notice, Warn
from aguila.errors import DecodeError
from aguila.protocol import ContentPart, MediaPart, replace

_log = logging.getLogger("aguila")
_REFUSED = "the request could not be made with it"
_URLS = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/javascript")


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


def user_contents(contents: Iterable[Content | ContentPart], warn: Warn) -> list[UserContent]:
    """Convert the contents of a message or result. One that no model can read is left out with a notice."""
    made: list[UserContent] = []
    for content in contents:
        try:
            found = _user_content(content if isinstance(content, Content) else read_part(content))
        except (UnreadablePart, DecodeError) as reason:
            warn(Notice(rule="IN-6", message=f"skipped a part that the model cannot read: {reason}"))
        else:
            if found != "":
                made.append(found)
    return made


def _user_content(content: Content) -> UserContent:
    match content:
        case TextContent():
            return content.text
        case UriContent() if content.uri[:5].lower() == "data:":
            data, media_type = read_data_uri(content.uri)
            return _binary(data, content.media_type or media_type or "text/plain")
        case DataContent():
            return _binary(content.data, content.media_type)
        case UriContent():
            return _url(content)
        case HostedFileContent():
            provider: Any = content.additional_properties.get(PROVIDER)
            if not isinstance(provider, str) or content.file_id == "":
                raise UnreadablePart("the file is not stored by the provider of a model")
            return UploadedFile(content.file_id, cast("Any", provider), media_type=content.media_type)
        case _:
            raise UnreadablePart(f"{type(content).__name__} is not for models")


def _binary(data: bytes, media_type: str) -> UserContent:
    if data == b"":
        raise UnreadablePart("it is empty")
    plain = media_type.partition(";")[0].strip().lower()
    if plain.startswith("text/") or plain in _TEXTS:
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            raise UnreadablePart("it is not UTF-8 text") from None
    return BinaryContent(data, media_type=plain)


def _url(content: UriContent) -> UserContent:
    if content.uri.partition(":")[0].lower() not in ("http", "https"):
        raise UnreadablePart("its URL is not http or https")
    media_type = None if content.media_type is None else content.media_type.partition(";")[0].strip().lower()
    kind = content.additional_properties.get(PART_KIND)
    family = kind if isinstance(kind, str) else (media_type or "").partition("/")[0]
    made = _URLS.get(family, DocumentUrl)(content.uri, media_type=media_type)
    try:
        made.media_type  # noqa: B018 - most models need it, and pydantic-ai guesses it from the address
    except ValueError:
        raise UnreadablePart("its media type is unknown") from None
    return made


def readable_messages(
    messages: Sequence[ModelMessage], model: Model, allowed: AllowedMedia, warn: Warn
) -> list[ModelMessage]:
    """Leave out files that a model cannot read, and references in results that are not admitted, with notices."""
    return _filter_files(
        messages, lambda item: _problem_of(item, model), lambda item: _problem_of_reference(item, allowed), warn
    )


def without_files(messages: Sequence[ModelMessage], error: Exception, warn: Warn) -> list[ModelMessage] | None:
    """Leave out the addresses of files, or else all files, after a request could not be made with them.

    Some models load addresses themselves, and pydantic-ai knows not all that a model reads. Returns None if there are
    no files.
    """
    for kinds in (FileUrl, (BinaryContent, UploadedFile)):

        def find_problem(item: UserContent, kinds: Any = kinds) -> str | None:
            return _REFUSED if isinstance(item, kinds) else None

        left = _filter_files(messages, find_problem, find_problem, warn)
        if any(new is not old for new, old in zip(left, messages, strict=True)):
            _log.warning("the model's request could not be made with these files", exc_info=error, extra=log_fields())
            return left
    return None


_FindProblem = Callable[[UserContent], str | None]


def _filter_files(
    messages: Sequence[ModelMessage], of_users: _FindProblem, of_tools: _FindProblem, warn: Warn
) -> list[ModelMessage]:
    found: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            parts = [_filter_part(part, of_users, of_tools, warn) for part in message.parts]
            if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
                message = replace_part(message, parts=parts)
        found.append(message)
    return found


def _filter_part(
    part: ModelRequestPart, of_users: _FindProblem, of_tools: _FindProblem, warn: Warn
) -> ModelRequestPart:
    if not isinstance(part, (UserPromptPart, ToolReturnPart)):
        return part
    is_users = isinstance(part, UserPromptPart)
    find_problem = of_users if is_users else of_tools
    several: Any = part.content
    items: list[Any] = list(several) if is_array(several) else [several]
    problems = [find_problem(item) for item in items]
    for problem in problems:
        if problem is not None:
            warn(Notice(rule="IN-6", message=f"skipped a part that the model cannot read: {problem}"))
    if not any(problems):
        return part
    left = [item for item, problem in zip(items, problems, strict=True) if problem is None]
    none_left = "(The user sent a file that cannot be shown to you.)" if is_users else ""
    return replace_part(part, content=left or none_left)


def _problem_of_reference(item: UserContent, allowed: AllowedMedia) -> str | None:
    if isinstance(item, FileUrl):
        return allowed.find_url_problem(item.url)
    return allowed.find_provider_problem(item.provider_name) if isinstance(item, UploadedFile) else None


def _problem_of(item: UserContent, model: Model) -> str | None:
    profile = model.profile
    match item:
        case UploadedFile():
            own = {model.system, model.canonical_system, *model.compatible_systems}
            return None if item.provider_name in own else f"the file is not stored by {model.system}"
        case ImageUrl() | BinaryContent(is_image=True):
            return None if profile.get("supports_image_input", True) else "it reads no images"
        case AudioUrl() | BinaryContent(is_audio=True):
            return None if profile.get("supports_audio_file_input", True) else "it reads no audio"
        case VideoUrl() | BinaryContent(is_video=True):
            return None if profile.get("supports_video_input", True) else "it reads no video"
        case DocumentUrl() | BinaryContent(is_document=True):
            known = profile.get("supported_document_media_types")
            if profile.get("supports_document_input", True) and (known is None or item.media_type in known):
                return None
            return f"it reads no documents of type {item.media_type}"
        case BinaryContent():
            plain = item.media_type.startswith("text/") or item.media_type in _TEXTS
            return None if plain else f"it reads no files of type {item.media_type}"
        case _:
            return None
