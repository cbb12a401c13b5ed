"""The regression cases of the mapping, each named after the report it comes from. All go through the mapping only."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from chats.chat_streams import chat_update, of_type, run_input, stream, updates_of, without_boundaries

from aguila.agent import Run
from aguila.chat import (
    ApprovalRequestContent,
    ChatMessage,
    ChatUpdate,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
    as_agui_messages,
    as_chat_messages,
    event_content,
    provider_history,
)
from aguila.chat.property_keys import RUN_ID, THREAD_ID, run_id_of, thread_id_of
from aguila.codec import Notice, decode, encode, encode_event
from aguila.errors import DecodeError, EncodeError, RunFailed
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    AudioPart,
    CustomEvent,
    DataSource,
    DeveloperMessage,
    DocumentPart,
    Event,
    EventType,
    FileSource,
    FunctionCall,
    ImagePart,
    Message,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    SystemMessage,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    ToolCall,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UrlSource,
    UserMessage,
    VideoPart,
)
from aguila.protocol.legacy import (
    BinaryInputContent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ThinkingTextMessageContentEvent,
    ThinkingTextMessageEndEvent,
    ThinkingTextMessageStartEvent,
)

pytestmark = pytest.mark.anyio


PNG = base64.b64encode(b"\x89PNG").decode()
RESULTS = ["Transferred.", "True", "Success: Function completed.", "", "[1,2]", '{"a":1}', '"quoted"']


# 3475


async def test_3475_one_thread_id_key_is_written_and_the_old_one_is_read() -> None:
    assert (THREAD_ID, RUN_ID) == ("ag_ui_thread_id", "ag_ui_run_id")
    updates = await updates_of(await stream([chat_update(TextContent("hi"))]))
    for update in updates:
        assert thread_id_of(update.additional_properties) == "thread"
        assert run_id_of(update.additional_properties) == "run"
        assert "agui_thread_id" not in update.additional_properties
    assert thread_id_of({"agui_thread_id": "old"}) == "old"
    assert thread_id_of({"agui_thread_id": "old", "ag_ui_thread_id": "new"}) == "new"
    assert thread_id_of({}) is None


# 3365


@pytest.mark.parametrize("content", ['{"status":"success","value":42}', "plain", "", "[1,2]"])
def test_3365_a_tool_message_keeps_its_id(content: str) -> None:
    message = decode(
        encode({"id": "msg1", "role": "tool", "toolCallId": "call_abc", "content": content}), ToolMessage, strict=True
    )
    [chat] = as_chat_messages([message])
    assert (chat.role, chat.message_id) == ("tool", "msg1")
    assert chat.contents == [FunctionResultContent("call_abc", content)]


# 2775


@pytest.mark.parametrize("content", RESULTS)
async def test_2775_a_result_that_is_no_json_is_kept_byte_for_byte(content: str) -> None:
    event = ToolCallResultEvent(message_id="m", tool_call_id="c", content=content)
    [update] = await updates_of([event])
    [result] = update.contents
    assert isinstance(result, FunctionResultContent)
    assert (result.call_id, result.result) == ("c", content)
    result.parsed_result  # noqa: B018 - never raises
    [again] = of_type(ToolCallResultEvent, await stream([chat_update(result, role="tool")]))
    assert (again.tool_call_id, again.content) == ("c", content)
    message = ToolMessage(id="t", tool_call_id="c", content=content)
    assert as_agui_messages(as_chat_messages([message])) == [message]


# 2637


async def test_2637_a_call_from_an_update_without_message_id_has_no_parent() -> None:
    [start] = of_type(ToolCallStartEvent, await stream([chat_update(FunctionCallContent("c", "f", "{}"))]))
    assert b"parentMessageId" not in encode_event(start)
    [start] = of_type(
        ToolCallStartEvent, await stream([chat_update(FunctionCallContent("c", "f", "{}"), message_id="m")])
    )
    assert start.parent_message_id == "m"


async def test_2637_a_null_parent_is_read_as_absent() -> None:
    notices: list[Notice] = []
    raw = {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f", "parentMessageId": None}
    [update] = await updates_of([raw], warn=notices.append)
    assert update.raw_representation == ToolCallStartEvent(tool_call_id="c", tool_call_name="f")
    assert update.message_id is None


async def test_2637_nothing_the_mapping_writes_has_a_null_in_an_optional_place() -> None:
    updates = [
        chat_update(ReasoningContent("a", "sig")),
        chat_update(TextContent("b")),
        chat_update(FunctionCallContent("c", "f", "{}")),
        chat_update(FunctionResultContent("c", "r"), role="tool"),
        CustomEvent(name="x", value=None),
        StateSnapshotEvent(snapshot={"k": None}),
    ]
    written = [encode_event(event) for event in await stream(updates)]
    assert [line for line in written if b"null" in line] == [
        b'{"type":"CUSTOM","name":"x","value":null}',
        b'{"type":"STATE_SNAPSHOT","snapshot":{"k":null}}',
    ]
    messages = as_agui_messages([ChatMessage("user", "hi"), ChatMessage("assistant", [FunctionCallContent("c", "f")])])
    assert b"null" not in encode(messages)


# 2699


def assistant(call_id: str, message_id: str) -> AssistantMessage:
    call = ToolCall(id=call_id, function=FunctionCall(name="f", arguments="{}"))
    return AssistantMessage(id=message_id, tool_calls=[call])


def tool(call_id: str) -> ToolMessage:
    return ToolMessage(id=f"t-{call_id}", tool_call_id=call_id, content=call_id)


def shape(messages: list[ChatMessage]) -> list[Any]:
    return [
        [c.call_id for c in m.contents if isinstance(c, (FunctionCallContent, FunctionResultContent))] or m.role
        for m in messages
    ]


def test_2699_replayed_parallel_calls_are_one_message_and_their_results_follow() -> None:
    stored: list[Message] = [
        *(assistant(f"c{n}", f"m{n}") for n in (1, 2, 3)),
        *(tool(f"c{n}") for n in (1, 2, 3)),
        UserMessage(id="u", content="thanks"),
    ]
    view = provider_history(as_chat_messages(stored))
    assert shape(view.messages) == [["c1", "c2", "c3"], ["c1"], ["c2"], ["c3"], "user"]
    assert [m.message_id for m in view.messages] == ["m1", "t-c1", "t-c2", "t-c3", "u"]
    # and the stored history is what it was
    assert as_agui_messages(as_chat_messages(stored)) == stored


def test_2699_as_chat_messages_keeps_the_order_and_names_the_function_that_repairs_it() -> None:
    stored: list[Message] = [assistant("c1", "m1"), UserMessage(id="u", content="and?"), tool("c1")]
    chat = as_chat_messages(stored)
    assert [message.message_id for message in chat] == ["m1", "u", "t-c1"]
    assert [message.message_id for message in provider_history(chat).messages] == ["m1", "t-c1", "u"]
    for convert in (as_chat_messages, Run.chat_messages):
        assert "provider_history" in (convert.__doc__ or "")


def test_2699_sequential_calls_stay_pairs() -> None:
    stored: list[Message] = [assistant("c1", "m1"), tool("c1"), assistant("c2", "m2"), tool("c2")]
    assert shape(provider_history(as_chat_messages(stored)).messages) == [["c1"], ["c1"], ["c2"], ["c2"]]


def test_2699_no_orphan_reaches_a_provider() -> None:
    stored: list[Message] = [assistant("c1", "m1"), UserMessage(id="u", content="never mind"), tool("c9")]
    view = provider_history(as_chat_messages(stored))
    assert shape(view.messages) == ["user"]
    assert {(r.kind, r.call_id) for r in view.repairs} >= {("dropped_call", "c1"), ("dropped_result", "c9")}


# 2558

YIELDED: list[list[Event]] = [
    [StepStartedEvent(step_name="s"), StepFinishedEvent(step_name="s")],
    [
        ActivitySnapshotEvent(message_id="a", activity_type="plan", content={"n": 1}),
        ActivityDeltaEvent(
            message_id="a", activity_type="plan", patch=[{"op": "replace", "path": "/n", "value": None}]
        ),
    ],
    [MessagesSnapshotEvent(messages=[UserMessage(id="u", content="hi")])],
    [RawEvent(event={"x": None}, source="provider")],
    [CustomEvent(name="app.x", value=[1, None])],
    [StateSnapshotEvent(snapshot={"a": 1}), StateDeltaEvent(delta=[{"op": "add", "path": "/b", "value": None}])],
    [
        ReasoningStartEvent(message_id="r"),
        ReasoningMessageStartEvent(message_id="r"),
        ReasoningMessageContentEvent(message_id="r", delta="hm"),
        ReasoningMessageEndEvent(message_id="r"),
        ReasoningEncryptedValueEvent(subtype="message", entity_id="r", encrypted_value="sig"),
        ReasoningEndEvent(message_id="r"),
    ],
    [
        SubagentStartedEvent(subagent_run_id="sub", name="helper"),
        TextMessageStartEvent(message_id="m", subagent_run_id="sub"),
        TextMessageEndEvent(message_id="m", subagent_run_id="sub"),
        SubagentFinishedEvent(subagent_run_id="sub", result=1),
    ],
]


@pytest.mark.parametrize("events", YIELDED, ids=lambda events: events[0].type.lower())
async def test_2558_every_event_reaches_the_wire_whichever_way_it_is_yielded(events: list[Event]) -> None:
    directly = await stream(events)
    assert without_boundaries(directly) == events
    assert await stream([ChatUpdate(raw_representation=event) for event in events]) == directly
    assert await stream([chat_update(event_content.create(event)) for event in events]) == directly
    written = [encode_event(event) for event in without_boundaries(directly)]
    assert written == [event_content.create(event).data for event in events]
    # and the client surfaces it with the event attached
    assert [update.raw_representation for update in await updates_of(directly)] == directly


# 2619


async def test_2619_reasoning_comes_as_one_message_of_its_own_before_the_text() -> None:
    updates = [
        chat_update(ReasoningContent("a"), message_id="shared"),
        chat_update(ReasoningContent("b"), message_id="shared"),
        chat_update(TextContent("c"), message_id="shared"),
    ]
    assert without_boundaries(await stream(updates)) == [
        ReasoningStartEvent(message_id="new-0"),
        ReasoningMessageStartEvent(message_id="new-0"),
        ReasoningMessageContentEvent(message_id="new-0", delta="a"),
        ReasoningMessageContentEvent(message_id="new-0", delta="b"),
        ReasoningMessageEndEvent(message_id="new-0"),
        ReasoningEndEvent(message_id="new-0"),
        TextMessageStartEvent(message_id="shared", role="assistant"),
        TextMessageContentEvent(message_id="shared", delta="c"),
        TextMessageEndEvent(message_id="shared"),
    ]


async def test_2619_encrypted_reasoning_has_no_empty_content() -> None:
    secret = ReasoningContent("", "sig", additional_properties={"ag_ui_encrypted_value_type": "x/1"})
    events = without_boundaries(await stream([chat_update(secret)]))
    assert of_type(ReasoningMessageContentEvent, events) == []
    [value] = of_type(ReasoningEncryptedValueEvent, events)
    assert (value.encrypted_value, value.encrypted_value_type) == ("sig", "x/1")
    # the consumer has a message to keep it with, or it would be lost (ENC-9)
    assert value.entity_id == of_type(ReasoningMessageStartEvent, events)[0].message_id


async def test_2619_thinking_events_are_read_as_reasoning_with_one_warning() -> None:
    thinking = [
        ThinkingStartEvent(),
        ThinkingTextMessageStartEvent(),
        ThinkingTextMessageContentEvent(delta="x"),
        ThinkingTextMessageEndEvent(),
        ThinkingEndEvent(),
    ]
    notices: list[Notice] = []
    updates = await updates_of(thinking, warn=notices.append, new_id=iter(["r1", "r2"]).__next__)
    events: list[Any] = [update.raw_representation for update in updates]
    assert [event.type for event in events] == [
        EventType.REASONING_START,
        EventType.REASONING_MESSAGE_START,
        EventType.REASONING_MESSAGE_CONTENT,
        EventType.REASONING_MESSAGE_END,
        EventType.REASONING_END,
    ]
    assert all(event.message_id in ("r1", "r2") for event in events)
    assert [c.text for update in updates for c in update.contents if isinstance(c, ReasoningContent)] == ["x"]
    assert len(notices) == 1


async def test_2619_reasoning_in_the_history_of_turn_two_is_no_error() -> None:
    history: list[Message] = [
        UserMessage(id="u", content="hi"),
        ReasoningMessage(id="r", content="hm", encrypted_value="sig"),
        AssistantMessage(id="a", content="hello"),
    ]
    assert [type(m.contents[0]) for m in as_chat_messages(history)] == [TextContent, ReasoningContent, TextContent]
    assert without_boundaries(await stream([chat_update(TextContent("again"))], run_input(*history)))


# 2510


async def test_2510_a_snapshot_of_the_history_reaches_the_client_with_all_seven_roles() -> None:
    snapshot = MessagesSnapshotEvent(
        messages=[
            SystemMessage(id="1", content="s"),
            DeveloperMessage(id="2", content="d"),
            UserMessage(id="3", content=[TextPart(text="a"), ImagePart(source=UrlSource(value="u"))]),
            ReasoningMessage(id="4", content="r"),
            assistant("c", "5"),
            tool("c"),
            ActivityMessage(id="7", activity_type="plan", content={}),
        ]
    )
    [update] = [
        u for u in await updates_of(await stream([snapshot])) if isinstance(u.raw_representation, MessagesSnapshotEvent)
    ]
    assert update.raw_representation == snapshot


# 3729


def multimodal(**where: str) -> UserMessage:
    """Return the reported request, as a server reads it from a peer that declares no version."""
    body = {
        "threadId": "t",
        "runId": "r",
        "messages": [
            {
                "id": "m1",
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is in this image?"},
                    {"type": "binary", "mimeType": "image/png", "filename": "pixel.png", **where},
                ],
            }
        ],
    }
    request = decode(encode(body), RunAgentInput, compat="wide", warn=[].append)
    message = request.messages[0]
    assert isinstance(message, UserMessage)
    return message


def test_3729_a_multimodal_array_is_text_then_bytes_with_type_and_name() -> None:
    [message] = as_chat_messages([multimodal(data=PNG)])
    assert message.contents == [
        TextContent("What is in this image?"),
        DataContent(b"\x89PNG", "image/png", additional_properties={"filename": "pixel.png"}),
    ]


def test_3729_the_same_with_an_address_or_an_id() -> None:
    [message] = as_chat_messages([multimodal(url="https://x.example/p.png")])
    assert message.contents[1] == UriContent(
        "https://x.example/p.png", "image/png", additional_properties={"filename": "pixel.png"}
    )
    [message] = as_chat_messages([multimodal(id="upload-1")])
    assert message.contents[1] == HostedFileContent(
        "upload-1",
        "image/png",
        additional_properties={
            "filename": "pixel.png",
            "ag_ui_requires_resolution": True,
            "ag_ui_content_id": "upload-1",
        },
    )


def test_3729_the_same_with_canonical_parts_and_with_a_plain_string() -> None:
    image = ImagePart(source=DataSource(value=PNG, mime_type="image/png"), metadata={"filename": "pixel.png"})
    [message] = as_chat_messages([UserMessage(id="m", content=[TextPart(text="?"), image])])
    assert message.contents[1] == DataContent(b"\x89PNG", "image/png", additional_properties={"filename": "pixel.png"})
    [message] = as_chat_messages([UserMessage(id="m", content="?")])
    assert message.contents == [TextContent("?")]


# PR 4761


def test_4761_a_user_messages_role_is_user() -> None:
    with pytest.raises(DecodeError):
        decode(b'{"id":"m","role":"assistant","content":"x"}', UserMessage)
    [message] = as_agui_messages([ChatMessage("user", "x", message_id="m")])
    assert encode(message) == b'{"role":"user","id":"m","content":"x"}'


@pytest.mark.parametrize("content", ["hi", [TextPart(text="a"), ImagePart(source=UrlSource(value="u"))]])
def test_4761_the_name_survives_with_text_and_with_parts(content: Any) -> None:
    message = UserMessage(id="m", name="Ada", content=content)
    [chat] = as_chat_messages([message])
    assert chat.author_name == "Ada"
    assert as_agui_messages([chat]) == [message]


def test_4761_user_content_that_cannot_be_expressed_raises_an_error_that_names_it() -> None:
    with pytest.raises(EncodeError, match="FunctionCallContent"):
        as_agui_messages([ChatMessage("user", [FunctionCallContent("c", "f")])])


def test_4761_a_file_of_unknown_type_is_written_without_a_mime_type() -> None:
    [message] = as_agui_messages([ChatMessage("user", [HostedFileContent("file-1")], message_id="m")])
    assert message == UserMessage(id="m", content=[DocumentPart(source=FileSource(value="file-1"))])
    assert b"mimeType" not in encode(message)


def test_4761_missing_content_is_an_error_with_a_stable_message() -> None:
    with pytest.raises(DecodeError, match="required member is missing") as caught:
        decode(b'{"id":"m","role":"user"}', UserMessage)
    assert caught.value.path == "/content"


def test_4761_binary_prefers_data_then_url_then_id_and_keeps_the_others() -> None:
    part = BinaryInputContent(mime_type="image/png", data=PNG, url="https://x.example", id="i")
    message = UserMessage(id="m", content=[part, TextPart(text="?")])  # type: ignore[list-item]
    [chat] = as_chat_messages([message])
    content = chat.contents[0]
    assert content == DataContent(
        b"\x89PNG",
        "image/png",
        additional_properties={"ag_ui_content_id": "i", "ag_ui_metadata": {"aguila": {"url": "https://x.example"}}},
    )
    with pytest.raises(DecodeError, match="data, url and id"):
        as_chat_messages([UserMessage(id="m", content=[BinaryInputContent(mime_type="image/png")])])  # type: ignore[list-item]


def test_4761_a_part_type_in_another_case_is_read_with_a_warning_and_written_in_lower_case() -> None:
    notices: list[Notice] = []
    raw = b'{"id":"m","role":"user","content":[{"type":"Text","text":"a"},{"type":"text","text":"b"}]}'
    message = decode(raw, UserMessage, warn=notices.append)
    chat = as_chat_messages([message])
    assert chat[0].contents == [TextContent("a"), TextContent("b")]
    assert len(notices) == 1
    assert b'"Text"' not in encode(as_agui_messages(chat))


# the neighbours


async def test_3433_text_without_a_provider_id_gets_one_stable_id_per_message() -> None:
    events = await stream(
        [chat_update(TextContent("a")), chat_update(TextContent("b")), "c", chat_update(TextContent("d"), role="user")]
    )
    assert [e.message_id for e in of_type(TextMessageStartEvent, events)] == ["new-0", "new-1"]
    assert [(e.message_id, e.delta) for e in of_type(TextMessageContentEvent, events)] == [
        ("new-0", "a"),
        ("new-0", "b"),
        ("new-0", "c"),
        ("new-1", "d"),
    ]


async def test_3962_parallel_results_never_share_a_message_id() -> None:
    results = chat_update(
        FunctionResultContent("c1", "a"), FunctionResultContent("c2", "b"), role="tool", message_id="t"
    )
    events = of_type(
        ToolCallResultEvent, await stream([results, chat_update(FunctionResultContent("c3", "c"), message_id="t")])
    )
    assert [e.message_id for e in events] == ["t", "new-0", "new-1"]


async def test_6015_an_id_that_was_made_up_is_no_parent() -> None:
    updates = [
        chat_update(TextContent("let me see")),  # without an id: it gets one
        chat_update(FunctionCallContent("c1", "f", "{}"), FunctionCallContent("c2", "f", "{}")),
    ]
    assert [e.parent_message_id for e in of_type(ToolCallStartEvent, await stream(updates))] == [None, None]


async def test_6015_text_after_a_result_is_a_new_message_though_the_provider_has_one_id_for_all() -> None:
    updates = [
        chat_update(TextContent("looking"), message_id="m"),
        chat_update(FunctionCallContent("c1", "f", "{}"), message_id="m"),
        chat_update(FunctionResultContent("c1", "r"), role="tool", message_id="m"),
        chat_update(TextContent("found"), message_id="m"),
        chat_update(FunctionCallContent("c2", "f", "{}"), message_id="m"),
    ]
    events = await stream(updates)
    assert [e.message_id for e in of_type(TextMessageStartEvent, events)] == ["m", "new-1"]
    assert [e.message_id for e in of_type(ToolCallResultEvent, events)] == ["new-0"]
    assert [e.parent_message_id for e in of_type(ToolCallStartEvent, events)] == ["m", None]


async def test_5305_an_exception_in_mid_stream_gives_one_error_last_that_leaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent() -> AsyncIterator[ChatUpdate]:
        yield chat_update(TextContent("hel"))
        raise RuntimeError("password=hunter2")

    with caplog.at_level(logging.ERROR, "aguila"):
        events = await stream(agent())
    assert [e.type for e in events] == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "RUN_ERROR"]
    assert events[-1] == RunErrorEvent(message="The agent failed.", code="agent_error")
    assert b"hunter2" not in b"".join(encode_event(e) for e in events)
    assert "hunter2" in caplog.text


def test_2290_reasoning_and_activity_in_the_history_are_no_error() -> None:
    notices: list[Notice] = []
    history: list[Message] = [
        ReasoningMessage(id="r", content="hm"),
        ActivityMessage(id="x", activity_type="plan", content={}),
    ]
    [message] = as_chat_messages(history, warn=notices.append)
    assert message.role == "assistant"
    assert len(notices) == 1


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (ImagePart(source=DataSource(value=PNG, mime_type="image/png")), DataContent),
        (AudioPart(source=UrlSource(value="https://x.example/a.wav", mime_type="audio/wav")), UriContent),
        (VideoPart(source=FileSource(value="f", provider="google", mime_type="video/mp4")), HostedFileContent),
        (DocumentPart(source=DataSource(value=PNG, mime_type="application/pdf"), id="p"), DataContent),
    ],
)
def test_2447_canonical_media_are_carried_both_ways(part: Any, kind: type[Any]) -> None:
    message = UserMessage(id="m", content=[TextPart(text="see"), part])
    [chat] = as_chat_messages([message])
    assert isinstance(chat.contents[1], kind)
    assert as_agui_messages([chat]) == [message]


@pytest.mark.parametrize("message", ["", "quota exceeded"])
async def test_880_an_error_always_has_a_message(message: str) -> None:
    events = await stream([chat_update(ErrorContent(message, "quota"))])
    assert isinstance(error := events[-1], RunErrorEvent)
    assert error.message == (message or "The run failed.")
    assert error.code == "quota"


async def test_880_the_failure_of_a_run_elsewhere_keeps_its_message() -> None:
    async def agent() -> AsyncIterator[ChatUpdate]:
        raise RunFailed("the model is overloaded", code="overloaded")
        yield

    assert (await stream(agent()))[-1] == RunErrorEvent(message="the model is overloaded", code="overloaded")


async def test_7429_ids_of_a_provider_never_replace_those_of_the_request() -> None:
    theirs: list[Event] = [
        RunStartedEvent(thread_id="their-thread", run_id="their-run", protocol_version="1.0"),
        TextMessageStartEvent(message_id="m"),
        TextMessageEndEvent(message_id="m"),
        RunFinishedEvent(thread_id="their-thread", run_id="their-run", result=1),
    ]
    events = await stream(await updates_of(theirs), run_input())
    assert isinstance(start := events[0], RunStartedEvent)
    assert isinstance(finish := events[-1], RunFinishedEvent)
    assert (start.thread_id, start.run_id) == (finish.thread_id, finish.run_id) == ("thread", "run")
    assert finish.result == 1


async def test_7629_a_whole_history_is_sent_and_the_thread_id_is_on_every_update() -> None:
    turn = [ChatMessage("user", "a"), ChatMessage("assistant", "b"), ChatMessage("user", "c")]
    assert len(as_agui_messages(turn)) == 3
    assert {u.additional_properties["ag_ui_thread_id"] for u in await updates_of(await stream(["x"]))} == {"thread"}


async def test_a_run_that_leaves_calls_to_the_front_end_lists_them() -> None:
    """FT-3."""
    events = await stream(
        [chat_update(FunctionCallContent("c1", "f"), FunctionCallContent("c2", "f"), FunctionResultContent("c1"))]
    )
    assert isinstance(finish := events[-1], RunFinishedEvent)
    assert finish.outcome == RunFinishedSuccessOutcome(pending_tool_call_ids=["c2"])


async def test_an_approval_names_its_call() -> None:
    call = FunctionCallContent("c", "pay", '{"eur": 5}')
    events = await stream([chat_update(ApprovalRequestContent("i", call, message="Pay?"))])
    assert [e.type for e in events][1:-1] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    question = (await updates_of(events))[-1].contents
    assert question == [ApprovalRequestContent("i", call, message="Pay?")]
