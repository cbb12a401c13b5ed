"""Hydration: a client that joins at any moment ends up with the conversation of the log."""

from __future__ import annotations

import random
from typing import Any

import pytest
from builders import ignore, text_message, user
from hypothesis import given, settings
from hypothesis import strategies as st
from stores.stored_threads import (
    SCOPE,
    THREAD,
    agent_input,
    append_events,
    begin_run,
    hydrate,
    log_after,
    make_interrupt,
    random_runs,
    store_event,
    write_run,
)

from aguila.codec import decode, decode_event
from aguila.protocol import (
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    replace,
)
from aguila.server.threads.cache import Threads
from aguila.server.threads.hydration import Hydration, hydrate_thread
from aguila.store import MemoryStore, RunKey, Store
from aguila.stream import Conversation, Verifier, reduce, verify

pytestmark = pytest.mark.anyio


def types(events: list[Event]) -> list[str]:
    return [str(event.type) for event in events]


# No run in progress


async def test_an_empty_thread_clears_nothing(open_store: Store) -> None:
    joined = await hydrate(open_store)
    assert types(joined.events) == ["RUN_STARTED", "RUN_FINISHED"]
    assert not joined.is_live
    assert joined.events == [
        RunStartedEvent(thread_id=THREAD, run_id="visit", protocol_version="1.1"),
        RunFinishedEvent(thread_id=THREAD, run_id="visit", outcome=RunFinishedSuccessOutcome()),
    ]


async def test_an_idle_thread_is_hydrated_by_snapshots_in_a_run_of_its_own_life_19(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1", "hi"), state={"n": 1}), text_message("a1", "hello"))
    joined = await hydrate(open_store)
    assert verify(joined.events, producer=True).end == "finished"
    assert types(joined.events) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    view = reduce(joined.events)
    assert [message.content for message in view.messages] == ["hi", "hello"]
    assert view.state == {"n": 1}
    assert (view.runs[0].run_id, joined.after, joined.is_live) == ("visit", 5, False)


async def test_2510_the_state_is_sent_first_and_only_if_there_ever_was_one(open_store: Store) -> None:
    told = ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    await write_run(open_store, agent_input("r1", user("u1"), state={}), text_message("a1", "hello"))
    for run_id in ("visit", "r1"):
        assert types((await hydrate(open_store, run_id)).events) == told
    told.insert(1, "STATE_SNAPSHOT")
    lease = await begin_run(open_store, agent_input("r2", user("u2")))
    assert types((await hydrate(open_store)).events) == told[:3]  # the baseline of the deltas that may come
    await append_events(open_store, lease, [StateSnapshotEvent(snapshot={"n": 1})])
    await append_events(open_store, lease, [RunFinishedEvent(thread_id=THREAD, run_id="r2")])
    await write_run(
        open_store, agent_input("r3", user("u3"))
    )  # from a client that has none: it is {} again, and that is news
    for run_id in ("visit", "r2", "r3"):
        assert types((await hydrate(open_store, run_id)).events) == told
    assert types((await hydrate(open_store, branch="r1")).events) == [told[0], *told[2:]]


async def test_open_interrupts_are_shown_to_whoever_comes_int_7(open_store: Store) -> None:
    interrupts = [make_interrupt("i1", message="Really?"), make_interrupt("i2")]
    await write_run(open_store, agent_input("r1", user("u1")), outcome=interrupts)
    assert reduce((await hydrate(open_store)).events).interrupts == interrupts


async def test_interrupts_of_a_failed_resume_are_shown_unless_their_answers_were_used(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1"), make_interrupt("i2")])
    resume = agent_input("r2")
    await write_run(open_store, resume, outcome="error", claims=["i1", "i2"], settled=["i1"])
    joined = await hydrate(open_store)
    assert [interrupt.id for interrupt in reduce(joined.events).interrupts] == ["i2"]
    ending = joined.events[-1]
    assert ending.metadata is not None
    assert ending.metadata["aguila"]["lastRun"]["runId"] == "r2"


async def test_a_thread_whose_last_run_failed_is_hydrated_as_failed_life_14(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1")), outcome="error")
    *told, ending = (await hydrate(open_store)).events
    assert "MESSAGES_SNAPSHOT" in types(told)
    assert isinstance(ending, RunErrorEvent)
    assert (ending.message, ending.code) == ("It broke.", "broken")
    failure = {"runId": "r1", "outcome": "error", "message": "It broke.", "code": "broken"}
    assert ending.metadata == {"aguila": {"lastRun": failure}}


async def test_a_cancelled_run_is_hydrated_as_cancelled_life_11(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1")), outcome="cancelled")
    assert reduce((await hydrate(open_store)).events).runs[-1].outcome == "cancelled"


async def test_calls_left_to_the_front_end_are_pending_for_whoever_comes_ft_3(open_store: Store) -> None:
    lease = await begin_run(open_store, agent_input("r1", user("u1")))
    calls: list[Event] = []
    for call_id, parent in (("c1", None), ("c2", "a1"), ("c3", "a1")):
        start = ToolCallStartEvent(tool_call_id=call_id, tool_call_name="pick", parent_message_id=parent)
        args = ToolCallArgsEvent(tool_call_id=call_id, delta='{"a":1}')
        calls += [start, args, ToolCallEndEvent(tool_call_id=call_id)]
    calls.append(ToolCallResultEvent(message_id="t2", tool_call_id="c2", content="done"))
    outcome = RunFinishedSuccessOutcome(pending_tool_call_ids=["c1", "c3"])
    await append_events(open_store, lease, [*calls, RunFinishedEvent(thread_id=THREAD, run_id="r1", outcome=outcome)])
    for run_id in ("visit", "r1"):
        joined = await hydrate(open_store, run_id)
        verify(joined.events, producer=True)
        ending = joined.events[-1]
        assert isinstance(ending, RunFinishedEvent)
        assert ending.outcome == outcome
        pending = reduce(joined.events).pending_tool_calls
        assert [(call.id, call.function.arguments) for call in pending] == [("c1", '{"a":1}'), ("c3", '{"a":1}')]


async def test_a_finished_run_that_is_asked_for_again_ends_as_it_did(open_store: Store) -> None:
    lease = await begin_run(open_store, agent_input("r1", user("u1")))
    ending = RunFinishedEvent(thread_id=THREAD, run_id="r1", result={"answer": 42})
    await append_events(open_store, lease, [*text_message("a1", "x"), ending])
    await write_run(open_store, agent_input("r2", user("u2")), text_message("a2", "y"))
    joined = await hydrate(open_store, "r1")
    assert joined.events[-1] == ending
    assert [message.id for message in reduce(joined.events).messages] == ["u1", "a1"]
    assert verify(joined.events, producer=True).end == "finished"


async def test_a_finished_run_that_is_asked_for_again_does_not_ask_again_what_was_answered(open_store: Store) -> None:
    questions = [make_interrupt("i1"), make_interrupt("i2")]
    await write_run(open_store, agent_input("r1", user("u1")), outcome=questions)
    assert reduce((await hydrate(open_store, "r1")).events).interrupts == questions
    await write_run(open_store, agent_input("r2"), outcome="error", claims=["i1", "i2"], settled=["i1"])
    assert reduce((await hydrate(open_store, "r1")).events).interrupts == questions[1:]
    await write_run(open_store, agent_input("r3"), claims=["i2"], settled=["i2"])
    ending = (await hydrate(open_store, "r1")).events[-1]
    assert isinstance(ending, RunFinishedEvent)
    assert ending.outcome == RunFinishedSuccessOutcome()


async def test_a_failed_run_that_is_asked_for_again_fails_again_life_14(open_store: Store) -> None:
    await write_run(
        open_store, agent_input("r1", user("u1")), [TextMessageStartEvent(message_id="a1")], outcome="error"
    )
    joined = await hydrate(open_store, "r1")
    assert joined.events[-1] == RunErrorEvent(message="It broke.", code="broken")
    verify(joined.events, producer=True)


async def test_a_finished_run_is_sent_again_also_while_another_one_is_running(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1")), text_message("a1", "x"))
    await begin_run(open_store, agent_input("r2", user("u2")))
    joined = await hydrate(open_store, "r1")
    assert not joined.is_live
    assert [message.id for message in reduce(joined.events).messages] == ["u1", "a1"]


async def test_a_branch_can_be_joined(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1")), text_message("a1", "x"))
    await write_run(open_store, agent_input("r2", user("u2")), text_message("a2", "y"))
    await write_run(open_store, agent_input("r3", user("u3"), parent_run_id="r1"), text_message("a3", "z"))
    for branch, ids in (
        ("r2", ["u1", "a1", "u2", "a2"]),
        (None, ["u1", "a1", "u3", "a3"]),
        ("nope", ["u1", "a1", "u3", "a3"]),
    ):
        joined = await hydrate(open_store, branch=branch)
        assert [message.id for message in reduce(joined.events).messages] == ids


async def test_another_scope_receives_nothing(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1")))
    joined = await hydrate_thread(open_store, Threads(open_store), "other", THREAD, "r1", live=None)
    assert types(joined.events) == ["RUN_STARTED", "RUN_FINISHED"]


# A run in progress


async def test_what_is_open_is_opened_again_with_what_it_has_so_far_txt_3(open_store: Store) -> None:
    lease = await begin_run(open_store, agent_input("r1", user("u1"), state={"n": 1}))
    so_far: list[Event] = [
        SubagentStartedEvent(subagent_run_id="s1", name="helper"),
        SubagentFinishedEvent(subagent_run_id="s1"),
        SubagentStartedEvent(subagent_run_id="s2", name="helper", parent_subagent_run_id="s1"),
        StepStartedEvent(step_name="look", subagent_run_id="s2", metadata={"aguila": {"parent": "top"}}),
        ReasoningStartEvent(message_id="think"),
        ReasoningMessageStartEvent(message_id="think"),
        ReasoningMessageContentEvent(message_id="think", delta="hm"),
        TextMessageStartEvent(message_id="a1", role="assistant", name="Ada", metadata={"k": 1}),
        TextMessageContentEvent(message_id="a1", delta="Hel"),
        ToolCallStartEvent(tool_call_id="c1", tool_call_name="search", parent_message_id="a1"),
        ToolCallArgsEvent(tool_call_id="c1", delta='{"q":'),
        ToolCallStartEvent(tool_call_id="c2", tool_call_name="search", subagent_run_id="s2"),
        ToolCallEndEvent(tool_call_id="c2", subagent_run_id="s2"),
    ]
    await append_events(open_store, lease, so_far)
    joined = await hydrate(open_store)
    assert joined.is_live
    assert joined.after == 14
    assert types(joined.events) == [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "MESSAGES_SNAPSHOT",
        "SUBAGENT_STARTED",
        "SUBAGENT_FINISHED",
        "SUBAGENT_STARTED",
        "STEP_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "TEXT_MESSAGE_START",
        "TOOL_CALL_START",
        "TOOL_CALL_START",
        "TOOL_CALL_END",
    ]
    rest: list[Event] = [
        TextMessageContentEvent(message_id="a1", delta="lo"),
        TextMessageEndEvent(message_id="a1"),
        ToolCallArgsEvent(tool_call_id="c1", delta='"x"}'),
        ToolCallEndEvent(tool_call_id="c1"),
        SubagentStartedEvent(subagent_run_id="s3", name="helper", parent_subagent_run_id="s1"),
        SubagentFinishedEvent(subagent_run_id="s3"),
        StepFinishedEvent(step_name="look", subagent_run_id="s2"),
        ToolCallResultEvent(message_id="t2", tool_call_id="c2", content="found", subagent_run_id="s2"),
        SubagentFinishedEvent(subagent_run_id="s2"),
        ReasoningMessageEndEvent(message_id="think"),
        decode_event(b'{"type":"REASONING_END","messageId":"think"}'),  # type: ignore[list-item]
        StateDeltaEvent(delta=[{"op": "replace", "path": "/n", "value": 2}]),
        RunFinishedEvent(
            thread_id=THREAD, run_id="r1", outcome=RunFinishedSuccessOutcome(pending_tool_call_ids=["c1"])
        ),
    ]
    await append_events(open_store, lease, rest)
    stream = [*joined.events, *await log_after(open_store, joined.after)]
    assert verify(stream, producer=True).end == "finished"
    check_same(reduce(stream), (await Threads(open_store).at(SCOPE, THREAD)).conversation)
    assert reduce(stream).state == {"n": 2}


async def test_the_running_run_is_sent_with_its_own_ids_and_without_its_input(open_store: Store) -> None:
    given = agent_input("r1", user("u1"))
    started = RunStartedEvent(thread_id=THREAD, run_id="r1", protocol_version="1.1", input=given, metadata={"k": 1})
    await begin_run(open_store, given, started=started)
    for run_id in ("visit", "r1"):
        assert (await hydrate(open_store, run_id)).events[0] == replace(started, input=None)


async def test_a_run_that_ends_during_a_join_leaves_its_end_to_the_log(open_store: Store) -> None:
    await begin_run(open_store, agent_input("r0", thread_id="other"))
    lease = await begin_run(open_store, agent_input("r1", user("u1")))
    seen = await open_store.run(RunKey(SCOPE, THREAD, "r1"))
    ending = RunFinishedEvent(thread_id=THREAD, run_id="r1")
    await append_events(open_store, lease, [*text_message("a1", "x"), ending])
    await write_run(open_store, agent_input("r2", user("u2")), text_message("a2", "y"))
    joined = await hydrate_thread(open_store, Threads(open_store), SCOPE, THREAD, "visit", live=seen)
    assert joined.is_live
    assert (await log_after(open_store, joined.after))[0] == ending
    stream = [*joined.events, ending]
    assert verify(stream, producer=True).end == "finished"
    assert [message.id for message in reduce(stream).messages] == ["u1", "a1"]


async def test_a_message_dropped_while_it_is_open_is_open_and_absent_for_newcomers_too(open_store: Store) -> None:
    lease = await begin_run(open_store, agent_input("r1", user("u1")))
    dropped: list[Event] = [
        TextMessageStartEvent(message_id="a1"),
        ToolCallStartEvent(tool_call_id="c1", tool_call_name="f", parent_message_id="a1"),
        MessagesSnapshotEvent(messages=[user("u1")]),
    ]
    await append_events(open_store, lease, dropped)
    joined = await hydrate(open_store)
    rest: list[Event] = [
        TextMessageContentEvent(message_id="a1", delta="lost"),
        TextMessageEndEvent(message_id="a1"),
        ToolCallEndEvent(tool_call_id="c1"),
        RunFinishedEvent(
            thread_id=THREAD, run_id="r1", outcome=RunFinishedSuccessOutcome(pending_tool_call_ids=["c1"])
        ),
    ]
    stream = [*joined.events, *rest]
    assert verify(stream, producer=True).end == "finished"
    assert [message.id for message in reduce(stream, warn=ignore).messages] == ["u1"]


async def test_activities_are_in_the_snapshot_and_can_be_patched_on_act_8(open_store: Store) -> None:
    lease = await begin_run(open_store, agent_input("r1"))
    shown = ActivitySnapshotEvent(message_id="act", activity_type="plan", content={"steps": []})
    await append_events(open_store, lease, [shown, CustomEvent(name="vendor.x", value=1)])
    joined = await hydrate(open_store)
    delta = decode(
        b'{"type":"ACTIVITY_DELTA","messageId":"act","activityType":"plan",'
        b'"patch":[{"op":"add","path":"/steps/-","value":1}]}'
    )
    assert delta is not None
    ending = RunFinishedEvent(thread_id=THREAD, run_id="r1")
    stream = [*joined.events, delta, ending]
    verify(stream, producer=True)
    assert reduce(stream).messages[0].content == {"steps": [1]}


# Laws


def check_same(joined: Conversation, logged: Conversation) -> None:
    """Compare two conversations, without the data that only the log has: earlier runs and earlier events."""
    assert joined.messages == logged.messages
    assert joined.state == logged.state
    mine, theirs = joined.runs[-1], logged.runs[-1]
    # If a call was answered before it was made, and the answer was dropped again, a client that joins in between sees
    # no answer: see the losses of ``hydration``.
    reported = logged.pending_tool_calls
    pending = [c for c in joined.pending_tool_calls if c in reported or theirs.calls.get(c.id) != "answered"]
    assert pending == reported
    fields = ("run_id", "outcome", "result", "error", "usage", "interrupts", "reported_pending")
    assert [getattr(mine, name) for name in fields] == [getattr(theirs, name) for name in fields]
    if theirs.outcome not in (None, "error"):
        assert joined.interrupts == logged.interrupts


async def check_every_cut(seed: int, size: int, **options: Any) -> None:
    past, run = random_runs(random.Random(seed), size, **options)

    async def check() -> None:
        store = MemoryStore()
        await store.open()
        lease: Any = None
        for event in past:
            lease = await store_event(store, event, lease)
        joins: list[Hydration] = []
        for event in run:
            lease = await store_event(store, event, lease)
            joins.append(await hydrate(store))
        logged = (await Threads(store, warn=ignore).at(SCOPE, THREAD)).conversation
        for joined in joins:
            assert len(joined.events) > 1
            stream = [*joined.events]
            if joined.is_live:
                stream += await log_after(store, joined.after)
            verifier = Verifier()
            for event in stream:
                verifier.feed(event)
            if joined.is_live:
                check_same(reduce(stream, warn=ignore), logged)
            else:
                view = reduce(stream, warn=ignore)
                assert (view.messages, view.state) == (logged.messages, logged.state)
                assert view.pending_tool_calls == logged.pending_tool_calls
                assert view.interrupts == logged.interrupts

    await check()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 70))
async def test_a_client_that_joins_after_any_event_ends_up_with_the_conversation_of_the_log(
    seed: int, size: int
) -> None:
    await check_every_cut(seed, size, collisions=False)


async def test_so_it_is_for_a_call_that_was_answered_before_it_was_made() -> None:
    await check_every_cut(409, 46, collisions=False)
    await check_every_cut(2220122150, 44, collisions=False)  # and that RUN_FINISHED reports as pending all the same


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 70))
async def test_so_it_is_without_snapshots_of_the_agents_own(seed: int, size: int) -> None:
    await check_every_cut(seed, size, collisions=False, without={"messages_snapshot"})


async def test_an_interrupt_outcome_is_the_last_word_also_for_who_joined_in_the_middle() -> None:
    store = MemoryStore()
    await store.open()
    lease = await begin_run(store, agent_input("r1"))
    joined = await hydrate(store)
    outcome = RunFinishedInterruptOutcome(interrupts=[make_interrupt("i1")])
    await append_events(store, lease, [RunFinishedEvent(thread_id=THREAD, run_id="r1", outcome=outcome)])
    stream = [*joined.events, *await log_after(store, joined.after)]
    assert reduce(stream).interrupts == [make_interrupt("i1")]
    assert StateSnapshotEvent(snapshot={}) in stream
    assert AssistantMessage not in {type(message) for message in reduce(stream).messages}
