"""``run.call_tool``: show a call of a function tool, ask if it needs approval, call it once, send its result."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from agent_threads import Thread

from aguila import ToolError, tool
from aguila.agent import ToolResult
from aguila.protocol import DataSource, ImagePart, ToolCallResultEvent, ToolCallStartEvent

pytestmark = pytest.mark.anyio


class Till:
    """A tool that pays, and its payments."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(needs_approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.pay = pay


def results(outcome: Any) -> list[Any]:
    return [event.content for event in outcome.of(ToolCallResultEvent)]


def agents_that(use: Any, use_in_thread: Any) -> Any:
    return pytest.mark.parametrize("agent", [use, use_in_thread], ids=["async", "thread"])


till = Till()


async def pays(run: Any) -> None:
    done = await run.call_tool(till.pay, {"amount": 5})
    run.state.update(content=done.content, error=done.error)
    await run.ask("Anything else?")


def pays_in_a_thread(run: Any) -> None:
    done = run.call_tool(till.pay, {"amount": 5})
    run.state.update(content=done.content, error=done.error)
    run.ask("Anything else?")


@agents_that(pays, pays_in_a_thread)
async def test_a_call_is_approved_and_made_once(agent: Any) -> None:
    till.paid.clear()

    thread = Thread()
    first = await thread.run(agent)
    assert [each.reason for each in first.ending.interrupts] == ["tool_call"]
    assert till.paid == []
    second = await thread.resume(agent, {"approved": True})
    third = await thread.resume(agent, "no")
    first, second, third, state = [first, second, third, thread.conversation.state]
    assert till.paid == [5]
    assert [len(each.of(ToolCallStartEvent)) for each in (first, second, third)] == [1, 0, 0]
    assert [results(each) for each in (first, second, third)] == [[], ["paid 5"], []]
    assert state == {"content": "paid 5", "error": None}


@agents_that(pays, pays_in_a_thread)
async def test_a_refused_call_is_not_made(agent: Any) -> None:
    till.paid.clear()

    thread = Thread()
    await thread.run(agent)
    assert results(await thread.resume(agent, {"approved": False, "reason": "too much"})) == [
        "The user did not allow this call. Reason: too much"
    ]
    assert thread.conversation.state["error"] == "The user did not allow this call. Reason: too much"
    assert till.paid == []


@dataclass
class Offer:
    city: str
    nights: list[int]


PNG = ImagePart(source=DataSource(value="iVBORw0KGgo=", mime_type="image/png"))
RETURNED: list[tuple[Any, Any, Any]] = [
    ({"rooms": [1, 2]}, {"rooms": [1, 2]}, '{"rooms":[1,2]}'),
    (3, 3, "3"),
    ("3", "3", "3"),
    ("", "", ""),
    (None, None, ""),
    (Offer("Oslo", [3, 4]), {"city": "Oslo", "nights": [3, 4]}, '{"city":"Oslo","nights":[3,4]}'),
    ([PNG], [PNG], [PNG]),
]


@pytest.mark.parametrize(("returned", "value", "content"), RETURNED, ids=[str(row[0])[:12] for row in RETURNED])
@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
async def test_a_result_has_the_value_that_the_function_returned_also_in_a_replay(
    returned: Any, value: Any, content: Any, in_thread: bool
) -> None:
    calls: list[int] = []
    seen: list[ToolResult] = []

    def look_up() -> Any:
        """Look up."""
        calls.append(1)
        return returned

    async def agent(run: Any) -> None:
        seen.append(await run.call_tool(look_up))
        await run.ask("Go on?")

    def agent_in_thread(run: Any) -> None:
        seen.append(run.call_tool(look_up))
        run.ask("Go on?")

    thread = Thread()
    used = agent_in_thread if in_thread else agent
    first = await thread.run(used)
    await thread.resume(used, "yes")
    assert seen == [ToolResult(content, None, value)] * 2
    assert (len(calls), results(first)) == (1, [content])


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def adds(run: Any) -> None:
    assert (await run.call_tool(add, {"a": 1, "b": 2})).content == "3"
    with pytest.raises(TypeError, match="expected a function or a tool, got a str"):
        await run.call_tool("add")


def adds_in_a_thread(run: Any) -> None:
    assert run.call_tool(add, {"a": 1, "b": 2}).content == "3"
    with pytest.raises(TypeError, match="expected a function or a tool, got a str"):
        run.call_tool("add")


@agents_that(adds, adds_in_a_thread)
async def test_a_plain_function_is_called_as_a_tool(agent: Any) -> None:
    outcome = await Thread().run(agent)
    assert (outcome.ending.outcome, results(outcome)) == ("success", ["3"])


@tool
def breaks(how: str) -> str:
    """Break."""
    if how == "tool error":
        raise ToolError("Try another way.")
    raise RuntimeError("password")


async def breaks_things(run: Any) -> None:
    for arguments in ({"how": "tool error"}, {"how": "else"}, {"what": 1}):
        done = await run.call_tool(breaks, arguments)
        assert done.error == done.content
        assert done.value is None


def breaks_things_in_a_thread(run: Any) -> None:
    for arguments in ({"how": "tool error"}, {"how": "else"}, {"what": 1}):
        done = run.call_tool(breaks, arguments)
        assert done.error == done.content


@agents_that(breaks_things, breaks_things_in_a_thread)
async def test_failures_are_results_that_show_no_internals(agent: Any) -> None:
    outcome = await Thread().run(agent)
    assert outcome.ending.outcome == "success"
    told, failed, unfit = results(outcome)
    assert (told, failed) == ("Try another way.", "The tool failed.")
    assert "do not fit" in unfit


async def test_functions_are_called_in_the_right_thread() -> None:
    seen: dict[str, int] = {}

    @tool
    def plain() -> None:
        """Plain."""
        seen["plain"] = threading.get_ident()

    @tool
    async def on_loop(run: Any) -> None:
        """On the loop, with the run."""
        seen["on_loop"] = threading.get_ident()
        await run.say("from the tool")

    def agent(run: Any) -> None:
        seen["agent"] = threading.get_ident()
        run.call_tool(plain)
        run.call_tool(on_loop)

    outcome = await Thread().run(agent)
    assert outcome.text == "from the tool"
    assert seen["plain"] == seen["agent"]
    assert seen["on_loop"] == threading.get_ident()


async def test_a_tool_may_stand_for_its_name() -> None:
    async def agent(run: Any) -> None:
        call = await run.tool_call(till.pay, {"amount": 1})
        await call.result("done")
        await run.approve(till.pay, {"amount": 2})

    outcome = await Thread().run(agent)
    assert [event.tool_call_name for event in outcome.of(ToolCallStartEvent)] == ["pay", "pay"]
