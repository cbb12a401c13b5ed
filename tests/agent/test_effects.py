"""Effects of ``run.once`` across processes: a beginning without an end is not repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agent_threads import Thread, run_agent

from aguila.chat import tool
from aguila.errors import OutcomeUnknown, StaleLease

pytestmark = pytest.mark.anyio


class Payment:
    """An agent that asks and pays. ``at_payment`` are the records of a process that dies while it pays."""

    def __init__(self, thread: Thread, **options: Any) -> None:
        self.thread = thread
        self.options = options
        self.paid = 0
        self.at_payment: dict[str, bytes] = {}

    def pay(self) -> str:
        self.at_payment = dict(self.thread.shelf.records)
        self.paid += 1
        return "receipt"

    async def __call__(self, run: Any) -> Any:
        await run.ask("Pay?")
        try:
            return [await run.once("pay", self.pay, **self.options)]
        except OutcomeUnknown as error:
            return ["unknown", error.key]

    def blocking(self, run: Any) -> Any:
        run.ask("Pay?")
        try:
            return [run.once("pay", self.pay, **self.options)]
        except OutcomeUnknown as error:
            return ["unknown", error.key]


async def resume_after_death(thread: Thread, agent: Any, payment: Payment) -> Any:
    """Answer the question, let the process die while it pays, and answer again."""
    await thread.run(agent)
    asked, log = thread.outcome, list(thread.log)
    await thread.resume(agent, True)
    thread.outcome, thread.log, thread.shelf.records = asked, log, payment.at_payment
    return (await thread.resume(agent, True)).last.result


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_an_effect_that_may_have_happened_is_not_called_again(kind: str) -> None:
    thread = Thread()
    payment = Payment(thread)
    agent = payment if kind == "async" else payment.blocking
    assert await resume_after_death(thread, agent, payment) == ["unknown", "pay"]
    assert payment.paid == 1


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_an_idempotent_effect_is_called_again_and_has_no_start_record(kind: str) -> None:
    thread = Thread()
    payment = Payment(thread, idempotent=True)
    agent = payment if kind == "async" else payment.blocking
    assert await resume_after_death(thread, agent, payment) == ["receipt"]
    assert payment.paid == 2
    assert [key for key in payment.at_payment if "begun" in key] == []


async def test_a_process_that_lost_the_run_does_not_begin_an_effect() -> None:
    thread = Thread()
    payment = Payment(thread)
    await thread.run(payment)

    async def refuse(key: str, value: bytes) -> None:
        raise StaleLease("the run belongs to another process")

    thread.shelf.record = refuse  # type: ignore[method-assign]
    await thread.resume(payment, True)
    assert payment.paid == 0


@pytest.mark.parametrize("uses_run", [False, True])
async def test_an_effect_that_failed_or_asked_may_be_called_again(uses_run: bool) -> None:
    calls: list[str] = []

    async def twice(run: Any) -> Any:
        async def effect() -> str:
            calls.append("called")
            if len(calls) == 1:
                raise ValueError
            if uses_run:
                await run.ask("Sure?")
            return "done"

        if not calls:
            with pytest.raises(ValueError):
                await run.once("e", effect, uses_run=uses_run)
        return [await run.once("e", effect, uses_run=uses_run)]

    thread = Thread()
    outcome = await thread.run(twice)
    if uses_run:
        outcome = await thread.resume(twice, True)
    assert outcome.last.result == ["done"]
    assert len(calls) == (3 if uses_run else 2)


async def test_a_cancelled_effect_is_unknown() -> None:
    calls: list[int] = []

    async def agent(run: Any) -> Any:
        async def effect() -> None:
            calls.append(1)
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await run.once("e", effect)
        with pytest.raises(OutcomeUnknown, match="another key, or with idempotent=True"):
            await run.once("e", effect)
        return ["asked twice"]

    assert (await run_agent(agent)).last.result == ["asked twice"]
    assert calls == [1]


async def test_a_result_that_cannot_be_recorded_is_unknown() -> None:
    async def agent(run: Any) -> Any:
        with pytest.raises(ValueError):
            await run.once("e", lambda: object())
        with pytest.raises(OutcomeUnknown):
            await run.once("e", lambda: 1)
        return ["unknown"]

    assert (await run_agent(agent)).last.result == ["unknown"]


async def test_a_tool_whose_outcome_is_unknown_gets_an_error_result() -> None:
    thread = Thread()
    payment = Payment(thread)

    @tool
    def pay() -> str:
        """Pay."""
        return payment.pay()

    async def agent(run: Any) -> Any:
        await run.ask("Pay?")
        return [(await run.call_tool(pay)).error]

    assert "it is unknown whether 'pay' was executed" in (await resume_after_death(thread, agent, payment))[0]
    assert payment.paid == 1


class Asking:
    """An agent with a branch whose effect asks two questions and then dies ``at``: before or after its record."""

    def __init__(self, thread: Thread, *, at: str) -> None:
        self.thread = thread
        self.at = at
        self.effects = 0
        self.at_death: dict[str, bytes] = {}

    async def __call__(self, run: Any) -> None:
        await run.branch("order", self._order, run)

    async def _order(self, run: Any) -> None:
        async def effect() -> str:
            size = await run.ask("Size?")
            await run.say(f"{size} it is")
            colour = await run.ask("Colour?")
            await run.say(f"in {colour}")
            self.effects += 1
            if self.at == "before":
                self.at_death = dict(self.thread.shelf.records)
            return f"{size} {colour}"

        try:
            ordered = await run.once("order", effect, uses_run=True)
        except OutcomeUnknown:
            ordered = "unknown"
        if self.at == "after" and self.at_death == {}:
            self.at_death = dict(self.thread.shelf.records)
        await run.say(f"ordered: {ordered}")
        gift = await run.ask("A gift?")
        await run.say(f"gift: {gift}")
        sure = await run.ask("Sure?")
        await run.say(f"sure: {sure}")


@pytest.mark.parametrize(("at", "ordered"), [("before", ["ordered: unknown"]), ("after", ["in red", "ordered: L red"])])
async def test_an_agent_goes_on_behind_an_effect_in_which_its_process_died(at: str, ordered: list[str]) -> None:
    thread = Thread()
    agent = Asking(thread, at=at)
    await thread.run(agent)
    await thread.resume(agent, "L")
    asked, log = thread.outcome, list(thread.log)
    failed = await thread.resume(agent, "red")
    assert agent.effects == 1
    # The server retracts what the failed run sent.
    thread.outcome, thread.log, thread.shelf.records = asked, log, agent.at_death
    thread.failed = {failed.events[0].run_id}  # type: ignore[attr-defined]
    await thread.resume(agent, "red")
    thread.failed = set()
    await thread.resume(agent, "no")
    await thread.resume(agent, "yes")
    assert agent.effects == 1
    said = [message.content for message in thread.conversation.messages]
    assert said == ["L it is", *ordered, "gift: no", "sure: yes"]


async def test_an_agent_in_a_thread_goes_on_behind_an_effect_in_which_its_process_died() -> None:
    thread = Thread()
    at_death: dict[str, bytes] = {}

    def agent(run: Any) -> None:
        def effect() -> str:
            size = run.ask("Size?")
            at_death.update(thread.shelf.records)
            return str(size)

        try:
            ordered = run.once("order", effect)
        except OutcomeUnknown:
            ordered = "unknown"
        run.say(f"ordered: {ordered}")

    await thread.run(agent)
    asked, log = thread.outcome, list(thread.log)
    failed = await thread.resume(agent, "L")
    # The server retracts what the failed run sent.
    thread.outcome, thread.log, thread.shelf.records = asked, log, at_death
    thread.failed = {failed.events[0].run_id}  # type: ignore[attr-defined]
    await thread.resume(agent, "L")
    assert [message.content for message in thread.conversation.messages] == ["ordered: unknown"]
