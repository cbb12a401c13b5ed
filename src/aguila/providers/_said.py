"""Layer: providers. Messages as a model is to see them again, by what their metadata says of them.

Below: ``aguila.chat.own_metadata``, ``_media``. Above: ``View``. A run's own answers and a history that a client
sends go through here alike, so that a model sees the same in each: providers keep what they have read, or sign thoughts
for it. Metadata that does not fit its message is as good as none: a client may send whatever it likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aguila.chat import ChatMessage, Content, FunctionCallContent, FunctionResultContent, TextContent
from aguila.chat.own_metadata import read_own_metadata
from aguila.chat.property_keys import METADATA
from aguila.codec.json import encode
from aguila.codec.notice import Warn
from aguila.codec.values import is_array, is_object
from aguila.protocol import replace
from aguila.providers._citations import CITATIONS, Citation, read_citations
from aguila.providers._media import result_contents


def as_said(message: ChatMessage, warn: Warn) -> ChatMessage:
    """A message with all that its metadata says of it; itself if that is nothing."""
    own = read_own_metadata(message.additional_properties.get(METADATA))
    if message.role == "assistant":
        message = _called(message)
        return _told(message, own) if own else message
    return _answered(message, own, warn) if own and message.role == "tool" else message


def _called(message: ChatMessage) -> ChatMessage:
    """Calls in the order that the model made them: one of the front end may have been told after others."""
    told: set[str] = set()
    late: dict[str, list[Content]] = {}  # by the call that they were made before
    others: list[Content] = []
    for content in message.contents:
        if isinstance(content, FunctionCallContent):
            before = read_own_metadata(content.additional_properties.get(METADATA)).get("before")
            if isinstance(before, str) and before in told:
                late.setdefault(before, []).append(content)
                continue
            told.add(content.call_id)
        others.append(content)
    if not late:
        return message
    contents: list[Content] = []
    for content in others:
        if isinstance(content, FunctionCallContent):
            contents += late.pop(content.call_id, ())
        contents.append(content)
    return replace(message, contents=contents)


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


def _told(message: ChatMessage, own: dict[str, Any]) -> ChatMessage:
    """An answer in the order it was said, and its texts with what they cite."""
    text, others = (message.contents[0], message.contents[1:]) if message.contents else (None, [])
    if not isinstance(text, TextContent):
        return message
    calls = {one.call_id: one for one in others if isinstance(one, FunctionCallContent)}
    if len(calls) != len(others):
        return message
    citations = read_citations(own.get("citations"))
    told: list[Content] = []
    start = 0
    for one in _order(own.get("order"), len(text.text), calls):
        if isinstance(one, str):
            told.append(calls.pop(one))
        else:
            told.append(_piece(text, start, start + one, citations))
            start += one
    return replace(message, contents=[*told, *calls.values()])


def _order(order: Any, length: int, calls: Mapping[str, FunctionCallContent]) -> list[int | str]:
    """The lengths of texts and ids of calls that an order is; all of the text if it is none for this message."""
    if not is_array(order) or not all(one in calls if isinstance(one, str) else type(one) is int for one in order):
        return [length]
    named = [one for one in order if isinstance(one, str)]
    lengths = [one for one in order if isinstance(one, int)]
    fits = len(set(named)) == len(named) and sum(lengths) == length and all(one > 0 for one in lengths)
    return order if fits else [length]


def _piece(text: TextContent, start: int, end: int, citations: list[Citation]) -> TextContent:
    """A stretch of a text, with what it cites. What has no place is cited at the beginning."""
    its = [
        one.within(start, end - start)
        for one in citations
        if start <= (0 if one.start is None else one.start) < max(end, start + 1)
    ]
    properties = {**text.additional_properties, CITATIONS: its} if its else text.additional_properties
    return replace(text, text=text.text[start:end], additional_properties=properties)
