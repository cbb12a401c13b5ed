"""Hypothesis strategies for every type of the protocol. Needs the ``testing`` extra.

Every generated value is valid: a conforming sender may send it.

* Strings have no lone surrogates unless ``surrogates=True``.
* Numbers in free JSON are finite, and integers are exact for every peer.
* JSON Pointers follow their grammar (SNAP-7). Patch operations are well-formed, some with extra members (PROC-5); they
  need not apply to any document.
* An interrupt outcome has at least one interrupt, with unique ids (INT-1, INT-3). Message ids are unique in a list
  (ENV-12). The type of an encrypted value comes only with the value (ENC-6).
* Optional free values are never null (ENV-6); required ones may be (ENV-7).

``for_type(cls)`` reads the fields of the class, so that it covers a new field at once. A list from ``events()`` is
valid event by event, not as a stream.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from aguila.errors import MissingExtra
from aguila.protocol import (
    MAX_SAFE_INTEGER,
    ActivityDeltaEvent,
    AgentCapabilities,
    ContentPart,
    Context,
    Event,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    Metadata,
    PartSource,
    ResumeEntry,
    RunAgentInput,
    RunFinishedInterruptOutcome,
    RunFinishedOutcome,
    StateDeltaEvent,
    SubagentFinishedOutcome,
    TokenUsage,
    Tool,
    ToolCall,
)
from aguila.protocol._base import AnyJSON, Phantom, struct_fields
from aguila.protocol.legacy import BinaryInputContent, LegacyEvent

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy
except ImportError as error:
    raise MissingExtra("testing", "hypothesis") from error

__all__ = [
    "binary_contents",
    "capabilities",
    "contents",
    "contexts",
    "events",
    "for_type",
    "interrupts",
    "json_objects",
    "json_values",
    "legacy_events",
    "messages",
    "metadata",
    "outcomes",
    "parts",
    "patch_operations",
    "patches",
    "pointers",
    "resume_entries",
    "run_agent_inputs",
    "sources",
    "text",
    "token_usages",
    "tool_calls",
    "tools",
]

# Short lists find the same errors as long ones, and lists nest: messages, parts, metadata.
_MAX_LIST = 3

# Characters that have broken a codec somewhere: controls, the line separators of SSE readers (PY-2), the
# byte order mark, an astral character, JSON's own syntax.
_TRICKY_TEXT = ["", "\x00", "a\nb", "\r\n", "\u2028", "\u0085", "\ufeff", "\U0001f985", '"\\', "null", "data: x\n\n"]


# Plain JSON


@cache
def text(*, surrogates: bool = False) -> SearchStrategy[str]:
    """Generate strings, with empty and awkward ones. With ``surrogates``, some have a lone surrogate."""
    whole = st.sampled_from(_TRICKY_TEXT) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    if not surrogates:
        return whole
    # One surrogate between whole characters: a high one before a low one would be a character.
    return whole | st.tuples(whole, st.characters(categories=["Cs"]), whole).map("".join)


@cache
def json_values(*, null: bool = True, surrogates: bool = False, max_leaves: int = 6) -> SearchStrategy[Any]:
    """Generate any JSON value; without ``null``, anything but null itself (nulls inside remain)."""
    strings = text(surrogates=surrogates)
    scalars = (
        st.booleans()
        | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
        | st.floats(allow_nan=False, allow_infinity=False)
        | strings
    )
    values = st.recursive(
        st.none() | scalars,
        lambda inner: st.lists(inner, max_size=_MAX_LIST) | st.dictionaries(strings, inner, max_size=_MAX_LIST),
        max_leaves=max_leaves,
    )
    return values if null else values.filter(lambda value: value is not None)


@cache
def json_objects(*, surrogates: bool = False) -> SearchStrategy[dict[str, Any]]:
    """Generate open objects: activity content, response schemas, custom capabilities."""
    values = json_values(surrogates=surrogates)
    return st.dictionaries(text(surrogates=surrogates), values, max_size=_MAX_LIST)


@cache
def metadata(*, surrogates: bool = False) -> SearchStrategy[Metadata]:
    """Generate metadata objects: any keys, the reserved ``ag-ui`` among them, and null as a value (META-1, META-3)."""
    values = json_values(surrogates=surrogates)
    keys = st.sampled_from(["ag-ui", "vendor.example/trace"]) | text(surrogates=surrogates)
    return st.dictionaries(keys, values, max_size=_MAX_LIST)


# JSON Patch


@cache
def pointers(*, surrogates: bool = False) -> SearchStrategy[str]:
    """Generate JSON Pointers, the whole document and escaped tokens included (SNAP-7)."""

    def escape(token: str) -> str:
        return token.replace("~", "~0").replace("/", "~1")

    token = st.sampled_from(["0", "-", "a/b", "m~n", "items"]) | text(surrogates=surrogates)
    return st.lists(token.map(escape), max_size=_MAX_LIST).map(lambda tokens: "".join("/" + t for t in tokens))


@cache
def patch_operations(*, surrogates: bool = False) -> SearchStrategy[dict[str, Any]]:
    """Generate well-formed operations of all six kinds, as dicts.

    Some have members that their kind does not define, such as a ``remove`` with a ``value``; a receiver keeps those
    (PROC-5).
    """
    pointer = pointers(surrogates=surrogates)
    value = json_values(surrogates=surrogates)
    described: dict[str, dict[str, SearchStrategy[Any]]] = {
        "add": {"path": pointer, "value": value},
        "remove": {"path": pointer},
        "replace": {"path": pointer, "value": value},
        "move": {"from": pointer, "path": pointer},
        "copy": {"from": pointer, "path": pointer},
        "test": {"path": pointer, "value": value},
    }
    reserved = {"op", "path", "from", "value"}
    extra = st.dictionaries(
        text(surrogates=surrogates).filter(lambda key: key not in reserved), json_values(), max_size=1
    )

    def of_kind(op: str) -> SearchStrategy[dict[str, Any]]:
        members = described[op]
        leftover = {} if "value" in members else {"value": value}
        operation = st.fixed_dictionaries({"op": st.just(op), **members}, optional=leftover)
        return st.tuples(operation, extra).map(lambda pair: pair[0] | pair[1])

    return st.one_of([of_kind(op) for op in described])


@cache
def patches(*, surrogates: bool = False) -> SearchStrategy[list[dict[str, Any]]]:
    """Generate patches, the empty one included (SNAP-3)."""
    return st.lists(patch_operations(surrogates=surrogates), max_size=_MAX_LIST)


# Any wire type, from its fields


@cache
def for_type(cls: Any, *, surrogates: bool = False) -> SearchStrategy[Any]:
    """Generate valid objects of a wire type, or of a union such as ``Message`` or ``Event``.

    Raise TypeError for a type that is not in ``aguila.protocol``.
    """
    if cls is BinaryInputContent:
        return binary_contents(surrogates=surrogates)
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
        return _structs(cls, surrogates=surrogates)
    return _values(cls, surrogates=surrogates)


def _structs(cls: type[msgspec.Struct], *, surrogates: bool) -> SearchStrategy[Any]:
    """Generate objects of one class: all required fields, and some of the optional ones."""
    required: dict[str, SearchStrategy[Any]] = {}
    optional: dict[str, SearchStrategy[Any]] = {}
    for field in struct_fields(cls):
        values = _special(cls, field.name, surrogates=surrogates)
        if values is None:
            # Deferred, because types nest: messages, parts, sources, and an event with a whole input.
            values = st.deferred(lambda of=field.type: for_type(of, surrogates=surrogates))
        (required if field.required else optional)[field.name] = values

    def construct(members: Mapping[str, Any]) -> msgspec.Struct:
        if "encrypted_value_type" in members and "encrypted_value" not in members:  # ENC-6
            members = {name: value for name, value in members.items() if name != "encrypted_value_type"}
        return cls(**members)

    return st.fixed_dictionaries(required, optional=optional).map(construct)


def _special(cls: type[msgspec.Struct], name: str, *, surrogates: bool) -> SearchStrategy[Any] | None:
    """Return the strategy of a field whose type does not say which values are valid."""
    if (cls, name) in ((StateDeltaEvent, "delta"), (ActivityDeltaEvent, "patch")):
        return patches(surrogates=surrogates)
    if (cls, name) in ((RunAgentInput, "messages"), (MessagesSnapshotEvent, "messages")):
        return st.lists(messages(surrogates=surrogates), max_size=_MAX_LIST, unique_by=lambda message: message.id)
    if (cls, name) == (RunFinishedInterruptOutcome, "interrupts"):
        asked = interrupts(surrogates=surrogates)
        return st.lists(asked, min_size=1, max_size=_MAX_LIST, unique_by=lambda interrupt: interrupt.id)
    if name == "metadata" and next(f for f in struct_fields(cls) if f.name == name).type == Metadata:
        return metadata(surrogates=surrogates)
    if name == "expires_at":
        return st.datetimes().map(lambda moment: moment.isoformat() + "Z") | text(surrogates=surrogates)
    if name == "protocol_version":
        return st.sampled_from(["1.0", "1.1", "1.10", "2.0"])
    return None


def _values(of: Any, *, surrogates: bool) -> SearchStrategy[Any]:
    """Generate values of the type of a field."""
    if of is str:
        return text(surrogates=surrogates)
    if of is bool:
        return st.booleans()
    if of is Any:
        return json_values(surrogates=surrogates)
    if of == AnyJSON:
        return json_values(null=False, surrogates=surrogates)
    if of == dict[str, Any]:
        return json_objects(surrogates=surrogates)
    origin, arguments = get_origin(of), get_args(of)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is list:
        return st.lists(for_type(arguments[0], surrogates=surrogates), max_size=_MAX_LIST)
    if origin in (Union, types.UnionType):
        return st.one_of([for_type(member, surrogates=surrogates) for member in arguments if member is not Phantom])
    if origin is Annotated and arguments[0] is int:
        bounds = next(item for item in arguments[1:] if isinstance(item, msgspec.Meta))
        return st.integers(_whole(bounds.ge), _whole(bounds.le))
    raise TypeError(f"not a type of the protocol: {of!r}")


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


# Families of types


def sources(*, surrogates: bool = False) -> SearchStrategy[PartSource]:
    """Generate data, url and file sources."""
    return for_type(PartSource, surrogates=surrogates)


def parts(*, surrogates: bool = False) -> SearchStrategy[ContentPart]:
    """Generate text, image, audio, video and document parts."""
    return for_type(ContentPart, surrogates=surrogates)


def contents(*, surrogates: bool = False) -> SearchStrategy[str | list[ContentPart]]:
    """Generate contents of user and tool messages: a string, or a list of parts, which may be empty (MSG-3)."""
    return for_type(str | list[ContentPart], surrogates=surrogates)


def tool_calls(*, surrogates: bool = False) -> SearchStrategy[ToolCall]:
    """Generate tool calls. Arguments are any text, which need not be JSON (TOOL-3)."""
    return for_type(ToolCall, surrogates=surrogates)


def messages(*, surrogates: bool = False) -> SearchStrategy[Message]:
    """Generate messages of all seven roles."""
    return for_type(Message, surrogates=surrogates)


def tools(*, surrogates: bool = False) -> SearchStrategy[Tool]:
    """Generate tools that a front end offers."""
    return for_type(Tool, surrogates=surrogates)


def contexts(*, surrogates: bool = False) -> SearchStrategy[Context]:
    """Generate context entries of an input."""
    return for_type(Context, surrogates=surrogates)


def resume_entries(*, surrogates: bool = False) -> SearchStrategy[ResumeEntry]:
    """Generate answers to interrupts."""
    return for_type(ResumeEntry, surrogates=surrogates)


def interrupts(*, surrogates: bool = False) -> SearchStrategy[Interrupt]:
    """Generate interrupts. Some expire at a date, some at text that is not a date (INT-4)."""
    return for_type(Interrupt, surrogates=surrogates)


def outcomes(*, surrogates: bool = False) -> SearchStrategy[RunFinishedOutcome | SubagentFinishedOutcome]:
    """Generate outcomes of runs and of subagents."""
    return for_type(RunFinishedOutcome | SubagentFinishedOutcome, surrogates=surrogates)


def token_usages(*, surrogates: bool = False) -> SearchStrategy[TokenUsage]:
    """Generate token counts, each within its bounds; they need not add up."""
    return for_type(TokenUsage, surrogates=surrogates)


def run_agent_inputs(*, surrogates: bool = False) -> SearchStrategy[RunAgentInput]:
    """Generate inputs with any history, tools, context and resume entries."""
    return for_type(RunAgentInput, surrogates=surrogates)


def capabilities(*, surrogates: bool = False) -> SearchStrategy[AgentCapabilities]:
    """Generate capabilities of an agent, from empty to complete."""
    return for_type(AgentCapabilities, surrogates=surrogates)


def events(*classes: type[msgspec.Struct], surrogates: bool = False) -> SearchStrategy[Event]:
    """Generate events of the given classes, or of all 31."""
    if not classes:
        return for_type(Event, surrogates=surrogates)
    return st.one_of([for_type(cls, surrogates=surrogates) for cls in classes])


# Retired types


def legacy_events(*, surrogates: bool = False) -> SearchStrategy[LegacyEvent]:
    """Generate retired events: THINKING_* and META. Not in ``events()``."""
    return for_type(LegacyEvent, surrogates=surrogates)


def binary_contents(*, surrogates: bool = False) -> SearchStrategy[BinaryInputContent]:
    """Generate the retired binary part, with at least one of data, url and id. Not in ``parts()``."""
    filled = text(surrogates=surrogates).filter(bool)
    places = st.fixed_dictionaries({}, optional={"id": filled, "url": filled, "data": filled}).filter(bool)
    described = st.fixed_dictionaries({"mime_type": text()}, optional={"filename": text()})
    return st.tuples(described, places).map(lambda pair: BinaryInputContent(**pair[0], **pair[1]))
