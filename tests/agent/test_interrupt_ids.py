"""Interrupts that an agent makes itself, in whatever form, have ids of their own."""

from __future__ import annotations

from typing import Any

from agents import run_agent

from aguila import protocol
from aguila.agent import Interrupt
from aguila.chat import ChatUpdate, InterruptRequestContent


def test_ids_of_ask_are_refused_in_an_end_of_the_agents_own_and_in_contents() -> None:
    """Their answers would be taken for answers to ``ask``: a replay, which raises them again, and so on."""
    interrupt = protocol.Interrupt(id="int_mine", reason="approval")

    async def ends(run: Any) -> Any:
        outcome = protocol.RunFinishedInterruptOutcome(interrupts=[interrupt])
        yield protocol.RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, outcome=outcome)

    async def asks(run: Any) -> Any:
        yield ChatUpdate(contents=[InterruptRequestContent("int_mine")])

    async def asks_and_ends(run: Any) -> Any:
        yield ChatUpdate(contents=[InterruptRequestContent("int_mine")])
        yield protocol.RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id)

    async def asks_both_ways(run: Any) -> Any:
        yield ChatUpdate(contents=[InterruptRequestContent("int_mine")])
        raise Interrupt(protocol.Interrupt(id="mine", reason="approval"))

    for agent in (ends, asks, asks_and_ends, asks_both_ways):
        outcome = run_agent(agent)
        assert outcome.last.code == "agent_output"
        assert "int_" in str(outcome.ending.error)
