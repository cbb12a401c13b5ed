"""Convert objects of the official ``ag_ui.core`` to ours and back.

Reads and writes the models of ag-ui-protocol 0.1.19 and later. Neither ``ag_ui`` nor pydantic is imported before
``to_official`` is called.

Both directions go through the JSON form of the object, so both sides' own rules hold. What is lost or changed:

====================================  ============================================================================
``encrypted_value_type`` (1.1)        the official 1.0 models do not define it but keep what they do not define: it
                                      is there as ``model.encryptedValueType`` and comes back. An extra spelled
                                      ``encrypted_value_type`` is an unknown member and is stripped
other members unknown to us           an official model keeps them; stripped here, each with a notice (PROC-3)
optional members that are null        absent; required nulls and nulls inside opaque JSON are values and stay (PY-7)
a JSON Patch operation                a plain dict here, a model there; members of its own are kept (PROC-5)
opaque values that are not JSON       (dates, models, sets as ``raw_event``) become the JSON that pydantic makes of them
subclasses of official models         become the protocol type they extend
a RunAgentInput without ``tools``,    0.1 requires all four: ``to_official`` fills in ``[]`` and ``{}``
``context``, ``state`` or
``forwarded_props``
what 0.1 has no model for             ``EncodeError``: subagent events, token usage, file sources, cancelled outcomes,
                                      tool results that are parts
a JSON Patch operation for 0.1        stays a dict, as in its models
====================================  ============================================================================
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any, Final, get_args

import msgspec

import aguila.protocol
import aguila.protocol.legacy
from aguila.codec.json.decoder import EventDecoder
from aguila.codec.json.text import refuse_non_finite_numbers
from aguila.codec.json.validation import enforce_document
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Warn, log_notice
from aguila.errors import DecodeError, EncodeError, MissingExtra
from aguila.protocol import Event, EventType, Message
from aguila.protocol._base import Wire

_EVENTS: Final = {"BaseEvent", *(cls.__name__ for cls in get_args(Event))}
_OPERATIONS: Final = {f"{op}Operation" for op in ("Add", "Remove", "Replace", "Move", "Copy", "Test")}
_NAMES_IN_0_1: Final = {
    "TextPart": "TextInputContent",
    "ImagePart": "ImageInputContent",
    "AudioPart": "AudioInputContent",
    "VideoPart": "VideoInputContent",
    "DocumentPart": "DocumentInputContent",
    "DataSource": "InputContentDataSource",
    "UrlSource": "InputContentUrlSource",
    "SubagentInfo": "SubAgentInfo",
}
_REQUIRED_IN_0_1: Final[dict[str, Any]] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
_COMMON_BASES: Final = {"GeneratedBaseModel", "ConfiguredBaseModel", "Attributable"}


def is_official(obj: object) -> bool:
    """Return whether an object's class is one of ``ag_ui`` or derived from one. Imports nothing."""
    return _official_name(type(obj)) is not None


def from_official(model: Any, *, warn: Warn | None = None) -> Any:
    """Convert an object of ``ag_ui.core``: an event, message, part, input, declaration, patch operation or enum member.

    The object is decoded like received JSON: unknown members are stripped with a notice to ``warn`` (default: the
    ``aguila`` logger), and values that the schema refuses raise ``DecodeError``; the official models accept some of
    them. Raises ``TypeError`` for an object that is not official, ``EncodeError`` for one without a JSON form, NaN and
    Infinity included.
    """
    name = _official_name(model.__class__)
    if name is None:
        raise TypeError(f"not an object of ag_ui: {model!r}")
    if name == "EventType":
        return EventType(model.value)
    try:
        raw: dict[str, Any] = model.model_dump(mode="json", by_alias=True)
        _remove_absent(model, raw)
        # pydantic writes NaN and Infinity as null (PY-8); only the Python form still has them
        refuse_non_finite_numbers(model.model_dump(by_alias=True))
    except EncodeError:
        raise
    except ValueError as error:
        raise EncodeError(f"{name} has no JSON form: {error}") from error
    if name in _OPERATIONS:
        return raw
    warn = warn or log_notice
    if name in _EVENTS:
        events = EventDecoder(compat="off", warn=warn).feed(raw)
        if len(events) != 1:
            raise DecodeError("the protocol has no such event", rule="PROC-3", path="/type")
        return events[0]
    ours: Any = Message if name == "BaseMessage" else getattr(aguila.protocol, name, None)
    if ours is None and name.startswith("Thinking"):
        ours = getattr(aguila.protocol.legacy, name, None)
    if ours is None:
        raise TypeError(f"the protocol has no {name}")
    return enforce_document(raw, ours, strict=False, warn=warn)


def to_official(obj: Any) -> Any:
    """Convert one of our objects, an ``EventType`` or a patch operation (a dict) to an object of ``ag_ui.core``.

    Raises ``MissingExtra`` without the official package, ``EncodeError`` for an object that its models refuse or do not
    have (the retired events), ``TypeError`` for one that is not of the protocol.
    """
    if not isinstance(obj, (Wire, dict, EventType)):
        raise TypeError(f"not a protocol object: {obj!r}")
    try:
        core: Any = importlib.import_module("ag_ui.core")
    except ImportError as error:
        raise MissingExtra("official", "ag-ui-protocol") from error
    if isinstance(obj, EventType):
        return core.EventType(obj.value)
    try:
        if isinstance(obj, dict):  # ag_ui.core does not export the operations: an event makes one
            return core.StateDeltaEvent(delta=[obj]).delta[0]
        name = type(obj).__name__
        model = getattr(core, name, None) or getattr(core, _NAMES_IN_0_1.get(name, name), None)
        if model is None:
            raise EncodeError(f"ag_ui.core has no {name}")
        raw = msgspec.to_builtins(obj)
        if not hasattr(core, "PROTOCOL_VERSION"):
            _complete_for_0_1(name, raw)
        return model.model_validate(raw)
    except EncodeError:
        raise
    except (TypeError, ValueError) as error:  # not JSON, or refused by pydantic
        raise EncodeError(str(error)) from error


def _complete_for_0_1(name: str, raw: dict[str, Any]) -> None:
    """Add the members that the 0.1 models require and the protocol does not, and use its member names."""
    if name == "RunAgentInput":
        for member, value in _REQUIRED_IN_0_1.items():
            raw.setdefault(member, value)
    elif name == "RunStartedEvent" and "input" in raw:
        _complete_for_0_1("RunAgentInput", raw["input"])
    elif name == "MultiAgentCapabilities" and "subagents" in raw:
        raw["subAgents"] = raw.pop("subagents")
    elif name == "AgentCapabilities" and "multiAgent" in raw:
        _complete_for_0_1("MultiAgentCapabilities", raw["multiAgent"])


def _remove_absent(model: Any, raw: dict[str, Any]) -> None:
    """Remove the optional members that are null, as the 1.0 models do by themselves and the 0.1 models do not."""
    cls: Any = model.__class__
    fields: dict[str, Any] = cls.model_fields
    for name, field in fields.items():
        member: str = field.serialization_alias or field.alias or name
        value: Any = getattr(model, name)
        if value is None:
            if not field.is_required() or member in _REQUIRED_IN_0_1:
                raw.pop(member, None)
        elif is_official(value):
            if is_object(raw[member]):  # not an enum
                _remove_absent(value, raw[member])
        elif is_array(value) and value and is_official(value[0]):
            for each, raw_each in zip(value, raw[member], strict=True):
                _remove_absent(each, raw_each)
    if "subAgents" in raw and cls.__name__ == "MultiAgentCapabilities":
        raw["subagents"] = raw.pop("subAgents")


@cache
def _official_name(cls: type) -> str | None:
    """Return the name of the official class that ``cls`` is or extends, or None."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "ag_ui" and base.__name__ not in _COMMON_BASES:
            return base.__name__
    return None
