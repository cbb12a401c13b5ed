"""A law of replays: in whichever order the branches of an agent run and its answers come, the conversation is that of
an agent that knew all the answers. Nothing is sent twice and nothing is lost. Concurrent branches have names.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest
from agent_threads import Shelf, Thread
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import let_tasks_run

from aguila.protocol import ResumeEntry

pytestmark = pytest.mark.anyio

Op = tuple[Any, ...]
"""A step of an agent: its name and its arguments."""

_SIMPLE = st.one_of(
    st.tuples(st.sampled_from(["say", "call", "asked call", "asked text", "state"])),
    st.tuples(st.just("ask"), st.booleans()),
    st.tuples(st.just("ask apart"), st.sampled_from(["task", "wait_for"])),
    st.tuples(st.just("pause"), st.integers(1, 3)),
)


def _with_children(ops: st.SearchStrategy[Op]) -> st.SearchStrategy[Op]:
    some = st.lists(ops, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from(["step", "subagent"]), some),
        st.tuples(st.sampled_from(["gather", "group", "scopes", "one by one"]), st.lists(some, min_size=2, max_size=3)),
    )


PROGRAMS = st.lists(st.recursive(_SIMPLE, _with_children, max_leaves=8), min_size=1, max_size=4)


class Player:
    """Executes a program. It knows all answers, or asks. It pauses for given times, which differ each time."""

    def __init__(self, program: list[Op], pauses: list[int], *, knows: bool) -> None:
        self.program = program
        self.pauses = pauses
        self.knows = knows
        self.at = 0

    async def __call__(self, run: Any) -> None:
        await self.all_of(run, run, self.program, "p")
        await run.say("end")

    async def all_of(self, run: Any, out: Any, ops: list[Op], place: str) -> None:
        for number, op in enumerate(ops):
            await self.one(run, out, op, f"{place}.{number}")

    async def ask(self, out: Any, place: str, keyed: bool = True) -> str:
        if self.knows:
            return f"answer {place}?"
        return await out.ask(f"{place}?", key=place if keyed else None)

    async def pause(self, times: int) -> None:
        await let_tasks_run(times * self.pauses[self.at % len(self.pauses)])
        self.at += 1

    async def one(self, run: Any, out: Any, op: Op, place: str) -> None:
        match op:
            case ("say",):
                await out.say(place)
            case ("state",):
                run.state[place] = True
            case ("pause", times):
                await self.pause(times)
            case ("ask", keyed):
                await out.say(await self.ask(out, place, keyed))
            case ("ask apart", "task"):
                await out.say(await asyncio.create_task(self.ask(out, place)))
            case ("ask apart", _):
                await out.say(await asyncio.wait_for(self.ask(out, place, keyed=False), 60))
            case ("call",):
                call = await out.tool_call("tool", {"at": place})
                await self.pause(1)
                await call.result(place)
            case ("asked call",):
                call = await out.tool_call("tool", {"at": place})
                await call.result(await self.ask(out, place))
            case ("asked text",):
                async with out.text() as text:
                    await text.write(f"{place} before, ")
                    await text.write(await self.ask(out, place, keyed=False))
            case ("step", ops):
                async with out.step(place):
                    await self.all_of(run, out, ops, place)
            case ("subagent", ops):
                async with out.subagent(place) as sub:
                    await self.all_of(run, sub, ops, place)
            case (how, several):
                jobs = [partial(self.all_of, run, out, ops, f"{place}/{number}") for number, ops in enumerate(several)]
                await self.together(run, how, jobs)
            case _:
                raise AssertionError(op)

    async def together(self, run: Any, how: str, jobs: list[Any]) -> None:
        if how == "gather":
            await asyncio.gather(*(run.branch(str(number), job) for number, job in enumerate(jobs)))
        elif how == "scopes":

            async def scoped(name: str, job: Any) -> None:
                await self.pause(1)
                async with run.branch(name):
                    await job()

            await asyncio.gather(*(scoped(str(number), job) for number, job in enumerate(jobs)))
        elif how == "group":
            async with asyncio.TaskGroup() as group:
                for number, job in enumerate(jobs):
                    group.create_task(run.branch(str(number), job))
        else:
            for job in jobs:
                await asyncio.create_task(job())


def visible_conversation(thread: Thread) -> dict[str, Any]:
    """Return the messages that a user has seen, without their order: branches may send in any order."""
    conversation = thread.conversation
    calls: dict[str, str] = {}
    texts: Counter[str] = Counter()
    results: Counter[tuple[str, Any]] = Counter()
    for message in conversation.messages:
        if message.role == "assistant":
            texts[message.content or ""] += 1
            calls |= {call.id: call.function.arguments for call in message.tool_calls or ()}
    for message in conversation.messages:
        if message.role == "tool":
            results[calls[message.tool_call_id], message.content] += 1
    steps = Counter(
        event.step_name
        for event in thread.log
        if str(event.type) == "STEP_FINISHED" and (event.metadata or {}).get("aguila") == {"status": "completed"}
    )
    subagents = Counter(
        event.subagent_run_id
        for event in thread.log
        if str(event.type) == "SUBAGENT_FINISHED" and (event.outcome is None or event.outcome.type == "success")
    )
    assert set(subagents.values()) <= {1}
    return {
        "texts": texts,
        "calls": sorted(calls.values()),
        "results": results,
        "steps": steps,
        "subagents": len(subagents),
        "state": conversation.state,
    }


class AtOnce(Shelf):
    """Services that do not suspend, as those of a store in memory."""

    async def record(self, key: str, value: bytes) -> None:
        self.records.setdefault(key, value)

    async def settle(self, interrupt_ids: Any) -> None:
        self.settled += interrupt_ids


async def answered(program: list[Op], pauses: list[list[int]], groups: list[int], suspends: bool) -> Thread:
    """A chain of runs, in each of which some of the open questions are answered."""
    thread = Thread()
    thread.shelf = Shelf() if suspends else AtOnce()
    outcome = await thread.run(Player(program, pauses[0], knows=False))
    for number in range(60):
        if outcome.ending.outcome != "interrupt":
            break
        open_ = {asked.id: asked for asked in outcome.ending.interrupts}
        most = groups[number % len(groups)]
        entries = [
            ResumeEntry(interrupt_id=id_, status="resolved", payload=f"answer {asked.message}")
            for id_, asked in list(open_.items())[:most]
        ]
        player = Player(program, pauses[(number + 1) % len(pauses)], knows=False)
        outcome = await thread.resume_some(player, entries)
    assert outcome.ending.outcome == "success", outcome.ending
    return thread


@settings(max_examples=150, deadline=None)
@given(
    program=PROGRAMS,
    pauses=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), min_size=1, max_size=4),
    groups=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    suspends=st.booleans(),
)
async def test_a_chain_of_runs_shows_what_one_that_knew_the_answers_would(
    program: list[Op], pauses: list[list[int]], groups: list[int], suspends: bool
) -> None:
    thread = Thread()
    await thread.run(Player(program, [0], knows=True))
    assert visible_conversation(await answered(program, pauses, groups, suspends)) == visible_conversation(thread)
