"""Layer: providers. Messages as a model is to see them again, by what their metadata says of them.

Below: ``aguila.chat.own_metadata``, ``_media``. Above: ``View``. A run's own answers and a history that a client
sends go through here alike, so that a model sees the same in each: providers keep what they have read, or sign thoughts
for it. Metadata that does not fit its message is as good as none: a client may send whatever it likes.
"""

from __future__ import annotations

from typing import Any

from aguila.chat import ChatMessage, Content, FunctionResultContent, TextContent
from aguila.chat.keys import METADATA
from aguila.chat.own_metadata import own_of
from aguila.codec.json import encode
from aguila.codec.notice import Warn
from aguila.codec.values import is_object
from aguila.protocol import replace
from aguila.providers._media import result_contents


def as_said(message: ChatMessage, warn: Warn) -> ChatMessage:
    """A message with all that its metadata says of it; itself if that is nothing."""
    own = own_of(message.additional_properties.get(METADATA))
    if not own:
        return message
    if message.role == "tool":
        return _answered(message, own, warn)
    return message


def _answered(message: ChatMessage, own: dict[str, Any], warn: Warn) -> ChatMessage:
    """Results with their errors, and with word of arguments that the user edited: the model knows only its own."""
    error, edited = own.get("error"), own.get("arguments")
    contents: list[Content] = []
    for content in message.contents:
        if isinstance(content, FunctionResultContent):
            if content.error is None and isinstance(error, str):
                content = replace(content, error=error)
            if is_object(edited):
                note = TextContent(f"(The user changed the arguments to {encode(edited).decode()}.)")
                content = replace(content, result=[*result_contents(content, warn), note])
        contents.append(content)
    return replace(message, contents=contents)
