"""Rewrite messages and their parts for a dialect, and recognise the result when a client sends it back."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from aguila.codec.compat.context import METADATA_KEY, SPELLING
from aguila.codec.dialects.table import Dialect
from aguila.codec.json.values import is_array, is_object
from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    ContentPart,
    DataSource,
    FileSource,
    Message,
    ReasoningMessage,
    TextPart,
    ToolMessage,
    UrlSource,
    UserMessage,
    replace,
)
from aguila.protocol.legacy import BinaryInputContent
from aguila.protocol.parts import MediaPart

T = TypeVar("T")

Link = Callable[[FileSource], str | None]
"""Returns the address at which the reader can download a file; None if it cannot."""

Report = Callable[[str, str], None]
"""Receives a description of the loss and its JSON Pointer."""

_DESCRIBED: Final = re.compile(r"\[(?:image|audio|video|document|file)\b")
"""The beginning of the line that ``describe`` returns."""

_LINK: Final = "\x00"  # stands for a link in a text to match


def translate_message(message: Message, dialect: Dialect, link: Link | None, report: Report, path: str) -> Any:
    """Return a message as the dialect writes it: the same object if nothing changes, None if it has no form there."""
    if isinstance(message, ActivityMessage):
        if not dialect.activities:
            report("an activity message", path)
            return None
    elif isinstance(message, ReasoningMessage) and dialect.reasoning != "reasoning":
        report("a reasoning message", path)
        return None
    changes: dict[str, Any] = {}
    if not dialect.encrypted_value_types:
        changes = without_value_types(message, report, path)
    if not dialect.subagents and message.subagent_run_id is not None:
        changes["subagent_run_id"] = None
    if isinstance(message, UserMessage | ToolMessage) and not isinstance(message.content, str):
        content = translate_content(
            message.content, dialect, link, report, f"{path}/content", is_result=isinstance(message, ToolMessage)
        )
        if content is not message.content:
            changes["content"] = content
    return replace(message, **changes) if changes else message


def without_value_types(message: Message, report: Report, path: str) -> dict[str, Any]:
    """Return the changes that remove ``encryptedValueType`` from a message and its tool calls."""
    changes: dict[str, Any] = {}
    if not isinstance(message, ActivityMessage) and message.encrypted_value_type is not None:
        report("encryptedValueType", f"{path}/encryptedValueType")
        changes["encrypted_value_type"] = None
    if isinstance(message, AssistantMessage):
        calls: list[Any] = message.tool_calls or []
        if any(call.encrypted_value_type is not None for call in calls):
            report("encryptedValueType", f"{path}/toolCalls")
            changes["tool_calls"] = [replace(call, encrypted_value_type=None) for call in calls]
    return changes


def unless_unchanged(new: list[Any], old: list[T]) -> list[T]:
    """Return ``old`` if ``new`` has the same objects, else ``new``."""
    return old if all(one is other for one, other in zip(new, old, strict=True)) else new


def translate_content(
    parts: list[ContentPart], dialect: Dialect, link: Link | None, report: Report, path: str, *, is_result: bool
) -> Any:
    """Return parts as the dialect writes them: the same list if nothing changes."""
    if dialect.tool_parts if is_result else dialect.user_parts == "any":
        return parts
    if is_result or dialect.user_parts == "text":
        kinds = sorted({part.type for part in parts if isinstance(part, MediaPart)})
        if kinds:
            report(f"content that is not text ({', '.join(kinds)})", path)
        return as_text(parts, link)
    return unless_unchanged(
        [_user_part(part, dialect, link, report, f"{path}/{at}") for at, part in enumerate(parts)], parts
    )


def _user_part(part: ContentPart, dialect: Dialect, link: Link | None, report: Report, path: str) -> Any:
    if not isinstance(part, MediaPart):
        return part
    if dialect.user_parts == "binary":
        return as_binary(part, report, path)
    source = part.source
    if not isinstance(source, FileSource):
        return part
    address = None if link is None else link(source)
    if address is not None:
        return replace(part, source=UrlSource(value=address, mime_type=source.mime_type))
    report(f"a part with a file source ({part.type})", path)
    return TextPart(text=describe(part, link))


def as_text(parts: Sequence[ContentPart], link: Link | None) -> str:
    """Write parts as one text. A file becomes a line that says what it was: ``[image: image/png]``."""
    lines: list[str] = []
    is_text = False
    for part in parts:
        if not isinstance(part, TextPart):
            lines.append(describe(part, link))
            is_text = False
        elif is_text:
            lines[-1] += part.text
        else:
            lines.append(part.text)
            is_text = True
    return "\n".join(lines)


def describe(part: Any, link: Link | None) -> str:
    """Describe a file in one line: its kind, its name or MIME type, and its address if the reader can open it."""
    if not isinstance(part, MediaPart):
        return "[file]"
    source = part.source
    metadata = part.metadata
    filename = metadata.get("filename") if is_object(metadata) else None
    label = filename if isinstance(filename, str) and filename != "" else source.mime_type
    address = source.value if isinstance(source, UrlSource) else None
    if isinstance(source, FileSource) and link is not None:
        address = link(source)
    details = [detail for detail in (label, address) if detail]
    return f"[{part.type}: {', '.join(details)}]" if details else f"[{part.type}]"


def as_binary(part: Any, report: Report, path: str) -> BinaryInputContent:
    """Write a file as parts were up to 0.0.47: one kind for all, with a MIME type."""
    source = part.source
    # These clients require a MIME type.
    mime = "application/octet-stream" if source.mime_type is None else source.mime_type
    family, slash, _ = mime.partition("/")
    if part.type != (family if slash and family in ("image", "audio", "video") else "document"):
        report(f"that a part is {part.type}, with the MIME type {mime!r},", f"{path}/type")
    metadata = part.metadata
    filename = metadata.get("filename") if is_object(metadata) else None
    filename = filename if isinstance(filename, str) else None
    lost = metadata
    if is_object(metadata):
        lost = {key: value for key, value in metadata.items() if key != "filename" or filename is None}
    if lost and lost != {METADATA_KEY: {SPELLING: "binary"}}:
        report("a part's metadata", f"{path}/metadata")
    has_id = isinstance(source, DataSource | UrlSource)
    if part.id is not None and not has_id:
        report("a part's id", f"{path}/id")
    return BinaryInputContent(
        mime_type=mime,
        data=source.value if isinstance(source, DataSource) else None,
        url=source.value if isinstance(source, UrlSource) else None,
        id=part.id if has_id else source.value,
        filename=filename,
    )


# The way back


def may_be_translated(message: Message) -> bool:
    """Return whether a message may be a dialect's translation of one with files. It is quick: False is certain."""
    if not isinstance(message, UserMessage | ToolMessage):
        return False
    content = message.content
    if isinstance(content, str):
        return _DESCRIBED.search(content) is not None
    return any(isinstance(part, MediaPart) or _DESCRIBED.search(part.text) is not None for part in content)


def is_translation_of(content: Any, parts: Sequence[ContentPart]) -> bool:
    """Return whether content is some dialect's translation of these parts, so that a client sent it back unedited."""
    if isinstance(content, str):
        return _matches(content, as_text(parts, _any_link)) or content == as_text(parts, None)
    if not is_array(content) or len(content) != len(parts):
        return False
    return all(_same_part(new, old) for new, old in zip(content, parts, strict=True))


def _any_link(source: FileSource) -> str:
    return _LINK + source.value


def _matches(text: str, pattern: str) -> bool:
    """Match a text in which each link of ours is an address that ends with the id of the file."""
    if _LINK not in pattern:
        return text == pattern
    first, *rest = pattern.split(_LINK)
    expression = re.escape(first) + "".join(r"[^\s\]]*" + re.escape(piece) for piece in rest)
    return re.fullmatch(expression, text) is not None


def _same_part(sent: Any, held: Any) -> bool:
    if sent == held:
        return True
    if isinstance(held, TextPart):
        return isinstance(sent, TextPart) and sent.text == held.text
    if not isinstance(held, MediaPart):
        return False
    is_untyped = isinstance(held.source, FileSource) and held.source.mime_type is None
    if isinstance(sent, TextPart):
        has_type = is_untyped and re.fullmatch(rf"\[{held.type}: [^\s/\]]+/[^\s/\]]+\]", sent.text) is not None
        return has_type or sent.text == describe(held, None)
    if not isinstance(sent, MediaPart):
        return False
    if is_untyped and isinstance(sent.source, FileSource):  # the server adds the type that it has stored
        held = replace(held, source=replace(held.source, mime_type=sent.source.mime_type))
    if isinstance(held.source, FileSource) and isinstance(sent.source, UrlSource):
        return sent.source.value.endswith("/" + held.source.value)
    # All that survives a client that knows ``binary`` parts only.
    return as_binary(sent, _ignore, "") == as_binary(held, _ignore, "")


def _ignore(what: str, path: str) -> None:
    """Ignore a loss: it was reported when the message was sent."""
