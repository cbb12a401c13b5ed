r"""Testing an agent: no server, no sockets, no model. The fixtures come with Aguila's pytest plugin.

pytest examples/12_testing_an_agent.py
"""

import asyncio

from aguila import Run
from aguila.testing import Ask, Chaos, ScriptedAgent, client_for

YES_OR_NO = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}


async def agent(run: Run):
    """The agent under test."""
    answer = await run.ask("Shall I count?", schema=YES_OR_NO)
    if not answer["yes"]:
        return "Then not."
    run.state["counted"] = 3
    return "One, two, three."


def test_it_asks_and_counts(agui_client, assert_stream):
    thread = agui_client(agent).thread()
    assert_stream(list(thread.run("Go")), outcome="interrupt")  # checks every event against the protocol
    (question,) = thread.interrupts
    assert question.message == "Shall I count?"
    assert_stream(list(thread.resume({question.id: {"yes": True}})), text="One, two, three.", outcome="success")
    assert thread.state == {"counted": 3}


def test_it_takes_no_for_an_answer(agui_client):
    thread = agui_client(agent).thread()
    thread.run("Go").result()
    assert thread.resume({thread.interrupts[0].id: {"yes": False}}).result().text == "Then not."


def test_my_client_code_against_a_script(agui_client):
    """Test a client with a scripted agent."""
    scripted = ScriptedAgent(["Hello.", Ask("Who are you?", then=lambda name: f"Hello, {name}.")], ValueError("tired"))
    thread = agui_client(scripted).thread()
    thread.run("Hi").result()
    assert thread.resume({thread.interrupts[0].id: "Ada"}).result().text == "Hello, Ada."


def test_an_async_client_survives_a_bad_line():
    async def main():
        chaos = Chaos(seed=1, cuts=0)
        async with client_for(ScriptedAgent("Warm up.", "A long story. " * 50), wrap=chaos.wrap) as client:
            thread = client.thread()
            await thread.run("Hi")
            chaos.allow(4, chance=1.0, within=500)
            return (await thread.run("Tell me")).text

    assert asyncio.run(main()) == "A long story. " * 50
