"""docs/agents.md has everything that a run has, and its snippets do what it says they do."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from agent_threads import Outcome, Thread
from waiting import wait_until_async

from aguila.agent import BlockingRun, Run
from aguila.agent.handles import ActivityHandle, ReasoningHandle, StepHandle, TextHandle, ToolCallHandle
from aguila.agent.run_api import SubagentHandle
from aguila.protocol import (
    Context,
    FileSource,
    ImagePart,
    ResumeEntry,
    Tool,
    ToolCallResultEvent,
    ToolMessage,
    UserMessage,
)

pytestmark = pytest.mark.anyio

TEXT = (Path(__file__).parents[2] / "docs/agents.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def agent_with(word: str) -> Any:
    """Return the agent of the one snippet that has this in it."""
    (block,) = (block for block in BLOCKS if word in block)
    names: dict[str, Any] = {}
    exec(compile(block, "agents.md", "exec"), names)
    return names["agent"]


async def run(agent: Any, *answers: list[Any], messages: Any = None, **changes: Any) -> list[Outcome]:
    messages_ = [UserMessage(id="u1", content="Hi")] if messages is None else messages
    thread = Thread(messages=messages_, tools=[Tool(name="pick_time", description="")], principal="ada")
    thread.shelf.files["f1"] = (b"12345", "image/png", None)
    outcomes = [await thread.run(agent, context=[Context(description="city", value="Rome")], **changes)]
    for each in answers:
        outcomes.append(await thread.resume(agent, *each))
    return outcomes


def names_in(cls: type[Any]) -> set[str]:
    """The public members of a class, and what its ``__init__`` sets."""
    found = {name for name in dir(cls) if not name.startswith("_")}
    source = inspect.getsource(cls.__init__)
    return found | set(re.findall(r"self\.([a-z]\w*)(?:: [^=\n]+)? =", source))


def test_everything_that_a_run_has_is_named() -> None:
    names = names_in(Run)
    assert {"messages", "state", "ask", "subagent", "session"} <= names
    assert sorted(name for name in names if f"run.{name}" not in TEXT) == []
    assert names_in(BlockingRun) - {"portal", "wrapped"} == names


@pytest.mark.parametrize(
    "handle", [TextHandle, ReasoningHandle, ToolCallHandle, StepHandle, ActivityHandle, SubagentHandle]
)
def test_everything_that_a_handle_has_is_named(handle: Any) -> None:
    own = names_in(handle) - names_in(Run)
    assert own
    assert sorted(name for name in own if re.search(rf"[.`]{name}\b", TEXT) is None) == []


async def test_reading() -> None:
    (outcome,) = await run(agent_with("facts ="))
    assert outcome.text == "ada asked 'Hi', turn 1; ['pick_time'] {'city': 'Rome'}"
    assert outcome.ending.session == {"turns": 1}


async def test_files() -> None:
    image = ImagePart(source=FileSource(value="f1"))
    (outcome,) = await run(agent_with("run.file("), messages=[UserMessage(id="u1", content=[image])])
    assert outcome.text == "image: 5 bytes"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("A whole message.", "A whole message.One that grows."),
        ("run.reasoning()", "Hello!"),
        ("find_price", ""),
        ("write_poem", ""),
        ('run.step("research")', ""),
        ("run.subagent(", "Leeks, o leeks."),
        ("run.activity(", ""),
        ('run.state["count"]', "Counted."),
        ("run.emit(", "Hello"),
        ("run.result =", "It is 2.40."),
        ("run.call_tool(", "paid 50"),
    ],
)
async def test_what_is_said(word: str, expected: str) -> None:
    (outcome,) = await run(agent_with(word))
    assert outcome.ending.outcome == "success"
    assert outcome.text == expected


async def test_what_else_is_sent() -> None:
    async def sent(word: str) -> list[str]:
        return (await run(agent_with(word)))[0].types

    assert "REASONING_ENCRYPTED_VALUE" in await sent("run.reasoning()")
    assert (await sent("find_price")).count("TOOL_CALL_RESULT") == 1
    assert (
        (await sent("write_poem")).count("TOOL_CALL_ARGS"),
        (await sent("write_poem")).count("TOOL_CALL_RESULT"),
    ) == (3, 2)
    assert {"SUBAGENT_FINISHED", "SUBAGENT_ERROR"} <= set(await sent("run.subagent("))
    assert [kind for kind in await sent("run.activity(") if "ACTIVITY" in kind] == [
        "ACTIVITY_SNAPSHOT",
        "ACTIVITY_DELTA",
        "ACTIVITY_DELTA",
        "ACTIVITY_SNAPSHOT",
    ]
    assert [kind for kind in await sent('run.state["count"]') if "STATE" in kind][-1] == "STATE_SNAPSHOT"
    assert {"CUSTOM", "RAW", "MESSAGES_SNAPSHOT"} <= set(await sent("run.emit("))
    (outcome,) = await run(agent_with("run.emit("))
    assert [usage.input_tokens for usage in outcome.last.usage] == [10]
    assert (await run(agent_with("run.result =")))[0].last.result == {"price": 2.4}
    steps = [
        event.metadata for event in (await run(agent_with('run.step("research")')))[0].events if "STEP" in event.type
    ]
    assert steps == [
        None,
        {"aguila": {"parentStepId": "research"}},
        {"aguila": {"status": "skipped"}},
        {"aguila": {"status": "completed", "result": {"sources": 3}}},
    ]


async def test_a_tool_of_the_front_end() -> None:
    agent = agent_with("pick_time")
    (outcome,) = await run(agent)
    assert len(outcome.last.outcome.pending_tool_call_ids) == 1
    (outcome,) = await run(agent, messages=[ToolMessage(id="t1", tool_call_id="c", content="19:30")])
    assert outcome.text == "A table at 19:30."


async def test_questions() -> None:
    assert (await run(agent_with('Your name?", schema'), ["Ada"]))[-1].text == "Hello, Ada."
    assert (await run(agent_with("run.ask_all("), ["Ada", 36]))[-1].text == "Ada, 36"
    assert (await run(agent_with("run.once("), ["thanks"]))[-1].text == "17: thanks"
    outcomes = await run(agent_with("TaskGroup("), ["noon", "eight"])
    assert [event.content for event in outcomes[-1].of(ToolCallResultEvent)] == ["noon", "eight"]

    thread = Thread()
    agent = agent_with('Your name?", schema')
    await thread.run(agent)
    assert (await thread.give_up(agent)).text == "As you like."


async def test_approvals() -> None:
    refused = {"approved": False, "reason": "too much"}
    outcomes = await run(agent_with("run.approve("), [refused], [{"approved": True}, {"approved": False}])
    results = [event.content for outcome in outcomes for event in outcome.events if event.type == "TOOL_CALL_RESULT"]
    assert results == ["refused: too much", "sent", "not sent"]


async def test_an_agent_that_raises_its_interrupts() -> None:
    agent = agent_with("raise RunInterrupt(")
    (outcome,) = await run(agent)
    (interrupt,) = outcome.ending.interrupts
    resume = [ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload="L")]
    assert (await run(agent, resume=resume))[0].text == "You chose L."


async def test_an_agent_that_is_cancelled() -> None:
    thread = Thread()
    sinks: list[Any] = []
    new_sink = thread.new_sink
    thread.new_sink = lambda: sinks.append(new_sink()) or sinks[-1]
    task = asyncio.create_task(thread.run(agent_with("asyncio.sleep(3600)")))
    await wait_until_async(lambda: sinks and any(event.type == "TEXT_MESSAGE_END" for event in sinks[0].events))
    task.cancel()
    await task
    assert thread.outcome is not None
    assert thread.outcome.ending.outcome == "cancelled"
    assert thread.conversation.state == {"stopped": True}


async def test_an_agent_in_a_thread() -> None:
    outcomes = await run(agent_with("Enough?"), ["yes"])
    assert outcomes[-1].text == "You said yes."


def test_no_snippet_is_left_out() -> None:
    assert len(BLOCKS) == 22  # each of which is run above
