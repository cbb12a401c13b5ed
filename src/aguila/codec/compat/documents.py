"""Compatibility rules for the contents of events and inputs: answers, parts, messages, tools."""

from __future__ import annotations

from typing import Any, NamedTuple

from aguila.codec.compat.context import SPELLING, Raw, RuleContext, move_to_metadata, omit
from aguila.codec.json.values import is_array, is_object
from aguila.errors import DecodeError


def interrupt_payload(raw: Raw, context: RuleContext) -> Raw:
    """Read an interrupt with a payload: an approval if the payload has a function name, else a question.

    A question keeps its own reason. An approval's own reason moves to the metadata with the payload.
    """
    has_reason = "reason" in raw
    member = "payload" if "payload" in raw or has_reason else "value"
    if member not in raw:
        return raw
    context.report(member)
    payload = raw[member]
    details = payload if is_object(payload) else {}
    interrupt = {**omit(raw, member), "payload": payload}
    if isinstance(details.get("functionName"), str):
        names = ("payload",) if raw.get("reason") == "tool_call" else ("payload", "reason")
        tool_call_id = raw.get("toolCallId", raw.get("id"))
        return {**move_to_metadata(interrupt, *names), "reason": "tool_call", "toolCallId": tool_call_id}
    interrupt.setdefault("reason", "input_required")
    if isinstance(prompt := details.get("prompt"), str):
        interrupt.setdefault("message", prompt)
    return move_to_metadata(interrupt, "payload")


def single_resume(resume: Any, context: RuleContext) -> Any:
    """Read a single answer, or an object around the list of answers, as a list."""
    if not is_object(resume):
        return resume
    context.report()
    for member in ("interrupts", "interrupt"):
        if is_array(resume.get(member)):
            return resume[member]
    return [resume]


_RESUME_ALIASES = {
    "interruptId": ("interrupt_id", "id", "toolCallId", "tool_call_id"),
    "payload": ("value", "response"),
}


def resume_aliases(raw: Raw, context: RuleContext) -> Raw:
    """Read other names of the two members of an answer."""
    entry = raw
    for member, aliases in _RESUME_ALIASES.items():
        alias = next((name for name in aliases if name in raw), None)
        if alias is not None and member not in raw:
            context.report(alias)
            entry = {**omit(entry, alias), member: raw[alias]}
    return entry


def resume_status(raw: Raw, context: RuleContext) -> Raw:
    """Add the status ``resolved`` to an answer without a status."""
    if "status" in raw or not isinstance(raw.get("interruptId"), str):
        return raw
    context.report("status")
    return {**raw, "status": "resolved"}


def binary_part(value: Any, context: RuleContext) -> Any:
    """Read a binary part as the media part of its MIME type (ERA-3).

    A malformed one in a stream, also one without MIME type, is later dropped as unknown, as the published client does.
    In a document, which a user sends, a part without content is an error, and the MIME type may be absent. Some peers
    send an attachment in both forms: in a list, a binary part that repeats a media part is dropped.
    """
    if is_array(value):
        return _without_duplicates(value, context)
    if context.event_type is None and is_object(value) and value.get("type") == "binary":
        if all(value.get(name) in (None, "") for name in ("data", "url", "id")):
            raise DecodeError("a binary part must have data, url or id", rule="ERA-3", path=context.path)
    elif is_object(value) and value.get("mimeType") is None:
        return value
    media = convert_binary_part(value)
    if media is None:
        return value
    context.report()
    return move_to_metadata({**media, SPELLING: "binary"}, SPELLING) if context.keeps_spelling else media


def _without_duplicates(parts: list[Any], context: RuleContext) -> list[Any]:
    present: set[tuple[str | None, ...]] = set()
    for part in parts:
        if is_object(part) and (key := _attachment(part)) is not None:
            present.add(key)
            present.add((*key[:-1], None))  # a binary part without filename equals a media part with any filename
    if not present:
        return parts
    duplicates = [
        i for i, part in enumerate(parts) if (binary := _read_binary_part(part)) is not None and binary.key in present
    ]
    if not duplicates:
        return parts
    context.report(str(duplicates[0]), "a binary part that repeats a media part beside it is dropped")
    dropped = frozenset(duplicates)
    return [part for i, part in enumerate(parts) if i not in dropped]


class _BinaryPart(NamedTuple):
    """The members of a valid binary part."""

    kind: str
    source: dict[str, str]
    filename: str | None
    rest: dict[str, str]
    """Further members, beside the one that became the source."""

    @property
    def key(self) -> tuple[str | None, ...]:
        """A key that equals the one of a media part of the same attachment; see ``_attachment``."""
        source = self.source
        return (self.kind, source["type"], source["value"], source.get("mimeType"), self.filename)


def _read_binary_part(part: Any) -> _BinaryPart | None:
    """Read a binary part. Return None for another part, a malformed one, or one without content."""
    if not is_object(part) or part.get("type") != "binary":
        return None
    mime = part.get("mimeType")
    given: dict[str, str] = {}
    for name in _BINARY_MEMBERS:
        value = part.get(name)
        if value is not None:
            if not isinstance(value, str):
                return None
            given[name] = value
    if not isinstance(mime, str | None):
        return None
    filename = given.pop("filename", None)
    # In the order data, url, id. An empty string is no content, as in the published SDKs.
    chosen = next((name for name in given if given[name] != ""), None)
    if chosen is None:
        return None
    source = {"type": "file" if chosen == "id" else chosen, "value": given.pop(chosen)}
    if mime is not None or chosen == "data":
        source["mimeType"] = "application/octet-stream" if mime is None else mime
    family, slash, _ = (mime or "").partition("/")
    kind = family if slash and family in ("image", "audio", "video") else "document"
    return _BinaryPart(kind, source, filename, given)


_BINARY_MEMBERS = ("data", "url", "id", "filename")


def convert_binary_part(part: Any) -> Raw | None:
    """Convert a binary part to a media part. Return None for another part, a malformed one, or one without content.

    An ``id`` beside data or url becomes the id of the part. Without a MIME type the part is a document, and its source
    has none; inline data, which needs one, is ``application/octet-stream``.
    """
    binary = _read_binary_part(part)
    if binary is None:
        return None
    given, filename = binary.rest, binary.filename
    media: Raw = {"type": binary.kind, "source": binary.source, **given}
    given.pop("id", None)
    metadata = part.get("metadata", {})
    if metadata is not None and (metadata or filename is not None):
        if filename is not None and is_object(metadata):
            metadata = {**metadata, "filename": filename}
        media["metadata"] = metadata
    return move_to_metadata(media, *given) if given else media


def _attachment(media: Raw) -> tuple[str | None, ...] | None:
    """Return a key that is equal for two media parts of the same attachment; None for a malformed part."""
    source, metadata = media.get("source"), media.get("metadata")
    if not is_object(source):
        return None
    key = (media.get("type"), source.get("type"), source.get("value"), source.get("mimeType"))
    filename = metadata.get("filename") if is_object(metadata) else None
    is_valid = all(isinstance(value, str) for value in key)
    return (*key, filename if isinstance(filename, str) else None) if is_valid else None


def message_id(value: Any, context: RuleContext) -> Any:
    """Add ids to messages without one. In a list the id follows from the index, so that it is the same next time.

    At the standard level this is for inputs: in an event that restates messages, an absent id is malformed.
    """
    if not context.is_wide and context.event_type is not None and not context.path.startswith("/input/"):
        return value
    if is_array(value):
        missing = {i for i, message in enumerate(value) if is_object(message) and message.get("id") is None}
        if not missing:
            return value
        context.report(f"{min(missing)}/id")
        return [{**m, "id": context.message_id(i)} if i in missing else m for i, m in enumerate(value)]
    if not is_object(value) or value.get("id") is not None:
        return value
    context.report("id")
    return {**value, "id": context.message_id(None)}


def tool_description(raw: Raw, context: RuleContext) -> Raw:
    """Add an empty description to a tool without one."""
    if raw.get("description") is not None:
        return raw
    context.report("description")
    return {**raw, "description": ""}


def tool_call_type(raw: Raw, context: RuleContext) -> Raw:
    """Add the type ``function`` to a tool call without one."""
    if raw.get("type") is not None:
        return raw
    context.report("type")
    return {**raw, "type": "function"}


def subagents_alias(raw: Raw, context: RuleContext) -> Raw:
    """Read the capability ``subAgents`` as ``subagents``."""
    if "subAgents" not in raw or "subagents" in raw:
        return raw
    context.report("subAgents")
    return {("subagents" if name == "subAgents" else name): value for name, value in raw.items()}
