"""AG-UI messages to chat messages and back: the rules, the losses, and the law that there are no others."""

from __future__ import annotations

import base64
from typing import Any, Literal

import pytest
from builders import user
from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.chat import (
    ApprovalRequestContent,
    ApprovalResponseContent,
    ChatMessage,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    InterruptResponseContent,
    ReasoningContent,
    TextContent,
    UriContent,
    UsageContent,
    as_agui_messages,
    as_chat_messages,
    event_content,
)
from aguila.chat.from_chat import messages as from_chat_messages
from aguila.chat.to_chat import messages as to_chat_messages
from aguila.codec import Notice, Warn
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    AudioPart,
    CustomEvent,
    DataSource,
    DeveloperMessage,
    DocumentPart,
    FileSource,
    FunctionCall,
    ImagePart,
    Message,
    ReasoningMessage,
    SystemMessage,
    TextPart,
    TokenUsage,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
    VideoPart,
    is_plain_text,
    replace,
)
from aguila.protocol.legacy import BinaryInputContent
from aguila.testing import strategies as agui

PNG = base64.b64encode(b"\x89PNG").decode()
PART_KINDS = {"image": ImagePart, "audio": AudioPart, "video": VideoPart, "document": DocumentPart}


def to_chat(*messages: Message, notices: list[Notice] | None = None) -> list[ChatMessage]:
    return as_chat_messages(messages, warn=[].append if notices is None else notices.append)


def from_chat(
    *messages: ChatMessage,
    notices: list[Notice] | None = None,
    unsupported: Literal["raise", "drop"] = "raise",
) -> list[Message]:
    ids = iter(f"new-{n}" for n in range(100))
    warn: Warn = [].append if notices is None else notices.append
    return as_agui_messages(messages, unsupported=unsupported, new_id=lambda: next(ids), warn=warn)


def round_trip(*messages: Message) -> list[Message]:
    return from_chat(*to_chat(*messages))


FULL_HISTORY: list[Message] = [
    SystemMessage(id="s", content="Be brief.", name="host"),
    DeveloperMessage(id="d", content="Use tools.", name="dev", metadata={"v": None}),
    UserMessage(id="u", content="Weather in Paris?", name="Ada", encrypted_value="x", encrypted_value_type="t/1"),
    ReasoningMessage(id="r", content="They want weather.", encrypted_value="sig", encrypted_value_type="anthropic/sig"),
    AssistantMessage(
        id="a",
        content="Looking.",
        name="bot",
        tool_calls=[
            ToolCall(
                id="c1",
                function=FunctionCall(name="weather", arguments='{"city": "Paris"'),
                encrypted_value="thought",
                metadata={"k": 1},
            )
        ],
        subagent_run_id="sub-1",
    ),
    ToolMessage(id="t", content="Sunny.", tool_call_id="c1", error="stale", metadata={"ms": 3}),
    AssistantMessage(id="a2", content=""),
    AssistantMessage(id="a3"),
]


def test_every_role_but_activity_survives_the_round_trip() -> None:
    assert round_trip(*FULL_HISTORY) == FULL_HISTORY


def test_roles_ids_names_and_sources_are_those_of_the_messages() -> None:
    chat = to_chat(*FULL_HISTORY)
    assert [m.role for m in chat] == [
        "system", "developer", "user", "assistant", "assistant", "tool", "assistant", "assistant",
    ]  # fmt: skip
    assert [m.message_id for m in chat] == [m.id for m in FULL_HISTORY]
    assert [m.author_name for m in chat] == ["host", "dev", "Ada", None, "bot", None, None, None]
    assert [m.raw_representation for m in chat] == FULL_HISTORY


def test_reasoning_becomes_an_assistants_content_with_its_protected_data() -> None:
    [message] = to_chat(FULL_HISTORY[3])
    assert message.role == "assistant"
    assert message.contents == [
        ReasoningContent(
            "They want weather.", "sig", additional_properties={"ag_ui_encrypted_value_type": "anthropic/sig"}
        )
    ]


def test_an_assistants_text_comes_before_its_calls() -> None:
    [message] = to_chat(FULL_HISTORY[4])
    text, call = message.contents
    assert text == TextContent("Looking.")
    assert isinstance(call, FunctionCallContent)
    assert (call.call_id, call.name, call.arguments) == ("c1", "weather", '{"city": "Paris"')
    assert call.parsed_arguments is None
    assert call.additional_properties == {"ag_ui_encrypted_value": "thought", "ag_ui_metadata": {"k": 1}}
    assert message.additional_properties == {"ag_ui_subagent_run_id": "sub-1"}
    assert message.calls == [call]


def test_arguments_and_results_are_parsed_only_when_asked_for() -> None:
    assert FunctionCallContent("c", "f", ' {"a": 1} ').parsed_arguments == {"a": 1}
    assert FunctionCallContent("c", "f", "").parsed_arguments == {}
    assert FunctionCallContent("c", "f", "[1]").parsed_arguments is None
    assert FunctionResultContent("c", "[1, 2]").parsed_result == [1, 2]
    assert FunctionResultContent("c", "True").parsed_result == "True"
    assert FunctionResultContent("c", "").parsed_result == ""
    assert FunctionResultContent("c", [TextContent("x")]).parsed_result == [TextContent("x")]


def test_contents_are_equal_but_for_where_they_came_from() -> None:
    assert TextContent("a", raw_representation=1) == TextContent("a", raw_representation=2)
    assert TextContent("a") != TextContent("a", additional_properties={"k": 1})
    assert TextContent("a") != UriContent("a")
    assert TextContent("a") != "a"


# parts


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [("image/png", "image"), ("audio/wav", "audio"), ("video/mp4", "video"), ("application/pdf", "document")],
)
def test_data_becomes_bytes_and_comes_back_as_the_kind_its_media_type_names(media_type: str, kind: str) -> None:
    part = PART_KINDS[kind](source=DataSource(value=PNG, mime_type=media_type))
    [message] = to_chat(user("m1", [part]))
    assert message.contents == [DataContent(b"\x89PNG", media_type)]
    assert message.contents[0].raw_representation is part
    assert round_trip(user("m1", [part])) == [user("m1", [part])]


def test_a_kind_that_does_not_follow_from_the_media_type_is_kept() -> None:
    part = ImagePart(source=UrlSource(value="https://x.example/a"), id="p", metadata={"filename": "a.png", "alt": None})
    [message] = to_chat(user("m1", [part]))
    [content] = message.contents
    assert content == UriContent(
        "https://x.example/a",
        additional_properties={
            "ag_ui_content_id": "p",
            "filename": "a.png",
            "ag_ui_metadata": {"alt": None},
            "ag_ui_part_kind": "image",
        },
    )
    assert round_trip(user("m1", [part])) == [user("m1", [part])]


def test_an_id_without_provider_is_a_reference_to_be_resolved_and_a_providers_handle_is_not() -> None:
    upload = AudioPart(source=FileSource(value="upload-1", mime_type="audio/wav"))
    handle = DocumentPart(source=FileSource(value="file-9", provider="openai"))
    [message] = to_chat(user("m1", [upload, handle]))
    first, second = message.contents
    assert isinstance(first, HostedFileContent)
    assert isinstance(second, HostedFileContent)
    assert (first.file_id, first.media_type) == ("upload-1", "audio/wav")
    assert first.additional_properties == {"ag_ui_requires_resolution": True, "ag_ui_content_id": "upload-1"}
    assert (second.file_id, second.media_type) == ("file-9", None)
    assert second.additional_properties == {"ag_ui_provider": "openai", "ag_ui_content_id": "file-9"}
    assert round_trip(user("m1", [upload, handle])) == [user("m1", [upload, handle])]


def test_data_without_bytes_that_names_an_upload_is_written_as_a_reference() -> None:
    content = DataContent(
        b"", "audio/wav", additional_properties={"ag_ui_content_id": "up", "ag_ui_requires_resolution": True}
    )
    [message] = from_chat(ChatMessage("user", [content], message_id="m1"))
    assert message == user("m1", [AudioPart(source=FileSource(value="up", mime_type="audio/wav"))])


@pytest.mark.parametrize(
    ("uri", "data", "media_type"),
    [
        (f"data:image/png;base64,{PNG}", b"\x89PNG", "image/png"),
        (f"DATA:image/png;BASE64,{PNG}", b"\x89PNG", "image/png"),
        ("data:text/plain;charset=utf-8,a%20b", b"a b", "text/plain;charset=utf-8"),
        ("data:,hello", b"hello", "application/octet-stream"),
        ("data:;charset=utf-8,x", b"x", "application/octet-stream"),
    ],
)
def test_data_uris_become_data(uri: str, data: bytes, media_type: str) -> None:
    [message] = to_chat(user("m1", [TextPart(text="see"), DocumentPart(source=UrlSource(value=uri))]))
    assert isinstance(content := message.contents[1], DataContent)
    assert (content.data, content.media_type) == (data, media_type)
    [written] = from_chat(ChatMessage("user", [TextContent("see"), UriContent(uri)]))
    assert isinstance(written, UserMessage)
    assert not isinstance(written.content, str)
    assert written.content[1].source == DataSource(value=base64.b64encode(data).decode(), mime_type=media_type)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "source",
    [
        DataSource(value="%%%", mime_type="image/png"),
        DataSource(value="abc", mime_type="image/png"),
        DataSource(value="Zm9v=", mime_type="image/png"),
        DataSource(value="Zm\u00f6v", mime_type="image/png"),
        DataSource(value=PNG, mime_type="not a type"),
        UrlSource(value="https://x.example", mime_type="png"),
        UrlSource(value="data:image/png;base64,???"),
        UrlSource(value="data:image/png"),
    ],
)
def test_a_part_with_bad_base64_or_media_type_is_skipped_with_a_warning(source: Any) -> None:
    notices: list[Notice] = []
    [message] = to_chat(user("m1", [TextPart(text="look"), ImagePart(source=source)]), notices=notices)
    assert message.contents == [TextContent("look")]
    [notice] = notices
    assert (notice.rule, notice.path) == ("MSG-2", "/0/content/1")
    assert "skipped" in notice.message


def test_large_data_goes_there_and_back_in_slices() -> None:
    data = bytes(range(256)) * 8192 + b"x"  # two slices and a little
    source = DataSource(value=base64.b64encode(data).decode(), mime_type="image/png")
    message = user("m1", [TextPart(text="see"), ImagePart(source=source)])
    [chat] = to_chat(message)
    assert chat.contents[1] == DataContent(data, "image/png")
    assert round_trip(message) == [message]
    padded = DataSource(value="AAA=" * (1 << 19), mime_type="image/png")
    assert to_chat(user("m1", [ImagePart(source=padded)]))[0].contents == []


def test_a_skipped_part_of_a_result_leaves_the_call_answered() -> None:
    """TOOL-7."""
    [message] = to_chat(
        ToolMessage(id="t", tool_call_id="c", content=[ImagePart(source=DataSource(value="!", mime_type="image/png"))])
    )
    assert message.contents == [FunctionResultContent("c", [])]


def test_results_made_of_parts_round_trip() -> None:
    parts = [TextPart(text="a"), ImagePart(source=DataSource(value=PNG, mime_type="image/png"))]
    message = ToolMessage(id="t", tool_call_id="c", content=list(parts))
    [chat] = to_chat(message)
    assert chat.results[0].result == [TextContent("a"), DataContent(b"\x89PNG", "image/png")]
    assert round_trip(message) == [message]


def test_a_result_may_be_any_json_value_and_travels_as_its_text() -> None:
    def written(result: Any) -> Any:
        [message] = from_chat(ChatMessage("tool", [FunctionResultContent("c", result)]))
        assert isinstance(message, ToolMessage)
        return message.content

    assert written({"a": 1}) == '{"a":1}'
    assert written([1, 2]) == "[1,2]"
    assert written(True) == "true"
    assert written(None) == ""
    assert written([TextPart(text="x")]) == [TextPart(text="x")]
    with pytest.raises(EncodeError):
        written(object())


def test_official_messages_are_read_like_ours() -> None:
    from ag_ui.core import UserMessage as Official

    assert to_chat(Official(id="m", content="hi", name="Ada"))[0] == ChatMessage(  # type: ignore[arg-type]
        "user", "hi", message_id="m", author_name="Ada"
    )


@pytest.mark.parametrize("stranger", [{"role": "user"}, "hi", None])
def test_what_is_no_message_is_a_type_error(stranger: Any) -> None:
    with pytest.raises(TypeError, match=type(stranger).__name__):
        to_chat(stranger)


# what cannot be expressed


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("user", FunctionCallContent("c", "f")),
        ("user", ReasoningContent("hm")),
        ("user", FunctionResultContent("c", "x")),
        ("assistant", DataContent(b"", "image/png")),
        ("system", UriContent("https://x.example")),
        ("developer", FunctionCallContent("c", "f")),
        ("tool", TextContent("loose")),
    ],
)
def test_content_of_a_kind_that_a_role_cannot_hold_raises_an_error_that_names_it(role: str, content: Any) -> None:
    with pytest.raises(EncodeError, match=type(content).__name__):
        from_chat(ChatMessage(role, [TextContent("x"), content] if role != "tool" else [content]))


def test_an_unknown_role_raises_an_error_that_names_it() -> None:
    with pytest.raises(EncodeError, match="'critic'"):
        from_chat(ChatMessage("critic", "Boo."))


def test_a_tool_message_without_a_result_is_left_out_with_a_warning() -> None:
    notices: list[Notice] = []
    assert from_chat(ChatMessage("tool", []), notices=notices) == []
    assert [n.message for n in notices] == ["dropped a tool message without a result"]


def test_a_data_uri_of_ours_that_is_broken_raises() -> None:
    with pytest.raises(EncodeError, match="base64"):
        from_chat(ChatMessage("user", [TextContent("see"), UriContent("data:image/png;base64,???")]))


def test_a_file_name_that_its_metadata_cannot_hold_is_left_out_with_a_warning() -> None:
    notices: list[Notice] = []
    content = UriContent("u", additional_properties={"filename": "a.png", "ag_ui_metadata": [1]})
    [message] = from_chat(ChatMessage("user", [content], message_id="m1"), notices=notices)
    assert message == user("m1", [DocumentPart(source=UrlSource(value="u"), metadata=[1])])
    assert [n.rule for n in notices] == ["META-1"]


# outbound


def test_messages_without_ids_get_new_ones_and_results_never_share_one() -> None:
    messages = from_chat(
        ChatMessage("user", "hi"),
        ChatMessage("tool", [FunctionResultContent("c1", "a"), FunctionResultContent("c2", "b")], message_id="t"),
    )
    assert [m.id for m in messages] == ["new-0", "t", "new-1"]


def test_default_ids_are_unique() -> None:
    first, second = as_agui_messages([ChatMessage("user", "a"), ChatMessage("user", "b")])
    assert first.id != second.id
    assert first.id != ""


def test_an_assistants_reasoning_text_calls_and_results_become_messages_of_their_own() -> None:
    chat = ChatMessage(
        "assistant",
        [
            TextContent("a"),
            FunctionCallContent("c", "f", "{}"),
            ReasoningContent("hm", "sig"),
            TextContent("b"),
            FunctionResultContent("c", "r"),
        ],
        message_id="m",
    )
    assert from_chat(chat) == [
        ReasoningMessage(id="new-0", content="hm", encrypted_value="sig"),
        AssistantMessage(
            id="m", content="ab", tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))]
        ),
        ToolMessage(id="new-1", content="r", tool_call_id="c"),
    ]


def test_an_artefacts_type_never_travels_without_the_artefact() -> None:
    """ENC-6."""
    content = ReasoningContent("hm", additional_properties={"ag_ui_encrypted_value_type": "x"})
    [message] = from_chat(ChatMessage("assistant", [content], message_id="m"))
    assert message == ReasoningMessage(id="m", content="hm")


def artefact(value: str, value_type: str | None = None) -> dict[str, Any]:
    kept = {"ag_ui_encrypted_value": value}
    return kept if value_type is None else {**kept, "ag_ui_encrypted_value_type": value_type}


def test_the_artefact_of_an_assistants_message_is_not_that_of_a_result_in_it() -> None:
    """ENC-1."""
    contents = [FunctionCallContent("c", "f", "{}"), FunctionResultContent("c", "r")]
    said, result = from_chat(
        ChatMessage("assistant", contents, message_id="m", additional_properties=artefact("E", "t"))
    )
    assert (said.encrypted_value, said.encrypted_value_type) == ("E", "t")
    assert result == ToolMessage(id="new-0", content="r", tool_call_id="c")


def test_the_artefact_of_a_tools_message_is_kept_once() -> None:
    results = [FunctionResultContent("c1", "a"), FunctionResultContent("c2", "b")]
    written = from_chat(ChatMessage("tool", results, message_id="t", additional_properties=artefact("E")))
    assert [(one.id, one.encrypted_value) for one in written] == [("t", "E"), ("new-0", None)]


def test_the_artefact_of_a_text_or_a_result_becomes_that_of_its_message() -> None:
    contents = [
        TextContent("a"),
        TextContent("b", additional_properties=artefact("E", "t")),
        FunctionCallContent("c", "f", "{}"),
        FunctionResultContent("c", "r", additional_properties=artefact("R")),
    ]
    said, result = from_chat(ChatMessage("assistant", contents, message_id="m"))
    assert (said.encrypted_value, said.encrypted_value_type) == ("E", "t")
    assert (result.encrypted_value, result.encrypted_value_type) == ("R", None)


def test_loss_of_several_artefacts_of_one_message_the_first_is_kept_with_a_warning() -> None:
    notices: list[Notice] = []
    contents = [TextContent(text, additional_properties=artefact(text)) for text in "ab"]
    [message] = as_agui_messages([ChatMessage("assistant", contents, message_id="m")], warn=notices.append)
    assert message == AssistantMessage(id="m", content="ab", encrypted_value="a")
    thought = ChatMessage("assistant", [ReasoningContent("hm", "own")], additional_properties=artefact("E"))
    [message] = as_agui_messages([thought], warn=notices.append)
    assert message.encrypted_value == "own"
    assert [notice.rule for notice in notices] == ["ENC-2", "ENC-2"]


# the losses that the docstrings list


def rows(docstring: str | None) -> list[str]:
    assert docstring is not None
    _, table, _ = docstring.split("\n=====", 1)[1].split("=\n", 2)
    return [line for line in table.splitlines() if line and not line.startswith((" ", "="))]


def test_the_tables_list_twelve_losses() -> None:
    assert len(rows(to_chat_messages.__doc__)) == 8
    assert len(rows(from_chat_messages.__doc__)) == 4


def test_loss_no_parts_are_an_empty_string() -> None:
    assert round_trip(UserMessage(id="u", content=[])) == [UserMessage(id="u", content="")]


def test_loss_an_activity_message_is_left_out_with_a_warning() -> None:
    notices: list[Notice] = []
    activity = ActivityMessage(id="x", activity_type="plan", content={})
    assert to_chat(activity, activity, notices=notices) == []
    assert [n.rule for n in notices] == ["IN-7"]


def test_loss_an_unusable_part() -> None:
    part = ImagePart(source=DataSource(value="%", mime_type="image/png"))
    assert round_trip(user("m1", [part, TextPart(text="a"), TextPart(text="b")])) == [
        user("m1", [TextPart(text="a"), TextPart(text="b")])
    ]


def test_loss_a_data_url_comes_back_as_a_data_source() -> None:
    part = ImagePart(source=UrlSource(value=f"data:image/png;base64,{PNG}"))
    assert round_trip(user("m1", [part])) == [
        user("m1", [ImagePart(source=DataSource(value=PNG, mime_type="image/png"))])
    ]


def test_loss_base64_and_media_types_come_back_canonical() -> None:
    broken = ImagePart(source=DataSource(value=PNG[:4] + "\r\n" + PNG[4:], mime_type=""))
    unnamed = ImagePart(source=UrlSource(value="u", mime_type=""))
    assert round_trip(user("m1", [broken, unnamed])) == [
        user(
            "m1",
            [
                ImagePart(source=DataSource(value=PNG, mime_type="application/octet-stream")),
                ImagePart(source=UrlSource(value="u")),
            ],
        )
    ]


def test_loss_a_single_plain_text_part_comes_back_as_a_string() -> None:
    assert round_trip(user("m1", [TextPart(text="hi")])) == [UserMessage(id="m1", content="hi")]
    tagged = user("m1", [TextPart(text="hi", id="p")])
    assert round_trip(tagged) == [tagged]


def test_loss_an_empty_list_of_calls_comes_back_absent() -> None:
    assert round_trip(AssistantMessage(id="a", tool_calls=[])) == [AssistantMessage(id="a")]


def test_loss_a_file_parts_id_that_repeats_its_handle() -> None:
    part = DocumentPart(source=FileSource(value="f"), id="f")
    assert round_trip(user("m1", [part])) == [user("m1", [DocumentPart(source=FileSource(value="f"))])]


def test_loss_the_order_within_an_assistants_message() -> None:
    chat = ChatMessage("assistant", [FunctionCallContent("c", "f"), TextContent("a"), TextContent("b")], message_id="m")
    assert to_chat(*from_chat(chat))[0].contents == [TextContent("ab"), FunctionCallContent("c", "f")]


def test_loss_the_author_of_tool_and_reasoning_messages() -> None:
    chat = ChatMessage("tool", [FunctionResultContent("c", "r")], message_id="t", author_name="weather")
    assert to_chat(*from_chat(chat))[0].author_name is None


def test_loss_own_properties_and_contents_that_travel_otherwise() -> None:
    call = FunctionCallContent("c", "f")
    elsewhere = [
        UsageContent(TokenUsage(input_tokens=1)),
        ErrorContent("no"),
        ApprovalRequestContent("i", call),
        event_content.create(CustomEvent(name="x", value=1)),
    ]
    notices: list[Notice] = []
    chat = ChatMessage("assistant", [call, *elsewhere], message_id="m", additional_properties={"mine": 1})
    answers = ChatMessage("user", [ApprovalResponseContent("i", True), InterruptResponseContent("j", 1)])
    assert to_chat(*from_chat(chat, answers, notices=notices, unsupported="drop")) == [
        ChatMessage("assistant", [call], message_id="m")
    ]
    assert len(notices) == 6


# the law


MEDIA_TYPES = ["image/png", "audio/wav", "video/mp4", "application/pdf", "text/plain; charset=utf-8", "IMAGE/x"]
media_types = st.sampled_from(MEDIA_TYPES)
addresses = agui.text().filter(lambda text: not text.lower().startswith("data:"))
usable_sources = (
    st.builds(
        lambda data, mime: DataSource(value=base64.b64encode(data).decode(), mime_type=mime),
        st.binary(max_size=20),
        media_types,
    )
    | st.builds(lambda value, mime: UrlSource(value=value, mime_type=mime), addresses, st.none() | media_types)
    | st.builds(
        lambda value, provider, mime: FileSource(value=value, provider=provider, mime_type=mime),
        agui.text(),
        st.none() | agui.text(),
        st.none() | media_types,
    )
)


@st.composite
def usable_messages(draw: st.DrawFn) -> Message:
    """Return any message, its sources replaced by usable ones and the listed losses avoided."""
    message = draw(agui.messages().filter(lambda m: not isinstance(m, ActivityMessage)))
    if isinstance(message, AssistantMessage) and message.tool_calls == []:
        return replace(message, tool_calls=None)
    content = message.content
    if isinstance(content, list):
        parts = [part if isinstance(part, TextPart) else replace(part, source=draw(usable_sources)) for part in content]
        parts = [
            replace(part, id=None)
            if not isinstance(part, TextPart) and isinstance(part.source, FileSource) and part.id == part.source.value
            else part
            for part in parts
        ]
        if isinstance(message, UserMessage) and parts == []:
            return replace(message, content="")
        if is_plain_text(parts):
            return replace(message, content=parts[0].text)
        return replace(message, content=parts)
    return message


@settings(max_examples=150, deadline=None)
@given(st.lists(usable_messages(), max_size=4))
def test_messages_survive_the_round_trip_but_for_the_listed_losses(messages: list[Message]) -> None:
    assert round_trip(*messages) == messages


@settings(max_examples=120, deadline=None)
@given(st.lists(agui.messages(), max_size=5))
def test_any_history_converts_and_a_second_round_trip_changes_nothing(messages: list[Message]) -> None:
    once = round_trip(*messages)
    assert round_trip(*once) == once


@settings(max_examples=150, deadline=None)
@given(agui.binary_contents())
def test_a_binary_part_is_read_by_the_precedence_data_url_id(part: BinaryInputContent) -> None:
    [message] = to_chat(user("m1", [part]))
    for content in message.contents:
        assert content.raw_representation is part
        expected = DataContent if part.data is not None else UriContent if part.url is not None else HostedFileContent
        assert isinstance(content, (expected, DataContent))


def test_a_binary_part_that_refers_to_nothing_is_an_error() -> None:
    with pytest.raises(DecodeError, match="data, url and id"):
        to_chat(user("m1", [BinaryInputContent(mime_type="image/png")]))
