"""Check features of LangGraph that the script does not show. Runs in its environment, and fails at an assert."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from aguila import App
from aguila.client import GIVE_UP, AsyncThread
from aguila.errors import RunFailed
from aguila.frameworks import langgraph
from aguila.protocol import Event, UserMessage
from aguila.testing import client_for

mails: list[str] = []


def send_mail(to: str) -> str:
    """Send a mail."""
    mails.append(to)
    return f"sent to {to}"


class Model(BaseChatModel):
    """Calls a tool twice, then says what it has seen."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *args: Any, **options: Any) -> ChatResult:
        results = [message.content for message in messages if message.type == "tool"]
        answer = AIMessage(f"Done: {', '.join(results)}.")
        if not results:
            calls = [{"name": "send_mail", "args": {"to": name}, "id": f"call-{name}"} for name in ("Ada", "Bob")]
            answer = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


async def events_of(thread: AsyncThread, *args: Any, **options: Any) -> list[Event]:
    return [event async for event in thread.run(*args, **options)]


def types_of(events: list[Event]) -> list[str]:
    return [str(event.type.value) for event in events]


async def approvals() -> None:
    """Each call of LangChain's approvals is one of ours: approved, edited or refused."""
    gate = HumanInTheLoopMiddleware(interrupt_on={"send_mail": True})
    graph = create_agent(Model(), tools=[send_mail], middleware=[gate], checkpointer=InMemorySaver())
    async with client_for(App(langgraph.agent(graph))) as client:
        thread = client.thread()
        asked = await thread.run("Mail them")
        assert [one.tool_call_id for one in asked.interrupts] == ["call-Ada", "call-Bob"], asked.interrupts
        assert {one.reason for one in asked.interrupts} == {"tool_call"}
        first, second = asked.interrupts
        edited = {"approved": True, "editedArgs": {"to": "Eve"}}
        result = await thread.resume({first.id: edited, second.id: {"approved": False, "reason": "not him"}})
        assert mails == ["Eve"], mails
        assert "sent to Eve" in result.text, result.text
        assert "not him" in result.text, result.text


async def giving_up() -> None:
    """Giving a question up ends the run as cancelled, and the thread continues with a result for the call."""
    graph = create_agent(
        Model(),
        tools=[send_mail],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"send_mail": True})],
        checkpointer=InMemorySaver(),
    )
    async with client_for(App(langgraph.agent(graph))) as client:
        thread = client.thread()
        asked = await thread.run("Mail them")
        given_up = await thread.resume({one.id: GIVE_UP for one in asked.interrupts})
        assert given_up.outcome == "cancelled", given_up
        result = await thread.run("And now?")
        assert result.text == "Done: The call was not executed., The call was not executed..", result.text


class Counted(MessagesState):
    count: int


async def subgraphs() -> None:
    """A subgraph is a subagent with steps of its own, and its question suspends it."""

    def work(state: Counted) -> dict[str, Any]:
        get_stream_writer()({"at": "work"})
        answer = interrupt("Which?")
        return {"messages": [("ai", f"You chose {answer}.")], "count": state["count"] + 1}

    inner = StateGraph(Counted).add_node("work", work).add_edge(START, "work").compile()
    outer = StateGraph(Counted).add_node("team", inner).add_edge(START, "team").compile(checkpointer=InMemorySaver())
    async with client_for(App(langgraph.agent(outer))) as client:
        thread = client.thread(state={"count": 1})
        events = await events_of(thread, "Hi")
        (started,) = (event for event in events if event.type == "SUBAGENT_STARTED")
        assert started.name == "team"  # type: ignore[union-attr]
        inner_steps = [event for event in events if getattr(event, "step_name", None) == "work"]
        assert [event.subagent_run_id for event in inner_steps] == [started.subagent_run_id] * 2  # type: ignore[union-attr]
        (custom,) = (event for event in events if event.type == "CUSTOM")
        assert (custom.name, custom.value) == ("langgraph", {"at": "work"})  # type: ignore[union-attr]
        (question,) = thread.interrupts
        assert question.message == "Which?"
        result = await thread.resume({question.id: "red"})
        assert result.text == "You chose red.", result
        assert thread.state == {"count": 2}, thread.state


async def breakpoints() -> None:
    """A breakpoint asks whether to continue."""
    graph = StateGraph(MessagesState).add_node("say", lambda state: {"messages": [("ai", "Said.")]})
    compiled = graph.add_edge(START, "say").compile(checkpointer=InMemorySaver(), interrupt_before=["say"])
    async with client_for(App(langgraph.agent(compiled))) as client:
        thread = client.thread()
        asked = await thread.run("Hi")
        assert [one.reason for one in asked.interrupts] == ["breakpoint"]
        assert (await thread.resume({asked.interrupts[0].id: True})).text == "Said."


async def hidden_and_removed() -> None:
    """System messages are not sent. Removed messages disappear, and what a client edits reaches the graph."""
    seen: list[list[str]] = []

    def say(state: MessagesState) -> dict[str, Any]:
        seen.append([str(message.content) for message in state["messages"]])
        new: list[Any] = [AIMessage(f"Answer {len(seen)}")]
        if len(seen) == 1:
            new.insert(0, SystemMessage("secret"))
        if len(seen) == 2:
            new.append(RemoveMessage(id=next(one.id for one in state["messages"] if isinstance(one, HumanMessage))))
        return {"messages": new}

    graph = StateGraph(MessagesState).add_node("say", say).add_edge(START, "say").compile(checkpointer=InMemorySaver())
    async with client_for(App(langgraph.agent(graph))) as client:
        thread = client.thread()
        events = await events_of(thread, "one")
        assert "secret" not in str(events)
        await thread.run("two")
        assert [one.content for one in thread.messages] == ["Answer 1", "two", "Answer 2"], thread.messages
        other = client.thread(thread.id, messages=[*thread.messages[:2]])
        await other.run([UserMessage(content="three")])
        assert seen[-1] == ["secret", "Answer 1", "two", "three"], seen


async def files_of_answers() -> None:
    """A snapshot leaves out the files of an answer, which AG-UI has no place for."""

    def draw(state: MessagesState) -> dict[str, Any]:
        file = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
        asked = RemoveMessage(id=str(state["messages"][0].id))
        return {"messages": [AIMessage([{"type": "text", "text": "Drawn."}, file]), asked]}

    graph = StateGraph(MessagesState).add_node("draw", draw).add_edge(START, "draw")
    async with client_for(App(langgraph.agent(graph.compile(checkpointer=InMemorySaver())))) as client:
        thread = client.thread()
        await thread.run("Draw")
        assert [one.content for one in thread.messages] == ["Drawn."], thread.messages


async def outcome_of(run: Any) -> str | None:
    """Return the outcome of a run, or the code of its error."""
    try:
        return (await run).outcome
    except RunFailed as failed:
        return failed.code


async def restarts() -> None:
    """A question waits over a restart in the checkpointer. If that one has forgotten it, the thread still continues."""

    nodes = 0

    def ask(state: MessagesState) -> dict[str, Any]:
        nonlocal nodes
        nodes += state["messages"][-1].content == "Ask"
        asks = state["messages"][-1].content == "Ask"
        return {"messages": [("ai", f"You chose {interrupt('Which?')}." if asks else "Fine.")]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
    with tempfile.TemporaryDirectory() as folder:
        store, durable = str(Path(folder) / "threads.db"), InMemorySaver()

        def app(saver: InMemorySaver) -> App:
            return App(langgraph.agent(graph.compile(checkpointer=saver)), store=store)

        async with client_for(app(durable)) as client:
            first, second = client.thread(), client.thread()
            await first.run("Ask")
            await second.run("Ask")
        async with client_for(app(durable)) as client:
            thread = client.thread(first.id)
            await thread.refresh()
            assert (await thread.resume({thread.interrupts[0].id: "red"})).text == "You chose red."
        nodes = 0
        async with client_for(app(InMemorySaver())) as client:
            thread = client.thread(second.id)
            await thread.refresh()
            failed = await outcome_of(thread.resume({thread.interrupts[0].id: "red"}))
            assert (failed, nodes) == ("agent_error", 0), (failed, nodes)
            await thread.refresh()
            given_up = await thread.resume({one.id: GIVE_UP for one in thread.interrupts})
            assert given_up.outcome == "cancelled", given_up
            assert (await thread.run("And now?")).text == "Fine."


class Plain(TypedDict):
    text: str


async def own_input() -> None:
    """A graph without messages gets its input from a function."""
    graph = StateGraph(Plain).add_node("shout", lambda state: {"text": state["text"].upper()}).add_edge(START, "shout")
    agent = langgraph.agent(graph.compile(), input=lambda run: {"text": run.user_text})
    async with client_for(App(agent)) as client:
        thread = client.thread()
        await thread.run("hi")
        assert thread.state == {"text": "HI"}, thread.state


async def main() -> None:
    checks: list[Callable[[], Any]] = [
        approvals,
        giving_up,
        subgraphs,
        breakpoints,
        hidden_and_removed,
        files_of_answers,
        restarts,
        own_input,
    ]
    for check in checks:
        await check()
        print(check.__name__, "works")


if __name__ == "__main__":
    asyncio.run(main())
