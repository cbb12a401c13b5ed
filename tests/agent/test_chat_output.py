"""Agents that yield chat updates, messages and contents, and read their conversation as chat messages."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest
from agent_threads import Thread, run_agent

from aguila.chat import (
    ApprovalRequestContent,
    ApprovalResponseContent,
    ChatMessage,
    ChatUpdate,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    Hooks,
    HostedFileContent,
    InterruptRequestContent,
    ReasoningContent,
    TextContent,
    UriContent,
    UsageContent,
    as_response_contents,
    event_content,
)
from aguila.codec import encode_event
from aguila.protocol import (
    CustomEvent,
    DataSource,
    FileSource,
    ImagePart,
    ResumeEntry,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    TokenUsage,
    ToolCallStartEvent,
    ToolMessage,
    UrlSource,
    UserMessage,
)

pytestmark = pytest.mark.anyio


def update(*contents: Any, message_id: str | None = None, **more: Any) -> ChatUpdate:
    return ChatUpdate(contents=list(contents), message_id=message_id, **more)


def inner(outcome: Any) -> list[str]:
    return outcome.types[1:-1]


# What an agent says


async def as_updates(run: Any) -> Any:
    yield update(TextContent("Hello "))
    yield update(TextContent("world"))


async def as_contents(run: Any) -> Any:
    yield TextContent("Hello ")
    yield TextContent("world")


def in_a_thread(run: Any) -> Any:
    yield update(TextContent("Hello "))
    yield [update(TextContent("world"))]


async def emitted(run: Any) -> None:
    await run.emit(update(TextContent("Hello ")))
    await run.emit("world")


@pytest.mark.parametrize("agent", [as_updates, as_contents, in_a_thread, emitted])
async def test_every_form_of_chat_gives_the_same_stream(agent: Any) -> None:
    outcome = await run_agent(agent)
    assert inner(outcome) == [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ]
    assert outcome.text == "Hello world"
    assert outcome.ending.outcome == "success"


async def test_a_chat_message_can_be_yielded_and_returned() -> None:
    async def yields(run: Any) -> Any:
        yield ChatMessage("assistant", "One.", message_id="m1")
        yield ChatMessage("assistant", "Two.")

    async def returns(run: Any) -> ChatMessage:
        return ChatMessage("assistant", [ReasoningContent("hm"), TextContent("Done.")], message_id="m1")

    outcome = await run_agent(yields)
    ids = [event.message_id for event in outcome.of(TextMessageStartEvent)]
    assert ids[0] == "m1"
    assert len(set(ids)) == 2
    outcome = await run_agent(returns)
    assert outcome.text == "Done."
    assert "REASONING_MESSAGE_CONTENT" in outcome.types
    assert outcome.last.result is None


async def test_a_tool_call_and_its_result_as_contents() -> None:
    async def agent(run: Any) -> Any:
        yield update(FunctionCallContent("c", "search", '{"q":', is_complete=False), message_id="m")
        yield update(FunctionCallContent("c", "search", '"x"}', is_complete=False), message_id="m")
        yield update(FunctionCallContent("c", "search", '{"q":"x"}'), message_id="m")
        yield ChatMessage("tool", [FunctionResultContent("c", "found")], message_id="t")

    outcome = await run_agent(agent)
    assert inner(outcome) == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]
    assert outcome.last.outcome.pending_tool_call_ids is None


async def test_text_that_was_yielded_before_a_chat_update_is_ended() -> None:
    async def agent(run: Any) -> Any:
        yield "plain"
        yield update(TextContent("chat"), message_id="m")
        yield "plain again"
        yield CustomEvent(name="x", value=1)
        yield " and on"

    outcome = await run_agent(agent)
    first, second, third = outcome.of(TextMessageStartEvent)
    assert second.message_id == "m"
    assert len({first.message_id, second.message_id, third.message_id}) == 3
    assert inner(outcome)[-4:] == ["TEXT_MESSAGE_CONTENT", "CUSTOM", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]


async def test_ids_are_derived_so_that_a_replay_finds_them_again() -> None:
    async def agent(run: Any) -> Any:
        yield update(TextContent("Well. "))
        name = await run.ask("Name?")
        yield update(TextContent(f"Hello {name}."))

    thread = Thread()
    await thread.run(agent)
    await thread.resume(agent, "Ada")
    messages = thread.conversation.messages
    assert [message.content for message in messages] == ["Well. Hello Ada."]


async def test_2558_an_event_in_a_chat_is_passed_on_however_it_is_given() -> None:
    event = CustomEvent(name="x", value={"n": 1})

    def agent_of(value: Any) -> Any:
        async def agent(run: Any) -> Any:
            yield value

        return agent

    forms = [event, update(raw_representation=event), update(event_content.create(event)), event_content.create(event)]
    found = [[encode_event(one) for one in (await run_agent(agent_of(form))).events] for form in forms]
    assert found[0][1] == encode_event(event)
    assert all(one == found[0] for one in found)


# State


async def test_the_state_goes_before_what_is_no_delta() -> None:
    async def agent(run: Any) -> Any:
        run.state["n"] = 1
        yield update(FunctionCallContent("c", "f", "{}"))
        run.state["n"] = 2
        yield CustomEvent(name="x", value=1)

    assert inner(await run_agent(agent, state={})) == [
        "STATE_DELTA",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "STATE_DELTA",
        "CUSTOM",
    ]


async def test_state_that_an_update_brings_is_the_run_s_state() -> None:
    seen: list[Any] = []

    async def agent(run: Any) -> Any:
        run.state["old"] = 1
        yield update(DataContent(b'{"new":2}', "application/json"))
        seen.append(dict(run.state))
        run.state["more"] = 3
        yield update(raw_representation=StateSnapshotEvent(snapshot={"n": 4}))
        seen.append(dict(run.state))

    outcome = await run_agent(agent, state={})
    assert seen == [{"new": 2}, {"n": 4}]
    assert inner(outcome) == ["STATE_DELTA", "STATE_SNAPSHOT", "STATE_DELTA", "STATE_SNAPSHOT"]


async def test_state_that_an_update_brings_arrives_in_a_replay_too() -> None:

    async def agent(run: Any) -> Any:
        yield update(DataContent(b'{"n":1}', "application/json"))
        await run.ask("Go on?")
        yield update(DataContent(b'{"n":2}', "application/json"))
        run.state["m"] = 3
        yield update(TextContent("done"))

    thread = Thread(state={})
    await thread.run(agent)
    await thread.resume(agent, True)
    assert thread.conversation.state == {"n": 2, "m": 3}


async def test_hooks_of_the_run_are_asked() -> None:
    async def agent(run: Any) -> Any:
        run.hooks = Hooks().map_result_as_state_snapshot("plan").preview_arguments("plan", "steps", "draft")
        yield update(FunctionCallContent("c", "plan", '{"steps":["a"]}'))
        yield ChatMessage("tool", [FunctionResultContent("c", '{"steps":["a"]}')])
        assert run.state == {"steps": ["a"]}

    outcome = await run_agent(agent, state={})
    assert outcome.types.count("STATE_DELTA") == 1
    assert outcome.of(StateSnapshotEvent)[-1].snapshot == {"steps": ["a"]}


async def test_hooks_can_be_set_in_a_thread() -> None:
    def agent(run: Any) -> Any:
        run.hooks = Hooks().map_content(lambda content: CustomEvent(name="seen", value=None))
        assert len(run.hooks.contents) == 1
        yield TextContent("x")

    assert inner(await run_agent(agent)) == ["CUSTOM"]


# How it ends


async def test_usage_in_contents_is_added_to_the_run_s() -> None:
    async def agent(run: Any) -> Any:
        run.add_usage(TokenUsage(provider="p", model="m", input_tokens=1))
        yield update(TextContent("x"))
        yield update(UsageContent(TokenUsage(provider="p", model="m", input_tokens=2)))

    (usage,) = (await run_agent(agent)).last.usage
    assert usage.input_tokens == 3


async def test_an_end_with_usage_of_its_own_keeps_it() -> None:
    async def agent(run: Any) -> Any:
        yield update(UsageContent(TokenUsage(provider="p", input_tokens=2)))
        told = [TokenUsage(provider="p", input_tokens=2)]
        yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, usage=told)

    (usage,) = (await run_agent(agent)).last.usage
    assert usage.input_tokens == 2


async def test_an_error_ends_the_run_with_its_words() -> None:
    async def agent(run: Any) -> Any:
        yield update(TextContent("so far"))
        yield update(ErrorContent("The model is overloaded.", "overloaded"))
        yield update(UsageContent(TokenUsage(provider="p", input_tokens=2)))

    outcome = await run_agent(agent)
    assert (outcome.last.message, outcome.last.code) == ("The model is overloaded.", "overloaded")
    assert outcome.last.usage[0].input_tokens == 2
    assert outcome.text == "so far"


async def test_what_is_said_after_an_error_is_refused_and_the_error_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> Any:
        yield update(ErrorContent("Broken.", "mine"))
        yield update(TextContent("but"))

    outcome = await run_agent(agent)
    assert (outcome.last.message, outcome.last.code, outcome.text) == ("Broken.", "mine", "")
    assert [vars(one)["event"] for one in caplog.records] == ["the agent raised after its own RUN_ERROR"]


async def test_880_an_error_without_words_has_some() -> None:
    async def agent(run: Any) -> Any:
        yield update(ErrorContent(""))

    assert (await run_agent(agent)).last.message != ""


async def test_7429_another_run_s_boundaries_get_the_ids_of_this_one() -> None:
    async def agent(run: Any) -> Any:
        yield update(TextContent("x"))
        yield update(raw_representation=RunFinishedEvent(thread_id="theirs", run_id="theirs", result=5))

    outcome = await run_agent(agent)
    assert (outcome.last.thread_id, outcome.last.run_id, outcome.last.result) == ("t", "run-1", 5)
    assert outcome.ending.outcome == "success"


async def test_an_error_event_in_an_update_ends_the_run() -> None:
    async def agent(run: Any) -> Any:
        yield update(raw_representation=RunErrorEvent(message="theirs", code="c"))

    assert (await run_agent(agent)).last.message == "theirs"


async def test_questions_in_contents_interrupt_the_run_and_answers_are_read_as_contents() -> None:

    async def agent(run: Any) -> Any:
        if run.resume:
            [answer] = as_response_contents(run.resume)
            assert isinstance(answer, ApprovalResponseContent)
            yield update(TextContent("paid" if answer.approved else "not paid"))
            return
        call = FunctionCallContent("c", "pay", '{"amount":9}')
        yield update(ApprovalRequestContent("i1", call, "Pay?"))

    thread = Thread()
    asked = await thread.run(agent)
    entry = ResumeEntry(interrupt_id="i1", status="resolved", payload={"approved": True})
    answered = await thread.run(agent, resume=[entry])
    assert asked.ending.outcome == "interrupt"
    (interrupt,) = asked.last.outcome.interrupts
    assert (interrupt.id, interrupt.reason, interrupt.tool_call_id) == ("i1", "tool_call", "c")
    assert asked.of(ToolCallStartEvent)[0].tool_call_name == "pay"
    assert answered.text == "paid"


async def test_questions_in_contents_join_an_end_of_the_agent_s_own_and_questions_of_the_run() -> None:
    async def ends(run: Any) -> Any:
        yield InterruptRequestContent("i1", message="Which?")
        yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id)

    async def asks(run: Any) -> Any:
        yield InterruptRequestContent("i1", message="Which?")
        await run.ask("And?")

    assert isinstance((await run_agent(ends)).last.outcome, RunFinishedInterruptOutcome)
    assert {one.message for one in (await run_agent(asks)).ending.interrupts} == {"Which?", "And?"}


async def test_content_that_events_cannot_carry_fails_after_what_came_before(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> Any:
        yield update(TextContent("before"), UriContent("https://example.org/x.png", "image/png"))

    with caplog.at_level(logging.CRITICAL, "aguila"):
        outcome = await run_agent(agent, debug=True)
    assert outcome.text == "before"
    assert outcome.last.code == "agent_output"
    assert "UriContent" in outcome.last.message


async def test_5305_an_exception_in_the_middle_is_one_error_that_closes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent(run: Any) -> Any:
        yield update(TextContent("so far"), message_id="m")
        raise RuntimeError("secret")

    with caplog.at_level(logging.CRITICAL, "aguila"):
        outcome = await run_agent(agent)
    assert outcome.types == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "RUN_ERROR"]
    assert "secret" not in outcome.last.message
    assert outcome.of(TextMessageEndEvent) == []


async def test_a_sink_that_refuses_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:

    def refuse(event: Any) -> None:
        if isinstance(event, TextMessageContentEvent):
            raise RuntimeError("full")

    async def agent(run: Any) -> Any:
        yield update(TextContent("x"))

    thread = Thread()
    thread.refuse = refuse
    with caplog.at_level(logging.CRITICAL, "aguila"):
        outcome = await thread.run(agent)
    assert outcome.last.code == "run_unwritable"


# What an agent was asked

IMAGE = b"\x89PNG" * 3


def conversation() -> list[Any]:
    data = base64.b64encode(IMAGE).decode()
    return [
        UserMessage(
            id="u",
            content=[
                TextPart(text="Look"),
                ImagePart(source=DataSource(value=data, mime_type="image/png")),
                ImagePart(source=FileSource(value="f1", provider="aguila")),
                ImagePart(source=FileSource(value="f1", mime_type="image/webp"), metadata={"filename": "mine.webp"}),
                ImagePart(source=FileSource(value="gone", provider="aguila")),
                ImagePart(source=FileSource(value="f1", provider="openai")),
                ImagePart(source=UrlSource(value="https://example.org/x.png")),
            ],
        ),
        ToolMessage(id="t", tool_call_id="c", content=[ImagePart(source=FileSource(value="f1"))]),
    ]


async def read_by(agent_of: Any, messages: list[Any]) -> list[ChatMessage]:

    seen: list[ChatMessage] = []
    thread = Thread(messages=messages)
    thread.shelf.files["f1"] = (IMAGE, "image/png", "photo.png")
    await thread.run(agent_of(seen))
    return seen


def reads(seen: list[ChatMessage]) -> Any:
    async def agent(run: Any) -> None:
        seen.extend(await run.chat_messages())

    return agent


def reads_in_a_thread(seen: list[ChatMessage]) -> Any:
    def agent(run: Any) -> None:
        seen.extend(run.chat_messages())

    return agent


@pytest.mark.parametrize("agent_of", [reads, reads_in_a_thread])
async def test_the_conversation_has_bytes_for_data_and_uploads(agent_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aguila"):
        user, tool = await read_by(agent_of, conversation())
    _, inline, upload, named, gone, foreign, url = user.contents
    assert (inline.data, inline.media_type) == (IMAGE, "image/png")
    assert (upload.data, upload.media_type) == (IMAGE, "image/png")
    assert upload.additional_properties["filename"] == "photo.png"
    assert (named.data, named.media_type, named.additional_properties["filename"]) == (IMAGE, "image/webp", "mine.webp")
    assert "ag_ui_requires_resolution" not in named.additional_properties
    assert isinstance(gone, HostedFileContent)
    assert isinstance(foreign, HostedFileContent)
    assert isinstance(url, UriContent)
    assert [record.message for record in caplog.records if "stays a reference" in record.message]
    (result,) = tool.contents
    assert result.result[0].data == IMAGE


async def test_large_data_is_decoded_in_a_thread() -> None:
    large = bytes(1 << 20)
    part = ImagePart(source=DataSource(value=base64.b64encode(large).decode(), mime_type="image/png"))
    [message] = await read_by(reads, [UserMessage(id="u", content=[part])])
    assert message.contents[0].data == large


async def test_what_is_no_output_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> Any:
        yield object()

    with caplog.at_level(logging.CRITICAL, "aguila"):
        assert "chat updates" in (await run_agent(agent, debug=True)).last.message


async def test_chat_output_beside_other_output_works_from_a_thread_too() -> None:
    async def on_the_loop(run: Any) -> None:
        chat = run.chat()
        await chat.send(ChatUpdate(contents=[TextContent("Hel")], message_id="m1"))
        await chat.send(ChatUpdate(contents=[TextContent("lo")], message_id="m1"))
        await chat.close({"a": 1})
        assert not chat.has_asked

    def in_a_thread(run: Any) -> None:
        chat = run.chat()
        chat.send(ChatUpdate(contents=[TextContent("Hel")], message_id="m1"))
        chat.send(ChatUpdate(contents=[TextContent("lo")], message_id="m1"))
        chat.close({"a": 1})
        assert not chat.has_asked

    told = [[encode_event(event) for event in (await run_agent(agent)).events] for agent in (on_the_loop, in_a_thread)]
    assert told[0] == told[1]
    assert b"".join(told[0]).count(b'"TEXT_MESSAGE_CONTENT"') == 2
