"""Pack what a model wants back with a part of its answer: ids, signatures, details of the vendor (ENC).

Such a value travels as one string through stores and clients, and peers of protocol 1.0 lose its type (ENC-7). So the
string is a JSON object with our kind in it. pydantic-ai decides which vendor gets a detail back, by its
``provider_name``.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, ModelResponsePart
from pydantic_core import to_jsonable_python

from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.values import is_object

KIND = "pydantic_ai.part"
"""The type of our opaque values."""

_DETAILS = ("id", "signature", "provider_name", "provider_details")


def details_of(part: ModelResponsePart) -> dict[str, Any]:
    """Return what the vendor wants back with a part, as JSON; empty if there is nothing."""
    found = {name: value for name in _DETAILS if (value := getattr(part, name, None)) is not None}
    return to_jsonable_python(found) if found.keys() - {"provider_name"} else {}


def whole_part(part: ModelResponsePart) -> dict[str, Any]:
    """Return a whole part as JSON, for parts that a message cannot express."""
    (response,) = ModelMessagesTypeAdapter.dump_python([ModelResponse(parts=[part])], mode="json")
    return {"part": response["parts"][0]}


def read_whole_part(value: Any) -> ModelResponsePart | None:
    """Return the part that ``whole_part`` made JSON of; None if a client changed it."""
    try:
        (response,) = ModelMessagesTypeAdapter.validate_python([{"kind": "response", "parts": [value]}])
    except ValueError:
        return None
    return response.parts[0] if isinstance(response, ModelResponse) else None


def pack(members: dict[str, Any]) -> str | None:
    """Pack details into one string; None if there are none."""
    return msgspec.json.encode({"kind": KIND, **members}).decode() if members else None


def unpack(value: object) -> dict[str, Any]:
    """Return packed details; empty if the value was not made by ``pack``."""
    if not isinstance(value, str):
        return {}
    try:
        found = decode_json(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    if not is_object(found) or found.get("kind") != KIND:
        return {}
    return {name: member for name, member in found.items() if name != "kind"}


def usable_details(found: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the details that have the type of pydantic-ai's fields: a client may have changed them."""
    texts = {name: found[name] for name in names if isinstance(found.get(name), str)}
    if is_object(found.get("provider_details")):
        texts["provider_details"] = found["provider_details"]
    return texts if "provider_name" in texts else {}
