"""The methods of ``run``: the events are legal in every order and from concurrent tasks."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from agent_threads import Thread, run_agent
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import let_tasks_run

from aguila.errors import IllegalStep, PatchError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    DataSource,
    FileSource,
    ImagePart,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEncryptedValueEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    TextPart,
    Tool,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    UrlSource,
    UserMessage,
)
from aguila.protocol.legacy import BinaryInputContent

pytestmark = pytest.mark.anyio


async def everything(run: Any) -> Any:
    assert [message.id for message in run.messages] == ["u"]
    assert (run.thread_id, run.run_id, run.parent_run_id) == ("t", "run-1", None)
    await run.say("hello", role="developer", name="bot", message_id="given", metadata={"k": 1})
    async with run.reasoning() as thought:
        await thought.write("hm")
        await thought.encrypted("xyz", type="acme/v1")
    call = await run.tool_call("search", {"q": "eagles"})
    await call.encrypted("abc")
    await call.result({"n": 2})
    async with run.stream_tool_call("write", tool_call_id="c", parent_message_id="given") as call:
        await call.args('{"a"')
        await call.args(":1}")
    await call.result([TextPart(text="ok")], message_id="result")
    call = await run.tool_call("late", stream=True)
    await call.args("{}")
    await call.result("done")
    async with run.step("outer") as outer, run.step("inner", parent=outer) as inner:
        inner.result = {"n": 1}
    async with run.subagent("helper", "helps", tool_call=call) as sub:
        await sub.say("from below")
        async with sub.step("outer"):
            pass
        await sub.custom("x", 1)
        await sub.raw({"y": 1}, "lib")
        await (await sub.activity("PLAN", {"a": 1, "b": "x" * 100})).update({"a": 2, "b": "x" * 100})
        (await (await sub.tool_call("t")).result("r"))
        sub.result = "fine"
    await run.patch_state([{"op": "add", "path": "/n", "value": 1}])
    await run.state_snapshot()
    await run.messages_snapshot([UserMessage(id="u", content="hi")])
    run.result = {"done": True}


def everything_in_a_thread(run: Any) -> Any:
    assert [message.id for message in run.messages] == ["u"]
    assert (run.thread_id, run.run_id, run.parent_run_id) == ("t", "run-1", None)
    run.say("hello", role="developer", name="bot", message_id="given", metadata={"k": 1})
    with run.reasoning() as thought:
        thought.write("hm")
        thought.encrypted("xyz", type="acme/v1")
    call = run.tool_call("search", {"q": "eagles"})
    call.encrypted("abc")
    call.result({"n": 2})
    with run.stream_tool_call("write", tool_call_id="c", parent_message_id="given") as call:
        call.args('{"a"')
        call.args(":1}")
    call.result([TextPart(text="ok")], message_id="result")
    call = run.tool_call("late", stream=True)
    call.args("{}")
    call.result("done")
    with run.step("outer") as outer, run.step("inner", parent=outer) as inner:
        inner.result = {"n": 1}
    with run.subagent("helper", "helps", tool_call=call) as sub:
        sub.say("from below")
        with sub.step("outer"):
            pass
        sub.custom("x", 1)
        sub.raw({"y": 1}, "lib")
        sub.activity("PLAN", {"a": 1, "b": "x" * 100}).update({"a": 2, "b": "x" * 100})
        sub.tool_call("t").result("r")
        sub.result = "fine"
    run.patch_state([{"op": "add", "path": "/n", "value": 1}])
    run.state_snapshot()
    run.messages_snapshot([UserMessage(id="u", content="hi")])
    run.result = {"done": True}


async def test_the_handle_in_a_thread_writes_what_the_async_one_writes() -> None:
    messages = [UserMessage(id="u", content="hi")]
    outcome = await run_agent(everything, messages=messages)
    assert outcome.ending.outcome == "success"
    assert (await run_agent(everything_in_a_thread, messages=messages)).events == outcome.events


async def test_what_the_handle_writes() -> None:
    outcome = await run_agent(everything, messages=[UserMessage(id="u", content="hi")])
    start = outcome.of(TextMessageStartEvent)[0]
    assert (start.message_id, start.role, start.name, start.metadata) == ("given", "developer", "bot", {"k": 1})
    assert [event.delta for event in outcome.of(ToolCallArgsEvent)] == ['{"q":"eagles"}', '{"a"', ":1}", "{}", "{}"]
    assert [event.content for event in outcome.of(ToolCallResultEvent)] == [
        '{"n":2}',
        [TextPart(text="ok")],
        "done",
        "r",
    ]
    assert [
        (event.subtype, event.encrypted_value, event.encrypted_value_type)
        for event in outcome.of(ReasoningEncryptedValueEvent)
    ] == [
        ("message", "xyz", "acme/v1"),
        ("tool-call", "abc", None),
    ]
    assert [event.metadata for event in outcome.of(StepStartedEvent)][1] == {"aguila": {"parentStepId": "outer"}}
    assert outcome.of(StepFinishedEvent)[0].metadata == {"aguila": {"status": "completed", "result": {"n": 1}}}
    (sub,) = outcome.of(SubagentStartedEvent)
    late = [event.tool_call_id for event in outcome.of(ToolCallStartEvent) if event.tool_call_name == "late"]
    assert [sub.parent_tool_call_id] == late
    assert outcome.of(SubagentFinishedEvent)[0].result == "fine"
    for kind in (CustomEvent, RawEvent, ActivitySnapshotEvent, ActivityDeltaEvent):
        assert {event.subagent_run_id for event in outcome.of(kind)} == {sub.subagent_run_id}, kind
    assert len(outcome.of(MessagesSnapshotEvent)) == 1
    assert outcome.last.result == {"done": True}


async def test_calls_of_frontend_tools_are_left_pending_and_backend_results_are_sent() -> None:
    async def agent(run: Any) -> None:
        calls = await asyncio.gather(*(run.tool_call(name) for name in ("front", "back", "front")))
        assert [call.is_frontend for call in calls] == [True, False, True]
        await calls[1].result("r")

    outcome = await run_agent(agent, tools=[Tool(name="front", description="")])
    starts = outcome.of(ToolCallStartEvent)
    assert outcome.last.outcome.pending_tool_call_ids == [starts[0].tool_call_id, starts[2].tool_call_id]


async def test_answering_a_frontend_call_is_refused() -> None:
    async def agent(run: Any) -> str:
        call = await run.tool_call("front")
        with pytest.raises(IllegalStep, match="FT-1"):
            await call.result("r")
        return "ok"

    assert (await run_agent(agent, tools=[Tool(name="front", description="")])).text == "ok"


async def test_steps_of_the_same_name_side_by_side_get_numbers() -> None:
    async def agent(run: Any) -> None:
        async def search() -> None:
            async with run.step("search"):
                await asyncio.sleep(0)

        await asyncio.gather(search(), search(), search())
        await search()

    names = [event.step_name for event in (await run_agent(agent)).of(StepStartedEvent)]
    assert names == ["search", "search (2)", "search (3)", "search"]


async def test_a_step_says_how_it_went() -> None:
    async def agent(run: Any) -> None:
        with pytest.raises(ValueError):
            async with run.step("s"):
                raise ValueError

    assert (await run_agent(agent)).of(StepFinishedEvent)[0].metadata == {"aguila": {"status": "failed"}}


async def test_a_subagent_that_fails_ends_in_an_error_without_details_and_the_run_goes_on() -> None:
    async def agent(run: Any) -> Any:
        async def work() -> None:
            async with run.subagent("s") as sub, sub.text() as text:
                await text.write("a")
                raise ValueError("secret")

        with pytest.raises(ValueError):
            await work()
        async with run.subagent("t") as sub:
            await sub.fail("No luck.", "mine")
        yield "b"

    outcome = await run_agent(agent)
    assert [(event.message, event.code) for event in outcome.of(SubagentErrorEvent)] == [
        ("The subagent failed.", "subagent_error"),
        ("No luck.", "mine"),
    ]
    assert "secret" not in repr(outcome.events)
    assert outcome.ending.outcome == "success"


async def test_a_subagent_that_the_agent_cancels_ends_in_an_error_and_the_run_goes_on() -> None:
    async def agent(run: Any) -> Any:
        async def work() -> None:
            async with run.subagent("s"):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return "done"

    outcome = await run_agent(agent)
    assert outcome.of(SubagentErrorEvent)[0].code == "cancelled"
    assert outcome.types.index("SUBAGENT_ERROR") < outcome.types.index("TEXT_MESSAGE_START")


async def test_a_patch_of_an_activity_that_does_not_apply_sends_nothing() -> None:
    async def agent(run: Any) -> None:
        activity = await run.activity("A", {"a": 1})
        with pytest.raises(PatchError):
            await activity.patch([{"op": "remove", "path": "/b"}])
        await activity.update({"a": 1})
        await activity.patch([{"op": "remove", "path": "/a"}])

    outcome = await run_agent(agent)
    assert outcome.types == ["RUN_STARTED", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "RUN_FINISHED"]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
async def test_whatever_runs_side_by_side_the_stream_is_legal(seed: int) -> None:
    """Random trees of tasks that write everything at once; ``Thread`` verifies the stream."""
    rng = random.Random(seed)

    async def pause() -> None:
        await let_tasks_run(rng.randrange(3))

    async def work(run: Any, at: Any, depth: int) -> None:
        await pause()
        match rng.randrange(9):
            case 0:
                async with at.text() as text:
                    for _ in range(rng.randrange(4)):
                        await text.write("x")
                        await pause()
            case 1:
                async with at.reasoning() as thought:
                    await thought.write("y")
                    await pause()
            case 2:
                call = await at.tool_call("t", {"a": rng.random()})
                await pause()
                if rng.random() < 0.7:
                    await call.result("r")
            case 3:
                async with at.stream_tool_call("t") as call:
                    await call.args("{")
                    await pause()
                    await call.args("}")
            case 4:
                activity = await at.activity("A", {"n": [1]})
                await pause()
                await activity.update({"n": [1, rng.randrange(3)]})
            case 5:
                run.state[f"k{rng.randrange(5)}"] = rng.randrange(5)
                await at.custom("c", None)
            case 6:
                await run.emit(rng.choice(["text", [CustomEvent(name="x", value=0)], "more"]))
            case _:
                if depth == 0:
                    return
                opened = at.step(rng.choice("ab")) if rng.random() < 0.5 else at.subagent("s")
                async with opened as inner:
                    below = inner if hasattr(inner, "text") else at
                    await asyncio.gather(*(work(run, below, depth - 1) for _ in range(rng.randrange(4))))

    async def agent(run: Any) -> None:
        await asyncio.gather(*(work(run, run, 3) for _ in range(8)))

    thread = Thread()
    outcome = await thread.run(agent)
    assert outcome.ending.outcome == "success", outcome.ending
    assert thread.conversation.run_error is None


# Generative UI

A2UI = {
    "surfaceUpdate": {
        "surfaceId": "main",
        "components": [
            {"id": "root", "component": {"Column": {"children": {"explicitList": ["title", "ok"]}}}},
            {"id": "title", "component": {"Text": {"text": {"literalString": "Vols à Åre ✈"}, "usageHint": "h1"}}},
            {"id": "ok", "component": {"Button": {"child": "label", "action": {"name": "book", "context": []}}}},
        ],
    }
}
OPEN_JSON_UI = {
    "type": "card",
    "props": {"title": "Invoice", "total": 12.50, "paid": False, "due": None},
    "children": [{"type": "table", "props": {"rows": [["a", 1], ["b", 0]]}, "children": []}],
}
MCP_UI = {
    "type": "resource",
    "resource": {
        "uri": "ui://weather/1",
        "mimeType": "text/html;profile=mcp-app",
        "text": '<script>parent.postMessage({"type":"tool"}, \'*\')</script>\n',
        "_meta": {"mcpui.dev/ui-preferred-frame-size": ["800px", "600px"]},
    },
}


@pytest.mark.parametrize("payload", [A2UI, OPEN_JSON_UI, MCP_UI], ids=["a2ui", "open-json-ui", "mcp-ui"])
async def test_generative_ui_passes_unchanged(payload: dict[str, Any]) -> None:
    exact = json.dumps(payload)

    async def agent(run: Any) -> None:
        activity = await run.activity("UI", payload)
        await activity.update({**payload, "more": payload})
        await run.custom("acme.ui", payload)
        call = await run.tool_call("render", {})
        await call.result(payload)

    thread = Thread()
    outcome = await thread.run(agent)
    assert json.dumps(outcome.of(ActivitySnapshotEvent)[0].content) == exact
    assert json.dumps(outcome.of(CustomEvent)[0].value) == exact
    assert json.dumps(json.loads(outcome.of(ToolCallResultEvent)[0].content)) == exact
    (activity,) = [message for message in thread.conversation.messages if message.role == "activity"]
    assert activity.content == {**payload, "more": payload}
    assert json.dumps(payload) == exact


async def test_a_payload_that_changes_after_it_was_sent_was_sent_as_it_was() -> None:
    async def agent(run: Any) -> None:
        value = {"a": [1]}
        await run.custom("x", value)
        value["a"].append(2)

    assert (await run_agent(agent)).of(CustomEvent)[0].value == {"a": [1]}


# Files


async def test_files_are_read_by_reference_and_the_log_names_none_of_them(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> Any:
        found = [
            await run.file("f1"),
            await run.file(FileSource(value="f1", provider="aguila")),
            await run.file(ImagePart(source=FileSource(value="f1"))),
            await run.file(ImagePart(source=DataSource(value="aGk=", mime_type="text/plain"))),
            await run.file(BinaryInputContent(mime_type="text/plain", id="f1")),
            await run.file(BinaryInputContent(mime_type="text/plain", data="aGk=")),
        ]
        absent = [
            await run.file("f2"),
            await run.file(FileSource(value="f1", provider="other")),
            await run.file(ImagePart(source=UrlSource(value="http://localhost/f1"))),
            await run.file(ImagePart(source=DataSource(value="?", mime_type="text/plain"))),
            await run.file(BinaryInputContent(mime_type="text/plain", url="http://localhost/f1")),
            await run.file(TextPart(text="f1")),
        ]
        assert absent == [None] * 6
        return [data.decode() for data in found]

    thread = Thread()
    thread.shelf.files["f1"] = (b"hi", "text/plain", None)
    assert (await thread.run(agent)).last.result == ["hi"] * 6
    assert [record.getMessage() for record in caplog.records] == [
        "cannot load file part: the file is not in the store [IN-8]",
        "cannot load file part: it is a file of another provider [IN-8]",
        "cannot load file part: it is a URL, which is never fetched [IN-8]",
        "cannot load file part: its data is not base64 [MSG-2]",
        "cannot load file part: it is a URL, which is never fetched [IN-8]",
        "cannot load file part: it is a text part [IN-8]",
    ]  # and nothing of the content of the parts


async def test_the_agent_sees_who_asks_and_what_was_let_through() -> None:
    async def agent(run: Any) -> Any:
        return {"who": run.principal, "headers": dict(run.headers), "messages": len(run.messages)}

    outcome = await run_agent(
        agent, principal="ada", headers={"x-tenant": "1"}, messages=[AssistantMessage(id="a", content="b")]
    )
    assert outcome.last.result == {"who": "ada", "headers": {"x-tenant": "1"}, "messages": 1}


async def test_content_keeps_its_order_within_each_message() -> None:
    async def agent(run: Any) -> None:
        async def write(name: str) -> None:
            async with run.text(message_id=name) as text:
                for index in range(50):
                    await text.write(f"{name}{index} ")
                    await asyncio.sleep(0)

        await asyncio.gather(*(write(name) for name in "abc"))

    outcome = await run_agent(agent)
    for name in "abc":
        text = "".join(event.delta for event in outcome.of(TextMessageContentEvent) if event.message_id == name)
        assert text == "".join(f"{name}{index} " for index in range(50))


async def sets_the_status(run: Any) -> None:
    async with run.step("outer") as outer, run.step("inner", parent=outer) as inner:
        assert (inner.parent, inner.status) == ("outer", None)
        inner.status = "skipped"
        inner.result = {"n": 1}


def sets_the_status_in_a_thread(run: Any) -> None:
    with run.step("outer") as outer, run.step("inner", parent=outer) as inner:
        assert (inner.parent, inner.status) == ("outer", None)
        inner.status = "skipped"
        inner.result = {"n": 1}


@pytest.mark.parametrize("agent", [sets_the_status, sets_the_status_in_a_thread])
async def test_a_step_says_how_it_went_in_the_agents_own_word(agent: Any) -> None:
    outcome = await run_agent(agent)
    assert outcome.ending.outcome == "success"
    assert [event.metadata for event in outcome.of(StepFinishedEvent)] == [
        {"aguila": {"status": "skipped", "result": {"n": 1}}},
        {"aguila": {"status": "completed"}},
    ]


async def test_a_step_that_an_exception_leaves_has_failed_whatever_its_status_was() -> None:
    async def agent(run: Any) -> None:
        async with run.step("s") as step:
            step.status = "skipped"
            raise ValueError

    assert (await run_agent(agent)).of(StepFinishedEvent)[0].metadata == {"aguila": {"status": "failed"}}


async def test_a_status_that_is_no_text_is_refused() -> None:
    async def agent(run: Any) -> None:
        async with run.step("s") as step:
            step.status = 5

    assert (await run_agent(agent)).last.code == "agent_output"


async def test_a_handle_takes_no_attribute_that_would_be_ignored() -> None:
    async def agent(run: Any) -> Any:
        async with run.step("s") as step, run.subagent("a") as sub, run.text() as text, run.reasoning() as thought:
            call = await run.tool_call("t", {})
            activity = await run.activity("A", {})
            return {"refused": [_refuses(one) for one in (step, sub, text, thought, call, activity)]}

    def in_a_thread(run: Any) -> Any:
        with run.step("s") as step, run.subagent("a") as sub, run.text() as text, run.reasoning() as thought:
            call = run.tool_call("t", {})
            activity = run.activity("A", {})
            return {"refused": [_refuses(one) for one in (step, sub, text, thought, call, activity)]}

    for which in (agent, in_a_thread):
        assert (await run_agent(which)).last.result == {"refused": [True] * 6}


def _refuses(handle: Any) -> bool:
    with pytest.raises(AttributeError):
        handle.colour = "red"
    return True


PICTURE = ImagePart(source=UrlSource(value="https://example.com/a.png"))


@pytest.mark.parametrize(
    ("make", "write", "maker"),
    [
        (lambda run: run.text(), "write", "run.text()"),
        (lambda run: run.reasoning(), "write", "run.reasoning()"),
        (lambda run: run.stream_tool_call("f"), "args", "run.stream_tool_call(name)"),
        (lambda run: run.subagent("writer"), "say", "run.subagent(name)"),
    ],
)
async def test_a_handle_that_is_not_entered_names_the_mistake(make: Any, write: str, maker: str) -> None:
    """The error was "send TEXT_MESSAGE_START first [STR-2]", which a user of handles does not understand."""

    async def agent(run: Any) -> Any:
        try:
            await getattr(make(run), write)("x")
        except IllegalStep as error:
            run.result = {"error": str(error)}

    def in_thread(run: Any) -> Any:
        try:
            getattr(make(run), write)("x")
        except IllegalStep as error:
            run.result = {"error": str(error)}

    async def after_its_block(run: Any) -> Any:
        async with make(run) as handle:
            await getattr(handle, write)("x")
        try:
            await getattr(handle, write)("x")
        except IllegalStep as error:
            run.result = {"error": str(error)}

    for each in (agent, in_thread):
        assert (
            f"{maker} is not open: enter it with `async with {maker} as" in (await run_agent(each)).last.result["error"]
        )
    assert "is closed; write to it inside its `async with" in (await run_agent(after_its_block)).last.result["error"]


async def test_text_in_place_of_a_role_names_the_mistake() -> None:
    async def agent(run: Any) -> Any:
        try:
            run.text("Hello!")
        except ValueError as error:
            run.result = {"error": str(error)}

    assert "to send a whole message, use run.say(text)" in (await run_agent(agent)).last.result["error"]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], ""),
        ([UserMessage(id="1", content="one"), AssistantMessage(id="2", content="two")], "one"),
        ([UserMessage(id="1", content="one"), UserMessage(id="2", content="two")], "two"),
        ([UserMessage(id="1", content=[TextPart(text="look "), PICTURE, TextPart(text="here")])], "look here"),
        ([UserMessage(id="1", content=[TextPart(text="What is"), PICTURE, TextPart(text="this?")])], "What is this?"),
        ([UserMessage(id="1", content=[PICTURE])], ""),
    ],
)
async def test_the_last_user_message_is_there_as_text(messages: Any, text: str) -> None:
    async def agent(run: Any) -> Any:
        run.result = {"text": run.user_text}

    def in_thread(run: Any) -> Any:
        run.result = {"text": run.user_text}

    for each in (agent, in_thread):
        assert (await run_agent(each, messages=messages)).last.result == {"text": text}
