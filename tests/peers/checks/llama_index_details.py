"""Check features of LlamaIndex that the script does not show. Runs in its environment, and fails at an assert."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, ToolCallBlock
from llama_index.core.llms import MockLLM
from llama_index.core.tools import ToolSelection

from aguila import App
from aguila.frameworks import llama_index
from aguila.protocol import SubagentStartedEvent
from aguila.testing import client_for

seen: list[list[str | None]] = []


class Model(MockLLM):
    """Hands off at the first turn if ``target`` is given, and otherwise says who it is."""

    who: str = ""
    target: str | None = None

    def __init__(self, who: str, target: str | None = None) -> None:
        super().__init__()
        self.who, self.target = who, target

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True)

    async def astream_chat_with_tools(self, tools: Any, chat_history: Any = None, **options: Any) -> Any:
        seen.append([message.content for message in chat_history])
        hands_off = self.target is not None and all(message.role != "tool" for message in chat_history)

        async def answer() -> AsyncIterator[ChatResponse]:
            if hands_off:
                arguments = {"to_agent": self.target, "reason": "money"}
                call = ToolCallBlock(tool_call_id="call-1", tool_name="handoff", tool_kwargs=arguments)
                yield ChatResponse(message=ChatMessage(role="assistant", blocks=[call]), delta="")
            else:
                text = f"{self.who} here"
                yield ChatResponse(message=ChatMessage(role="assistant", content=text), delta=text)

        return answer()

    def get_tool_calls_from_response(self, response: ChatResponse, **options: Any) -> list[ToolSelection]:
        calls = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
        return [
            ToolSelection(tool_id=one.tool_call_id, tool_name=one.tool_name, tool_kwargs=one.tool_kwargs)
            for one in calls
        ]


async def main() -> None:
    """A handoff is a subagent, and its answer is a part of the next run's history."""
    desk = FunctionAgent(name="desk", description="Answers.", llm=Model("desk", "billing"), tools=[])
    billing = FunctionAgent(name="billing", description="Knows bills.", llm=Model("billing"), tools=[])
    workflow = AgentWorkflow(agents=[desk, billing], root_agent="desk")
    async with client_for(App(llama_index.agent(workflow))) as client:
        thread = client.thread()
        started = [event async for event in thread.run("Hi") if isinstance(event, SubagentStartedEvent)]
        assert [(one.name, one.parent_tool_call_id) for one in started] == [("billing", "call-1")], started
        await thread.run("And now?")
    assert "billing here" in seen[-1], seen[-1]


if __name__ == "__main__":
    asyncio.run(main())
