"""What a model gets of a run: messages, files, context, front-end tools, dependencies and their state."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from models.answers import of_type
from models.model_server import Recorded
from pydantic import BaseModel
from pydantic_ai import Agent, ImageUrl, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import UsageLimits
from serving import text_of

from aguila import App, Run
from aguila.chat import (
    AllowedMedia,
    ChatMessage,
    FunctionResultContent,
    HostedFileContent,
    TextContent,
    UriContent,
)
from aguila.chat.property_keys import PROVIDER
from aguila.codec.notices import Notice
from aguila.frameworks import pydantic_ai
from aguila.frameworks.pydantic_ai.media import leave_out_media
from aguila.protocol import ImagePart, UrlSource

Json = dict[str, Any]
Start = Callable[..., tuple[Any, Recorded]]
PRIVATE, PUBLIC = "https://10.0.0.1/x.png", "https://example.com/x.png"
FRONT = {"name": "front end!", "description": "f", "parameters": {"type": "object", "properties": {}}}


class Script:
    """A model that calls these tools in its first answer, and then says what the last result was."""

    def __init__(self, *calls: tuple[str, str], text: str = "done") -> None:
        self.requests: list[list[ModelMessage]] = []
        self.tools: list[str] = []
        self._calls = calls
        self._text = text

    def agent(self, **options: Any) -> Agent[Any, Any]:
        """Make an agent with this model."""
        return Agent(FunctionModel(stream_function=self._answer), **options)

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.requests.append(messages)
        self.tools = [tool.name for tool in info.function_tools]
        if len(self.requests) == 1 and self._calls:
            for index, (name, arguments) in enumerate(self._calls):
                yield {index: DeltaToolCall(name, arguments, tool_call_id=f"c{index}")}
        else:
            yield self._text

    def parts(self, kind: type[Any]) -> list[Any]:
        """Return the parts of a kind in the last request."""
        return [part for message in self.requests[-1] for part in message.parts if isinstance(part, kind)]


@pytest.mark.parametrize("provider", ["openai chat", "anthropic"])
def test_context_that_an_agent_takes_away_is_not_shown_to_its_model(
    modelled: Start, thread_for: Any, provider: str
) -> None:
    model, recorded = modelled(provider, {"text": "Hi"}, instructions="Be brief.")

    async def agent(run: Run) -> None:
        run.context[:] = [entry for entry in run.context if entry.description == "Where"]
        await model(run)

    context = [{"description": "Where", "value": "Oslo"}, {"description": "x", "value": "Obey me."}]
    thread_for(agent).send("Hi", context=context)
    sent = json.dumps(recorded.requests[0])
    assert sent.index("Be brief.") < sent.index("Where: Oslo")
    assert "Obey me." not in sent


def test_references_in_messages_and_results_of_tools_are_left_out(thread_for: Any) -> None:
    script = Script(("look", "{}"))
    agent = script.agent()

    @agent.tool_plain
    def look() -> list[Any]:
        """Look."""
        return ["Two pictures", ImageUrl(PRIVATE), ImageUrl(PUBLIC)]

    assert text_of(thread_for(pydantic_ai.agent(agent)).send("Hi")) == "done"
    assert PRIVATE not in repr(script.requests)
    assert PUBLIC in repr(script.parts(ToolReturnPart)[0].content)

    notices: list[Notice] = []
    stored = HostedFileContent("f", "image/png", additional_properties={PROVIDER: "openai"})
    parts = [ImagePart(source=UrlSource(value=PRIVATE)), ImagePart(source=UrlSource(value=PUBLIC))]
    messages = [
        ChatMessage("user", [TextContent("look"), UriContent(PRIVATE, None), UriContent(PUBLIC, None), stored]),
        ChatMessage("tool", [FunctionResultContent("c", parts)]),
    ]
    user, result = leave_out_media(messages, AllowedMedia(), notices.append)
    assert [getattr(one, "uri", None) for one in user.contents] == [None, PUBLIC]
    assert result.results[0].result == parts[1:]
    assert [notice.rule for notice in notices] == ["allowed-media"] * 3
    wide = AllowedMedia(hosts=["*", "10.0.0.1"], providers=["openai"])
    assert leave_out_media(messages, wide, notices.append) == messages


def test_a_video_that_no_model_reads_does_not_poison_the_thread(modelled: Start, thread_for: Any) -> None:
    model, recorded = modelled("openai chat", {"text": "Hm."}, {"text": "Still here."})
    video = {"type": "video", "source": {"type": "data", "value": "AAAA", "mimeType": "video/mp4"}}
    message = {"id": "m1", "role": "user", "content": [{"type": "text", "text": "Watch"}, video]}
    thread = thread_for(model)
    assert text_of(thread.events(messages=[message])) == "Hm."
    again = {"id": "m2", "role": "user", "content": "Well?"}
    assert text_of(thread.events(run_id="r2", messages=[message, again])) == "Still here."
    assert "AAAA" not in json.dumps(recorded.requests)


def test_names_of_front_end_tools_that_a_vendor_refuses_are_spelled_otherwise(thread_for: Any) -> None:
    script = Script(("front_end_", '{"a": 1}'))
    events = thread_for(pydantic_ai.agent(script.agent())).send("Hi", tools=[FRONT])
    assert script.tools == ["front_end_"]
    assert [event["toolCallName"] for event in of_type(events, "TOOL_CALL_START")] == ["front end!"]
    assert of_type(events, "TOOL_CALL_RESULT") == []


def test_a_front_end_cannot_take_over_a_tool_of_the_agent(thread_for: Any, caplog: pytest.LogCaptureFixture) -> None:
    def look(at: str) -> str:
        """Look."""
        return f"seen {at}"

    script = Script(("look", '{"at": "x"}'))
    events = thread_for(pydantic_ai.agent(script.agent(tools=[look]))).send("Hi", tools=[{**FRONT, "name": "look"}])
    assert [event["content"] for event in of_type(events, "TOOL_CALL_RESULT")] == ["seen x"]
    assert "dropped the front end's tool 'look'" in caplog.text


def bomb(depth: int) -> Json:
    schema: Json = {"type": "object"}
    for _ in range(depth):
        schema = {"allOf": [schema, schema]}
    return schema


def test_the_tools_of_a_request_share_one_budget(thread_for: Any) -> None:
    tools = [{"name": f"t{i}", "description": "", "parameters": bomb(6)} for i in range(300)]
    end = thread_for(pydantic_ai.agent(Script().agent())).send("Hi", tools=tools)[-1]
    assert (end["type"], end["code"]) == ("RUN_ERROR", "tool_schema_too_complex")


class Cart(BaseModel):
    items: list[str] = []


@dataclass
class Deps:
    run: Run
    state: Cart = field(default_factory=Cart)


def shop(script: Script) -> Agent[Deps, Any]:
    agent = script.agent(deps_type=Deps)

    @agent.tool
    async def add(ctx: RunContext[Deps], item: str) -> str:
        """Add."""
        size = await ctx.deps.run.ask(f"Which size of {item}?")
        ctx.deps.state.items.append(f"{item} {size}")
        return "added"

    return agent


def test_the_state_of_dependencies_is_shared_and_survives_a_question(thread_for: Any) -> None:
    script = Script(("add", '{"item": "shirt"}'))
    thread = thread_for(pydantic_ai.agent(shop(script), deps=Deps))
    first = thread.send("Hi", state={"items": ["hat"]})
    (interrupt,) = first[-1]["outcome"]["interrupts"]
    assert interrupt["message"] == "Which size of shirt?"
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": "L"}]
    second = thread.events(run_id="r2", messages=[], resume=resume)
    assert [event["content"] for event in of_type(second, "TOOL_CALL_RESULT")] == ["added"]
    assert (text_of(second), len(script.requests)) == ("done", 2)
    deltas = [operation for event in of_type(second, "STATE_DELTA") for operation in event["delta"]]
    assert deltas == [{"op": "add", "path": "/items/1", "value": "shirt L"}]


@pytest.mark.parametrize("state", [{"items": ["hat"], "note": "mine"}, {"items": "no list", "note": "mine"}])
def test_a_change_replaces_a_state_that_the_model_of_the_dependencies_does_not_have(
    thread_for: Any, state: Any
) -> None:
    async def add(ctx: RunContext[Deps]) -> str:
        ctx.deps.state.items.append("shirt")
        return "added"

    script = Script(("add", "{}"))
    agent = script.agent(deps_type=Deps, tools=[add])
    thread = thread_for(pydantic_ai.agent(agent, deps=Deps))
    thread.send("Hi", state=state)
    hat = ["hat"] if isinstance(state["items"], list) else []
    assert thread.server.get(f"/threads/{thread.thread_id}").json()["state"] == {"items": [*hat, "shirt"]}


@pytest.mark.parametrize("others", [[], [lambda: "seen"]], ids=["no tool is left", "another tool is left"])
def test_the_answer_for_a_tool_that_is_gone_is_kept_and_the_run_says_so(thread_for: Any, others: list[Any]) -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    script = Script(("nothing", "{}"), ("pay", '{"amount": 7}'))
    agents = [
        script.agent(tools=[Tool(pay, requires_approval=True)]),
        script.agent(tools=[Tool(one) for one in others]),
    ]

    async def agent(run: Run) -> None:
        run.agent = pydantic_ai.agent(agents[0])
        await run.agent(run)

    thread = thread_for(agent)
    (interrupt,) = thread.send("Hi")[-1]["outcome"]["interrupts"]
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
    agents.reverse()
    failed = thread.events(run_id="r2", messages=[], resume=resume)[-1]
    assert (failed["type"], failed["code"]) == ("RUN_ERROR", "tool_lost")
    assert "The tool 'pay' of an earlier call does not exist any more." in failed["message"]
    assert (paid, len(script.requests)) == ([], 1)
    agents.reverse()
    assert text_of(thread.events(run_id="r3", messages=[], resume=resume)) == "done"
    assert (paid, len(script.requests)) == ([7], 2)


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("modle", r"agent\(\) has no option 'modle'; options are arguments of Agent.run"),
        ("message_history", r"agent\(\) takes no 'message_history': the thread and the Agent have it"),
    ],
)
def test_options_are_checked_when_the_agent_is_made(option: str, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        pydantic_ai.agent(Script().agent(), **{option: []})


def test_an_app_says_how_an_agent_of_pydantic_ai_is_served() -> None:
    hint = r"Agent is not callable; write pydantic_ai.agent\(...\), with: from aguila.frameworks import pydantic_ai"
    with pytest.raises(TypeError, match=hint):
        App(Script().agent())  # pyright: ignore[reportArgumentType]


def test_a_sync_tool_may_be_the_first_to_read_the_state(thread_for: Any) -> None:
    script = Script(("add", '{"item": "shirt"}'))
    agent = script.agent(deps_type=Run)

    @agent.tool
    def add(ctx: RunContext[Run], item: str) -> str:
        """Add."""
        ctx.deps.state.setdefault("items", []).append(item)
        return "added"

    events = thread_for(pydantic_ai.agent(agent)).send("Hi", state={"items": ["hat"]})
    assert [event["content"] for event in of_type(events, "TOOL_CALL_RESULT")] == ["added"]
    deltas = [operation for event in of_type(events, "STATE_DELTA") for operation in event["delta"]]
    assert deltas == [{"op": "add", "path": "/items/1", "value": "shirt"}]


def test_a_structured_output_is_the_result_of_the_run(thread_for: Any) -> None:
    script = Script(("final_result", '{"items": ["hat"]}'))
    events = thread_for(pydantic_ai.agent(script.agent(output_type=Cart))).send("Hi")
    assert events[-1]["result"] == {"items": ["hat"]}
    assert of_type(events, "TOOL_CALL_START") == of_type(events, "TEXT_MESSAGE_START") == []
    shown = Script(("final_result", '{"items": ["hat"]}'))
    events = thread_for(pydantic_ai.agent(shown.agent(output_type=Cart), output_as_text=True)).send("Hi")
    assert text_of(events) == '{"items":["hat"]}'


def test_a_limit_of_requests_ends_the_run_as_cancelled_life_8(thread_for: Any) -> None:
    def look() -> str:
        """Look."""
        return "seen"

    script = Script(("look", "{}"))
    limits = UsageLimits(request_limit=1)
    events = thread_for(pydantic_ai.agent(script.agent(tools=[look]), usage_limits=limits)).send("Hi")
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == ["max_rounds"]
    assert events[-1]["outcome"]["type"] == "cancelled"


def test_a_conversation_without_words_of_the_user_begins_with_some(thread_for: Any) -> None:
    script = Script()
    thread_for(pydantic_ai.agent(script.agent())).events(messages=[])
    assert [part.content for part in script.parts(UserPromptPart)] == ["(The user has not said anything yet.)"]
