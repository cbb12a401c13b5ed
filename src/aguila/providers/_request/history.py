"""Restore messages as the model wrote or saw them, from our members in their metadata.

Answers of this run and histories sent by a client are restored in the same way, so that the model sees the same
messages in each run. Providers cache these, and sign reasoning for them. Metadata that does not fit its message is
ignored: a client may send anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aguila.chat import ChatMessage, Content, FunctionCallContent, FunctionResultContent, TextContent
from aguila.chat.own_metadata import read_own_metadata
from aguila.chat.property_keys import METADATA
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Warn
from aguila.protocol import replace
from aguila.providers._request.media import result_contents
from aguila.providers._response.citations import CITATIONS, Citation, read_citations


def restore_message(message: ChatMessage, warn: Warn) -> ChatMessage:
    """Restore a message from its metadata. Returns the same object if there is nothing to restore."""
    own = read_own_metadata(message.additional_properties.get(METADATA))
    if message.role == "assistant":
        message = _restore_calls(message)
        return _restore_answer(message, own) if own else message
    return _restore_results(message, own, warn) if own and message.role == "tool" else message


def _restore_calls(message: ChatMessage) -> ChatMessage:
    """Restore the order of calls. A call of the front end may have been sent after later ones."""
    seen: set[str] = set()
    late: dict[str, list[Content]] = {}  # by the id of the call that they come before
    others: list[Content] = []
    for content in message.contents:
        if isinstance(content, FunctionCallContent):
            before = read_own_metadata(content.additional_properties.get(METADATA)).get("before")
            if isinstance(before, str) and before in seen:
                late.setdefault(before, []).append(content)
                continue
            seen.add(content.call_id)
        others.append(content)
    if not late:
        return message
    contents: list[Content] = []
    for content in others:
        if isinstance(content, FunctionCallContent):
            contents += late.pop(content.call_id, ())
        contents.append(content)
    return replace(message, contents=contents)


def _restore_results(message: ChatMessage, own: dict[str, Any], warn: Warn) -> ChatMessage:
    """Restore errors of results, and note arguments that the user edited: the model knows only its own."""
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


def _restore_answer(message: ChatMessage, own: dict[str, Any]) -> ChatMessage:
    """Restore the order of texts and calls, and the citations of texts."""
    text, others = (message.contents[0], message.contents[1:]) if message.contents else (None, [])
    if not isinstance(text, TextContent):
        return message
    calls = {one.call_id: one for one in others if isinstance(one, FunctionCallContent)}
    if len(calls) != len(others):
        return message
    citations = read_citations(own.get("citations"))
    restored: list[Content] = []
    start = 0
    for one in _read_order(own.get("order"), len(text.text), calls):
        if isinstance(one, str):
            restored.append(calls.pop(one))
        else:
            restored.append(_cut_text(text, start, start + one, citations))
            start += one
    return replace(message, contents=[*restored, *calls.values()])


def _read_order(order: Any, length: int, calls: Mapping[str, FunctionCallContent]) -> list[int | str]:
    """Return a stored order of text lengths and call ids, or the whole text if it does not fit the message."""
    if not is_array(order) or not all(one in calls if isinstance(one, str) else type(one) is int for one in order):
        return [length]
    named = [one for one in order if isinstance(one, str)]
    lengths = [one for one in order if isinstance(one, int)]
    fits = len(set(named)) == len(named) and sum(lengths) == length and all(one > 0 for one in lengths)
    return order if fits else [length]


def _cut_text(text: TextContent, start: int, end: int, citations: list[Citation]) -> TextContent:
    """Return a range of a text with its citations. Citations without a position are at the start."""
    its = [
        one.within(start, end - start)
        for one in citations
        if start <= (0 if one.start is None else one.start) < max(end, start + 1)
    ]
    properties = {**text.additional_properties, CITATIONS: its} if its else text.additional_properties
    return replace(text, text=text.text[start:end], additional_properties=properties)
