"""Turns: the view folded from the turns of a branch is what the reducer makes of its log."""

from __future__ import annotations

import random
from typing import Any

import pytest
from builders import ignore, user
from hypothesis import given, settings
from hypothesis import strategies as st
from stores.merge_model import Play
from stores.stored_threads import SCOPE, THREAD, agent_input, append_events, begin_run, make_interrupt, runs_of

from aguila.codec import decode, encode, encode_event
from aguila.protocol import (
    Event,
    Interrupt,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from aguila.server.threads.cache import Threads
from aguila.server.threads.compaction import compact_events
from aguila.server.threads.reducer import RunReducer
from aguila.server.threads.thread import Thread
from aguila.server.threads.view import ThreadIndex, View
from aguila.store import Compaction, MemoryStore
from aguila.stream import Conversation

pytestmark = pytest.mark.anyio


class Tree:
    """A random tree of runs in a store, and the conversation that the reducer of each run ended with."""

    def __init__(self, seed: int, history: Any, unknown_history: Any) -> None:
        self.rng = random.Random(seed)
        self.play = Play(seed)
        self.store = MemoryStore()
        self.ends: dict[str, Conversation] = {}
        self.options: Any = {"history": history, "unknown_history": unknown_history}

    def says(self, run_id: str) -> list[Event]:
        """Return the events of a run without its end."""
        rng, events = self.rng, self.play.says()[0]
        if rng.random() < 0.3:
            events.insert(0, StateSnapshotEvent(snapshot={"n": rng.randrange(3)}))
            events.append(StateDeltaEvent(delta=[{"op": "add", "path": "/m", "value": run_id}]))
        if rng.random() < 0.3:
            call = f"open-{run_id}"
            events += [ToolCallStartEvent(tool_call_id=call, tool_call_name="f"), ToolCallEndEvent(tool_call_id=call)]
        if rng.random() < 0.1:
            events.append(MessagesSnapshotEvent(messages=[user(self.play.new_id("snapshot"), "yes")]))
        return events

    def ends_with(self, run_id: str) -> Event:
        """Return the end of a run: a success, a question, a cancellation or an error."""
        ids = {"thread_id": THREAD, "run_id": run_id}
        match self.rng.randrange(6):
            case 0:
                return RunErrorEvent(message="It broke.")
            case 1:
                return RunFinishedEvent(**ids, outcome=RunFinishedCancelledOutcome())
            case 2:
                asked = Interrupt(id=f"q-{run_id}", reason="tool_call", tool_call_id=f"open-{run_id}")
                return RunFinishedEvent(**ids, outcome=RunFinishedInterruptOutcome(interrupts=[asked]))
            case 3:
                asked = make_interrupt(f"q-{run_id}")
                return RunFinishedEvent(**ids, outcome=RunFinishedInterruptOutcome(interrupts=[asked]))
            case _:
                return RunFinishedEvent(**ids)

    async def add(self, number: int) -> None:
        """Add a run, on the branch of the latest run or of an earlier one."""
        rng, run_id = self.rng, f"r{number}"
        parent = rng.choice([*self.ends, run_id]) if self.ends and rng.random() < 0.3 else None
        held = self.ends.get(parent or f"r{number - 1}")
        state = rng.choice([None, None, {}, {"client": number}])
        sent = self.play.sends([] if held is None else held.messages)
        request = decode(encode(agent_input(run_id, *sent, parent_run_id=parent, state=state)), RunAgentInput)
        view = await self.reader().before(SCOPE, THREAD, run_id, parent, with_known=True)
        if view is None and self.ends:  # a new root: its thread has other runs, which may know its messages
            index = (await self.reader().at(SCOPE, THREAD, with_known=True)).index
            view = View(thread_id=THREAD, index=index)
        view = view or View(thread_id=THREAD, index=ThreadIndex(ignore))
        started = RunStartedEvent(thread_id=THREAD, run_id=run_id, parent_run_id=parent, protocol_version="1.1")
        reducer = RunReducer(view, started, request, **self.options, warn=ignore)
        lease = await begin_run(self.store, request)
        for event in [*self.says(run_id), self.ends_with(run_id)]:
            await append_events(self.store, lease, [event])
            reducer.feed(decode(encode_event(event)))  # type: ignore[arg-type]
            if rng.random() < 0.1:
                assert (await self.reader().at(SCOPE, THREAD)).conversation == reducer.conversation
        self.ends[run_id] = reducer.conversation

    async def compact(self) -> None:
        """Compact one of the runs."""
        run = self.rng.choice(await runs_of(self.store))
        batches = (await self.store.read(SCOPE, THREAD, run.first - 1, until=run.last)).batches
        events = [event for batch in batches for event in batch.events]
        change = Compaction(run_id=run.run_id, first=run.first, last=run.last, events=compact_events(events))
        await self.store.amend(SCOPE, THREAD, change)

    def reader(self) -> Threads:
        """Return a reader that has not read anything yet."""
        return Threads(self.store, warn=ignore, **self.options)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 9), st.sampled_from(["client", "server"]), st.sampled_from(["keep", "drop"])
)
async def test_the_view_folded_from_turns_is_the_reduction_of_the_log(
    seed: int, runs: int, history: Any, unknown_history: Any
) -> None:
    tree = Tree(seed, history, unknown_history)
    await tree.store.open()
    along = tree.reader()
    for number in range(runs):
        await tree.add(number)
        if tree.rng.random() < 0.5:
            await along.at(SCOPE, THREAD)
            await along.wait_until_saved()
        if tree.rng.random() < 0.3:
            await tree.compact()
    log = Thread(tree.store, SCOPE, THREAD, history, unknown_history, ignore, uses_stored=False)
    for run_id in tree.rng.sample(list(tree.ends), len(tree.ends)):
        assert (await along.at(SCOPE, THREAD, run_id)).conversation == tree.ends[run_id]
        assert (await tree.reader().at(SCOPE, THREAD, run_id)).conversation == tree.ends[run_id]
        assert (await log.at(run_id)).conversation == tree.ends[run_id]
    await tree.store.close()
