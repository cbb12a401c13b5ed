"""``ChatClient`` against our own server: turns, threads, tools, questions, state, errors."""

from __future__ import annotations

from typing import Any

import pytest
from chats.chat_app import URL, chat, chatting

import aguila
from aguila import App, AsyncClient, ChatClient
from aguila.agent import InterruptCancelled
from aguila.chat import (
    ApprovalRequestContent,
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    Hooks,
    InterruptRequestContent,
    ReasoningContent,
    TextContent,
    UsageContent,
)
from aguila.client import ChatOptions
from aguila.client.transports.asgi import ASGITransport
from aguila.errors import HTTPRejected, IllegalStep, RunFailed, StreamTruncated
from aguila.protocol import (
    RunFinishedEvent,
    RunStartedEvent,
    TokenUsage,
    Tool,
)

pytestmark = pytest.mark.anyio


async def echo(run: Any) -> Any:
    messages = await run.chat_messages()
    yield TextContent(f"{len(messages)}: {messages[-1].text}")


async def collect(stream: Any, updates: list[Any]) -> None:
    async for update in stream:
        updates.append(update)


# Turns


def test_the_name_is_exported_lazily() -> None:
    assert aguila.ChatClient is ChatClient
    assert ChatClient.__module__ == "aguila.client.chat"


async def test_a_whole_response() -> None:
    async def turns(client: Any, tap: Any) -> None:
        response = await client.get_response("Hello")
        assert response.text == "1: Hello"
        assert [message.role for message in response.messages] == ["assistant"]
        assert response.outcome == "success"
        assert response.additional_properties == {
            "ag_ui_thread_id": response.thread_id,
            "ag_ui_run_id": response.run_id,
        }
        assert tap.inputs[0]["threadId"] == response.thread_id
        assert tap.inputs[0]["runId"] == response.run_id

    await chat(echo, turns)


async def test_a_streamed_response_gives_every_event_and_then_the_whole() -> None:
    async def agent(run: Any) -> Any:
        yield ReasoningContent("hm")
        yield TextContent("Hel")
        yield TextContent("lo")
        yield UsageContent(TokenUsage(provider="p", input_tokens=3))

    async def turns(client: Any, tap: Any) -> None:
        stream = client.get_streaming_response("Hi")
        with pytest.raises(StreamTruncated):
            _ = stream.response
        updates = [update async for update in stream]
        assert "".join(update.text for update in updates) == "Hello"
        assert [update.raw_representation.type for update in updates] == [event["type"] for event in tap.events]
        assert isinstance(updates[0].raw_representation, RunStartedEvent)
        assert all(update.additional_properties["ag_ui_run_id"] == stream.response.run_id for update in updates)
        assert stream.response.text == "Hello"
        assert await stream is stream.response
        assert stream.response.usage[0].input_tokens == 3
        assert [content for update in updates for content in update.contents if isinstance(content, UsageContent)]
        with pytest.raises(IllegalStep):
            _ = [update async for update in stream]

    await chat(agent, turns)


async def test_a_stream_that_was_left_has_no_response() -> None:
    async def turns(client: Any, tap: Any) -> None:
        stream = client.get_streaming_response("Hi")
        updates = stream.__aiter__()
        assert isinstance(await updates.__anext__(), ChatUpdate)
        await updates.aclose()
        with pytest.raises(StreamTruncated):
            await stream

    await chat(echo, turns)


async def test_the_messages_are_the_conversation() -> None:
    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "One")]
        conversation += (await client.get_response(conversation, options)).messages
        conversation.append(ChatMessage("user", "Two"))
        response = await client.get_response(conversation, options)
        assert response.text == "3: Two"
        first, second = tap.inputs
        assert second["messages"][:1] == first["messages"]  # under the same id
        assert second["messages"][1]["id"] == conversation[1].message_id
        assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
        assert len({message["id"] for message in second["messages"]}) == 3

    await chat(echo, turns)


async def test_text_and_messages_may_be_mixed_and_nothing_else() -> None:
    async def turns(client: Any, tap: Any) -> None:
        response = await client.get_response([ChatMessage("user", "One"), "Two"])
        assert response.text == "2: Two"
        with pytest.raises(TypeError, match="dict"):
            client.get_streaming_response([{"role": "user"}])

    await chat(echo, turns)


async def test_the_endpoint_is_an_address_or_a_client() -> None:
    app = App(echo)
    async with ChatClient(URL, transport=ASGITransport(app)) as own:
        assert (await own.get_response("x")).text == "1: x"
    async with AsyncClient(URL, transport=ASGITransport(App(echo))) as client:
        async with ChatClient(client) as shared:
            assert shared.client is client
        assert (await client.thread().run("x")).text == "1: x"
        with pytest.raises(TypeError, match="headers"):
            ChatClient(client, headers={})


# Threads


async def test_3475_two_turns_with_the_same_options_are_one_thread() -> None:
    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        assert options.thread_id is None
        response = await client.get_response("One", options)
        await client.get_response("Two", options)
        await client.get_response("Three")
        ids = [one["threadId"] for one in tap.inputs]
        assert ids[0] == ids[1] == response.thread_id == options.thread_id
        assert ids[2] != ids[0]
        assert options.additional_properties == {"ag_ui_thread_id": ids[0]}

    await chat(echo, turns)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"agui_thread_id": "old"}, "old"),
        ({"ag_ui_thread_id": "new"}, "new"),
        ({"agui_thread_id": "old", "ag_ui_thread_id": "new"}, "new"),
    ],
)
async def test_3475_the_thread_is_found_under_either_key_and_written_under_one(properties: Any, expected: str) -> None:
    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions(additional_properties=dict(properties))
        await client.get_response("x", options)
        assert tap.inputs[0]["threadId"] == expected
        assert options.additional_properties == {**properties, "ag_ui_thread_id": expected}

    await chat(echo, turns)


async def test_state_is_kept_in_the_options() -> None:
    async def counts(run: Any) -> None:
        run.state["n"] = run.state.get("n", 0) + 1

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions(state={"n": 5})
        assert (await client.get_response("x", options)).state == {"n": 6}
        await client.get_response("y", options)
        assert options.state == {"n": 7}
        assert tap.inputs[1]["state"] == {"n": 6}

    await chat(counts, turns)


async def test_the_rest_of_the_options_is_sent() -> None:
    seen: list[Any] = []

    async def agent(run: Any) -> None:
        seen.extend([run.context[0].value, run.forwarded_props, run.headers["x-who"]])

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions(context={"place": "Quito"}, forwarded_props={"a": 1}, headers={"x-who": "me"})
        await client.get_response("x", options)

    await chat(agent, turns, app={"headers_allowed": ["x-who"]})
    assert seen == ["Quito", {"a": 1}, "me"]


# Tools


async def calls_weather(run: Any) -> Any:
    messages = await run.chat_messages()
    if messages[-1].role == "tool":
        results = [content.result for message in messages for content in message.results]
        yield TextContent(", ".join(results))
        return
    for index, city in enumerate(["Lisbon", "Oslo"]):
        yield ChatUpdate(contents=[FunctionCallContent(f"c{index}", "weather", f'{{"city":"{city}"}}')], message_id="m")


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sun in {city}"


async def test_local_tools_are_called_and_the_run_goes_on() -> None:
    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions(tools=[weather])
        stream = client.get_streaming_response("Weather?", options)
        updates = [update async for update in stream]
        assert stream.response.text == "sun in Lisbon, sun in Oslo"
        assert [message.role for message in stream.response.messages] == ["assistant", "tool", "tool", "assistant"]
        results = [one for update in updates for one in update.contents if isinstance(one, FunctionResultContent)]
        assert [one.call_id for one in results] == ["c0", "c1"]
        assert all(update.role == "tool" for update in updates if update.raw_representation is None)
        assert [one["threadId"] for one in tap.inputs] == [options.thread_id] * 2
        assert tap.inputs[0]["tools"][0]["name"] == "weather"

    await chat(calls_weather, turns)


async def test_calls_of_a_declared_tool_are_left_to_the_application() -> None:
    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions(tools=[Tool(name="weather", description="")])
        conversation = [ChatMessage("user", "Weather?")]
        response = await client.get_response(conversation, options)
        assert [call.call_id for call in response.pending_calls] == ["c0", "c1"]
        conversation += response.messages
        answers: list[Content] = [FunctionResultContent(call.call_id, "rain") for call in response.pending_calls]
        conversation.append(ChatMessage("tool", answers))
        assert (await client.get_response(conversation, options)).text == "rain, rain"

    await chat(calls_weather, turns)


async def test_tools_of_the_client_are_offered_in_every_turn() -> None:
    async with chatting(calls_weather, tools=[weather]) as (client, _):
        assert (await client.get_response("Weather?")).text == "sun in Lisbon, sun in Oslo"


# Questions


async def pays(run: Any) -> Any:
    amount = await run.ask("How much?", schema={"type": "integer"})
    approval = await run.approve("pay", {"amount": amount})
    await approval.call.result("done" if approval else "refused")
    yield f"paid {approval.arguments['amount']}" if approval else f"not paid: {approval.reason}"


async def test_questions_are_contents_and_so_are_answers() -> None:
    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "Pay")]
        response = await client.get_response(conversation, options)
        assert response.outcome == "interrupt"
        [question] = response.requests
        assert isinstance(question, InterruptRequestContent)
        assert (question.message, question.response_schema) == ("How much?", {"type": "integer"})
        conversation += response.messages
        with pytest.raises(IllegalStep):  # it does not fit, and nothing is sent
            await client.get_response([*conversation, ChatMessage("user", [question.answer("much")])], options)
        assert len(tap.inputs) == 1

        conversation.append(ChatMessage("user", [question.answer(9)]))
        response = await client.get_response(conversation, options)
        [approval] = response.requests
        assert isinstance(approval, ApprovalRequestContent)
        assert (approval.call.name, approval.call.parsed_arguments) == ("pay", {"amount": 9})
        assert response.pending_calls == []  # the agent makes that call
        conversation += response.messages
        conversation.append(ChatMessage("user", [approval.answer(True, edited_arguments={"amount": 8})]))
        response = await client.get_response(conversation, options)
        assert response.text == "paid 8"
        assert [entry["payload"] for one in tap.inputs for entry in one.get("resume", [])] == [
            9,
            {"approved": True, "editedArgs": {"amount": 8}},
        ]
        assert not any("int" in str(message.get("role")) for message in tap.inputs[-1]["messages"])

    await chat(pays, turns)


async def test_a_message_that_the_agent_goes_on_with_is_sent_whole_and_once() -> None:
    async def asks(run: Any) -> Any:
        yield "Well, "
        yield await run.ask("Who?")

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "Greet")]
        response = await client.get_response(conversation, options)
        conversation += response.messages
        [question] = response.requests
        conversation.append(ChatMessage("user", [question.answer("Bob")]))
        response = await client.get_response(conversation, options)
        assert response.text == "Well, Bob"
        conversation += [*response.messages, ChatMessage("user", "Again")]
        response = await client.get_response(conversation, options)
        said = [one["content"] for one in tap.inputs[-1]["messages"] if one["role"] == "assistant"]
        assert said == ["Well, Bob"]

    await chat(asks, turns)


async def test_a_question_that_is_not_answered_is_in_the_way_and_can_be_given_up() -> None:
    async def asks(run: Any) -> Any:
        try:
            yield await run.ask("How much?")
        except InterruptCancelled:
            yield "Then not."

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "Pay")]
        response = await client.get_response(conversation, options)
        conversation += response.messages
        with pytest.raises(IllegalStep, match="no answer"):
            await client.get_response([*conversation, "Never mind"], options)
        [question] = response.requests
        assert isinstance(question, InterruptRequestContent)
        conversation.append(ChatMessage("user", [question.give_up()]))
        assert (await client.get_response(conversation, options)).text == "Then not."
        assert tap.inputs[-1]["resume"][0]["status"] == "cancelled"

    await chat(asks, turns)


async def test_an_approval_can_be_given_up_like_any_question() -> None:
    async def pays(run: Any) -> Any:
        try:
            await run.approve("pay", {})
        except InterruptCancelled:
            yield "Then not."

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "Pay")]
        response = await client.get_response(conversation, options)
        conversation += response.messages
        [question] = response.requests
        assert isinstance(question, ApprovalRequestContent)
        conversation.append(ChatMessage("user", [question.give_up()]))
        assert (await client.get_response(conversation, options)).text == "Then not."
        assert [(one["status"], one.get("payload")) for one in tap.inputs[-1]["resume"]] == [("cancelled", None)]

    await chat(pays, turns)


async def test_a_conversation_that_was_loaded_can_answer_its_questions() -> None:
    async def turns(client: Any, tap: Any) -> None:
        first = ChatOptions()
        conversation = [ChatMessage("user", "Pay", message_id="u1")]
        response = await client.get_response(conversation, first)
        conversation += response.messages

        loaded = ChatOptions(additional_properties={"agui_thread_id": first.thread_id})
        [question] = response.requests
        assert isinstance(question, InterruptRequestContent)
        conversation.append(ChatMessage("user", [question.answer(3)]))
        response = await client.get_response(conversation, loaded)
        conversation += response.messages
        [approval] = response.requests
        assert isinstance(approval, ApprovalRequestContent)
        # Answers that were used stay in the conversation and are not sent again.
        again = ChatOptions(additional_properties={"ag_ui_thread_id": first.thread_id})
        conversation.append(ChatMessage("user", [approval.answer(False, reason="too much")]))
        response = await client.get_response(conversation, again)
        assert response.text == "not paid: too much"
        assert len(tap.inputs[-1]["resume"]) == 1

    await chat(pays, turns)


async def test_an_answer_that_was_used_is_not_sent_again_when_the_run_said_nothing() -> None:
    async def silent(run: Any) -> None:
        if run.messages[-1].content == "ask":
            await run.ask("Sure?")

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "ask")]
        response = await client.get_response(conversation, options)
        conversation += response.messages
        conversation.append(ChatMessage("user", [response.requests[0].answer(True)]))
        response = await client.get_response(conversation, options)
        assert response.messages == []
        conversation.append(ChatMessage("user", "next"))
        assert (await client.get_response(conversation, options)).outcome == "success"
        assert [len(one.get("resume", [])) for one in tap.inputs] == [0, 1, 0]

    await chat(silent, turns)


async def test_an_answer_to_nothing_is_refused() -> None:
    async def turns(client: Any, tap: Any) -> None:
        answer = InterruptRequestContent("nobody").answer(1)
        with pytest.raises(IllegalStep, match="nobody"):
            await client.get_response(ChatMessage("user", [answer]))

    await chat(echo, turns)


class Choice(Content, frozen=True, eq=False):
    """An application's own content."""

    interrupt_id: str


async def test_a_hook_chooses_how_a_question_is_shown() -> None:
    from aguila.chat import InterruptResponseContent

    async with chatting(pays) as (plain, _):
        hooks = Hooks().map_interrupt(lambda asked: Choice(interrupt_id=asked.id))
        client = ChatClient(plain.client, hooks=hooks)
        options = ChatOptions()
        response = await client.get_response("Pay", options)
        [shown] = response.messages[-1].contents
        assert isinstance(shown, Choice)
        answer = ChatMessage("user", [InterruptResponseContent(shown.interrupt_id, 4)])
        response = await client.get_response(["Pay", answer], options)
        assert response.outcome == "interrupt"


# Errors


async def test_a_failed_run_is_a_content_and_an_error() -> None:
    async def fails(run: Any) -> Any:
        yield TextContent("so far")
        yield ErrorContent("Out of tokens.", "quota")

    async def turns(client: Any, tap: Any) -> None:
        options = ChatOptions()
        stream = client.get_streaming_response("x", options)
        updates: list[Any] = []
        with pytest.raises(RunFailed, match="Out of tokens") as caught:
            await collect(stream, updates)
        assert updates[-1].contents == [ErrorContent("Out of tokens.", "quota")]
        assert caught.value.code == "quota"
        assert options.thread_id is not None
        with pytest.raises(StreamTruncated):
            await stream

    await chat(fails, turns)


async def test_a_request_that_is_refused_says_so() -> None:
    async def turns(client: Any, tap: Any) -> None:
        with pytest.raises(HTTPRejected):
            await client.get_response("x", ChatOptions(additional_properties={"ag_ui_thread_id": "x" * 600}))

    await chat(echo, turns)


# Files


async def test_files_go_there_and_come_back() -> None:
    image = bytes(range(256)) * 2000  # so large that it is converted in a thread

    async def agent(run: Any) -> Any:
        [message] = await run.chat_messages()
        [text, picture] = message.contents
        assert text.text == "Look"
        yield ChatUpdate(contents=[FunctionCallContent("c", "turn", "{}")], message_id="m")
        turned = DataContent(picture.data[::-1], picture.media_type)
        yield ChatMessage("tool", [FunctionResultContent("c", [TextContent("turned"), turned])])

    async def turns(client: Any, tap: Any) -> None:
        sent = ChatMessage("user", [TextContent("Look"), DataContent(image, "image/png")])
        response = await client.get_response(sent)
        [result] = response.messages[-1].results
        assert result.result[1].data == image[::-1]

    await chat(agent, turns)


async def test_an_update_can_be_handed_on_by_an_agent_that_asks_another_agent() -> None:
    async def turns(client: Any, tap: Any) -> None:
        async def proxy(run: Any) -> Any:
            async for update in client.get_streaming_response(await run.chat_messages()):
                yield update

        async with chatting(proxy) as (outer, outer_tap):
            response = await outer.get_response("Hello")
            assert response.text == "1: Hello"
            assert outer_tap.events[0]["runId"] == outer_tap.events[-1]["runId"] == response.run_id

    await chat(echo, turns)


async def test_finished_is_the_last_update() -> None:
    async def turns(client: Any, tap: Any) -> None:
        updates = [update async for update in client.get_streaming_response("x")]
        assert isinstance(updates[-1].raw_representation, RunFinishedEvent)

    await chat(echo, turns)
