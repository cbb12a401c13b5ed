"""``ScriptedAgent``: turns, questions, calls and failures, as a client sees them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aguila.client import GIVE_UP, approve, deny
from aguila.errors import RunFailed
from aguila.protocol import AssistantMessage, CustomEvent, ToolMessage
from aguila.testing import Approve, Ask, Call, ScriptedAgent, Wait, client_for, sync_client_for

pytestmark = pytest.mark.anyio

COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


def test_each_run_of_a_thread_plays_the_next_turn_and_another_thread_begins_again() -> None:
    agent = ScriptedAgent("One.", "Two.")
    with sync_client_for(agent) as client:
        thread = client.thread()
        assert [thread.run("a").result().text, thread.run("b").result().text] == ["One.", "Two."]
        assert client.thread().run("c").result().text == "One."
    assert [one.messages[-1].content for one in agent.inputs] == ["a", "b", "c"]


def test_a_run_beyond_the_script_fails_and_says_so() -> None:
    with sync_client_for(ScriptedAgent("One.")) as client:
        thread = client.thread()
        thread.run("a").result()
        with pytest.raises(RunFailed, match="the script has 1 turn, and this is run 2"):
            thread.run("b").result()


def test_a_turn_is_text_events_calls_and_functions_in_order() -> None:
    async def note(run: Any) -> None:
        run.state["noted"] = True
        await run.say("Noted.")

    steps = ["Hm.", CustomEvent(name="x", value=1), Call("add", {"a": 1}, result=2), note]
    with sync_client_for(ScriptedAgent(steps)) as client:
        thread = client.thread()
        kinds = [str(event.type) for event in thread.run("go")]
    wanted = ["TEXT_MESSAGE_START", "CUSTOM", "TOOL_CALL_START", "TOOL_CALL_RESULT", "STATE_DELTA"]
    assert [kind for kind in kinds if kind in wanted] == [
        "TEXT_MESSAGE_START",
        "CUSTOM",
        "TOOL_CALL_START",
        "TOOL_CALL_RESULT",
        "STATE_DELTA",
        "TEXT_MESSAGE_START",
    ]
    assert thread.state == {"noted": True}
    assert [m.content for m in thread.messages if isinstance(m, ToolMessage)] == ["2"]


def test_a_call_without_a_result_is_left_to_the_front_end() -> None:
    def pick(day: str) -> str:
        return f"{day} at noon"

    with sync_client_for(ScriptedAgent(Call("pick", {"day": "Monday"}), "Booked.")) as client:
        result = client.thread(tools=[pick]).run("Book").result()
    assert result.text == "Booked."
    assert [m.content for m in result.messages if isinstance(m, ToolMessage)] == ["Monday at noon"]


def test_a_question_ends_the_run_and_the_answer_goes_on_with_the_same_turn() -> None:
    agent = ScriptedAgent(
        ["Let me ask.", Ask("Which?", COLOUR, lambda answer: f"So {answer['colour']}.")], "Next turn."
    )
    with sync_client_for(agent) as client:
        thread = client.thread()
        asked = thread.run("go").result()
        assert asked.outcome == "interrupt"
        (interrupt,) = thread.interrupts
        assert thread.resume({interrupt.id: {"colour": "red"}}).result().text == "So red."
        assert thread.run("and now").result().text == "Next turn."


_REFUSED = "The user refused."


@pytest.mark.parametrize(("answer", "result"), [(approve(), "sent"), (deny("no"), _REFUSED), (GIVE_UP, _REFUSED)])
def test_an_approval_gives_the_result_or_the_refusal(answer: Any, result: str) -> None:
    with sync_client_for(ScriptedAgent([Approve("send", {"to": "ada"}, result="sent"), "Done."])) as client:
        thread = client.thread()
        thread.run("go").result()
        (interrupt,) = thread.interrupts
        thread.resume({interrupt.id: answer}).result()
        assert [m.content for m in thread.messages if isinstance(m, ToolMessage)] == [result]


def test_an_exception_fails_the_run_with_its_text() -> None:
    with sync_client_for(ScriptedAgent(["Oh.", ValueError("out of eagles")])) as client:
        thread = client.thread()
        with pytest.raises(RunFailed, match="out of eagles"):
            thread.run("go").result()
        assert [m.content for m in thread.messages if isinstance(m, AssistantMessage)] == ["Oh."]


async def test_it_waits_for_the_test() -> None:
    gate = asyncio.Event()
    async with client_for(ScriptedAgent(["Before.", Wait(gate), "After.", Wait(0)])) as client:
        thread = client.thread()
        async for event in thread.run("go"):
            if event.type == "TEXT_MESSAGE_CONTENT" and event.delta == "Before.":
                assert thread.messages[-1].content == "Before."
                gate.set()
        assert thread.messages[-1].content == "After."
