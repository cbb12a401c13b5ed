"""The regression cases of the mapping, each named after the report it comes from, through a running server.

The mapping alone is in tests/chat/test_regressions.py. Here an app serves an agent that speaks chat types, and either
a chat client or hand-made requests talk to it.
"""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest
from chats.chat_app import URL, Tap, chat
from scripted_server import ScriptedServer, run_of

from aguila import App, ChatClient
from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
    event_content,
    provider_history,
)
from aguila.client import ChatOptions
from aguila.client.transports.asgi import ASGITransport
from aguila.client.transports.base import Request
from aguila.codec import Notice, encode, encode_event
from aguila.errors import EncodeError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    DeveloperMessage,
    Event,
    FunctionCall,
    Message,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEndEvent,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguila.server import Trust

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n"
B64 = base64.b64encode(PNG).decode()
RESULTS = ["Transferred.", "True", "Success: Function completed.", "", "[1,2]", '{"a":1}', '"quoted"']


async def post(agent: Any, *bodies: dict[str, Any], **app: Any) -> list[tuple[int, list[dict[str, Any]]]]:
    """Send requests to one app, one after the other; return the status and events of each."""

    async def main() -> list[tuple[int, list[dict[str, Any]]]]:
        answers: list[tuple[int, list[dict[str, Any]]]] = []
        inner = ASGITransport(App(agent, allow_anonymous=True, **app))
        for body in bodies:
            tap = Tap(inner)
            headers = {"content-type": "application/json", "accept": "text/event-stream"}
            request = Request(method="POST", url=URL, headers=headers, body=json.dumps(body).encode())
            response = await tap.send(request)
            while await response.read():
                pass
            await response.close()
            answers.append((response.status, tap.events if response.status == 200 else []))
        await inner.close()
        return answers

    return await main()


def body(messages: list[Any], run_id: str = "r1", **more: Any) -> dict[str, Any]:
    return {"threadId": "t1", "runId": run_id, "messages": messages, **more}


def history(messages: list[Message]) -> list[Any]:
    return json.loads(encode(messages))


def reading(seen: list[ChatMessage]) -> Any:
    async def agent(run: Any) -> None:
        seen.extend(await run.chat_messages())

    return agent


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


# 3475


async def test_3475_server_and_client_use_one_key_and_one_thread() -> None:
    seen: list[str] = []

    async def agent(run: Any) -> Any:
        seen.append(run.thread_id)
        yield TextContent("x")

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions(additional_properties={"agui_thread_id": "T"})
        for _ in range(2):
            async for update in client.get_streaming_response("x", options):
                assert update.additional_properties["ag_ui_thread_id"] == "T"
                assert "agui_thread_id" not in update.additional_properties
        assert b"agui_thread_id" not in b"".join([one.body for one in tap.sent])

    await chat(agent, turns)
    assert seen == ["T", "T"]


# 3365, 2775


@pytest.mark.parametrize("content", ['{"status":"success","value":42}', "plain", "", "[1,2]"])
async def test_3365_a_tool_message_keeps_its_id(content: str) -> None:
    seen: list[ChatMessage] = []
    call = {"id": "call_abc", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"id": "a", "role": "assistant", "toolCalls": [call]},
        {"id": "msg1", "role": "tool", "toolCallId": "call_abc", "content": content},
    ]
    [(status, _)] = await post(reading(seen), body(messages))
    assert status == 200
    assert (seen[1].role, seen[1].message_id) == ("tool", "msg1")
    assert seen[1].contents == [FunctionResultContent("call_abc", content)]


@pytest.mark.parametrize("content", RESULTS)
async def test_2775_a_result_that_is_no_json_is_kept_byte_for_byte(content: str) -> None:
    """Emitted by the agent, read by the client, sent back as history, read by the agent, emitted again."""

    async def agent(run: Any) -> Any:
        messages = await run.chat_messages()
        results = [one for message in messages for one in message.results]
        call_id = f"c{len(results)}"
        yield ChatUpdate(contents=[FunctionCallContent(call_id, "f", "{}")], message_id=f"m{len(results)}")
        again = results[-1].result if results else content
        yield ChatMessage("tool", [FunctionResultContent(call_id, again)])

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "x")]
        for number in range(2):
            response = await client.get_response(conversation, options)
            [result] = response.messages[-1].results
            assert (result.call_id, result.result) == (f"c{number}", content)
            result.parsed_result  # noqa: B018 - never raises
            conversation += response.messages
        found = [event["content"] for event in tap.events if event["type"] == "TOOL_CALL_RESULT"]
        assert found == [content, content]

    await chat(agent, turns)


# 2637


async def test_2637_a_call_without_a_message_id_has_no_parent_and_no_null_is_written() -> None:
    async def agent(run: Any) -> Any:
        yield ChatUpdate(contents=[ReasoningContent("a", "sig")])
        yield ChatUpdate(contents=[FunctionCallContent("c", "f", "{}")])
        yield ChatMessage("tool", [FunctionResultContent("c", "r")])
        yield CustomEvent(name="x", value=None)
        yield StateSnapshotEvent(snapshot={"k": None})

    async def turns(client: Any, tap: Any) -> None:
        await client.get_response("x")
        [start] = [event for event in tap.events if event["type"] == "TOOL_CALL_START"]
        assert "parentMessageId" not in start
        assert [json.loads(line)["type"] for line in tap.lines if b"null" in line] == ["CUSTOM", "STATE_SNAPSHOT"]
        assert b"null" not in tap.sent[0].body

    await chat(agent, turns)


# 2699


def assistant(number: int) -> AssistantMessage:
    call = ToolCall(id=f"c{number}", function=FunctionCall(name="f", arguments="{}"))
    return AssistantMessage(id=f"m{number}", tool_calls=[call])


def tool(number: int) -> ToolMessage:
    return ToolMessage(id=f"t{number}", tool_call_id=f"c{number}", content=str(number))


def shape(messages: list[ChatMessage]) -> list[Any]:
    calls = (FunctionCallContent, FunctionResultContent)
    return [[one.call_id for one in message.contents if isinstance(one, calls)] or message.role for message in messages]


THANKS = UserMessage(id="u", content="thanks")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            [assistant(1), assistant(2), assistant(3), tool(1), tool(2), tool(3), THANKS],
            [["c1", "c2", "c3"], ["c1"], ["c2"], ["c3"], "user"],
        ),
        ([assistant(1), tool(1), assistant(2), tool(2)], [["c1"], ["c1"], ["c2"], ["c2"]]),
        ([assistant(1), THANKS], ["user"]),
        ([tool(1), THANKS], ["user"]),
    ],
    ids=["parallel", "sequential", "a call without a result", "a result without a call"],
)
async def test_2699_what_reaches_a_provider_is_paired(messages: list[Message], expected: list[Any]) -> None:
    seen: list[ChatMessage] = []
    await post(reading(seen), body(history(messages)))
    assert len(seen) == len(messages)
    assert shape(list(provider_history(seen).messages)) == expected


# 2558

EVENTS: list[list[Event]] = [
    [StepStartedEvent(step_name="s"), StepFinishedEvent(step_name="s")],
    [
        ActivitySnapshotEvent(message_id="a", activity_type="PLAN", content={"n": 1}),
        ActivityDeltaEvent(
            message_id="a", activity_type="PLAN", patch=[{"op": "replace", "path": "/n", "value": None}]
        ),
    ],
    [MessagesSnapshotEvent(messages=[UserMessage(id="u", content="hi")])],
    [RawEvent(event={"k": None}, source="elsewhere")],
    [CustomEvent(name="x", value=[1, None])],
    [StateSnapshotEvent(snapshot={"n": 1}), StateDeltaEvent(delta=[{"op": "add", "path": "/m", "value": 2}])],
    [
        ReasoningStartEvent(message_id="r"),
        ReasoningMessageStartEvent(message_id="r"),
        ReasoningMessageContentEvent(message_id="r", delta="hm"),
        ReasoningMessageEndEvent(message_id="r"),
        ReasoningEndEvent(message_id="r"),
    ],
    [
        SubagentStartedEvent(subagent_run_id="s", name="helper"),
        SubagentFinishedEvent(subagent_run_id="s"),
    ],
]


def directly(event: Event) -> Any:
    return event


def as_raw(event: Event) -> ChatUpdate:
    return ChatUpdate(raw_representation=event)


def as_content(event: Event) -> ChatUpdate:
    return ChatUpdate(contents=[event_content.create(event)])


@pytest.mark.parametrize("events", EVENTS, ids=lambda events: str(events[0].type))
@pytest.mark.parametrize("style", [directly, as_raw, as_content])
async def test_2558_every_event_reaches_the_client_whichever_way_it_is_yielded(events: list[Event], style: Any) -> None:
    async def agent(run: Any) -> Any:
        for event in events:
            yield style(event)

    async def turns(client: Any, tap: Any) -> None:
        updates = [update async for update in client.get_streaming_response("x")]
        assert tap.lines[1:-1] == [encode_event(event) for event in events]
        assert types(tap.events)[0] == "RUN_STARTED"
        assert types(tap.events)[-1] == "RUN_FINISHED"
        assert [update.raw_representation for update in updates][1:-1] == events

    await chat(agent, turns)


async def test_2558_the_three_styles_may_be_mixed_with_text() -> None:
    async def agent_of(style: Any, run: Any) -> Any:
        yield ChatUpdate(contents=[TextContent("a")], message_id="m")
        yield style(CustomEvent(name="beside", value=1))
        yield ChatUpdate(contents=[TextContent("b")], message_id="m")
        yield style(StepStartedEvent(step_name="s"))
        yield style(StepFinishedEvent(step_name="s"))

    found: list[list[str]] = []
    for style in (directly, as_raw, as_content):

        async def agent(run: Any, style: Any = style) -> Any:
            async for value in agent_of(style, run):
                yield value

        [(_, events)] = await post(agent, body([]))
        found.append([json.dumps(event) for event in events])
    assert found[0] == found[1] == found[2]


# 2619


async def test_2619_reasoning_comes_first_under_an_id_of_its_own_and_is_no_error_in_turn_two() -> None:
    async def agent(run: Any) -> Any:
        await run.chat_messages()
        number = len(run.messages)
        yield ChatUpdate(contents=[ReasoningContent("a")], message_id=f"p{number}")
        yield ChatUpdate(contents=[ReasoningContent("b", "sig")], message_id=f"p{number}")
        yield ChatUpdate(contents=[TextContent("c")], message_id=f"p{number}")

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "x")]
        conversation += (await client.get_response(conversation, options)).messages
        assert types(tap.events)[1:-1] == [
            "REASONING_START",
            "REASONING_MESSAGE_START",
            "REASONING_MESSAGE_CONTENT",
            "REASONING_ENCRYPTED_VALUE",
            "REASONING_MESSAGE_END",
            "REASONING_END",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
        ]
        started = [event for event in tap.events if event["type"].endswith("MESSAGE_START")]
        assert started[0]["messageId"] != started[1]["messageId"] == "p1"
        assert started[0]["role"] == "reasoning"
        assert (await client.get_response(conversation, options)).outcome == "success"
        [sent] = [message for message in tap.inputs[1]["messages"] if message["role"] == "reasoning"]
        assert (sent["content"], sent["encryptedValue"]) == ("ab", "sig")

    await chat(agent, turns)


# 2510

SEVEN: list[Message] = [
    SystemMessage(id="s", content="sys"),
    DeveloperMessage(id="d", content="dev"),
    UserMessage(id="u", content="hi"),
    ReasoningMessage(id="r", content="hm"),
    AssistantMessage(id="a", tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))]),
    ToolMessage(id="t", tool_call_id="c", content="ok"),
    ActivityMessage(id="act", activity_type="PLAN", content={"n": 1}),
]


async def test_2510_a_snapshot_of_the_history_reaches_the_client_with_all_seven_roles() -> None:
    async def agent(run: Any) -> Any:
        yield event_content.create(MessagesSnapshotEvent(messages=SEVEN))

    async def turns(client: Any, tap: Any) -> None:
        updates = [update async for update in client.get_streaming_response("x")]
        assert updates[1].raw_representation.messages == SEVEN

    await chat(agent, turns)


async def test_2510_a_known_thread_without_messages_is_hydrated_and_the_agent_is_not_called() -> None:
    calls: list[str] = []

    async def agent(run: Any) -> Any:
        calls.append(run.run_id)
        run.state["n"] = 1
        yield TextContent("hello")

    answers = await post(
        agent,
        body([{"id": "u", "role": "user", "content": "hi"}], "r1", protocolVersion="1.1"),
        body([], "r2", protocolVersion="1.1"),
        history="server",
    )
    assert calls == ["r1"]
    status, events = answers[1]
    assert status == 200
    assert types(events) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert events[1]["snapshot"] == {"n": 1}
    assert [message["role"] for message in events[2]["messages"]] == ["user", "assistant"]


async def test_2619_thinking_events_of_an_older_server_are_reasoning_with_one_warning() -> None:
    thinking = ["THINKING_START", "THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_END", "THINKING_END"]
    events: list[dict[str, Any]] = [{"type": type_} for type_ in thinking]
    events.insert(2, {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "x"})
    notices: list[Notice] = []

    with ScriptedServer(run_of(*events)) as server:
        async with ChatClient(server.url, warn=notices.append) as client:
            updates = [update async for update in client.get_streaming_response("?")]
    found: list[Any] = [update.raw_representation for update in updates if update.raw_representation is not None]
    reasoning = [event for event in found if event.type.startswith("REASONING")]
    assert [event.type for event in reasoning] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
    ]
    assert len({event.message_id for event in reasoning[1:4]}) == 1
    assert [c.text for update in updates for c in update.contents if isinstance(c, ReasoningContent)] == ["x"]
    assert len(notices) == 1


# 3729, 4761


def multimodal(part: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "text", "text": "What is in this image?"}
    return {"threadId": "t", "runId": "r", "messages": [{"id": "m1", "role": "user", "content": [text, part]}]}


async def only_image(part: dict[str, Any]) -> Content:
    seen: list[ChatMessage] = []
    [(status, events)] = await post(reading(seen), multimodal(part))
    assert status == 200
    assert types(events) == ["RUN_STARTED", "RUN_FINISHED"]
    [message] = seen
    text, image = message.contents
    assert text == TextContent("What is in this image?")
    return image


async def test_3729_a_multimodal_array_is_text_then_bytes_with_type_and_name() -> None:
    image = await only_image({"type": "binary", "mimeType": "image/png", "filename": "pixel.png", "data": B64})
    assert isinstance(image, DataContent)
    assert (image.data, image.media_type, image.additional_properties["filename"]) == (PNG, "image/png", "pixel.png")


async def test_3729_the_same_with_an_address_and_with_an_id(caplog: pytest.LogCaptureFixture) -> None:
    image = await only_image({"type": "binary", "mimeType": "image/png", "url": "https://example.org/x.png"})
    assert isinstance(image, UriContent)
    assert image.uri == "https://example.org/x.png"
    with caplog.at_level(logging.CRITICAL, "aguila"):
        image = await only_image({"type": "binary", "mimeType": "image/png", "id": "up-1"})
    assert isinstance(image, HostedFileContent)
    assert (image.file_id, image.additional_properties["ag_ui_requires_resolution"]) == ("up-1", True)


@pytest.mark.parametrize("kind", ["image", "document"])
async def test_3729_the_same_with_canonical_parts(kind: str) -> None:
    image = await only_image({"type": kind, "source": {"type": "data", "value": B64, "mimeType": "image/png"}})
    assert isinstance(image, DataContent)
    assert image.data == PNG


async def test_3729_plain_text_still_works() -> None:
    seen: list[ChatMessage] = []
    await post(
        reading(seen), {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]}
    )
    assert seen[0].contents == [TextContent("hi")]


async def test_3729_an_upload_is_resolved() -> None:
    async def agent(run: Any) -> Any:
        [message] = await run.chat_messages()
        image = message.contents[0]
        yield f"{image.media_type} {len(image.data)} {image.additional_properties['filename']}"

    async def turns(client: Any, tap: Any) -> None:
        part = await client.client.upload(PNG, mime_type="image/png", filename="pixel.png")
        hosted = HostedFileContent(part.source.value, additional_properties={"ag_ui_provider": "aguila"})
        assert (await client.get_response(ChatMessage("user", [hosted]))).text == "image/png 8 pixel.png"

    await chat(agent, turns)


async def test_4761_a_user_message_without_content_is_refused_before_the_agent_runs() -> None:
    async def agent(run: Any) -> None:
        raise AssertionError("not to be called")

    [(status, _)] = await post(agent, body([{"id": "m", "role": "user"}]))
    assert status == 422


def never(run: Any) -> None:
    raise AssertionError("not to be called")


async def test_4761_what_is_of_another_role_is_never_read_as_a_users_and_a_users_is_sent_as_user() -> None:
    seen: list[ChatMessage] = []
    notices: list[Notice] = []
    users = {"id": "m", "role": "user", "content": "y"}
    await post(reading(seen), body([{"id": "h", "role": "human", "content": "x"}, users]), warn=notices.append)
    assert [(message.role, message.message_id) for message in seen] == [("user", "m")]
    assert ("PROC-3", "/messages/0") in [(notice.rule, notice.path) for notice in notices]

    async def turns(client: Any, tap: Any) -> None:
        await client.get_response(ChatMessage("user", "x", message_id="m"))
        assert [(sent["role"], sent["id"]) for sent in tap.inputs[0]["messages"]] == [("user", "m")]

    await chat(lambda run: None, turns)


async def test_4761_user_content_that_cannot_be_expressed_is_an_error_that_names_it_and_nothing_is_sent() -> None:
    async def turns(client: Any, tap: Any) -> None:
        with pytest.raises(EncodeError, match="FunctionCallContent"):
            await client.get_response(ChatMessage("user", [FunctionCallContent("c", "f")]))
        assert tap.sent == []

    await chat(never, turns)


async def test_4761_a_file_of_unknown_type_is_sent_without_a_mime_type(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[ChatMessage] = []

    async def turns(client: Any, tap: Any) -> None:
        with caplog.at_level(logging.CRITICAL, "aguila"):
            await client.get_response(ChatMessage("user", [HostedFileContent("file-1")]))
        [sent] = tap.inputs[0]["messages"]
        assert sent["content"] == [{"type": "document", "source": {"type": "file", "value": "file-1"}}]

    await chat(reading(seen), turns)
    [content] = seen[0].contents
    assert isinstance(content, HostedFileContent)
    assert (content.file_id, content.media_type) == ("file-1", None)


async def test_4761_binary_that_refers_to_nothing_is_refused_before_the_agent_runs() -> None:
    [(status, _)] = await post(never, multimodal({"type": "binary", "mimeType": "image/png"}))
    assert status == 422


async def test_4761_binary_data_without_a_media_type_is_bytes_of_no_known_type() -> None:
    image = await only_image({"type": "binary", "data": B64})
    assert isinstance(image, DataContent)
    assert (image.data, image.media_type) == (PNG, "application/octet-stream")


async def test_4761_a_part_type_in_another_case_is_read_with_a_warning_and_sent_back_in_lower_case() -> None:
    notices: list[Notice] = []

    async def agent(run: Any) -> Any:
        yield MessagesSnapshotEvent(messages=run.messages)

    parts = [{"type": "Text", "text": "a"}, {"type": "text", "text": "b"}]
    [(status, events)] = await post(agent, body([{"id": "m", "role": "user", "content": parts}]), warn=notices.append)
    assert status == 200
    [snapshot] = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
    assert [part["type"] for part in snapshot["messages"][0]["content"]] == ["text", "text"]
    assert [notice.path for notice in notices] == ["/messages/0/content/0/type"]


async def test_4761_a_name_goes_there_and_back() -> None:
    seen: list[ChatMessage] = []
    messages = [
        ChatMessage("user", "hi", author_name="Ada"),
        ChatMessage("user", [TextContent("look"), DataContent(PNG, "image/png")], author_name="Bob"),
    ]

    async def turns(client: Any, tap: Any) -> None:
        await client.get_response(messages)
        assert [message["name"] for message in tap.inputs[0]["messages"]] == ["Ada", "Bob"]

    await chat(reading(seen), turns)
    assert [message.author_name for message in seen] == ["Ada", "Bob"]


async def test_4761_h_agents_that_stream_and_agents_that_do_not_see_the_same_messages() -> None:
    seen: list[list[ChatMessage]] = []

    async def streams(run: Any) -> Any:
        seen.append(await run.chat_messages())
        yield TextContent("x")

    async def returns(run: Any) -> ChatMessage:
        seen.append(await run.chat_messages())
        return ChatMessage("assistant", "x")

    def in_a_thread(run: Any) -> Any:
        seen.append(run.chat_messages())
        yield TextContent("x")

    def returns_in_a_thread(run: Any) -> ChatMessage:
        seen.append(run.chat_messages())
        return ChatMessage("assistant", "x")

    conversation = [
        ChatMessage("user", [TextContent("look"), DataContent(PNG, "image/png")], message_id="u1", author_name="Ada"),
        ChatMessage("assistant", "nice", message_id="a1"),
        ChatMessage("user", "more", message_id="u2"),
    ]
    answers: list[Any] = []

    async def turns(client: Any, tap: Any) -> None:
        whole = await client.get_response(conversation)
        streamed = client.get_streaming_response(conversation)
        text = "".join([update.text async for update in streamed])
        answers.append((whole.text, text, tap.inputs[0]["messages"] == tap.inputs[1]["messages"]))

    for agent in (streams, returns, in_a_thread, returns_in_a_thread):
        await chat(agent, turns)
    assert all(one == conversation for one in seen)
    assert len(seen) == 8
    assert answers == [("x", "x", True)] * 4


# The neighbours


async def test_3433_text_without_an_id_gets_one_stable_id_per_message() -> None:
    async def agent(run: Any) -> Any:
        yield ChatUpdate(contents=[TextContent("a")])
        yield ChatUpdate(contents=[TextContent("b")])
        yield ChatUpdate(contents=[FunctionCallContent("c", "f", "{}")])
        yield ChatMessage("tool", [FunctionResultContent("c", "r")])
        yield ChatUpdate(contents=[TextContent("d")])

    [(_, events)] = await post(agent, body([]))
    texts: dict[str, str] = {}
    for event in events:
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            texts[event["messageId"]] = texts.get(event["messageId"], "") + event["delta"]
    assert list(texts.values()) == ["ab", "d"]


async def test_3962_and_6015_parallel_results_and_calls_share_no_id() -> None:
    async def agent(run: Any) -> Any:
        calls: list[Content] = [FunctionCallContent(f"c{n}", "f", "{}") for n in range(3)]
        yield ChatUpdate(contents=calls)
        results: list[Content] = [FunctionResultContent(f"c{n}", "r") for n in range(3)]
        yield ChatMessage("tool", results, message_id="p")

    [(_, events)] = await post(agent, body([]))
    assert len({event["messageId"] for event in events if event["type"] == "TOOL_CALL_RESULT"}) == 3
    assert not any("parentMessageId" in event for event in events)


async def test_4869_and_7629_every_turn_sends_all_and_the_thread_is_easy_to_read() -> None:
    seen: list[ChatMessage] = []

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions(additional_properties={"ag_ui_thread_id": "T"})
        conversation = [ChatMessage("user", f"m{n}", message_id=f"m{n}") for n in range(3)]
        response = await client.get_response(conversation, options)
        assert response.thread_id == options.thread_id == "T"
        assert len(tap.inputs[0]["messages"]) == 3

    await chat(reading(seen), turns)
    assert len(seen) == 3


async def test_5305_an_exception_in_mid_stream_gives_one_error_last_that_leaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent(run: Any) -> Any:
        yield ChatUpdate(contents=[TextContent("so far")], message_id="m")
        raise RuntimeError("secret")

    with caplog.at_level(logging.CRITICAL, "aguila"):
        [(_, events)] = await post(agent, body([]))
    assert types(events) == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "RUN_ERROR"]
    assert "secret" not in json.dumps(events)


async def test_2290_and_8462_reasoning_and_activity_in_the_history_are_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[ChatMessage] = []
    with caplog.at_level(logging.CRITICAL, "aguila"):
        [(status, events)] = await post(
            reading(seen), body(history(SEVEN), protocolVersion="1.1"), trust=Trust(system_messages=True)
        )
    assert (status, events[-1]["type"]) == (200, "RUN_FINISHED")
    assert [message.role for message in seen] == ["system", "developer", "user", "assistant", "assistant", "tool"]


@pytest.mark.parametrize("media_type", ["image/png", "audio/wav", "video/mp4", "application/pdf"])
async def test_2447_canonical_media_go_there_and_back(media_type: str) -> None:
    async def agent(run: Any) -> Any:
        [message] = await run.chat_messages()
        yield ChatUpdate(contents=[FunctionCallContent("c", "f", "{}")])
        yield ChatMessage("tool", [FunctionResultContent("c", list(message.contents))])

    async def turns(client: Any, tap: Any) -> None:
        response = await client.get_response(ChatMessage("user", [DataContent(PNG, media_type)]))
        [result] = response.messages[-1].results
        assert result.result == [DataContent(PNG, media_type)]
        kind = media_type.partition("/")[0]
        expected = "document" if kind == "application" else kind
        assert tap.inputs[0]["messages"][0]["content"][0]["type"] == expected

    await chat(agent, turns)


async def test_880_a_run_that_is_aborted_has_a_message(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> Any:
        yield TextContent("x")
        raise SystemExit

    with caplog.at_level(logging.CRITICAL, "aguila"):
        [(_, events)] = await post(agent, body([]))
    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["message"]


async def test_7429_ids_of_a_provider_never_replace_those_of_the_request() -> None:
    async def agent(run: Any) -> Any:
        named = {"ag_ui_thread_id": "theirs", "ag_ui_run_id": "theirs"}
        yield ChatUpdate(contents=[TextContent("x")], message_id="theirs", additional_properties=named)

    [(_, events)] = await post(agent, body([]))
    assert (events[0]["threadId"], events[0]["runId"]) == ("t1", "r1")
    assert (events[-1]["threadId"], events[-1]["runId"]) == ("t1", "r1")
