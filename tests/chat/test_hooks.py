"""Hooks: the first hook that answers replaces the default mapping."""

from __future__ import annotations

from typing import Any

import pytest
from chats.chat_streams import chat_update, of_type, run_input, stream, updates_of, without_boundaries
from hypothesis import given, settings

from aguila.chat import (
    ApprovalRequestContent,
    ChatMessage,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    Hooks,
    InterruptRequestContent,
    TextContent,
    UriContent,
)
from aguila.chat.from_chat.partial_json import read_partial
from aguila.codec import Notice, encode
from aguila.protocol import (
    CustomEvent,
    Interrupt,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream import consume
from aguila.testing import strategies as agui

pytestmark = pytest.mark.anyio


def custom(name: str) -> CustomEvent:
    return CustomEvent(name=name, value=None)


def calling(call_id: str, name: str, arguments: str = "{}") -> Any:
    return chat_update(FunctionCallContent(call_id, name, arguments))


def answering(call_id: str, result: Any) -> Any:
    return chat_update(FunctionResultContent(call_id, result), role="tool")


async def test_a_hook_for_contents_is_asked_first_and_its_answer_takes_the_contents_place() -> None:
    hooks = (
        Hooks()
        .map_content(lambda c: [custom("image"), TextContent("an image")] if isinstance(c, DataContent) else None)
        .map_content(lambda c: custom("second") if isinstance(c, (DataContent, UriContent)) else None)
    )
    events = without_boundaries(
        await stream([chat_update(TextContent("see "), DataContent(b"x", "image/png"), UriContent("u"))], hooks=hooks)
    )
    assert of_type(CustomEvent, events) == [custom("image"), custom("second")]
    assert [e.delta for e in of_type(TextMessageContentEvent, events)] == ["see ", "an image"]


async def test_an_empty_answer_says_nothing() -> None:
    hooks = Hooks().map_content(lambda content: [] if isinstance(content, UriContent) else None)
    assert without_boundaries(await stream([chat_update(UriContent("u"))], hooks=hooks)) == []


async def test_an_answer_that_is_neither_event_nor_content_is_an_error() -> None:
    hooks = Hooks().map_content(lambda content: "text")  # type: ignore[arg-type, return-value]
    error = (await stream(["x"], hooks=hooks))[-1]
    assert isinstance(error, RunErrorEvent)
    assert "str" in error.message


async def test_hooks_are_values_and_a_chain_leaves_its_beginning_alone() -> None:
    first = Hooks().map_call(lambda call: custom("first"), "f")
    second = first.map_call(lambda call: custom("second"))
    assert (len(first.calls), len(second.calls)) == (1, 2)
    events = of_type(CustomEvent, await stream([calling("c1", "f"), calling("c2", "g")], hooks=second))
    assert events == [custom("first"), custom("second")]


async def test_a_hook_for_calls_is_asked_for_its_tool_and_may_decline() -> None:
    seen: list[str] = []

    def hook(call: FunctionCallContent) -> CustomEvent | None:
        seen.append(call.call_id)
        return custom("shown") if call.parsed_arguments else None

    hooks = Hooks().map_call(hook, "show")
    events = without_boundaries(
        await stream([calling("c1", "show", '{"a":1}'), calling("c2", "show"), calling("c3", "other")], hooks=hooks)
    )
    assert seen == ["c1", "c2"]
    assert events[0] == custom("shown")
    assert [e.tool_call_id for e in of_type(ToolCallStartEvent, events)] == ["c2", "c3"]


async def test_a_hook_for_results_knows_the_tool_by_the_call() -> None:
    hooks = Hooks().map_result(lambda result: custom(str(result.result)), "f")
    events = without_boundaries(
        await stream(
            [calling("c1", "f"), calling("c2", "g"), answering("c1", "one"), answering("c2", "two")], hooks=hooks
        )
    )
    assert of_type(CustomEvent, events) == [custom("one")]
    results = {e.tool_call_id: e.content for e in of_type(ToolCallResultEvent, events)}
    assert results == {"c1": "", "c2": "two"}  # a client that saw a call waits for its result


async def test_a_call_whose_result_a_hook_took_is_not_left_to_the_front_end() -> None:
    hooks = Hooks().map_result(lambda result: [], "f")
    [*_, finished] = await stream([calling("c1", "f"), answering("c1", "one")], hooks=hooks)
    assert finished.outcome is None or finished.outcome.pending_tool_call_ids is None


async def test_the_result_of_a_call_that_a_hook_replaced_is_not_sent_and_its_tool_is_known() -> None:
    hooks = Hooks().map_call(lambda call: custom("instead"), "f").map_result_as_state_snapshot("f")
    events = without_boundaries(await stream([calling("c1", "f"), answering("c1", '{"a":1}')], hooks=hooks))
    assert [type(e) for e in events] == [CustomEvent, StateSnapshotEvent]


async def test_an_empty_answer_for_a_result_answers_the_call_that_was_sent() -> None:
    hooks = Hooks().map_content(lambda content: [] if isinstance(content, FunctionResultContent) else None)
    events = await stream([calling("c1", "f"), answering("c1", "secret")], hooks=hooks)
    assert [(e.tool_call_id, e.content) for e in of_type(ToolCallResultEvent, events)] == [("c1", "")]
    assert events[-1].outcome is None or events[-1].outcome.pending_tool_call_ids is None


async def test_a_result_that_becomes_a_question_answers_its_call() -> None:
    hooks = Hooks().map_interrupt(
        lambda c: Interrupt(id="i", reason="sign_in") if isinstance(c, FunctionResultContent) else None
    )
    events = await stream([calling("c1", "f"), answering("c1", "sign in first")], hooks=hooks)
    assert [(e.tool_call_id, e.content) for e in of_type(ToolCallResultEvent, events)] == [("c1", "")]


@pytest.mark.parametrize("is_event", [False, True])
async def test_a_call_that_a_hook_for_contents_took_is_not_sent_and_neither_is_its_result(is_event: bool) -> None:
    hooks = Hooks().map_content(lambda content: [] if isinstance(content, FunctionCallContent) else None)
    raw = ToolCallResultEvent(message_id="t", tool_call_id="c1", content="x") if is_event else None
    result = FunctionResultContent("c1", "x", raw_representation=raw)
    begun = FunctionCallContent("c1", "f", "{", is_complete=False)
    more = FunctionCallContent("c1", "", "}", is_complete=False)
    updates = [chat_update(begun), chat_update(more), calling("c1", "f"), chat_update(result, role="tool")]
    assert without_boundaries(await stream(updates, hooks=hooks)) == []


async def test_a_hook_that_words_results_anew_does_not_send_those_of_calls_that_were_not_sent() -> None:
    hooks = (
        Hooks()
        .map_content(
            lambda c: FunctionResultContent(c.call_id, "kept") if isinstance(c, FunctionResultContent) else None
        )
        .map_call(lambda call: [], "f")
    )
    updates = [calling("c1", "f"), answering("c1", "one"), calling("c2", "g"), answering("c2", "two")]
    results = of_type(ToolCallResultEvent, await stream(updates, hooks=hooks))
    assert [(e.tool_call_id, e.content) for e in results] == [("c2", "kept")]


async def test_a_call_that_a_hook_sends_in_another_form_has_its_result_sent() -> None:
    hooks = Hooks().map_call(lambda call: FunctionCallContent(call.call_id, "public", call.arguments), "private")
    events = await stream([calling("c1", "private"), answering("c1", "one")], hooks=hooks)
    assert [e.tool_call_name for e in of_type(ToolCallStartEvent, events)] == ["public"]
    assert [e.content for e in of_type(ToolCallResultEvent, events)] == ["one"]


async def test_of_an_id_that_is_used_again_only_the_call_that_was_replaced_has_no_result() -> None:
    hooks = Hooks().map_call(lambda call: [] if call.arguments == "{}" else None)
    updates = [calling("c", "f"), answering("c", "one"), calling("c", "f", '{"a":1}'), answering("c", "two")]
    assert [e.content for e in of_type(ToolCallResultEvent, await stream(updates, hooks=hooks))] == ["two"]
    assert [e.content for e in of_type(ToolCallResultEvent, await stream(updates[2:] + updates[:2], hooks=hooks))] == [
        "two"
    ]


async def test_a_call_that_becomes_a_question_about_itself_is_shown() -> None:
    hooks = Hooks().map_interrupt(
        lambda c: (
            Interrupt(id="i", reason="tool_call", tool_call_id=c.call_id)
            if isinstance(c, FunctionCallContent)
            else None
        )
    )
    events = await stream([calling("c1", "pay")], hooks=hooks)
    assert [e.tool_call_id for e in of_type(ToolCallStartEvent, events)] == ["c1"]


async def test_what_a_hook_says_instead_of_a_result_is_said_by_the_assistant() -> None:
    hooks = Hooks().map_result(lambda result: [TextContent("got it"), FunctionResultContent("c1", "short")])
    message = ChatMessage("tool", [FunctionResultContent("c1", "long")], "t1")
    events = without_boundaries(await stream([calling("c1", "f"), message], hooks=hooks))
    [text] = of_type(TextMessageStartEvent, events)
    assert text.role in (None, "assistant")
    assert text.message_id != "t1"
    assert [(e.message_id, e.content) for e in of_type(ToolCallResultEvent, events)] == [("t1", "short")]


async def test_a_result_becomes_the_state() -> None:
    hooks = Hooks().map_result_as_state_snapshot("load")
    events = await stream([calling("c", "load"), answering("c", '{"items":[1]}')], hooks=hooks)
    assert [type(e) for e in without_boundaries(events)][-2:] == [ToolCallResultEvent, StateSnapshotEvent]
    assert consume(events).state == {"items": [1]}


async def test_a_result_that_is_no_json_or_of_another_tool_leaves_the_state_alone() -> None:
    hooks = Hooks().map_result_as_state_snapshot("load")
    updates = [calling("c", "load"), answering("c", "Loaded."), calling("d", "other"), answering("d", "{}")]
    assert of_type(StateSnapshotEvent, await stream(updates, hooks=hooks)) == []


async def test_a_result_becomes_a_change_of_the_state() -> None:
    hooks = (
        Hooks()
        .map_result_as_state_delta("add")
        .map_result_as_state_delta(
            "count", lambda result: [{"op": "replace", "path": "/n", "value": result.parsed_result}]
        )
    )
    updates = [
        calling("c", "add"),
        answering("c", '[{"op":"add","path":"/n","value":0}]'),
        calling("d", "count"),
        answering("d", "7"),
        calling("e", "add"),
        answering("e", "nothing to add"),
    ]
    events = await stream(updates, run_input(state={"kept": True}), hooks=hooks)
    assert len(of_type(StateDeltaEvent, events)) == 2
    assert consume(events, state={"kept": True}).state == {"kept": True, "n": 7}


@pytest.mark.parametrize("patch", ['[{"op":"remove","path":"/no"}]', '[{"op":"fly","path":"/no"}]', "[3]"])
async def test_a_patch_that_cannot_be_applied_is_a_notice_and_the_run_goes_on(patch: str) -> None:
    notices: list[Notice] = []
    hooks = Hooks().map_result_as_state_delta()
    events = await stream([answering("c", patch), chat_update(TextContent("on"))], hooks=hooks, warn=notices.append)
    assert [type(e) for e in events[1:]] == [
        ToolCallResultEvent,
        TextMessageStartEvent,
        TextMessageContentEvent,
        TextMessageEndEvent,
        RunFinishedEvent,
    ]
    assert [notice.rule in ("SNAP-8", "SNAP-9") for notice in notices] == [True]


@pytest.mark.parametrize("patch", [b'[{"op":"remove","path":"/no"}]', b'[{"op":"fly","path":"/no"}]', b"[3]"])
async def test_a_patch_in_a_content_that_cannot_be_applied_is_a_notice_and_the_run_goes_on(patch: bytes) -> None:
    notices: list[Notice] = []
    content = DataContent(patch, "application/json-patch+json")
    events = without_boundaries(await stream([chat_update(content, TextContent("on"))], warn=notices.append))
    assert [e.delta for e in of_type(TextMessageContentEvent, events)] == ["on"]
    assert [notice.rule in ("SNAP-8", "SNAP-9") for notice in notices] == [True]


async def test_content_after_the_end_and_a_question_asked_twice_make_notices() -> None:
    notices: list[Notice] = []
    question = InterruptRequestContent("i", "input_required", message="?")
    await stream([chat_update(question), chat_update(question)], warn=notices.append)
    assert [notice.rule for notice in notices] == ["INT-1"]
    notices.clear()
    [*_, last] = await stream(
        [chat_update(question), chat_update(ErrorContent("no"), TextContent("late"))], warn=notices.append
    )
    assert isinstance(last, RunErrorEvent)
    assert ["TextContent" in notices[0].message, "questions" in notices[1].message] == [True, True]


async def test_a_hook_turns_any_content_into_a_question() -> None:
    def hook(asked: Any) -> Interrupt | None:
        if isinstance(asked, UriContent):
            return Interrupt(id="i", reason="sign_in", metadata={"uri": asked.uri})
        return None

    [*_, finish] = await stream([chat_update(UriContent("https://login.example"))], hooks=Hooks().map_interrupt(hook))
    assert isinstance(finish, RunFinishedEvent)
    assert isinstance(finish.outcome, RunFinishedInterruptOutcome)
    assert finish.outcome.interrupts == [Interrupt(id="i", reason="sign_in", metadata={"uri": "https://login.example"})]


async def test_a_hook_words_an_approval_and_its_call_is_still_shown() -> None:
    hooks = Hooks().map_interrupt(
        lambda c: (
            Interrupt(id="x", reason="tool_call", tool_call_id=c.call.call_id)
            if isinstance(c, ApprovalRequestContent)
            else None
        )
    )
    events = await stream([chat_update(ApprovalRequestContent("i", FunctionCallContent("c", "f", "{}")))], hooks=hooks)
    assert [e.tool_call_id for e in of_type(ToolCallStartEvent, events)] == ["c"]
    assert [i.id for i in events[-1].outcome.interrupts] == ["x"]  # type: ignore[union-attr]


async def test_a_hook_reads_a_question_as_a_content_of_its_own() -> None:
    hooks = Hooks().map_interrupt(lambda i: UriContent(i.metadata["uri"]) if i.reason == "sign_in" else None)
    outcome = RunFinishedInterruptOutcome(
        interrupts=[Interrupt(id="i", reason="sign_in", metadata={"uri": "u"}), Interrupt(id="j", reason="other")]
    )
    [update] = await updates_of([RunFinishedEvent(thread_id="t", run_id="r", outcome=outcome)], hooks=hooks)
    assert update.contents == [UriContent("u"), InterruptRequestContent("j", "other")]


# previews


async def test_arguments_are_shown_in_the_state_while_they_are_streamed() -> None:
    hooks = Hooks().preview_arguments("write", "document", "draft").preview_arguments("write", None, "all")
    pieces = ['{"title": "T", "docu', 'ment": "Once', " upon", ' a time", "n": 1', "2}"]
    updates = [chat_update(FunctionCallContent("c", "write", p, is_complete=False)) for p in pieces]
    events = await stream([*updates, calling("c", "write", "".join(pieces))], run_input(state={"kept": 1}), hooks=hooks)
    drafts: list[Any] = []
    for n in range(2, len(events)):
        if isinstance(events[n - 1], (StateDeltaEvent, StateSnapshotEvent)):
            drafts.append(consume([*events[:n], RunErrorEvent(message="")], state={"kept": 1}).state.get("draft"))
    assert drafts == [None, "Once", "Once upon", "Once upon a time", "Once upon a time"]
    final = consume(events, state={"kept": 1}).state
    assert final == {
        "kept": 1,
        "draft": "Once upon a time",
        "all": {"title": "T", "document": "Once upon a time", "n": 12},
    }


async def test_previews_of_a_long_argument_cost_a_multiple_of_it_and_not_its_square() -> None:
    hooks = Hooks().preview_arguments("write", "document", "draft")
    pieces = ['{"document": "', *["word "] * 4000, '"}']
    updates = [chat_update(FunctionCallContent("c", "write", p, is_complete=False)) for p in pieces]
    events = await stream([*updates, calling("c", "write", "".join(pieces))], hooks=hooks)
    sent = sum(len(encode(e)) for e in of_type(StateDeltaEvent, events) + of_type(StateSnapshotEvent, events))
    assert sent < 40 * sum(map(len, pieces))
    assert len(of_type(ToolCallArgsEvent, events)) == len(pieces)
    assert consume(events).state == {"draft": "word " * 4000}


@pytest.mark.parametrize(("state", "arguments"), [([1], '{"a":1}'), ({}, "[1]"), ({}, "not json")])
async def test_what_cannot_be_shown_is_not_and_the_call_goes_on(state: Any, arguments: str) -> None:
    hooks = Hooks().preview_arguments("f", "a", "m")
    events = without_boundaries(await stream([calling("c", "f", arguments)], run_input(state=state), hooks=hooks))
    assert [e.type for e in events] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]


async def test_a_preview_in_a_state_that_is_no_object_makes_one_notice() -> None:
    notices: list[Notice] = []
    hooks = Hooks().preview_arguments("f", "a", "m")
    updates = [calling("c", "f", '{"a":1}'), calling("d", "f", '{"a":2}')]
    await stream(updates, run_input(state=[1]), hooks=hooks, warn=notices.append)
    assert ["not an object" in notice.message for notice in notices] == [True]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("{", {}),
        ('{"a', {}),
        ('{"a"', {}),
        ('{"a":', {}),
        ('{"a": "x', {"a": "x"}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\"', {"a": 'x"'}),
        ('{"a": "x\\\\', {"a": "x\\"}),
        ('{"a": "\\u00e', {"a": ""}),
        ('{"a": "\\u00e9', {"a": "é"}),
        ('{"a": "\\ud83d', {"a": ""}),
        ('{"a": "\\ud83d\\ude', {"a": ""}),
        ('{"a": "\\ud83d\\ude42', {"a": "🙂"}),
        ('{"a": 1', {}),
        ('{"a": 1,', {"a": 1}),
        ('{"a": tru', {}),
        ('{"a": true', {"a": True}),
        ('{"a": [1, {"b": "c"}, 2', {"a": [1, {"b": "c"}]}),
        ('{"a": [1, {"b": "c', {"a": [1, {"b": "c"}]}),
        ('["a", "b', ["a", "b"]),
        ('{"a": 1}', {"a": 1}),
        ('"abc', "abc"),
        ("]", None),
        ("{]", None),
        ("{a: 1}", None),
    ],
)
def test_what_can_be_read_of_a_json_text(text: str, value: Any) -> None:
    assert read_partial(text) == value


@settings(max_examples=150, deadline=None)
@given(agui.json_objects())
def test_every_beginning_of_a_json_text_can_be_read_and_the_whole_is_the_value(value: dict[str, Any]) -> None:
    text = encode(value).decode()
    assert read_partial(text) == value
    for end in range(1, len(text)):
        partial = read_partial(text[:end])
        assert isinstance(partial, dict)
        assert set(partial) <= set(value)
