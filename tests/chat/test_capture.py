"""A turn of a chat at eight points, for everything that can happen in a turn: see the files in ``capture``.

They are made by this test with AGUILA_WRITE_CAPTURES=1, and compared without.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders import chat_user
from chats.capture import Scenario, capture, pretty

from aguila.chat import (
    ApprovalRequestContent,
    ApprovalResponseContent,
    ChatMessage,
    ChatUpdate,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    InterruptRequestContent,
    InterruptResponseContent,
    ReasoningContent,
    TextContent,
    UsageContent,
    as_response_contents,
)
from aguila.client import ChatResponse
from aguila.protocol import SubagentFinishedEvent, SubagentStartedEvent, TokenUsage

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parent / "capture"
PIXEL = b"\x89PNG\r\n\x1a\n"
POINTS = [
    "1 the chat request",
    "2 the wire request",
    "3 the agent's input",
    "4 as chat messages",
    "5 the agent's updates",
    "6 the wire events",
    "7 the client's updates",
    "8 the chat response",
]


def assistant_update(*contents: Any, message_id: str = "m1", **properties: Any) -> ChatUpdate:
    return ChatUpdate(contents=list(contents), message_id=message_id, additional_properties=properties)


def tool_result_message(call_id: str, result: Any) -> ChatMessage:
    return ChatMessage("tool", [FunctionResultContent(call_id, result)], message_id=f"result-{call_id}")


def results(run: Any) -> list[str]:
    return [message.content for message in run.messages if message.role == "tool"]


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Its name.
    """
    return f"sun in {city}"


async def text(run: Any) -> Any:
    yield assistant_update(TextContent("Hel"))
    yield assistant_update(TextContent("lo."))
    yield assistant_update(UsageContent(TokenUsage(provider="acme", model="a-1", input_tokens=3, output_tokens=2)))


async def backend_tool(run: Any) -> Any:
    yield assistant_update(FunctionCallContent("c1", "search", '{"q":', is_complete=False))
    yield assistant_update(FunctionCallContent("c1", "search", '{"q":"eagles"}'))
    yield tool_result_message("c1", "two eagles")
    yield assistant_update(TextContent("I found two."), message_id="m2")


async def frontend_tool(run: Any) -> Any:
    if results(run):
        yield assistant_update(TextContent(f"It is {results(run)[0]}."), message_id="m2")
    else:
        yield assistant_update(FunctionCallContent("c1", "get_weather", '{"city":"Quito"}'))


async def parallel_tools(run: Any) -> Any:
    if results(run):
        yield assistant_update(TextContent(" and ".join(results(run))), message_id="m2")
    else:
        yield assistant_update(FunctionCallContent("c1", "get_weather", '{"city":"Quito"}'))
        yield assistant_update(FunctionCallContent("c2", "get_weather", '{"city":"Oslo"}'))


async def mixed_tools(run: Any) -> Any:
    if len(results(run)) == 2:
        yield assistant_update(TextContent(" and ".join(results(run))), message_id="m2")
    else:
        yield assistant_update(FunctionCallContent("c1", "search", '{"q":"eagles"}'))
        yield assistant_update(FunctionCallContent("c2", "get_weather", '{"city":"Quito"}'))
        yield tool_result_message("c1", "two eagles")


async def state(run: Any) -> Any:
    run.state["steps"].append("measure")
    yield assistant_update(TextContent("Noted."))
    yield ChatUpdate(contents=[DataContent(b'{"steps":[],"done":true}', "application/json")])


async def reasoning(run: Any) -> Any:
    turn = len([message for message in run.messages if message.role == "user"])
    yield assistant_update(ReasoningContent("Hm, "), message_id=f"m{turn}")
    yield assistant_update(ReasoningContent("a greeting.", "c2lnbmVk"), message_id=f"m{turn}")
    yield assistant_update(TextContent("Hello."), message_id=f"m{turn}")


async def multimodal(run: Any) -> Any:
    image = (await run.chat_messages())[-1].contents[1]
    yield assistant_update(FunctionCallContent("c1", "mirror", "{}"))
    yield tool_result_message("c1", [TextContent("mirrored"), DataContent(image.data[::-1], image.media_type)])


async def approval(run: Any) -> Any:
    answers = as_response_contents(run.resume)
    if answers:
        [answer] = answers
        assert isinstance(answer, ApprovalResponseContent)
        yield tool_result_message("c1", f"paid {(answer.edited_arguments or {})['amount']}")
    else:
        call = FunctionCallContent("c1", "pay", '{"amount":9}')
        yield assistant_update(ApprovalRequestContent("i1", call, "Pay 9?"))


async def user_input(run: Any) -> Any:
    answers = as_response_contents(run.resume)
    if answers:
        [answer] = answers
        assert isinstance(answer, InterruptResponseContent)
        yield assistant_update(TextContent(f"To {answer.payload}."))
    else:
        yield assistant_update(InterruptRequestContent("i1", message="Where to?", response_schema={"type": "string"}))


async def subagent(run: Any) -> Any:
    yield SubagentStartedEvent(subagent_run_id="s1", name="researcher")
    yield assistant_update(TextContent("Two eagles."), message_id="m1", ag_ui_subagent_run_id="s1")
    yield SubagentFinishedEvent(subagent_run_id="s1")
    yield assistant_update(TextContent("There are two."), message_id="m2")


async def error(run: Any) -> Any:
    yield assistant_update(TextContent("Let me"))
    yield assistant_update(ErrorContent("The model is overloaded.", "overloaded"))


def once(*messages: ChatMessage) -> Any:
    """The messages of the second turn, and no third."""
    left = [list(messages)]
    return lambda response: left.pop() if left else None


def approved(response: ChatResponse) -> list[ChatMessage] | None:
    answers = [
        request.answer(True, edited_arguments={"amount": 8})
        for request in response.requests
        if isinstance(request, ApprovalRequestContent)
    ]
    return [chat_user(*answers, message_id="u2")] if answers else None


def answered(response: ChatResponse) -> list[ChatMessage] | None:
    answers = [one.answer("Quito") for one in response.requests if isinstance(one, InterruptRequestContent)]
    return [chat_user(*answers, message_id="u2")] if answers else None


def scenarios() -> dict[str, Scenario]:
    asks = [chat_user("Hello", message_id="u1")]
    return {
        "text": Scenario("Text in pieces, and what it cost.", text, asks),
        "backend_tool": Scenario("The agent calls a tool of its own; arguments in pieces.", backend_tool, asks),
        "frontend_tool": Scenario(
            "The agent calls a function of the application: a second run brings the result.",
            frontend_tool,
            [chat_user("How is it in Quito?", message_id="u1")],
            tools=(get_weather,),
        ),
        "parallel_tools": Scenario(
            "Two calls of one message, both of the application.", parallel_tools, asks, tools=(get_weather,)
        ),
        "mixed_tools": Scenario(
            "Two calls of one message: the agent answers one, the application the other.",
            mixed_tools,
            asks,
            tools=(get_weather,),
        ),
        "state": Scenario(
            "The shared state, changed in place and then sent whole.", state, asks, state={"steps": ["look"]}
        ),
        "reasoning": Scenario(
            "Reasoning with its signature, which the second turn brings back.",
            reasoning,
            asks,
            once(chat_user("Again", message_id="u2")),
        ),
        "multimodal": Scenario(
            "An image in a message, another in a result.",
            multimodal,
            [chat_user("Mirror it", DataContent(PIXEL, "image/png"), message_id="u1")],
        ),
        "approval": Scenario(
            "A call that waits for approval, which comes with other arguments.", approval, asks, approved
        ),
        "user_input": Scenario("A question, and its answer in the next turn.", user_input, asks, answered),
        "subagent": Scenario("Another agent speaks within the run.", subagent, asks),
        "error": Scenario("The run fails in the middle of a text.", error, asks),
    }


NAMES = list(scenarios())


@pytest.mark.parametrize("name", NAMES)
async def test_a_turn_passes_the_eight_points_as_captured(name: str) -> None:
    found = await capture(scenarios()[name])
    path = FOLDER / f"{name}.json"
    if os.environ.get("AGUILA_WRITE_CAPTURES") == "1":
        path.write_text(pretty(found) + "\n")
    assert found == json.loads(path.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_capture_has_all_eight_points_in_order(name: str) -> None:
    document = json.loads((FOLDER / f"{name}.json").read_text())
    for turn in document["turns"]:
        points: list[str] = []
        for key, value in turn.items():
            points += [point for run in value for point in run] if key == "runs" else [key]
        assert list(dict.fromkeys(points)) == POINTS


def test_the_guide_names_every_point_and_every_file() -> None:
    guide = (FOLDER / "README.md").read_text()
    first = [line.split("|")[1].strip() for line in guide.splitlines() if line.startswith("| ")]
    assert first == ["point", *POINTS, "file", *[f"`{name}.json`" for name in NAMES]]


def test_nothing_is_captured_that_is_not_played() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(NAMES)
