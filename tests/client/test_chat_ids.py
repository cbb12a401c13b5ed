"""``ChatClient`` with servers that assign their own message ids in a snapshot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from builders import text_message_json, tool_call_json, user_json
from scripted_server import ScriptedServer, run_of

from aguila import ChatClient
from aguila.chat import ApprovalRequestContent, ChatMessage
from aguila.client import ChatOptions
from aguila.client.requests.message_id_map import find_renamed
from aguila.protocol import AssistantMessage, Message, UserMessage

pytestmark = pytest.mark.anyio


def snapshot(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"type": "MESSAGES_SNAPSHOT", "messages": list(messages)}


def assistant(id: str, content: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "role": "assistant", "content": content, **more}


async def chat(server: ScriptedServer, turns: Callable[[ChatClient], Awaitable[None]]) -> list[list[dict[str, Any]]]:
    """Chat with the server; return the messages of each request."""

    async def main() -> None:
        async with ChatClient(server.url) as client:
            await turns(client)

    with server:
        await main()
    return [asked.json["messages"] for asked in server.requests]


@pytest.mark.parametrize("message_id", [None, "mine"])
async def test_a_message_that_only_got_another_id_is_not_new_and_is_sent_under_it(message_id: str | None) -> None:
    first = snapshot(user_json("s1", "Hi"), assistant("a1", "Hello"))
    second = snapshot(user_json("s1", "Hi"), assistant("a1", "Hello"), user_json("s2", "More"), assistant("a2", "Sure"))
    third = snapshot(
        user_json("t1", "Hi"),
        assistant("b1", "Hello"),
        user_json("t2", "More"),
        assistant("b2", "Sure"),
        user_json("t3", "End"),
    )
    server = ScriptedServer(
        run_of(*text_message_json("run-1", "Hello"), first),
        run_of(*text_message_json("run-2", "Sure"), second),
        run_of(third, *text_message_json("b3", "Bye")),
        run_of(),
    )

    async def turns(client: ChatClient) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "Hi", message_id)]
        for answer, question in (("Hello", "More"), ("Sure", "End"), ("Bye", "Still there?")):
            response = await client.get_response(conversation, options)
            assert [(one.role, one.text) for one in response.messages] == [("assistant", answer)]
            conversation += [*response.messages, ChatMessage("user", question)]
        await client.get_response(conversation, options)

    requests = await chat(server, turns)
    assert [one["content"] for one in requests[-1]] == ["Hi", "Hello", "More", "Sure", "End", "Bye", "Still there?"]
    assert [one["id"] for one in requests[1]][:2] == ["s1", "a1"]
    assert [one["id"] for one in requests[2]][:4] == ["s1", "a1", "s2", "a2"]
    assert [one["id"] for one in requests[3]][:6] == ["t1", "b1", "t2", "b2", "t3", "b3"]


async def test_what_the_server_added_besides_an_id_is_given_and_sent_once() -> None:
    server = ScriptedServer(run_of(snapshot(user_json("s1", "Hi", name="Ada"), assistant("a1", "Hello"))), run_of())

    async def turns(client: ChatClient) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "Hi")]
        response = await client.get_response(conversation, options)
        assert [(one.role, one.author_name) for one in response.messages] == [("user", "Ada"), ("assistant", None)]
        await client.get_response([*conversation, *response.messages], options)

    assert (await chat(server, turns))[1] == [user_json("s1", "Hi", name="Ada"), assistant("a1", "Hello")]


async def test_another_message_of_the_user_in_a_snapshot_is_new() -> None:
    server = ScriptedServer(
        run_of(snapshot(user_json("s1", "Hi"), user_json("s2", "said elsewhere"), assistant("a1", "Hello")))
    )

    async def turns(client: ChatClient) -> None:
        response = await client.get_response("Hi")
        assert [one.text for one in response.messages] == ["said elsewhere", "Hello"]

    await chat(server, turns)


async def test_a_call_that_is_asked_about_keeps_to_its_message_when_all_get_other_ids() -> None:
    made = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    asked = {"type": "interrupt", "interrupts": [{"id": "i1", "reason": "tool_call", "toolCallId": "c1"}]}
    paid = {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "paid"}
    caller = {"id": "s2", "role": "assistant", "toolCalls": [made]}
    server = ScriptedServer(
        run_of(*tool_call_json("c1", "pay", "{}"), outcome=asked),
        run_of(snapshot(user_json("s1", "Pay"), caller, paid, assistant("a1", "Done"))),
        run_of(),
    )

    async def turns(client: ChatClient) -> None:
        options = ChatOptions()
        conversation = [ChatMessage("user", "Pay")]
        response = await client.get_response(conversation, options)
        [question] = response.requests
        assert isinstance(question, ApprovalRequestContent)
        assert response.pending_calls == []
        conversation += [*response.messages, ChatMessage("user", [question.answer(True)])]
        response = await client.get_response(conversation, options)
        assert [one.role for one in response.messages] == ["tool", "assistant"]
        await client.get_response([*conversation, *response.messages, ChatMessage("user", "Thanks")], options)

    assert [one["id"] for one in (await chat(server, turns))[2]][:4] == ["s1", "s2", "t1", "a1"]


def test_a_server_that_keeps_the_last_turn_alone_is_understood() -> None:
    sent: list[Message] = [
        UserMessage(id="u1", content="yes"),
        AssistantMessage(id="a1", content="Fine"),
        UserMessage(id="u2", content="yes"),
    ]
    theirs, answer = UserMessage(id="x", content="yes"), AssistantMessage(id="y", content="Fine")
    assert find_renamed(sent, [theirs, answer]) == {("user", "u2"): theirs}  # the answer is new, in the same words
    assert find_renamed(sent, [*sent, answer]) == {}
