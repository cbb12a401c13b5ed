"""The order of pydantic-ai's hooks, on which it depends that no call is made twice.

If a test fails with a new release of pydantic-ai, do not allow that release before ``RunCapability`` is adapted. These
tests import nothing of ours: ``make peers`` runs them against the newest release, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    RunContext,
    ToolApproved,
    ToolDefinition,
    ToolFailed,
)
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import FunctionToolResultEvent, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models import CompletedStreamedResponse
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import DeferredToolResults
from pydantic_ai.toolsets import ExternalToolset, WrapperToolset

Log = list[Any]


class Outer(WrapperModel):
    """A model whose answers are complete before pydantic-ai sees them."""

    def __init__(self, wrapped: Any, log: Log) -> None:
        super().__init__(wrapped)
        self._log = log

    async def request(self, messages: Any, settings: Any, parameters: Any) -> Any:
        self._log.append("model")
        async with self.wrapped.request_stream(messages, settings, parameters) as stream:
            async for _ in stream:
                pass
        return stream.get()

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, settings: Any, parameters: Any, run_context: Any = None
    ) -> AsyncIterator[Any]:
        response = await self.request(messages, settings, parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=parameters, replay_events=True)


class Hooks(AbstractCapability[Any]):
    """The hooks that our capability has, which log what they are called for."""

    def __init__(self, log: Log, *, asks: str = "", answers: bool = True) -> None:
        self.id = None
        self.log = log
        self._asks = asks
        self._answers = answers

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="outermost")

    def get_wrapper_model(self, model: Any) -> Any:
        return Outer(model, self.log)

    def get_wrapper_toolset(self, toolset: Any) -> Any:
        return WithExternal(toolset)

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        self.log.append(("enter", call.tool_name, ctx.tool_call_approved, args))
        if call.tool_name == self._asks:
            raise CallDeferred
        try:
            return await handler(args)
        finally:
            self.log.append(("leave", call.tool_name))

    async def handle_deferred_tool_calls(self, ctx: Any, *, requests: DeferredToolRequests) -> Any:
        calls, approvals = [sorted(one.tool_name for one in kind) for kind in (requests.calls, requests.approvals)]
        self.log.append(("deferred", calls, approvals))
        if not self._answers:
            return None
        approved = {one.tool_call_id: ToolApproved(override_args={"x": 9}) for one in requests.approvals}
        return DeferredToolResults(approvals=approved)

    async def on_event(self, ctx: Any, *, event: Any) -> None:
        if isinstance(event, FunctionToolResultEvent):
            self.log.append(("result", event.part.tool_name, event.part.outcome))


class WithExternal(WrapperToolset[Any]):
    async def get_tools(self, ctx: Any) -> Any:
        external = ExternalToolset([ToolDefinition(name="front", parameters_json_schema={"type": "object"})])
        return {**await external.get_tools(ctx), **await self.wrapped.get_tools(ctx)}


def agent_calling(*names: str) -> Agent[None, Any]:
    async def answer(messages: Any, info: Any) -> AsyncIterator[Any]:
        if any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts):
            yield "done"
        else:
            for index, name in enumerate(names):
                yield {index: DeltaToolCall(name, '{"x": 1}', tool_call_id=f"c{index}")}

    agent: Agent[None, Any] = Agent(
        FunctionModel(stream_function=answer), output_type=[str, DeferredToolRequests], retries=1
    )

    @agent.tool_plain
    async def plain(x: int) -> str:
        await asyncio.sleep(0)
        return f"plain {x}"

    @agent.tool_plain(requires_approval=True)
    def pay(x: int) -> str:
        return f"paid {x}"

    @agent.tool
    def checks(ctx: RunContext[None], x: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"checked {x}"

    @agent.tool_plain
    def fails(x: int) -> str:
        raise ToolFailed("no")

    return agent


async def run(agent: Agent[None, Any], hooks: Hooks) -> Any:
    history = [ModelRequest(parts=[UserPromptPart("Hi")])]
    return (await agent.run(message_history=history, capabilities=[hooks])).output


@pytest.mark.anyio
async def test_each_call_enters_its_hook_once_and_its_result_comes_after() -> None:
    log: Log = []
    assert await run(agent_calling("plain", "plain"), Hooks(log)) == "done"
    assert sorted(map(str, log)) == sorted(
        map(
            str,
            [
                "model",
                *[("enter", "plain", False, {"x": 1})] * 2,
                *[("leave", "plain")] * 2,
                *[("result", "plain", "success")] * 2,
                "model",
            ],
        )
    )
    assert log.index(("leave", "plain")) < log.index(("result", "plain", "success"))


@pytest.mark.anyio
async def test_a_call_that_needs_approval_is_not_executed_before_it_and_once_after_it_with_the_edited_arguments() -> (
    None
):
    log: Log = []
    assert await run(agent_calling("pay", "plain"), Hooks(log)) == "done"
    assert [one for one in log if one[1] == "pay"] == [
        ("enter", "pay", True, {"x": 9}),
        ("leave", "pay"),
        ("result", "pay", "success"),
    ]
    deferred = log.index(("deferred", [], ["pay"]))
    assert log.index(("leave", "plain")) < deferred < log.index(("enter", "pay", True, {"x": 9}))


@pytest.mark.anyio
async def test_a_call_that_asks_for_approval_itself_enters_its_hook_before_and_after_it() -> None:
    log: Log = []
    assert await run(agent_calling("checks"), Hooks(log)) == "done"
    assert log == [
        "model",
        ("enter", "checks", False, {"x": 1}),
        ("leave", "checks"),
        ("deferred", [], ["checks"]),
        ("enter", "checks", True, {"x": 9}),
        ("leave", "checks"),
        ("result", "checks", "success"),
        "model",
    ]


@pytest.mark.anyio
async def test_a_call_that_is_deferred_by_the_hook_ends_the_run_with_the_front_ends_calls_and_no_second_answer() -> (
    None
):
    log: Log = []
    output = await run(agent_calling("plain", "front", "pay"), Hooks(log, asks="plain", answers=False))
    assert isinstance(output, DeferredToolRequests)
    assert sorted(call.tool_name for call in output.calls) == ["front", "plain"]
    assert log == ["model", ("enter", "plain", False, {"x": 1}), ("deferred", ["front", "plain"], ["pay"])]


@pytest.mark.anyio
async def test_results_of_calls_that_were_not_executed_have_events_and_no_hook() -> None:
    log: Log = []
    assert await run(agent_calling("unknown"), Hooks(log)) == "done"
    assert log == ["model", ("result", "unknown", "retried"), "model"]
    failed: Log = []
    assert await run(agent_calling("fails"), Hooks(failed)) == "done"
    assert failed[-2:] == [("result", "fails", "failed"), "model"]
