"""Recognize a request for suggestions."""

from __future__ import annotations

from typing import Final

import msgspec

from aguila.codec.json.bounded_floats import decode_json

_SUGGEST_TOOL: Final = "copilotkitSuggest"


class _Function(msgspec.Struct):
    name: str


class _ToolChoice(msgspec.Struct):
    function: _Function


class _ForwardedProps(msgspec.Struct, rename="camel"):
    tool_choice: _ToolChoice


class _Input(msgspec.Struct, rename="camel"):
    forwarded_props: _ForwardedProps


def is_suggestion(body: bytes) -> bool:
    """Return whether a RunAgentInput asks for suggestions: then CopilotKit forces the choice of its own tool."""
    if _SUGGEST_TOOL.encode() not in body:
        return False
    try:
        found = decode_json(body, _Input)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False  # there is no such choice, or decoding the input reports the error
    return found.forwarded_props.tool_choice.function.name == _SUGGEST_TOOL
