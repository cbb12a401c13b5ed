"""Interrupts that an agent passes on keep their ids, also those with the prefix of ``run.ask``."""

from __future__ import annotations

from typing import Any

import pytest
from agent_threads import run_agent

from aguila import protocol
from aguila.agent import RunInterrupt
from aguila.chat import ChatUpdate, InterruptRequestContent

pytestmark = pytest.mark.anyio


async def test_an_interrupt_that_is_passed_on_keeps_an_id_with_the_prefix_of_ask() -> None:
    interrupt = protocol.Interrupt(id="int_mine", reason="approval")

    async def ends(run: Any) -> Any:
        outcome = protocol.RunFinishedInterruptOutcome(interrupts=[interrupt])
        yield protocol.RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, outcome=outcome)

    async def raises(run: Any) -> Any:
        raise RunInterrupt(interrupt)

    async def asks(run: Any) -> Any:
        yield ChatUpdate(contents=[InterruptRequestContent("int_mine")])

    async def asks_and_ends(run: Any) -> Any:
        yield ChatUpdate(contents=[InterruptRequestContent("int_mine")])
        yield protocol.RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id)

    for agent in (ends, raises, asks, asks_and_ends):
        ending = (await run_agent(agent)).ending
        assert [one.id for one in ending.interrupts] == ["int_mine"]
        assert ending.asked == frozenset()


async def test_only_the_questions_of_ask_are_to_be_replayed() -> None:
    async def agent(run: Any) -> Any:
        yield ChatUpdate(contents=[InterruptRequestContent("int_mine")])
        await run.ask("Sure?")

    ending = (await run_agent(agent)).ending
    (asked,) = [one.id for one in ending.interrupts if one.message == "Sure?"]
    assert {one.id for one in ending.interrupts} == {asked, "int_mine"}
    assert ending.asked == {asked}
