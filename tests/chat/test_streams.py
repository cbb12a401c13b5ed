"""Chat updates to events and back, and how soon each update is passed on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from chats.chat_streams import (
    chat_update,
    of_type,
    run_input,
    stream,
    updates_of,
    verify_as_producer,
    without_boundaries,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from streams.random_streams import streams

from aguila.chat import (
    ApprovalRequestContent,
    ChatMessage,
    ChatUpdate,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    InterruptRequestContent,
    InterruptResponseContent,
    ReasoningContent,
    TextContent,
    UpdateWriter,
    UriContent,
    UsageContent,
    as_chat_updates,
    as_event_stream,
    event_content,
)
from aguila.chat.from_chat import stream as from_chat_stream
from aguila.codec import Notice
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import (
    AssistantMessage,
    CustomEvent,
    Event,
    FunctionCall,
    ImagePart,
    Interrupt,
    Message,
    ReasoningEncryptedValueEvent,
    ReasoningMessage,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UrlSource,
    UserMessage,
    replace,
)
from aguila.stream import EventWriter, consume

pytestmark = pytest.mark.anyio

A = "assistant"


def call_message(call_id: str, name: str = "f") -> AssistantMessage:
    return AssistantMessage(
        id=f"m-{call_id}", tool_calls=[ToolCall(id=call_id, function=FunctionCall(name=name, arguments="{}"))]
    )


# the run


async def test_a_run_begins_at_once_and_ends_in_success() -> None:
    assert [e.type for e in await stream([])] == ["RUN_STARTED", "RUN_FINISHED"]


async def test_text_is_one_message_and_empty_pieces_say_nothing() -> None:
    assert without_boundaries(await stream(["Hello ", "", chat_update(TextContent("")), "world"])) == [
        TextMessageStartEvent(message_id="new-0", role="assistant"),
        TextMessageContentEvent(message_id="new-0", delta="Hello "),
        TextMessageContentEvent(message_id="new-0", delta="world"),
        TextMessageEndEvent(message_id="new-0"),
    ]


async def test_messages_and_bare_contents_are_updates_too() -> None:
    whole = ChatMessage(A, "one", message_id="m", author_name="bot")
    events = without_boundaries(await stream([whole, TextContent("two")]))
    assert events[0] == TextMessageStartEvent(message_id="m", role="assistant", name="bot")
    assert [e.delta for e in of_type(TextMessageContentEvent, events)] == ["one", "two"]


async def test_whole_messages_without_ids_are_separate_messages() -> None:
    events = await stream(["zero", ChatMessage(A, "one"), ChatMessage(A, "two"), "three"])
    assert [m.content for m in consume(events).messages] == ["zero", "one", "two", "three"]


async def test_text_goes_on_under_its_id_after_a_call() -> None:
    updates = [
        chat_update(TextContent("a"), message_id="m"),
        chat_update(FunctionCallContent("c", "f", "{}"), message_id="m"),
        chat_update(TextContent("b"), message_id="m"),
    ]
    conversation = consume(await stream(updates))
    assert conversation.messages == [
        AssistantMessage(
            id="m", content="ab", tool_calls=[ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))]
        )
    ]


async def test_an_id_that_the_history_has_is_not_used_again() -> None:
    history = [UserMessage(id="m", content="hi"), call_message("c"), ToolMessage(id="t", tool_call_id="c", content="")]
    events = await stream(
        [
            chat_update(TextContent("a"), message_id="m"),
            chat_update(FunctionCallContent("c", "f", "{}"), message_id="m"),
            chat_update(FunctionResultContent("c", "r"), role="tool", message_id="t"),
        ],
        run_input(*history),
    )
    assert of_type(TextMessageStartEvent, events)[0].message_id == "new-0"
    assert of_type(ToolCallStartEvent, events) == [ToolCallStartEvent(tool_call_id="new-1", tool_call_name="f")]
    assert of_type(ToolCallResultEvent, events)[0].tool_call_id == "new-1"
    assert of_type(ToolCallResultEvent, events)[0].message_id == "new-2"


async def test_a_message_that_is_not_the_assistants_is_no_parent() -> None:
    updates = [chat_update(TextContent("a"), FunctionCallContent("c", "f"), role="user", message_id="m")]
    assert of_type(ToolCallStartEvent, await stream(updates))[0].parent_message_id is None


async def test_a_call_that_the_thread_has_is_not_sent_again_but_answered() -> None:
    updates = [
        chat_update(FunctionCallContent("c", "f", "{}")),
        chat_update(FunctionResultContent("c", "r"), role="tool"),
    ]
    events = without_boundaries(await stream(updates, run_input(call_message("c"))))
    assert [e.type for e in events] == ["TOOL_CALL_RESULT"]
    assert of_type(ToolCallResultEvent, events)[0].tool_call_id == "c"


# calls in pieces


def piece(call_id: str, arguments: str, name: str = "") -> FunctionCallContent:
    return FunctionCallContent(call_id, name, arguments, is_complete=False)


async def test_parallel_calls_are_streamed_interleaved() -> None:
    updates = [
        chat_update(piece("c1", "", "f")),
        chat_update(piece("c2", '{"b"', "g")),
        chat_update(piece("c1", '{"a":1}')),
        chat_update(FunctionCallContent("c1", "f", '{"a":1}')),
        chat_update(FunctionCallContent("c2", "g", '{"b":2}')),
    ]
    assert without_boundaries(await stream(updates)) == [
        ToolCallStartEvent(tool_call_id="c1", tool_call_name="f"),
        ToolCallStartEvent(tool_call_id="c2", tool_call_name="g"),
        ToolCallArgsEvent(tool_call_id="c2", delta='{"b"'),
        ToolCallArgsEvent(tool_call_id="c1", delta='{"a":1}'),
        ToolCallEndEvent(tool_call_id="c1"),
        ToolCallArgsEvent(tool_call_id="c2", delta=":2}"),
        ToolCallEndEvent(tool_call_id="c2"),
    ]


async def test_a_complete_call_is_never_sent_twice() -> None:
    """P21: some frameworks yield the pieces, then the whole, then the whole again."""
    whole = chat_update(FunctionCallContent("c", "f", "{}"))
    assert [e.type for e in without_boundaries(await stream([whole, whole]))] == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
    ]


async def test_a_whole_that_contradicts_its_pieces_is_reported_and_the_pieces_stand() -> None:
    notices: list[Notice] = []
    updates = [chat_update(piece("c", '{"a', "f")), chat_update(FunctionCallContent("c", "f", '{ "a": 1}'))]
    events = without_boundaries(await stream(updates, warn=notices.append))
    assert [e.delta for e in of_type(ToolCallArgsEvent, events)] == ['{"a']
    assert [n.rule for n in notices] == ["TOOL-3"]


async def test_a_result_ends_its_call() -> None:
    updates = [chat_update(piece("c", "{}", "f")), chat_update(FunctionResultContent("c", "r"), role="tool")]
    assert [e.type for e in without_boundaries(await stream(updates))][2:] == ["TOOL_CALL_END", "TOOL_CALL_RESULT"]


async def test_a_first_piece_without_a_name_cannot_be_expressed() -> None:
    assert (await stream([chat_update(piece("c", "{}"))]))[-1] == RunErrorEvent(
        message="the first piece of call 'c' has no tool name", code="unmappable_content"
    )


async def test_a_calls_artefact_follows_its_start() -> None:
    call = FunctionCallContent(
        "c", "f", "{}", additional_properties={"ag_ui_encrypted_value": "thought", "ag_ui_metadata": {"k": 1}}
    )
    conversation = consume(await stream([chat_update(call)]))
    [message] = conversation.messages
    assert isinstance(message, AssistantMessage)
    assert message.tool_calls is not None
    assert message.tool_calls[0] == ToolCall(
        id="c", function=FunctionCall(name="f", arguments="{}"), encrypted_value="thought", metadata={"k": 1}
    )


async def test_reasoning_with_an_id_of_its_own_keeps_it_and_its_artefact() -> None:
    def thought(text: str, sig: str | None, own: str) -> ReasoningContent:
        return ReasoningContent(text, sig, additional_properties={"ag_ui_content_id": own})

    conversation = consume(
        await stream([chat_update(thought("a", None, "rs_1"), thought("b", "s1", "rs_1"), thought("", "s2", "rs_2"))])
    )
    assert conversation.messages == [
        ReasoningMessage(id="rs_1", content="ab", encrypted_value="s1"),
        ReasoningMessage(id="rs_2", content="", encrypted_value="s2"),
    ]


# subagents


async def test_subagents_write_messages_at_the_same_time() -> None:
    one = {"ag_ui_subagent_run_id": "s1"}
    two = {"ag_ui_subagent_run_id": "s2"}
    updates = [
        chat_update(TextContent(t), **tag) for t, tag in (("a", one), ("b", two), ("c", one), ("d", two), ("e", {}))
    ]
    messages: list[Any] = consume(await stream(updates)).messages
    assert [(m.content, m.subagent_run_id) for m in messages] == [("ac", "s1"), ("bd", "s2"), ("e", None)]


async def test_updates_say_which_subagent_they_come_from() -> None:
    events = await stream([chat_update(TextContent("a"), ag_ui_subagent_run_id="s1")])
    [update] = [u for u in await updates_of(events) if u.text == "a"]
    assert update.additional_properties["ag_ui_subagent_run_id"] == "s1"


async def test_a_subagent_that_ends_takes_along_what_it_left_open() -> None:
    tag = {"ag_ui_subagent_run_id": "s"}
    updates = [
        SubagentStartedEvent(subagent_run_id="s", name="helper"),
        chat_update(TextContent("a"), **tag),
        chat_update(piece("c", "{", "f"), **tag),
        SubagentFinishedEvent(subagent_run_id="s"),
        chat_update(FunctionResultContent("c", "r"), role="tool"),
    ]
    assert [e.type for e in without_boundaries(await stream(updates))][-4:] == [
        "TOOL_CALL_ARGS", "TOOL_CALL_END", "SUBAGENT_FINISHED", "TOOL_CALL_RESULT",
    ]  # fmt: skip


# usage, errors, questions


async def test_usage_is_added_up_and_reported_at_the_end() -> None:
    one = UsageContent(TokenUsage(model="m", input_tokens=1, output_tokens=2))
    two = UsageContent(TokenUsage(model="m", input_tokens=10))
    for last, kind in ((chat_update(), RunFinishedEvent), (chat_update(ErrorContent("no"), two), RunErrorEvent)):
        event: Any = (
            await stream([chat_update(one), chat_update(two) if kind is RunFinishedEvent else chat_update(), last])
        )[-1]
        assert isinstance(event, kind)
        assert event.usage == [TokenUsage(model="m", input_tokens=11, output_tokens=2)]
        contents = (await updates_of([event]))[0].contents
        assert UsageContent(TokenUsage(model="m", input_tokens=11, output_tokens=2)) in contents


async def test_the_agents_own_end_of_the_run_has_the_usage_and_questions_of_contents() -> None:
    finish = RunFinishedEvent(thread_id="thread", run_id="run", result=1)
    spent, asked = UsageContent(TokenUsage(output_tokens=1)), InterruptRequestContent("i")
    last: Any = (await stream([chat_update(spent), finish]))[-1]
    assert (last.usage, last.result) == ([TokenUsage(output_tokens=1)], 1)
    last = (await stream([chat_update(asked), finish]))[-1]
    assert [i.id for i in last.outcome.interrupts] == ["i"]
    own = replace(finish, usage=[TokenUsage(output_tokens=5)], outcome=RunFinishedCancelledOutcome())
    assert (await stream([chat_update(spent, asked), own]))[-1] == own


async def test_an_error_content_ends_the_run_and_closes_the_source() -> None:
    asked: list[int] = []

    async def agent() -> AsyncIterator[ChatUpdate]:
        try:
            for n in range(3):
                asked.append(n)
                yield chat_update(TextContent("a"), ErrorContent("quota", "429"))
        finally:
            asked.append(-1)

    events = await stream(agent())
    assert asked == [0, -1]
    assert events[-1] == RunErrorEvent(message="quota", code="429")
    assert (await updates_of(events))[-1].contents == [ErrorContent("quota", "429")]


async def test_questions_end_the_run_with_an_interrupt_and_come_back_as_questions() -> None:
    gated = FunctionCallContent("c", "pay", '{"eur":5}')
    questions = [
        ApprovalRequestContent("i1", gated, message="Pay?", response_schema={"type": "object"}, expires_at="2030"),
        InterruptRequestContent(
            "i2",
            "input_required",
            message="Name?",
            additional_properties={"ag_ui_metadata": {"k": None}, "ag_ui_subagent_run_id": "s"},
        ),
        InterruptRequestContent("i3", "tool_call"),
    ]
    events = await stream([chat_update(TextContent("one moment")), chat_update(*questions)])
    assert isinstance(finish := events[-1], RunFinishedEvent)
    assert isinstance(finish.outcome, RunFinishedInterruptOutcome)
    assert [i.id for i in finish.outcome.interrupts] == ["i1", "i2", "i3"]
    assert finish.outcome.interrupts[0] == Interrupt(
        id="i1",
        reason="tool_call",
        message="Pay?",
        tool_call_id="c",
        response_schema={"type": "object"},
        expires_at="2030",
    )
    assert (await updates_of(events))[-1].contents == questions


async def test_an_approval_for_a_call_of_the_history_does_not_repeat_it() -> None:
    events = await stream(
        [chat_update(ApprovalRequestContent("i", FunctionCallContent("c", "f", "{}")))], run_input(call_message("c"))
    )
    assert [e.type for e in events] == ["RUN_STARTED", "RUN_FINISHED"]


async def test_an_approval_for_a_call_that_was_not_shown_only_names_it() -> None:
    events = await stream([chat_update(ApprovalRequestContent("i", FunctionCallContent("elsewhere", "")))])
    assert [e.type for e in events] == ["RUN_STARTED", "RUN_FINISHED"]
    assert events[-1].outcome.interrupts[0].tool_call_id == "elsewhere"  # type: ignore[union-attr]


async def test_an_approval_for_a_call_id_of_an_earlier_run_shows_a_new_call() -> None:
    history = [call_message("c"), ToolMessage(id="t", tool_call_id="c", content="")]
    events = await stream(
        [chat_update(ApprovalRequestContent("i", FunctionCallContent("c", "f", "{}")))], run_input(*history)
    )
    assert [e.tool_call_id for e in of_type(ToolCallStartEvent, events)] == ["new-0"]
    assert events[-1].outcome.interrupts[0].tool_call_id == "new-0"  # type: ignore[union-attr]


# what events cannot carry


@pytest.mark.parametrize(
    "content",
    [DataContent(b"x", "image/png"), UriContent("https://x.example"), InterruptResponseContent("i", 1)],
)
async def test_content_that_events_cannot_carry_ends_the_run_with_an_error_that_names_it(content: Any) -> None:
    events = await stream([chat_update(TextContent("a"), content, TextContent("b"))])
    assert [e.type for e in events] == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "RUN_ERROR"]
    assert isinstance(error := events[-1], RunErrorEvent)
    assert type(content).__name__ in error.message
    assert error.code == "unmappable_content"


async def test_an_object_that_is_no_update_ends_the_run_with_an_error_that_names_it() -> None:
    assert isinstance(error := (await stream([object()]))[-1], RunErrorEvent)
    assert error.message == "a stream of chat updates cannot contain object"


async def test_text_of_a_role_that_has_no_text_messages_is_refused() -> None:
    assert isinstance(error := (await stream([chat_update(TextContent("x"), role="tool")]))[-1], RunErrorEvent)
    assert "'tool'" in error.message


async def test_state_may_be_spelled_as_json_data() -> None:
    events = await stream(
        [
            chat_update(DataContent(b'{"a":1}', "application/json")),
            chat_update(DataContent(b'[{"op":"add","path":"/b","value":2}]', "application/json-patch+json")),
        ]
    )
    assert [type(e) for e in without_boundaries(events)] == [StateSnapshotEvent, StateDeltaEvent]
    assert consume(events).state == {"a": 1, "b": 2}
    assert isinstance(
        (await stream([chat_update(DataContent(b"1", "application/json-patch+json"))]))[-1], RunErrorEvent
    )


async def test_a_malformed_event_content_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "aguila"):
        events = await stream([chat_update(DataContent(b"{}", "application/ag-ui.custom+json"))])
    assert isinstance(events[-1], RunErrorEvent)
    assert "DecodeError" in caplog.text


async def test_an_event_that_may_not_come_now_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "aguila"):
        events = await stream([StepFinishedEvent(step_name="never started")])
    assert [e.type for e in events] == ["RUN_STARTED", "RUN_ERROR"]


async def test_events_beside_text_do_not_end_its_message_and_others_do() -> None:
    beside = without_boundaries(await stream(["a", CustomEvent(name="x", value=1), "b"]))
    assert len(of_type(TextMessageStartEvent, beside)) == 1
    between = without_boundaries(await stream(["a", StepStartedEvent(step_name="s"), "b"]))
    assert [e.type for e in between][2:4] == ["TEXT_MESSAGE_END", "STEP_STARTED"]


async def test_an_event_attached_to_a_content_is_sent_as_it_is() -> None:
    event = CustomEvent(name="x", value=1)
    assert without_boundaries(await stream([chat_update(TextContent("ignored", raw_representation=event))])) == [event]


async def test_an_event_content_is_sent_by_its_bytes_alone() -> None:
    content = DataContent(b'{"type":"CUSTOM","name":"x","value":1}', "application/ag-ui.custom+json")
    assert without_boundaries(await stream([chat_update(content)])) == [CustomEvent(name="x", value=1)]


async def test_results_answer_calls_that_were_yielded_as_events() -> None:
    updates = [
        ToolCallStartEvent(tool_call_id="c", tool_call_name="f"),
        ToolCallArgsEvent(tool_call_id="c", delta="{}"),
        chat_update(FunctionResultContent("c", "r"), role="tool"),
    ]
    assert [e.type for e in without_boundaries(await stream(updates))][2:] == ["TOOL_CALL_END", "TOOL_CALL_RESULT"]


def signed(value: str, value_type: str | None = None) -> dict[str, Any]:
    kept = {"ag_ui_encrypted_value": value}
    return kept if value_type is None else {**kept, "ag_ui_encrypted_value_type": value_type}


def artefacts(events: list[Event]) -> list[tuple[str, str, str, str | None]]:
    found = of_type(ReasoningEncryptedValueEvent, events)
    return [(one.subtype, one.entity_id, one.encrypted_value, one.encrypted_value_type) for one in found]


async def test_the_artefact_of_a_text_is_that_of_its_message_also_if_it_comes_after_the_text() -> None:
    """ENC-1."""
    piece = TextContent("x", additional_properties=signed("E", "t"))
    assert artefacts(await stream([piece])) == [("message", "new-0", "E", "t")]
    late = TextContent("", additional_properties=signed("E"))
    call = FunctionCallContent("c", "f", "{}")
    assert artefacts(
        await stream([chat_update(TextContent("x"), message_id="m"), chat_update(late, message_id="m")])
    ) == [("message", "m", "E", None)]
    assert artefacts(await stream([chat_update(call, message_id="m"), chat_update(late, message_id="m")])) == [
        ("message", "m", "E", None)
    ]


async def test_an_artefact_that_comes_before_any_message_is_that_of_an_empty_reasoning_message() -> None:
    events = await stream([TextContent("", additional_properties=signed("E", "t")), ReasoningContent("hm"), "x"])
    first, second = of_type(ReasoningMessageStartEvent, events)
    assert artefacts(events) == [("message", first.message_id, "E", "t")]
    assert first.message_id != second.message_id


@pytest.mark.parametrize(
    "pieces",
    [
        [("{", False), ("{}", True)],
        [("{}", False), ("", False)],
        [("{}", True), ("{}", True)],
        [("{}", True), ("", False)],
    ],
)
async def test_the_artefact_of_a_call_may_come_with_any_of_its_pieces_and_after_its_end(pieces: Any) -> None:
    first, last = (FunctionCallContent("c", "f", text, is_complete=whole) for text, whole in pieces)
    events = await stream([first, replace(last, additional_properties=signed("E", "t"))])
    assert artefacts(events) == [("tool-call", "c", "E", "t")]


async def test_the_artefact_of_a_message_is_sent_with_what_the_message_is_made_of() -> None:
    call, result = FunctionCallContent("c", "f", "{}"), FunctionResultContent("c", "r")
    text = ChatMessage("assistant", "x", additional_properties=signed("A"))
    calling = ChatMessage("assistant", [call, result], message_id="m", additional_properties=signed("B"))
    unnamed = ChatMessage("assistant", [replace(call, call_id="d")], additional_properties=signed("C"))
    results = ChatMessage("tool", [replace(result, call_id="d"), result], additional_properties=signed("D"))
    events = await stream([text, calling, unnamed, results])
    ids = [event.message_id for event in of_type(ToolCallResultEvent, events)]
    assert artefacts(events) == [
        ("message", "new-0", "A", None),
        ("message", "m", "B", None),
        ("message", "d", "C", None),
        ("message", ids[1], "D", None),
    ]


async def test_what_was_signed_comes_back_with_the_history() -> None:
    """ENC-1, through the reducer that a client has."""
    updates = [
        chat_update(TextContent("x", additional_properties=signed("E", "t")), message_id="m"),
        chat_update(FunctionCallContent("c", "f", "{", is_complete=False), message_id="m"),
        chat_update(FunctionCallContent("c", "f", "{}", additional_properties=signed("F")), message_id="m"),
    ]
    [message] = consume(await stream(updates)).messages
    assert isinstance(message, AssistantMessage)
    assert (message.encrypted_value, message.encrypted_value_type) == ("E", "t")
    assert [call.encrypted_value for call in message.tool_calls or ()] == ["F"]


# the losses that the docstring lists


def test_the_losses_of_streams_are_five() -> None:
    assert from_chat_stream.__doc__ is not None
    _, table, _ = from_chat_stream.__doc__.split("\n=====", 1)[1].split("=\n", 2)
    assert len([line for line in table.splitlines() if line and not line.startswith((" ", "="))]) == 5


async def test_loss_an_error_beside_a_result_travels_as_metadata_and_comes_back() -> None:
    events = await stream(
        [chat_update(FunctionResultContent("c", "", "timeout"), FunctionResultContent("d", "part", "cut"), role="tool")]
    )
    first, second = of_type(ToolCallResultEvent, events)
    assert (first.content, first.metadata) == ("timeout", {"aguila": {"error": "timeout"}})
    assert second.content == "part"
    results = [c for u in await updates_of(events) for c in u.contents]
    assert results == [FunctionResultContent("c", "timeout", "timeout"), FunctionResultContent("d", "part", "cut")]


async def test_loss_a_call_that_no_update_ended_ends_before_the_run() -> None:
    assert [e.type for e in await stream([chat_update(piece("c", "{", "f"))])][-2:] == ["TOOL_CALL_END", "RUN_FINISHED"]


async def test_loss_own_properties_are_not_sent() -> None:
    events = await stream([chat_update(TextContent("a", additional_properties={"mine": 1}), other=2)])
    assert not any(e.metadata for e in events)


# reading


async def test_calls_arrive_in_pieces_and_then_whole() -> None:
    updates = await updates_of(
        await stream([chat_update(piece("c", '{"a"', "f")), chat_update(FunctionCallContent("c", "f", '{"a":1}'))])
    )
    calls = [c for u in updates for c in u.contents]
    assert calls == [
        piece("c", "", "f"),
        piece("c", '{"a"', "f"),
        piece("c", ":1}", "f"),
        FunctionCallContent("c", "f", '{"a":1}'),
    ]


async def test_a_call_in_chunks_that_its_result_ends_is_the_assistants_and_the_result_the_tools() -> None:
    call = ToolCallChunkEvent(tool_call_id="c", tool_call_name="f", parent_message_id="m", delta="{}")
    result = ToolCallResultEvent(message_id="t", tool_call_id="c", content="ok")
    _, whole, answered = await updates_of([call, result])
    assert (whole.role, whole.message_id) == ("assistant", "m")
    assert whole.contents == [FunctionCallContent("c", "f", "{}")]
    assert whole.raw_representation is None
    assert (answered.role, answered.message_id) == ("tool", "t")
    assert answered.contents == [FunctionResultContent("c", "ok")]
    assert answered.raw_representation is result


async def test_loss_of_several_artefacts_of_one_message_or_call_the_first_is_sent_with_a_notice() -> None:
    notices: list[Notice] = []
    texts = [chat_update(TextContent("x", additional_properties=signed(value)), message_id="m") for value in "EEF"]
    calls = [FunctionCallContent("c", "f", "{}", additional_properties=signed(value)) for value in "GH"]
    events = await stream([*texts, *calls], warn=notices.append)
    assert artefacts(events) == [("message", "m", "E", None), ("tool-call", "c", "G", None)]
    assert [notice.rule for notice in notices] == ["ENC-2", "ENC-2"]


async def test_chunks_are_read_as_they_come_and_a_call_is_whole_when_something_else_begins() -> None:
    events: list[Event] = [
        RunStartedEvent(thread_id="t", run_id="r"),
        ToolCallChunkEvent(tool_call_id="c", tool_call_name="f", delta="{"),
        ToolCallChunkEvent(delta="}"),
        TextMessageChunkEvent(message_id="m", delta="hi", name="bot"),
        TextMessageChunkEvent(delta=" you"),
    ]
    updates = await updates_of(events)
    assert [(u.raw_representation, u.message_id, u.contents) for u in updates[1:]] == [
        (events[1], None, [piece("c", "", "f"), piece("c", "{", "f")]),
        (events[2], None, [piece("c", "}", "f")]),
        (None, None, [FunctionCallContent("c", "f", "{}")]),
        (events[3], "m", [TextContent("hi")]),
        (events[4], "m", [TextContent(" you")]),
    ]
    assert updates[-1].author_name == "bot"


async def test_a_call_cut_off_by_the_end_of_the_stream_is_never_whole() -> None:
    """TOOL-3: an incomplete call must not be executed."""
    for events in (
        [ToolCallChunkEvent(tool_call_id="c", tool_call_name="f", delta="{}")],
        [ToolCallStartEvent(tool_call_id="c", tool_call_name="f"), ToolCallArgsEvent(tool_call_id="c", delta="{}")],
    ):
        calls: list[Any] = [c for u in await updates_of(events) for c in u.contents]
        assert [c.is_complete for c in calls] == [False, False]


async def test_more_of_a_call_that_was_never_opened_says_nothing() -> None:
    events = [ToolCallArgsEvent(tool_call_id="c", delta="{}"), ToolCallEndEvent(tool_call_id="c")]
    assert [u.contents for u in await updates_of(events)] == [[], []]


async def test_roles_names_and_parts_are_those_of_the_stream() -> None:
    parts = [ImagePart(source=UrlSource(value="u"))]
    updates = await updates_of(
        [
            TextMessageStartEvent(message_id="m", role="user", name="Ada"),
            TextMessageContentEvent(message_id="m", delta="hi", metadata={"k": 1}),
            ToolCallResultEvent(message_id="t", tool_call_id="c", content=list(parts)),
        ]
    )
    assert (updates[1].role, updates[1].author_name, updates[1].text) == ("user", "Ada", "hi")
    assert updates[1].additional_properties == {"ag_ui_metadata": {"k": 1}}
    [result] = updates[2].contents
    assert isinstance(result, FunctionResultContent)
    assert result.result == [UriContent("u", additional_properties={"ag_ui_part_kind": "image"})]


async def test_protected_data_is_read_for_reasoning_only() -> None:
    def sealed(entity: str, subtype: Any = "message") -> ReasoningEncryptedValueEvent:
        return ReasoningEncryptedValueEvent(
            subtype=subtype, entity_id=entity, encrypted_value="s", encrypted_value_type="t"
        )

    updates = await updates_of(
        [ReasoningMessageStartEvent(message_id="r"), sealed("r"), sealed("m"), sealed("r", "tool-call")]
    )
    assert [u.contents for u in updates] == [
        [],
        [ReasoningContent("", "s", additional_properties={"ag_ui_content_id": "r", "ag_ui_encrypted_value_type": "t"})],
        [],
        [],
    ]


async def test_official_and_raw_events_are_read_like_ours() -> None:
    from ag_ui.core import TextMessageContentEvent as Official
    from ag_ui.core import TextMessageStartEvent as OfficialStart

    ours = TextMessageContentEvent(message_id="m", delta="hi")
    for event in (
        Official(message_id="m", delta="hi"),
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "hi"},
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"hi"}',
    ):
        [update] = await updates_of([event])
        assert update.raw_representation == ours
        assert update.text == "hi"
    assert (
        without_boundaries(await stream([OfficialStart(message_id="m"), Official(message_id="m", delta="x")]))[1].delta
        == "x"
    )  # type: ignore[union-attr]
    with pytest.raises(DecodeError):
        await updates_of([{"type": "TEXT_MESSAGE_CONTENT"}])


async def test_an_unknown_raw_event_makes_no_update_and_one_notice() -> None:
    notices: list[Notice] = []
    assert await updates_of([{"type": "NEW_THING"}], warn=notices.append) == []
    assert len(notices) == 1


# nothing waits


async def test_every_event_is_given_before_the_next_update_is_asked_for() -> None:
    updates = [
        chat_update(ReasoningContent("a")),
        chat_update(TextContent("b")),
        chat_update(piece("c", '{"', "f")),
        chat_update(piece("c", 'a":1}')),
        chat_update(FunctionCallContent("c", "f", '{"a":1}')),
        chat_update(FunctionResultContent("c", "r"), role="tool"),
        CustomEvent(name="x", value=1),
    ]
    log: list[str] = []

    async def source() -> AsyncIterator[Any]:
        for n, update in enumerate(updates):
            log.append(f"asked {n}")
            yield update

    async for event in as_event_stream(source(), run_input()):
        log.append(str(event.type))
    assert log == [
        "RUN_STARTED",
        "asked 0", "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT",
        "asked 1", "REASONING_MESSAGE_END", "REASONING_END", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT",
        "asked 2", "TEXT_MESSAGE_END", "TOOL_CALL_START", "TOOL_CALL_ARGS",
        "asked 3", "TOOL_CALL_ARGS",
        "asked 4", "TOOL_CALL_END",
        "asked 5", "TOOL_CALL_RESULT",
        "asked 6", "CUSTOM",
        "RUN_FINISHED",
    ]  # fmt: skip


async def test_every_update_is_given_before_the_next_event_is_asked_for() -> None:
    events = await stream(["a", chat_update(FunctionCallContent("c", "f", "{}"))])
    log: list[Any] = []

    async def source() -> AsyncIterator[Event]:
        for event in events:
            log.append(event)
            yield event

    async for update in as_chat_updates(source()):
        log.append(update.raw_representation)
    assert log == [item for event in events for item in (event, event)]


async def test_a_failing_source_of_events_is_passed_on_after_what_came_before() -> None:
    async def source() -> AsyncIterator[Event]:
        yield TextMessageContentEvent(message_id="m", delta="a")
        raise ConnectionError

    seen: list[str] = []
    reader = as_chat_updates(source())
    with pytest.raises(ConnectionError):
        seen.extend([update.text async for update in reader if seen.append(update.text)])  # type: ignore[func-returns-value]
    assert seen == ["a"]


async def test_cancellation_is_passed_on_and_reaches_the_source() -> None:
    closed: list[bool] = []

    async def source() -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    seen: list[str] = []
    arrived = asyncio.Event()

    async def watch() -> None:
        async for event in as_event_stream(source(), run_input()):
            seen.append(str(event.type))
            if event.type == "TEXT_MESSAGE_CONTENT":
                arrived.set()

    task = asyncio.create_task(watch())
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    assert closed == [True]


async def test_a_source_that_fails_to_close_does_not_change_how_the_run_ended(caplog: pytest.LogCaptureFixture) -> None:
    class Source:
        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> ChatUpdate:
            return chat_update(ErrorContent("quota"))

        async def aclose(self) -> None:
            raise OSError("already gone")

    with caplog.at_level(logging.ERROR, "aguila"):
        assert (await stream(Source()))[-1] == RunErrorEvent(message="quota")
    assert "already gone" in caplog.text


def test_the_writer_can_be_driven_by_who_owns_the_run() -> None:
    writer = EventWriter("t", "r", new_id=lambda: "id")
    writer.start()
    mapping = UpdateWriter(writer, new_id=lambda: "x")
    assert len(mapping.feed("a")) == 2
    assert [e.type for e in mapping.close()] == ["TEXT_MESSAGE_END"]
    mapping.feed(chat_update(UsageContent(TokenUsage(input_tokens=1)), InterruptRequestContent("i")))
    assert (mapping.usage, [i.id for i in mapping.interrupts], mapping.is_over) == (
        [TokenUsage(input_tokens=1)],
        ["i"],
        False,
    )
    with pytest.raises(EncodeError):
        mapping.feed(object())  # type: ignore[arg-type]
    assert mapping.feed(RunErrorEvent(message="no")) == []
    assert mapping.is_over
    assert mapping.end() == [RunErrorEvent(message="no", usage=[TokenUsage(input_tokens=1)])]


# laws

words = st.sampled_from(["", "a", "{", "ö", "\ud83d"])
ids = st.sampled_from(["m1", "m2", "c1", "u", "t", "", None])
call_ids = st.sampled_from(["c1", "c2", "held", "done", "m1", ""])
tags: Any = st.sampled_from([{}, {}, {}, {"ag_ui_subagent_run_id": "s1"}, {"mine": 1}])
contents: Any = st.one_of(
    st.builds(TextContent, words),
    st.builds(ReasoningContent, words, st.sampled_from([None, "sig"])),
    st.builds(
        ReasoningContent, words, additional_properties=st.sampled_from([{"ag_ui_content_id": i} for i in ("m1", "rs")])
    ),
    st.builds(FunctionCallContent, call_ids, st.sampled_from(["f", "g"]), st.sampled_from(["", "{}"])),
    st.builds(FunctionCallContent, call_ids, st.sampled_from(["f", ""]), words, is_complete=st.just(False)),
    st.builds(FunctionResultContent, call_ids, words, st.sampled_from([None, "err"])),
    st.builds(lambda: UsageContent(TokenUsage(output_tokens=1))),
    st.builds(
        ApprovalRequestContent, st.sampled_from(["i1", "i2"]), st.builds(FunctionCallContent, call_ids, st.just("f"))
    ),
    st.builds(InterruptRequestContent, st.sampled_from(["i1", "i3"])),
    st.sampled_from([event_content.create(CustomEvent(name="x", value=None)), DataContent(b"{}", "application/json")]),
)
updates = st.lists(
    st.one_of(
        st.builds(
            ChatUpdate,
            st.sampled_from([A, A, A, "user"]),
            st.lists(contents, max_size=3),
            ids,
            additional_properties=tags,
        ),
        st.builds(StepStartedEvent, step_name=st.sampled_from(["s1", "s2", "s3", "s4"])),
        st.builds(CustomEvent, name=st.just("x"), value=st.none()),
        st.builds(TextMessageChunkEvent, message_id=st.sampled_from(["k1", "k2"]), delta=words),
    ),
    max_size=10,
)
HISTORY: list[Message] = [
    UserMessage(id="u", content="hi"),
    call_message("held"),
    call_message("done"),
    ToolMessage(id="t", tool_call_id="done", content="x"),
]


@settings(max_examples=300, deadline=None)
@given(updates)
async def test_whatever_an_agent_says_the_stream_is_one_that_a_producer_may_send(said: list[Any]) -> None:
    events = await stream(said, run_input(*HISTORY), warn=[].append)
    assert isinstance(events[0], RunStartedEvent)
    assert [isinstance(e, (RunFinishedEvent, RunErrorEvent)) for e in events] == [False] * (len(events) - 1) + [True]
    consume(events, messages=HISTORY, producer=True)


@settings(max_examples=200, deadline=None)
@given(updates)
async def test_a_stream_read_as_chat_and_written_again_is_the_same_stream(said: list[Any]) -> None:
    events = await stream(said, run_input(*HISTORY), warn=[].append)
    assert await stream(await updates_of(events), run_input(*HISTORY)) == events


@settings(max_examples=200, deadline=None)
@given(updates)
async def test_contents_alone_say_what_the_stream_said(said: list[Any]) -> None:
    """Without the events that updates carry, the same conversation comes out."""
    plain = [u for u in said if isinstance(u, ChatUpdate)]
    events = await stream(plain, run_input(*HISTORY), warn=[].append)
    bare = [replace(u, raw_representation=None) for u in await updates_of(events) if not _is_only_an_event(u)]
    again = await stream(bare, run_input(*HISTORY), warn=[].append, prefix="again")
    assert _conversation(again) == _conversation(events)


def _is_only_an_event(update: ChatUpdate) -> bool:
    return isinstance(update.raw_representation, (CustomEvent, StateSnapshotEvent))


def _conversation(events: list[Event]) -> Any:
    conversation = consume(events, messages=HISTORY)
    run = conversation.runs[-1]
    return conversation.messages, run.outcome, run.usage, run.interrupts, [run.error and run.error.message]


@settings(max_examples=150, deadline=None)
@given(streams(surrogates=True))
async def test_every_event_of_any_stream_is_carried_by_one_update(events: list[Event]) -> None:
    carried = [
        u.raw_representation for u in await updates_of(events, warn=[].append) if u.raw_representation is not None
    ]
    assert len(carried) == len(events)
    assert all(mine is theirs for mine, theirs in zip(carried, events, strict=True))
    verify_as_producer(await stream([]))
