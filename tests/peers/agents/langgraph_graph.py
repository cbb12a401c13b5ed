"""A small graph: a chat model that follows the script, tools, and a tool that asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import script
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, interrupt


class ScriptedModel(BaseChatModel):
    """A chat model that needs no network."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError("the graph streams")

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in reply(messages):
            yield ChatGenerationChunk(message=chunk)


def words(text: str) -> AIMessageChunk:
    return AIMessageChunk(content=text)


def tool_call_chunk(name: str, call_id: str | None, arguments: str, index: int = 0) -> AIMessageChunk:
    piece = {"name": name, "id": call_id, "args": arguments, "index": index, "type": "tool_call_chunk"}
    return AIMessageChunk(content="", tool_call_chunks=[piece])


async def reply(messages: list[BaseMessage]) -> AsyncIterator[AIMessageChunk]:
    last = messages[-1]
    if isinstance(last, ToolMessage):
        before = messages[-2]
        if isinstance(before, ToolMessage):
            yield words(f"The sums are {before.content} and {last.content}.")
        else:
            yield words(after_the_tool(last))
        return
    users = [message for message in messages if isinstance(message, HumanMessage)]
    match script.feature_of(str(users[-1].content)):
        case "text":
            for word in script.TEXT:
                yield words(word)
        case "backend":
            yield tool_call_chunk(script.BACKEND_TOOL, "call-add", "")
            yield tool_call_chunk("", None, '{"a": ')
            yield tool_call_chunk("", None, '2, "b": 3}')
        case "two":
            yield tool_call_chunk(script.BACKEND_TOOL, "call-add-1", '{"a": 1, "b": 2}', 0)
            yield tool_call_chunk(script.BACKEND_TOOL, "call-add-2", '{"a": 3, "b": 4}', 1)
        case "frontend":
            yield tool_call_chunk(script.FRONTEND_TOOL, "call-colour", "")
            yield tool_call_chunk("", None, '{"of": "Ada"}')
        case "state":
            yield tool_call_chunk(script.STATE_TOOL, "call-count", "")
            yield tool_call_chunk("", None, "{}")
        case "reasoning":
            for thought in script.THOUGHT:
                yield AIMessageChunk(content=[{"type": "reasoning", "reasoning": thought, "index": 0}])
            yield AIMessageChunk(content=[{"type": "text", "text": script.THOUGHT_OF, "index": 1}])
        case "interrupt":
            yield tool_call_chunk(script.APPROVED_TOOL, "call-mail", "")
            yield tool_call_chunk("", None, '{"to": "Ada"}')
        case "fault":
            yield tool_call_chunk(script.BACKEND_TOOL, "call-fault", '{"a": 0, "b": 0}')
        case "cut":
            yield words(script.BEFORE_THE_ERROR)
        case "error":
            yield words(script.BEFORE_THE_ERROR)
            raise RuntimeError(script.ERROR)
        case "cancel":
            async for tick in script.probe.ticks():
                yield words(tick)
        case _:
            async for word in script.many_words():
                yield words(word)


def after_the_tool(answer: ToolMessage) -> str:
    if answer.name == script.BACKEND_TOOL:
        return f"The sum is {answer.content}."
    if answer.name == script.STATE_TOOL:
        return script.COUNTED
    if answer.name == script.APPROVED_TOOL:
        return script.SENT if answer.content == "sent" else script.NOT_SENT
    return f"The colour is {answer.content}."


class Shared(MessagesState):
    count: int
    tools: list[Any]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return script.add(a, b)


@tool
def count(call_id: Annotated[str, InjectedToolCallId], state: Annotated[Any, InjectedState]) -> Command[Any]:
    """Count one further."""
    answer = ToolMessage("counted", tool_call_id=call_id, name="count")
    return Command(update={"count": state["count"] + 1, "messages": [answer]})


@tool
def send_mail(to: str) -> str:
    """Send a mail, once somebody has agreed to it."""
    answer = interrupt({"question": "Send it?", "to": to})
    return script.send_mail() if answer == {"approved": True} else "not sent"


TOOLS = [add, count, send_mail]
model = ScriptedModel()


async def chat(state: Shared) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"])]}


def next_node(state: Shared) -> Literal["tools", "__end__"]:
    last = state["messages"][-1]
    backend = {one.name for one in TOOLS}
    if isinstance(last, AIMessage) and any(one["name"] in backend for one in last.tool_calls):
        return "tools"
    return END  # a call of a frontend tool is answered in another run


graph = StateGraph(Shared)
graph.add_node("chat", chat)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_edge(START, "chat")
graph.add_conditional_edges("chat", next_node)
graph.add_edge("tools", "chat")
