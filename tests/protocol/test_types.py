"""The wire types as Python objects: names, discriminators, immutability, documentation."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import ag_ui.core
import msgspec
import pydantic
import pytest

import aguila.protocol as protocol
from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    CustomEvent,
    DataSource,
    Event,
    EventType,
    ImagePart,
    Message,
    ReasoningMessageStartEvent,
    Role,
    RunFinishedSuccessOutcome,
    TextMessageContentEvent,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    is_plain_text,
    legacy,
    parts_of,
    replace,
)

OFFICIAL_MODELS = {
    name: cls
    for name in ag_ui.core.__all__
    if isinstance(cls := getattr(ag_ui.core, name), type) and issubclass(cls, pydantic.BaseModel)
}
STRUCTS = sorted(
    {cls for cls in vars(protocol).values() if isinstance(cls, type) and issubclass(cls, msgspec.Struct)},
    key=lambda cls: cls.__name__,
)
# Ours beyond the official 1.0: the member that protocol 1.1 added.
NEW_IN_1_1 = {"encrypted_value_type"}
# Our abstract base has the members of all seven messages; the official one has those of four.
NARROWER_BASES = {"BaseMessage": {"role", "name", "encrypted_value"}}


def attributes_of(cls: type[msgspec.Struct]) -> set[str]:
    names = {field.name for field in msgspec.structs.fields(cls)}
    tag_field = cls.__struct_config__.tag_field
    return names if tag_field is None else names | {tag_field}


def test_every_official_type_is_here_under_its_name() -> None:
    functions = {name for name in ag_ui.core.__all__ if inspect.isfunction(getattr(ag_ui.core, name))}
    assert {name for name in ag_ui.core.__all__ if name not in functions and not hasattr(protocol, name)} == set()


@pytest.mark.parametrize("name", sorted(OFFICIAL_MODELS))
def test_attributes_have_their_official_names(name: str) -> None:
    ours = attributes_of(getattr(protocol, name))
    theirs = set(OFFICIAL_MODELS[name].model_fields)
    assert theirs - ours == NARROWER_BASES.get(name, set())
    assert ours - theirs <= NEW_IN_1_1


@pytest.mark.parametrize("name", sorted(set(OFFICIAL_MODELS) - set(NARROWER_BASES)))
def test_members_have_their_official_wire_names_and_requiredness(name: str) -> None:
    cls = getattr(protocol, name)
    if not msgspec.structs.fields(cls):
        assert set(OFFICIAL_MODELS[name].model_fields) <= {"type"}
    for field in msgspec.structs.fields(cls):
        if field.name in NEW_IN_1_1:
            continue
        official = OFFICIAL_MODELS[name].model_fields[field.name]
        assert field.encode_name == official.alias
        if (name, field.name) != ("BinaryInputContent", "mime_type"):  # document 002: it may be absent
            assert field.required == official.is_required()


def test_an_old_name_is_the_same_class() -> None:
    assert protocol.TextInputContent is TextPart
    assert protocol.ImageInputPart is protocol.ImageInputContent is ImagePart
    assert protocol.SubAgentInfo is protocol.SubagentInfo


def test_the_event_types_are_the_official_ones() -> None:
    assert [t.value for t in EventType] == [cls.type for cls in get_args(Event)]
    assert {t.value for t in EventType} == {t.value for t in ag_ui.core.EventType}
    assert len(EventType) == 31


@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.__name__)
def test_an_event_says_its_type(cls: Any) -> None:
    assert isinstance(cls.type, EventType)
    # the name on the wire is msgspec's tag: the two are written in different places
    assert cls.type == cls.__struct_config__.tag
    assert f"{cls.type}".title().replace("_", "") + "Event" == cls.__name__


def test_an_event_of_a_stream_compares_with_type_and_with_plain_text() -> None:
    event = TextMessageContentEvent(message_id="m", delta="x")
    assert event.type is EventType.TEXT_MESSAGE_CONTENT
    assert event.type == "TEXT_MESSAGE_CONTENT"


def test_the_roles_are_those_of_the_messages() -> None:
    assert [cls.role for cls in get_args(Message)] == list(get_args(Role))


@pytest.mark.parametrize("cls", get_args(Message), ids=lambda cls: cls.__name__)
def test_a_message_says_its_role(cls: Any) -> None:
    assert cls.role == cls.__struct_config__.tag
    assert cls.__struct_config__.tag_field == "role"


def test_a_constructor_accepts_its_own_discriminator() -> None:
    assert UserMessage(role="user", id="m", content="x") == UserMessage(id="m", content="x")
    assert TextPart(type="text", text="x") == TextPart(text="x")
    assert DataSource(type="data", value="", mime_type="").type == "data"
    assert RunFinishedSuccessOutcome(type="success") == RunFinishedSuccessOutcome()
    function = protocol.FunctionCall(name="f", arguments="")
    assert ToolCall(type="function", id="c", function=function) == ToolCall(id="c", function=function)


def test_a_constructor_refuses_another_discriminator() -> None:
    with pytest.raises(TypeError, match=r"UserMessage\.role must be 'user', not 'assistant'"):
        UserMessage(role="assistant", id="m", content="x")
    with pytest.raises(TypeError, match=r"TextPart\.type"):
        TextPart(type="image", text="x")
    with pytest.raises(TypeError, match=r"ToolCall\.type"):
        ToolCall(type=None, id="c", function=protocol.FunctionCall(name="f", arguments=""))


def test_a_reasoning_message_start_has_its_one_role() -> None:
    assert ReasoningMessageStartEvent(message_id="m").role == "reasoning"
    assert ReasoningMessageStartEvent(message_id="m") == ReasoningMessageStartEvent(message_id="m", role="reasoning")


def test_objects_are_immutable_and_replace_makes_a_changed_copy() -> None:
    message = AssistantMessage(id="m", content="x")
    with pytest.raises(AttributeError):
        message.content = "y"  # type: ignore[misc]
    changed = replace(message, content="y")
    assert (message.content, changed.content, changed.id) == ("x", "y", "m")


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_every_struct_is_frozen_closed_and_keyword_only(cls: Any) -> None:
    assert cls.__struct_config__.frozen
    assert cls.__struct_config__.forbid_unknown_fields
    with pytest.raises(TypeError, match="positional"):
        cls("x")


def test_a_field_without_a_value_is_none() -> None:
    assert AssistantMessage(id="m").content is None
    assert CustomEvent(name="n", value=None).metadata is None


def test_a_message_reads_as_parts_whatever_its_role() -> None:
    image = ImagePart(source=DataSource(value="", mime_type="image/png"))
    assert parts_of(UserMessage(id="u", content=[image])) == [image]
    assert parts_of(UserMessage(id="u", content="hi")) == [TextPart(text="hi")]
    assert parts_of(ToolMessage(id="t", tool_call_id="c", content=[image])) == [image]
    assert parts_of(AssistantMessage(id="a")) == []
    assert parts_of(ActivityMessage(id="v", activity_type="PLAN", content={"n": 1})) == []


def test_content_reads_as_parts_however_it_was_spelled() -> None:
    image = ImagePart(source=DataSource(value="", mime_type="image/png"))
    assert parts_of("hi") == [TextPart(text="hi")]
    assert parts_of("") == [TextPart(text="")]
    assert parts_of([image]) == [image]
    assert parts_of([]) == parts_of(None) == []


def test_parts_of_gives_a_list_of_its_own() -> None:
    held = [TextPart(text="hi")]
    parts_of(held).clear()
    assert held == [TextPart(text="hi")]


def test_plain_text_is_one_text_part_that_says_nothing_else() -> None:
    assert is_plain_text([TextPart(text="")])
    assert not is_plain_text("hi")
    assert not is_plain_text(None)
    assert not is_plain_text([])
    assert not is_plain_text([TextPart(text="a"), TextPart(text="b")])
    assert not is_plain_text([TextPart(text="a", id="")])
    assert not is_plain_text([TextPart(text="a", metadata=False)])


@pytest.mark.parametrize("module", [protocol, legacy], ids=lambda module: module.__name__)
def test_every_public_type_says_what_it_is_for(module: Any) -> None:
    found = [obj for name, obj in vars(module).items() if isinstance(obj, type) and not name.startswith("_")]
    types = [cls for cls in found if cls.__module__.startswith("aguila.")]
    assert len(types) > 5
    # msgspec and TypedDict give a class without a docstring None or their own
    undocumented = [cls.__name__ for cls in types if not (vars(cls).get("__doc__") or "").strip().endswith((".", ")"))]
    assert undocumented == []


def test_retired_shapes_are_constructible_and_no_part_of_the_protocol() -> None:
    assert legacy.ThinkingStartEvent(title="t").type == "THINKING_START"
    assert legacy.ThinkingEndEvent().type == "THINKING_END"
    assert legacy.MetaEvent(meta_type="feedback", payload=0).payload == 0
    assert legacy.BinaryInputContent(type="binary", mime_type="image/png", url="x").url == "x"
    assert not set(get_args(legacy.LegacyEvent)) & set(get_args(Event))
    assert {cls.__struct_config__.tag for cls in get_args(legacy.LegacyEvent)} == {
        cls.type for cls in get_args(legacy.LegacyEvent)
    }
