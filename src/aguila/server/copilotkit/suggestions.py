"""Recognize a request for suggestions."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.values import is_object

_SUGGEST_TOOL: Final = "copilotkitSuggest"


class _Input(msgspec.Struct, rename="camel"):
    forwarded_props: Any = None


def is_suggestion(body: bytes) -> bool:
    """Return whether a RunAgentInput asks for suggestions: then CopilotKit forces the choice of its own tool."""
    if _SUGGEST_TOOL.encode() not in body:
        return False
    try:
        props = decode_json(body, _Input).forwarded_props
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False  # decoding the input reports the error
    choice: Any = props.get("toolChoice") if is_object(props) else None
    function: Any = choice.get("function") if is_object(choice) else None
    return is_object(function) and function.get("name") == _SUGGEST_TOOL
