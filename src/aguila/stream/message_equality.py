"""Decide whether a message that a peer sent back is the message that the conversation has."""

from __future__ import annotations

from typing import Any, Final

from aguila.codec.dialects import is_translation_of
from aguila.protocol import AssistantMessage, Message, ToolMessage, UserMessage, replace

_ANNOTATIONS: Final = ("name", "subagent_run_id", "metadata", "encrypted_value", "encrypted_value_type")


def is_same_message(sent: Message, known: Message, *, is_extended: bool = False) -> bool:
    """Return whether a sent message is the known one, whatever annotations the peer dropped.

    Peers drop names, metadata, attribution and encrypted values that they do not know, and older ones write contents in
    another form. With ``is_extended``, the known message may also have text, calls or other members that were added
    since.
    """
    if sent is known or sent == known:
        return True
    if sent.role != known.role:
        return False
    return _complete(sent, known, known.__struct_fields__ if is_extended else _ANNOTATIONS) == known


def _complete(sent: Any, known: Any, optional: tuple[str, ...]) -> Any:
    """Return the sent value, with its missing members taken from the known value."""
    missing: dict[str, Any] = {}
    for name in optional:
        value = getattr(known, name, None)
        if value is not None and getattr(sent, name, value) is None:
            missing[name] = value
    if isinstance(known, AssistantMessage):
        if not known.content and not sent.content:
            missing["content"] = known.content
        calls: list[Any] = known.tool_calls or []
        sent_calls: list[Any] = sent.tool_calls or []
        if len(sent_calls) == len(calls):
            completed = [_complete(one, call, _ANNOTATIONS) for one, call in zip(sent_calls, calls, strict=True)]
            missing["tool_calls"] = completed if calls else known.tool_calls
    elif (
        isinstance(known, UserMessage | ToolMessage)
        and not isinstance(known.content, str)
        and sent.content != known.content
        and is_translation_of(sent.content, known.content)
    ):
        missing["content"] = known.content  # a dialect wrote it in another form
    return replace(sent, **missing) if missing else sent
