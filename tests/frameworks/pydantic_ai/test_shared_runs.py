"""Several provider agents in one run: each calls its own model and answers its own calls."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from models.model_server import PROVIDERS, Recorded
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from serving import text_of

from aguila import Run
from aguila.chat import tool
from aguila.errors import RunFailed
from aguila.frameworks import pydantic_ai

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

Json = dict[str, Any]
Start = Callable[..., tuple[Any, Recorded]]


class Till:
    """A tool that asks before it pays, and its payments."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(needs_approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.pay = pay


@pytest.fixture
def till() -> Till:
    return Till()


def weather(city: str) -> str:
    """The weather."""
    return f"{city}: 3 degrees"


def of_type(events: list[Json], type_: str) -> list[Json]:
    return [event for event in events if event["type"] == type_]


def answered(thread: Any, asked: list[Json], run_id: str) -> list[Json]:
    answers = [
        {"interruptId": one["id"], "status": "resolved", "payload": {"approved": True}}
        for one in asked[-1]["outcome"]["interrupts"]
    ]
    return thread.events(run_id=run_id, messages=[], resume=answers)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_agents_one_after_another_ask_each_its_own_model(
    modelled: Start, thread_for: Any, till: Till, provider: str
) -> None:
    planner, plans = modelled(provider, {"text": "I plan. "}, tools=[till.pay])
    executor, deeds = modelled(provider, {"text": "I do. "}, {"text": "I did."}, tools=[till.pay])

    async def all_of_them(run: Any) -> None:
        await planner(run)
        await executor(run)
        await executor(run)

    events = thread_for(all_of_them).send("Hi")
    assert text_of(events) == "I plan. I do. I did."
    assert len({event["messageId"] for event in of_type(events, "TEXT_MESSAGE_START")}) == 3
    assert (len(plans.requests), len(deeds.requests)) == (1, 2)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_agents_one_after_another_may_each_ask_and_go_on_with_their_own_answers(
    modelled: Start, thread_for: Any, till: Till, provider: str
) -> None:
    turns = [[{"calls": [("c1", "pay", {"amount": amount})]}, {"text": f"That was {amount}. "}] for amount in (1, 2)]
    (first, ones), (second, twos) = [modelled(provider, *turn, tools=[till.pay]) for turn in turns]

    async def both(run: Any) -> None:
        await first(run)
        await second(run)

    thread = thread_for(both)
    one = thread.send("Hi")
    two = answered(thread, one, "r2")
    three = answered(thread, two, "r3")
    assert till.paid == [1, 2]
    assert (text_of(two), text_of(three)) == ("That was 1. ", "That was 2. ")
    assert (len(ones.requests), len(twos.requests)) == (2, 2)
    results = [event["content"] for event in of_type([*one, *two, *three], "TOOL_CALL_RESULT")]
    assert results == ["paid 1", "paid 2"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_agent_that_is_a_tool_of_another_asks_its_own_model_and_its_own_questions(
    modelled: Start, thread_for: Any, till: Till, provider: str
) -> None:
    inner, inners = modelled(
        provider, {"calls": [("c1", "pay", {"amount": 7})]}, {"text": "Inner did. "}, tools=[till.pay]
    )

    async def helper(task: str, run: Any) -> str:
        """Delegate."""
        await inner(run)
        return f"helped with {task}"

    outer, outers = modelled(
        provider, {"calls": [("c1", "helper", {"task": "x"})]}, {"text": "Outer did."}, tools=[helper]
    )
    thread = thread_for(outer)
    one = thread.send("Hi")
    two = answered(thread, one, "r2")
    assert till.paid == [7]
    assert text_of([*one, *two]) == "Inner did. Outer did."
    assert (len(inners.requests), len(outers.requests)) == (2, 2)
    calls = {event["toolCallId"]: event["toolCallName"] for event in of_type([*one, *two], "TOOL_CALL_START")}
    results = {event["toolCallId"]: event["content"] for event in of_type(two, "TOOL_CALL_RESULT")}
    assert {calls[call_id]: content for call_id, content in results.items()} == {
        "helper": "helped with x",
        "pay": "paid 7",
    }


def test_an_agent_in_a_tool_goes_on_where_it_was_beside_one_that_was_done(
    modelled: Start, thread_for: Any, till: Till
) -> None:
    """A replay skips the tool that is done, and must still find the records of the other."""
    quick, _ = modelled("openai chat", {"text": "Quick. "}, tools=[till.pay])
    slow, slows = modelled(
        "openai chat", {"calls": [("c1", "pay", {"amount": 5})]}, {"text": "Slow. "}, tools=[till.pay]
    )
    is_quick_done = asyncio.Event()

    async def do_quick(run: Any) -> str:
        """Quick."""
        await quick(run)
        is_quick_done.set()
        return "quick done"

    async def do_slow(run: Any) -> str:
        """Slow."""
        await slow(run)
        return "slow done"

    calls = [("a", "do_quick", {}), ("b", "do_slow", {})]
    outer, outers = modelled("openai chat", {"calls": calls}, {"text": "Done."}, tools=[do_quick, do_slow])
    thread = thread_for(outer)
    one = thread.send("Hi")
    two = answered(thread, one, "r2")
    assert is_quick_done.is_set()
    assert till.paid == [5]
    assert text_of(two) == "Slow. Done."
    assert (len(slows.requests), len(outers.requests)) == (2, 2)


def test_a_replay_that_skips_an_effect_with_an_agent_in_it_takes_the_next_agent_for_no_other(
    modelled: Start, thread_for: Any, till: Till
) -> None:
    first, firsts = modelled("openai chat", {"text": "First. "}, tools=[till.pay])
    second, _ = modelled(
        "openai chat", {"calls": [("c1", "pay", {"amount": 3})]}, {"text": "Second."}, tools=[till.pay]
    )

    async def agent(run: Any) -> None:
        await run.once("the first", lambda: first(run), uses_run=True)
        await second(run)

    thread = thread_for(agent)
    one = thread.send("Hi")
    two = answered(thread, one, "r2")
    assert (text_of(one), text_of(two)) == ("First. ", "Second.")
    assert len(firsts.requests) == 1


def test_calls_of_agents_that_share_a_run_never_have_one_id_p21(modelled: Start, thread_for: Any) -> None:
    turn = {"calls": [("call_1", "weather", {"city": "Oslo"})]}
    agents = [modelled("gemini", turn, {"text": "Done. "}, tools=[weather])[0] for _ in range(2)]

    async def both(run: Any) -> None:
        await run.tool_call("look", {}, tool_call_id="call_1")
        for agent in agents:
            await agent(run)

    events = thread_for(both).send("Hi")
    assert text_of(events) == "Done. Done. "
    calls = [event["toolCallId"] for event in of_type(events, "TOOL_CALL_START")]
    assert len(set(calls)) == 3
    assert [event["toolCallId"] for event in of_type(events, "TOOL_CALL_RESULT")] == calls[1:]


def test_a_call_of_an_agent_that_a_replay_skips_keeps_its_id_to_itself_p21(
    modelled: Start, thread_for: Any, till: Till
) -> None:
    calling = {"calls": [("call_1", "weather", {"city": "Oslo"})]}
    inner, _ = modelled("openai chat", calling, {"text": "Cold. "}, tools=[weather])

    async def helper(run: Any) -> str:
        """Delegate."""
        await inner(run)
        return "helped"

    rounds = [{"calls": [("h1", "helper", {})]}, {"calls": [("p1", "pay", {"amount": 1})]}, calling, {"text": "Done."}]
    outer, outers = modelled("openai chat", *rounds, tools=[helper, till.pay, weather])
    thread = thread_for(outer)
    one = thread.send("Hi")
    two = answered(thread, one, "r2")
    calls = [event["toolCallId"] for event in of_type([*one, *two], "TOOL_CALL_START")]
    assert len(calls) == len(set(calls)) == 4
    assert text_of(two) == "Done."
    assert json.dumps(outers.requests[-1]).count("Oslo: 3 degrees") == 1


def test_an_agent_in_a_tool_that_comes_to_its_limit_does_not_stop_the_run(modelled: Start, thread_for: Any) -> None:
    calling = {"calls": [("c1", "weather", {"city": "Oslo"})]}
    inner, _ = modelled("openai chat", calling, tools=[weather], max_rounds=1)

    async def helper(run: Any) -> str:
        """Delegate."""
        await inner(run)
        return "helped"

    outer, outers = modelled("openai chat", {"calls": [("h1", "helper", {})]}, {"text": "Done."}, tools=[helper])
    events = thread_for(outer).send("Hi")
    assert (text_of(events), events[-1]["outcome"]["type"]) == ("Done.", "success")
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == ["max_rounds"]
    assert "The tool failed." in json.dumps(outers.requests[-1])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_an_agent_did_is_not_done_again_because_another_in_the_run_asks(
    modelled: Start, thread_for: Any, till: Till, provider: str
) -> None:
    charged: list[int] = []

    def charge(amount: int) -> str:
        """Charge."""
        charged.append(amount)
        return f"charged {amount}"

    calls = {"calls": [("c1", "charge", {"amount": 1})]}
    planner, plans = modelled(provider, calls, {"text": "Planned. "}, calls, {"text": "Again."}, tools=[charge])
    executor, deeds = modelled(
        provider, {"calls": [("c2", "pay", {"amount": 2})]}, {"text": "Done."}, {"text": "Too often."}, tools=[till.pay]
    )

    async def both(run: Any) -> None:
        await planner(run)
        await executor(run)
        await run.ask("And now?", key="now")

    thread = thread_for(both)
    asked = thread.send("Hi")
    asked = answered(thread, asked, "run-2")
    assert asked[-1]["outcome"]["type"] == "interrupt"
    answer = {"interruptId": asked[-1]["outcome"]["interrupts"][0]["id"], "status": "resolved", "payload": "go"}
    assert thread.events(run_id="run-3", messages=[], resume=[answer])[-1]["outcome"] == {"type": "success"}
    assert (charged, till.paid) == ([1], [2])
    assert (len(plans.requests), len(deeds.requests)) == (2, 2)


def test_a_failure_of_a_provider_is_raised_where_the_agent_was_invoked(modelled: Start, thread_for: Any) -> None:
    broken, _ = modelled("openai chat", (429, b"{}"))
    other, asked = modelled("openai chat", {"text": "I do."}, {"text": "Never."})

    codes: list[str | None] = []

    async def falls_back(run: Any) -> None:
        try:
            await broken(run)
        except RunFailed as failure:
            codes.append(failure.code)
            await other(run)

    events = thread_for(falls_back).send("Hi")
    assert (text_of(events), events[-1]["type"]) == ("I do.", "RUN_FINISHED")
    assert codes == ["provider_rate_limit"]

    broken_too, _ = modelled("openai chat", (429, b"{}"))

    async def goes_on(run: Any) -> None:
        await broken_too(run)
        await other(run)

    events = thread_for(goes_on).send("Hi")
    assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
    assert events[-1]["code"] == "provider_rate_limit"
    assert len(asked.requests) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_tools_that_run_at_once_may_each_ask_the_same(modelled: Start, thread_for: Any, provider: str) -> None:
    """The agent names a branch for each call, so its tools need neither names nor keys."""

    async def book(what: str, run: Any) -> str:
        """Book something."""
        return f"{what} at {await run.ask('When?')}"

    calls = [("c1", "book", {"what": "flight"}), ("c2", "book", {"what": "dinner"})]
    agent, _ = modelled(provider, {"calls": calls}, {"text": "Booked."}, tools=[book])
    thread = thread_for(agent)
    one = thread.send("Hi")
    asked = one[-1]["outcome"]["interrupts"]
    assert [each["message"] for each in asked] == ["When?", "When?"]
    answers = [
        {"interruptId": each["id"], "status": "resolved", "payload": time}
        for each, time in zip(asked, ("noon", "eight"), strict=True)
    ]
    two = thread.events(run_id="r2", messages=[], resume=answers)
    results = sorted(event["content"] for event in of_type(two, "TOOL_CALL_RESULT"))
    assert results == ["dinner at eight", "flight at noon"]
    assert text_of(two) == "Booked."


# Agents that a tool runs with pydantic-ai's Agent.run


def delegating(helper: Agent[None, str], asked: list[str]) -> Agent[Run, str]:
    """Make an agent with a tool that delegates, as docs/models.md shows it."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts):
            yield "Done."
        else:
            yield {0: DeltaToolCall("send", "{}", tool_call_id="c1")}

    agent = Agent(FunctionModel(stream_function=answer), deps_type=Run)

    @agent.tool
    async def send(ctx: RunContext[Run]) -> str:  # pyright: ignore[reportUnusedFunction]
        async def write_subject() -> str:
            return (await helper.run("Hi", usage=ctx.usage)).output

        subject = await ctx.deps.once(f"subject {ctx.tool_call_id}", write_subject)
        asked.append(subject)
        await ctx.deps.ask("Send?")
        return f"sent {subject}"

    return agent


def test_a_helper_whose_answer_is_recorded_is_asked_once(thread_for: Any) -> None:
    answers = itertools.count(1)

    def subject(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f"subject {next(answers)}")])

    asked: list[str] = []
    thread = thread_for(pydantic_ai.agent(delegating(Agent(FunctionModel(subject)), asked)))
    second = answered(thread, thread.send("Hi"), "r2")
    assert [event["content"] for event in of_type(second, "TOOL_CALL_RESULT")] == ["sent subject 1"]
    assert asked == ["subject 1", "subject 1"]


def test_an_approval_within_a_helper_fails_the_run_and_the_log_says_what_to_do(
    thread_for: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def paying(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("pay", {})])

    helper = Agent(FunctionModel(paying))

    @helper.tool_plain(requires_approval=True, name="pay")
    def paid() -> str:  # pyright: ignore[reportUnusedFunction]
        return "paid"

    events = thread_for(pydantic_ai.agent(delegating(helper, []))).send("Hi")
    assert events[-1]["code"] == "agent_error"
    assert "It was raised by the tool 'send'" in caplog.text
    assert "put the approval on the tool itself" in caplog.text
