"""``run.hooks`` apply to the output of a model as they do to chat updates that an agent yields."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from models.answers import of_type, parts, resumed
from models.model_server import PROVIDERS, Recorded
from serving import text_of

from aguila import protocol
from aguila.chat import Content, DataContent, FunctionCallContent, Hooks, TextContent, tool
from aguila.protocol import CustomEvent
from aguila.stream import consume

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

Json = dict[str, Any]
Start = Callable[..., tuple[Any, Recorded]]


def cart(size: str) -> dict[str, str]:
    """The cart."""
    return {"size": size}


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def louder(content: Content) -> Content | None:
    return TextContent(content.text.upper()) if isinstance(content, TextContent) else None


def with_hooks(agent: Any, hooks: Hooks) -> Any:
    async def hooked(run: Any) -> None:
        run.hooks = hooks
        await agent(run)

    return hooked


CALLING: Json = {"text": "A moment. ", "calls": [("c1", "cart", {"size": "large"})]}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_a_model_says_goes_by_the_hooks_and_goes_back_to_it_as_it_was(
    modelled: Start, thread_for: Any, provider: str
) -> None:
    hooks = Hooks().map_content(louder).map_result_as_state_snapshot("cart").preview_arguments("cart", "size", "shown")
    agent, recorded = modelled(provider, CALLING, {"text": "Done."}, tools=[cart])
    events = thread_for(with_hooks(agent, hooks)).send("Hi", state={"kept": 1})
    assert text_of(events) == "A MOMENT. DONE."
    assert of_type(events, "STATE_DELTA")[-1]["delta"][-1]["value"] == "large"
    assert of_type(events, "STATE_SNAPSHOT")[-1]["snapshot"] == {"size": "large"}
    assert "A moment." in json.dumps(recorded.requests[-1])
    # as without hooks: one message for the text and its call
    (start,) = of_type(events, "TOOL_CALL_START")
    assert start["parentMessageId"] == of_type(events, "TEXT_MESSAGE_START")[0]["messageId"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_hooks_are_asked_about_calls_and_results_and_a_call_that_was_sent_is_answered(
    modelled: Start, thread_for: Any, provider: str
) -> None:
    asked: list[str] = []

    def called(call: FunctionCallContent) -> None:
        asked.append(call.arguments)

    hooks = Hooks().map_call(called, "cart").map_result(lambda _: CustomEvent(name="cart", value=1), "cart")
    agent, recorded = modelled(provider, CALLING, {"text": "Done."}, tools=[cart])
    events = thread_for(with_hooks(agent, hooks)).send("Hi")
    assert [json.loads(arguments) for arguments in asked] == [{"size": "large"}]
    assert [event["name"] for event in of_type(events, "CUSTOM")] == ["cart"]
    assert [event["content"] for event in of_type(events, "TOOL_CALL_RESULT")] == [""]
    assert "large" in json.dumps(recorded.requests[-1])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_hooks_are_there_on_both_sides_of_a_question(modelled: Start, thread_for: Any, provider: str) -> None:
    hooks = Hooks().map_content(louder).map_result_as_state_snapshot("cart")
    asking: Json = {"calls": [*CALLING["calls"], ("c2", "pay", {"amount": 1})]}
    agent, _ = modelled(provider, {"text": "Hm. ", **asking}, {"text": "Done."}, tools=[cart, pay])
    thread = thread_for(with_hooks(agent, hooks))
    first = thread.send("Hi", state={"kept": 1})
    second = resumed(thread, first)
    assert (text_of(first), text_of(second)) == ("HM. ", "DONE.")
    assert [event["content"] for event in of_type(second, "TOOL_CALL_RESULT")] == ["paid 1"]
    assert consume([*first, *second]).state == {"size": "large"}


def test_a_file_that_a_model_made_is_what_a_hook_makes_of_it(modelled: Start, thread_for: Any) -> None:
    def picture(content: Content) -> CustomEvent | None:
        return CustomEvent(name="picture", value=len(content.data)) if isinstance(content, DataContent) else None

    made = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"pixels").decode()}}
    agent, _ = modelled("gemini", parts(made))
    events = thread_for(with_hooks(agent, Hooks().map_content(picture))).send("Hi")
    assert [event["value"] for event in of_type(events, "CUSTOM")] == [6]
    assert of_type(events, "ACTIVITY_SNAPSHOT") == []


def test_a_question_that_a_hook_makes_of_a_call_ends_the_run_and_the_call_is_not_made(
    modelled: Start, thread_for: Any
) -> None:
    made: list[str] = []

    def wipe(disk: str) -> str:
        """Wipe."""
        made.append(disk)
        return "wiped"

    def ask(content: Any) -> protocol.Interrupt | None:
        if isinstance(content, FunctionCallContent) and content.is_complete:
            return protocol.Interrupt(id="mine", reason="sure", tool_call_id=content.call_id)
        return None

    agent, recorded = modelled("openai chat", {"calls": [("c1", "wipe", {"disk": "a"})]}, tools=[wipe])
    events = thread_for(with_hooks(agent, Hooks().map_interrupt(ask))).send("Hi")
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    assert (interrupt["id"], interrupt["toolCallId"]) == ("mine", "c1")
    assert (made, len(recorded.requests)) == ([], 1)


def test_agents_that_write_at_once_do_not_end_each_others_messages(modelled: Start, thread_for: Any) -> None:
    agents = [modelled("openai chat", {"text": text * 50})[0] for text in "ab"]

    async def both(run: Any) -> None:
        await asyncio.gather(*(agent(run) for agent in agents))

    events = thread_for(both).send("Hi")
    starts = [event["messageId"] for event in of_type(events, "TEXT_MESSAGE_START")]
    assert len(set(starts)) == len(starts) == 2
    assert sorted(text_of(events)) == sorted("a" * 50 + "b" * 50)
