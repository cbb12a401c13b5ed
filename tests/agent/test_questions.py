"""Questions and replays: no event is sent twice, no effect repeated, no answer used for another question."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agent_threads import Thread, run_agent
from waiting import let_tasks_run

from aguila import protocol
from aguila.agent import InterruptCancelled, ProposedCall, Question, RunInterrupt
from aguila.agent.questions import ID_PREFIX
from aguila.chat import ChatUpdate, UsageContent
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    ResumeEntry,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StepFinishedEvent,
    SubagentFinishedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    TokenUsage,
    Tool,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

pytestmark = pytest.mark.anyio


def assistant_texts(thread: Thread) -> list[str]:
    """Return the text of each message that a client shows after all runs."""
    return [
        message.content for message in thread.conversation.messages if message.role == "assistant" and message.content
    ]


async def asks_twice(run: Any) -> None:
    await run.say("one")
    first = await run.ask("First?")
    await run.say(f"two {first}")
    second = await run.ask("Second?")
    await run.say(f"three {second}")


def asks_twice_in_a_thread(run: Any) -> None:
    run.say("one")
    first = run.ask("First?")
    run.say(f"two {first}")
    second = run.ask("Second?")
    run.say(f"three {second}")


async def asks_twice_and_yields(run: Any) -> Any:
    yield RunStartedEvent(thread_id=run.input.thread_id, run_id=run.input.run_id)
    yield TextMessageChunkEvent(message_id="1", delta="one")
    first = await run.ask("First?")
    yield TextMessageChunkEvent(message_id="2", delta="two ")
    yield TextMessageChunkEvent(delta=first)
    second = await run.ask("Second?")
    yield TextMessageStartEvent(message_id="3")
    yield TextMessageContentEvent(message_id="3", delta=f"three {second}")
    yield RunFinishedEvent(thread_id=run.input.thread_id, run_id=run.input.run_id)


@pytest.mark.parametrize("agent", [asks_twice, asks_twice_in_a_thread, asks_twice_and_yields])
async def test_nothing_is_said_twice_over_three_runs(agent: Any) -> None:
    thread = Thread()
    outcomes = [await thread.run(agent), await thread.resume(agent, "A"), await thread.resume(agent, "B")]
    assert [outcome.ending.outcome for outcome in outcomes] == ["interrupt", "interrupt", "success"]
    assert [outcome.text for outcome in outcomes] == ["one", "two A", "three B"]
    assert assistant_texts(thread) == ["one", "two A", "three B"]
    assert [i.message for outcome in outcomes for i in outcome.ending.interrupts] == ["First?", "Second?"]
    assert thread.shelf.settled == [i.id for outcome in outcomes for i in outcome.ending.interrupts]


async def test_an_interrupt_says_what_was_asked() -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}

    async def agent(run: Any) -> None:
        await run.ask("Sure?", schema=schema, reason="mine", expires_at="2030-01-01T00:00:00Z", metadata={"a": 1})

    (interrupt,) = (await run_agent(agent)).ending.interrupts
    assert interrupt.id.startswith(ID_PREFIX)
    assert interrupt == protocol.Interrupt(
        id=interrupt.id,
        reason="mine",
        message="Sure?",
        response_schema=schema,
        expires_at="2030-01-01T00:00:00Z",
        metadata={"a": 1},
    )


async def test_an_answer_without_payload_is_none() -> None:
    async def agent(run: Any) -> Any:
        return {"answer": await run.ask("?")}

    thread = Thread()
    await thread.run(agent)
    assert (await thread.resume(agent, None)).last.result == {"answer": None}


async def test_an_effect_under_once_is_not_repeated() -> None:
    effects: list[str] = []

    async def agent(run: Any) -> Any:
        def sync_effect() -> Any:
            effects.append("sync")
            return {"id": len(effects), "pair": (1, 2)}

        async def async_effect() -> str:
            await asyncio.sleep(0)
            effects.append("async")
            return "x"

        first = await run.once("sync", sync_effect)
        second = await run.once("async", async_effect)
        third = await run.once("sync", sync_effect)
        await run.ask("?")
        return [first, second, third]

    def agent_in_a_thread(run: Any) -> Any:
        def effect() -> Any:
            effects.append("thread")
            return {"id": 1, "pair": (1, 2)}

        first = run.once("thread", effect)
        run.ask("?")
        return [first, "x", first]

    for which in (agent, agent_in_a_thread):
        thread = Thread()
        await thread.run(which)
        assert (await thread.resume(which, True)).last.result == [
            {"id": 1, "pair": [1, 2]},
            "x",
            {"id": 1, "pair": [1, 2]},
        ]
    assert effects == ["sync", "async", "thread"]


async def test_an_effect_that_fails_is_not_recorded_and_two_at_once_happen_once() -> None:
    effects: list[int] = []

    async def agent(run: Any) -> Any:
        async def fail() -> None:
            raise ValueError

        async def effect() -> int:
            effects.append(1)
            await asyncio.sleep(0)
            return len(effects)

        with pytest.raises(ValueError):
            await run.once("k", fail)
        return await asyncio.gather(*(run.once("k", effect) for _ in range(3)))

    assert (await run_agent(agent)).last.result == [1, 1, 1]
    assert effects == [1]


async def test_a_changed_question_is_asked_again_and_never_takes_an_old_answer() -> None:
    question = "Delete one file?"
    deleted: list[Any] = []

    async def agent(run: Any) -> None:
        await run.say("careful")
        deleted.append(await run.ask(question))

    thread = Thread()
    first = await thread.run(agent)
    question = "Delete all files?"
    second = await thread.resume(agent, True)
    assert second.ending.outcome == "interrupt"
    assert second.ending.interrupts[0].id != first.ending.interrupts[0].id
    assert second.text == ""
    assert deleted == []
    assert thread.shelf.settled == []
    third = await thread.resume(agent, False)
    assert third.ending.outcome == "success"
    assert deleted == [False]
    assert assistant_texts(thread) == ["careful"]


@pytest.mark.parametrize("changed", [{"schema": {"type": "string"}}, {"key": "k"}])
async def test_another_schema_or_key_is_another_question(changed: dict[str, Any]) -> None:
    options: dict[str, Any] = {}

    async def agent(run: Any) -> None:
        await run.ask("?", **options)

    thread = Thread()
    await thread.run(agent)
    options.update(changed)
    assert (await thread.resume(agent, 1)).ending.outcome == "interrupt"


async def test_the_same_question_asked_twice_has_two_answers() -> None:
    async def agent(run: Any) -> Any:
        return [await run.ask("More?"), await run.ask("More?")]

    thread = Thread()
    await thread.run(agent)
    await thread.resume(agent, "a")
    assert (await thread.resume(agent, "b")).last.result == ["a", "b"]


async def test_a_key_finds_its_answer_when_the_order_changes() -> None:
    order = ["a", "b"]

    async def agent(run: Any) -> Any:
        return {key: await run.ask(f"{key}?", key=key) for key in order}

    thread = Thread()
    await thread.run(agent)
    await thread.resume(agent, "answer to a")
    order.reverse()
    assert (await thread.resume(agent, "answer to b")).last.result == {"a": "answer to a", "b": "answer to b"}


async def test_asking_several_at_once() -> None:
    async def agent(run: Any) -> Any:
        await run.say("hello")
        answers = await run.ask_all(["One?", Question(question="Two?", key="two", schema={"type": "integer"})])
        await run.say(f"{answers}")
        return answers

    thread = Thread()
    first = await thread.run(agent)
    second = await thread.resume(agent, "1", 2)
    assert [interrupt.message for interrupt in first.ending.interrupts] == ["One?", "Two?"]
    assert second.last.result == ["1", 2]
    assert second.text == "['1', 2]"


async def test_of_several_questions_only_those_that_changed_are_asked_again() -> None:
    second = "Two?"

    async def agent(run: Any) -> Any:
        return await run.ask_all(["One?", second])

    thread = Thread()
    await thread.run(agent)
    second = "Another two?"
    outcome = await thread.resume(agent, 1, 2)
    assert [interrupt.message for interrupt in outcome.ending.interrupts] == ["Another two?"]
    assert (await thread.resume(agent, 3)).last.result == [1, 3]


async def test_questions_with_the_same_key_and_text_cannot_be_asked_at_once() -> None:
    async def agent(run: Any) -> None:
        await run.ask_all([Question(question="?", key="k"), Question(question="?", key="k")])

    assert (await run_agent(agent)).ending.outcome == "error"


async def test_asking_nothing_is_answered_at_once() -> None:
    async def agent(run: Any) -> Any:
        return await run.ask_all([])

    assert (await run_agent(agent)).last.result == []


async def test_an_answer_that_was_given_up_is_an_exception() -> None:
    async def agent(run: Any) -> Any:
        await run.say("hello")
        try:
            await run.ask("?")
        except InterruptCancelled as given_up:
            await run.say("never mind")
            return given_up.interrupt_ids

    thread = Thread()
    first = await thread.run(agent)
    second = await thread.give_up(agent)
    assert second.last.result == [first.ending.interrupts[0].id]
    assert second.text == "never mind"
    assert thread.shelf.settled == second.last.result


async def test_of_several_answers_those_that_were_given_are_on_the_exception() -> None:
    async def agent(run: Any) -> Any:
        try:
            await run.ask_all(["One?", "Two?"])
        except InterruptCancelled as given_up:
            return given_up.answers

    thread = Thread()
    asked = (await thread.run(agent)).ending.interrupts
    assert (await thread.resume(agent, ResumeEntry(interrupt_id=asked[0].id, status="cancelled"), 2)).last.result == [
        None,
        2,
    ]


async def leaves_it_at_that(run: Any) -> None:
    async with run.step("asking"):
        await run.ask("?")


def leaves_it_at_that_in_a_thread(run: Any) -> None:
    run.ask("?")


async def asks_from_a_group(run: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(run.ask("?"))


@pytest.mark.parametrize("agent", [leaves_it_at_that, leaves_it_at_that_in_a_thread, asks_from_a_group])
async def test_a_question_that_everybody_gave_up_cancels_the_run_life_8(agent: Any, caplog: Any) -> None:
    thread = Thread()
    await thread.run(agent)
    outcome = await thread.give_up(agent)
    assert outcome.ending.outcome == "cancelled"
    assert outcome.last.outcome.type == "cancelled"
    assert caplog.records == []


# Usage


async def counts(run: Any) -> None:
    run.add_usage(TokenUsage(model="m", input_tokens=6, output_tokens=4))
    await run.emit(ChatUpdate(contents=[UsageContent(TokenUsage(model="m", input_tokens=4, output_tokens=3))]))
    await run.ask("?")
    run.add_usage(TokenUsage(model="m", input_tokens=1, output_tokens=1))
    await run.emit(ChatUpdate(contents=[UsageContent(TokenUsage(model="m", input_tokens=1, output_tokens=2))]))


def counts_in_a_thread(run: Any) -> None:
    run.add_usage(TokenUsage(model="m", input_tokens=10, output_tokens=7))
    run.ask("?")
    run.add_usage(TokenUsage(model="m", input_tokens=2, output_tokens=3))


@pytest.mark.parametrize("agent", [counts, counts_in_a_thread])
async def test_a_resumed_run_reports_only_its_own_usage_use_9(agent: Any) -> None:
    thread = Thread()
    first = await thread.run(agent)
    second = await thread.resume(agent, 1)
    assert [(one.input_tokens, one.output_tokens) for one in first.last.usage] == [(10, 7)]
    assert [(one.input_tokens, one.output_tokens) for one in second.last.usage] == [(2, 3)]


# Signals


async def test_except_exception_does_not_swallow_a_question() -> None:
    async def agent(run: Any) -> str:
        try:
            await run.ask("?")
        except Exception:  # noqa: BLE001
            return "swallowed"
        return "answered"

    assert (await run_agent(agent)).ending.outcome == "interrupt"


async def test_a_swallowed_question_still_stands() -> None:
    async def agent(run: Any) -> str:
        try:
            answer = await run.ask("?")
        except BaseException:  # noqa: BLE001
            return "swallowed"
        return answer

    thread = Thread()
    first = await thread.run(agent)
    second = await thread.resume(agent, "yes")
    assert first.ending.outcome == "interrupt"
    assert second.text == "yes"


async def test_a_question_comes_out_of_task_groups() -> None:
    async def agent(run: Any) -> Any:
        answers: list[Any] = []

        async def branch(name: str) -> None:
            async with run.subagent(name) as sub:
                await sub.say(f"{name} begins")
                if name == "b":
                    answers.append(await sub.ask("?", key=name))
                    await sub.say(f"{name} ends")
                else:
                    await asyncio.Event().wait() if not answers else None

        async with asyncio.TaskGroup() as outer:

            async def inner() -> None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(branch("b"))

            outer.create_task(inner())
        return answers

    thread = Thread()
    first = await thread.run(agent)
    second = await thread.resume(agent, "yes")
    (interrupt,) = first.ending.interrupts
    (suspended,) = first.of(SubagentFinishedEvent)
    assert suspended.outcome.type == "suspended"
    assert suspended.outcome.interrupt_ids == [interrupt.id]
    assert interrupt.subagent_run_id == suspended.subagent_run_id
    assert second.text == "b ends"
    assert second.of(SubagentFinishedEvent)[0].subagent_run_id == suspended.subagent_run_id
    assert second.last.result == ["yes"]
    assert assistant_texts(thread) == ["b begins", "b ends"]


async def test_questions_of_parallel_branches_are_asked_together_and_each_branch_is_muted_for_itself() -> None:
    def agent_with(pauses: dict[str, int]) -> Any:
        async def branch(run: Any, name: str) -> Any:
            await run.say(f"{name} begins")
            await let_tasks_run(pauses[name])
            answer = await run.ask(f"{name}?", key=name)
            await run.say(f"{name} ends")
            await let_tasks_run(pauses["end"])
            return answer

        async def agent(run: Any) -> Any:
            answers = await asyncio.gather(branch(run, "a"), branch(run, "b"))
            await run.say("both")
            return answers

        return agent

    for again in ({"a": 0, "b": 0, "end": 20}, {"a": 0, "b": 30, "end": 0}):
        thread = Thread()
        first = await thread.run(agent_with({"a": 0, "b": 0, "end": 20}))
        second = await thread.resume(agent_with(again), 1, 2)
        assert [interrupt.message for interrupt in first.ending.interrupts] == ["a?", "b?"]
        assert second.last.result == [1, 2]
        assert second.text == "a endsb endsboth"


async def test_an_agent_that_raises_an_interrupt_itself_is_not_replayed_and_keeps_its_session() -> None:
    async def agent(run: Any) -> Any:
        answers = {entry.interrupt_id: entry.payload for entry in run.resume}
        if "mine" in answers:
            return {"answer": answers["mine"], "kept": run.session}
        run.session["step"] = 1
        raise RunInterrupt(protocol.Interrupt(id="mine", reason="approval", message="?"))

    thread = Thread()
    first = await thread.run(agent)
    entry = ResumeEntry(interrupt_id="mine", status="resolved", payload=5)
    second = await thread.run(agent, resume=[entry])
    assert [interrupt.id for interrupt in first.ending.interrupts] == ["mine"]
    assert first.ending.asked == frozenset()
    assert second.last.result == {"answer": 5, "kept": {"step": 1}}


@pytest.mark.parametrize(
    ("ids", "rule"),
    [(["a", "a"], "INT-3"), (["a", "b", "a"], "INT-3")],
)
async def test_interrupts_of_an_agents_own_that_could_not_be_answered_are_refused(ids: list[str], rule: str) -> None:
    async def agent(run: Any) -> None:
        raise RunInterrupt(*(protocol.Interrupt(id=each, reason="approval") for each in ids))

    outcome = await run_agent(agent)
    assert outcome.last.code == "agent_output"
    assert rule in str(outcome.ending.error)


async def test_a_session_changed_before_a_question_is_changed_once() -> None:
    async def agent(run: Any) -> Any:
        run.session["n"] = run.session.get("n", 0) + 1
        await run.ask("?")

    thread = Thread()
    await thread.run(agent)
    await thread.resume(agent, 1)
    assert thread.session == {"n": 1}


def test_an_interrupt_has_at_least_one_question() -> None:
    with pytest.raises(ValueError, match="INT-1"):
        RunInterrupt()


# What is open around a question


async def test_a_message_goes_on_after_the_answer() -> None:
    async def agent(run: Any) -> None:
        async with run.text() as text, run.reasoning() as thought:
            await text.write("Hello ")
            await thought.write("hm")
            name = await run.ask("Who?")
            await text.write(name)

    async def yields(run: Any) -> Any:
        yield "Hello "
        yield await run.ask("Who?")

    for which in (agent, yields):
        thread = Thread()
        await thread.run(which)
        second = await thread.resume(which, "Ada")
        assert assistant_texts(thread) == ["Hello Ada"]
        assert second.types == [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]


async def test_a_message_that_is_not_continued_is_not_opened_again() -> None:
    async def agent(run: Any) -> None:
        async with run.text() as text:
            await text.write("Hello")
            await run.ask("?")

    thread = Thread()
    await thread.run(agent)
    assert (await thread.resume(agent, 1)).types == ["RUN_STARTED", "RUN_FINISHED"]


async def test_a_call_made_before_the_question_is_answered_after_it_under_its_own_id() -> None:
    async def agent(run: Any) -> None:
        call = await run.tool_call("search", {"q": 1})
        answer = await run.ask("?")
        await call.result({"found": answer})

    thread = Thread()
    first = await thread.run(agent)
    second = await thread.resume(agent, 3)
    assert second.of(ToolCallResultEvent)[0].tool_call_id == first.of(ToolCallStartEvent)[0].tool_call_id
    assert second.of(ToolCallStartEvent) == []
    assert thread.conversation.pending_tool_calls == []


async def test_steps_and_subagents_around_a_question_are_finished_after_it() -> None:
    async def agent(run: Any) -> None:
        async with run.step("plan") as step, run.subagent("writer") as sub, sub.subagent("helper") as helper:
            await helper.say("a")
            step.result = await helper.ask("?")
            await helper.say("b")
            sub.result = {"ok": True}

    thread = Thread()
    first = await thread.run(agent)
    second = await thread.resume(agent, 3)
    assert first.of(StepFinishedEvent)[0].metadata == {"aguila": {"status": "suspended"}}
    assert [event.outcome.type for event in first.of(SubagentFinishedEvent)] == ["suspended", "suspended"]
    assert second.types == [
        "RUN_STARTED",
        "STEP_STARTED",
        "SUBAGENT_STARTED",
        "SUBAGENT_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "SUBAGENT_FINISHED",
        "SUBAGENT_FINISHED",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ]
    assert second.of(SubagentFinishedEvent)[1].result == {"ok": True}
    assert second.of(StepFinishedEvent)[0].metadata == {"aguila": {"status": "completed", "result": 3}}
    assert assistant_texts(thread) == ["a", "b"]


async def works_in_a_step(run: Any) -> None:
    async with run.step("outer"), run.step("inner"):
        answer = await run.ask("?")
        await run.say(answer)
        call = await run.tool_call("t", {})
        await call.result("r")


def works_in_a_step_of_a_thread(run: Any) -> None:
    with run.step("outer"), run.step("inner"):
        answer = run.ask("?")
        run.say(answer)
        run.tool_call("t", {}).result("r")


async def yields_in_a_step(run: Any) -> Any:
    async with run.step("outer"), run.step("inner"):
        answer = await run.ask("?")
        yield answer
        call = await run.tool_call("t", {})
        await call.result("r")


async def works_in_a_step_with_the_help_of_tasks(run: Any) -> None:
    async with run.step("outer"), run.step("inner"):
        answer = await asyncio.create_task(run.ask("?"))
        await asyncio.create_task(run.say(answer))
        call = await run.tool_call("t", {})
        await call.result("r")


@pytest.mark.parametrize(
    "agent",
    [works_in_a_step, works_in_a_step_of_a_thread, yields_in_a_step, works_in_a_step_with_the_help_of_tasks],
)
async def test_what_is_said_after_an_answer_lies_in_the_steps_it_is_said_in(agent: Any) -> None:
    thread = Thread()
    await thread.run(agent)
    second = await thread.resume(agent, "yes")
    assert [event.step_name for event in second.events if "STEP" in str(event.type)] == [
        "outer",
        "inner",
        "inner",
        "outer",
    ]
    assert second.types[1:3] == ["STEP_STARTED", "STEP_STARTED"]
    assert second.types[3] == "TEXT_MESSAGE_START"
    assert second.types[-4:] == ["TOOL_CALL_RESULT", "STEP_FINISHED", "STEP_FINISHED", "RUN_FINISHED"]


@pytest.mark.parametrize("how", ["change", "patch", "snapshot"])
async def test_a_change_of_the_state_after_an_answer_lies_in_its_step(how: str) -> None:
    async def agent(run: Any) -> None:
        async with run.step("s"):
            answer = await run.ask("?")
            if how == "change":
                run.state["a"] = answer
            elif how == "patch":
                await run.patch_state([{"op": "add", "path": "/a", "value": answer}])
            else:
                await run.state_snapshot()

    thread = Thread()
    await thread.run(agent)
    events = (await thread.resume(agent, 1)).types
    assert [events[0], events[1], events[-2], events[-1]] == [
        "RUN_STARTED",
        "STEP_STARTED",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ]
    assert events[2].startswith("STATE_")
    assert len(events) == 5


async def test_a_branch_opens_only_its_own_steps_again() -> None:
    """While one branch is sent, the other has a step open that the earlier run has sent completely."""
    spoken = asyncio.Event()

    async def first(run: Any) -> None:
        async with run.step("first"):
            await run.say(await run.ask("One?", key="1"))
            spoken.set()

    async def second(run: Any) -> None:
        async with run.step("told"):
            await spoken.wait()
        async with run.step("second"):
            await run.say(await run.ask("Two?", key="2"))

    async def agent(run: Any) -> None:
        async with run.step("both"):
            errors = await asyncio.gather(first(run), second(run), return_exceptions=True)
            if any(errors):
                raise BaseExceptionGroup("asked", [error for error in errors if error is not None])

    thread = Thread()
    spoken.set()
    asked = await thread.run(agent)
    spoken.clear()
    answered = await thread.resume(agent, "1", "2")
    assert [interrupt.message for interrupt in asked.ending.interrupts] == ["One?", "Two?"]
    names = [event.step_name for event in answered.events if str(event.type) == "STEP_STARTED"]
    assert names == ["both", "first", "second"]
    assert answered.text == "12"


async def test_an_activity_goes_on_after_the_answer_as_one() -> None:
    async def agent(run: Any) -> None:
        activity = await run.activity("PLAN", {"steps": ["a"], "note": "x" * 100})
        await activity.update({"steps": ["a", "b"], "note": "x" * 100})
        answer = await run.ask("?")
        await activity.update({"steps": ["a", "b", answer], "note": "x" * 100})
        await activity.patch([{"op": "remove", "path": "/steps/0"}])

    thread = Thread()
    first = await thread.run(agent)
    second = await thread.resume(agent, "c")
    assert (len(first.of(ActivitySnapshotEvent)), len(first.of(ActivityDeltaEvent))) == (1, 1)
    assert (len(second.of(ActivitySnapshotEvent)), len(second.of(ActivityDeltaEvent))) == (1, 1)
    (activity,) = [message for message in thread.conversation.messages if message.role == "activity"]
    assert activity.content == {"steps": ["b", "c"], "note": "x" * 100}


async def test_state_is_brought_up_to_date_after_the_answer() -> None:
    async def agent(run: Any) -> None:
        run.state["before"] = 1
        await run.patch_state([{"op": "add", "path": "/patched", "value": 1}])
        run.state["list"].append(1)
        answer = await run.ask("?")
        run.state["after"] = answer
        await run.patch_state([{"op": "replace", "path": "/patched", "value": 2}])

    async def yields(run: Any) -> Any:
        yield StateDeltaEvent(delta=[{"op": "add", "path": "/before", "value": 1}])
        yield StateDeltaEvent(delta=[{"op": "add", "path": "/patched", "value": 1}])
        yield StateDeltaEvent(delta=[{"op": "add", "path": "/list/-", "value": 1}])
        answer = await run.ask("?")
        yield StateDeltaEvent(delta=[{"op": "add", "path": "/after", "value": answer}])
        yield StateDeltaEvent(delta=[{"op": "replace", "path": "/patched", "value": 2}])

    for which in (agent, yields):
        thread = Thread(state={"list": []})
        await thread.run(which)
        assert thread.conversation.state == {"before": 1, "patched": 1, "list": [1]}
        second = await thread.resume(which, 5)
        assert thread.conversation.state == {"before": 1, "patched": 2, "list": [1], "after": 5}
        operations = [operation for event in second.of(StateDeltaEvent) for operation in event.delta]
        assert sorted(operation["path"] for operation in operations) == ["/after", "/patched"]


async def test_a_replay_that_fails_before_its_question_leaves_the_clients_state_and_the_question_alone() -> None:
    fail = False

    async def agent(run: Any) -> None:
        if fail:
            raise ValueError
        run.state["n"] = 1
        await run.ask("?")

    thread = Thread()
    await thread.run(agent)
    fail = True
    assert (await thread.resume(agent, 1)).types == ["RUN_STARTED", "RUN_ERROR"]
    assert thread.conversation.state == {"n": 1}
    assert thread.shelf.settled == []


async def test_an_agent_that_ends_without_coming_to_its_question_ends_quietly(caplog: pytest.LogCaptureFixture) -> None:
    ask = True

    async def agent(run: Any) -> Any:
        await run.say("hello")
        if ask:
            await run.ask("?")
        run.state["done"] = True
        return {"ok": True}

    thread = Thread()
    await thread.run(agent)
    ask = False
    second = await thread.resume(agent, 1)
    assert second.types == ["RUN_STARTED", "STATE_DELTA", "RUN_FINISHED"]
    assert second.last.result == {"ok": True}
    assert thread.conversation.state == {"done": True}
    assert assistant_texts(thread) == ["hello"]
    assert "without reaching the question" in caplog.text


async def test_what_is_new_after_an_answer_never_has_an_id_of_an_earlier_run() -> None:
    """An agent that reaches its question in another way must not append to its earlier messages."""
    texts = ["a", "b"]

    async def agent(run: Any) -> None:
        for text in texts:
            await run.say(text)
        await run.ask("?")
        await run.say("c")

    thread = Thread()
    await thread.run(agent)
    texts.pop()
    await thread.resume(agent, 1)
    assert assistant_texts(thread) == ["a", "b", "c"]


async def test_what_is_said_on_the_way_out_of_a_question_is_a_message_of_its_own() -> None:
    async def agent(run: Any) -> None:
        try:
            await run.ask("?")
        finally:
            await run.say("waiting" if not run.session else "?")

    thread = Thread()
    await thread.run(agent)
    await thread.resume(agent, 1)
    assert assistant_texts(thread) == ["waiting", "waiting"]


# Approval


async def deletes(run: Any) -> Any:
    approval = await run.approve("delete", {"path": "/a"}, message="Delete it?")
    if approval:
        await approval.call.result(f"deleted {approval.arguments['path']}")
    else:
        await approval.call.result("refused")
    return {"approved": approval.approved, "arguments": approval.arguments, "reason": approval.reason}


def deletes_in_a_thread(run: Any) -> Any:
    approval = run.approve("delete", {"path": "/a"}, message="Delete it?")
    if approval:
        approval.call.result(f"deleted {approval.arguments['path']}")
    else:
        approval.call.result("refused")
    return {"approved": approval.approved, "arguments": approval.arguments, "reason": approval.reason}


@pytest.mark.parametrize("agent", [deletes, deletes_in_a_thread])
async def test_an_approved_call_is_the_agents_to_answer_also_if_the_front_end_has_such_a_tool(agent: Any) -> None:
    thread = Thread(tools=[Tool(name="delete", description="Deletes.")])
    first = await thread.run(agent)
    second = await thread.resume(agent, True)
    assert second.types == ["RUN_STARTED", "TOOL_CALL_RESULT", "RUN_FINISHED"]
    assert second.events[1].tool_call_id == first.ending.interrupts[0].tool_call_id
    assert second.last.outcome.pending_tool_call_ids is None


CASES: list[tuple[Any, bool, str, str | None]] = [
    ({"approved": True}, True, "/a", None),
    ({"accepted": True}, True, "/a", None),
    (True, True, "/a", None),
    ({"approved": True, "editedArgs": {"path": "/b"}}, True, "/b", None),
    ({"approved": True, "edited_args": {"path": "/b"}}, True, "/b", None),
    ({"approved": False, "reason": "no"}, False, "/a", "no"),
    ({"approved": False, "accepted": True}, False, "/a", None),
    ({"approved": "yes"}, False, "/a", None),
    ({"approved": 1}, False, "/a", None),
    ({}, False, "/a", None),
    (None, False, "/a", None),
    ("approved", False, "/a", None),
    (False, False, "/a", None),
    ({"approved": True, "editedArgs": "/b"}, False, "/a", "the edited arguments are not an object"),
]


@pytest.mark.parametrize("agent", [deletes, deletes_in_a_thread])
@pytest.mark.parametrize(("payload", "approved", "path", "reason"), CASES)
async def test_only_a_clear_yes_is_an_approval(
    agent: Any, payload: Any, approved: bool, path: str, reason: str | None
) -> None:
    thread = Thread()
    first = await thread.run(agent)
    second = await thread.resume(agent, payload)
    (interrupt,) = first.ending.interrupts
    assert (interrupt.reason, interrupt.message) == ("tool_call", "Delete it?")
    assert interrupt.response_schema is not None
    assert interrupt.tool_call_id == first.of(ToolCallStartEvent)[0].tool_call_id
    assert second.last.result == {"approved": approved, "arguments": {"path": path}, "reason": reason} | (
        {} if reason is not None else {"reason": None}
    )
    assert second.types == ["RUN_STARTED", "TOOL_CALL_RESULT", "RUN_FINISHED"]
    assert second.events[1].tool_call_id == interrupt.tool_call_id
    assert second.events[1].content == (f"deleted {path}" if approved else "refused")
    # The call stays as it was shown, so its result has the arguments that were used instead.
    told = {"aguila": {"arguments": {"path": path}}} if path != "/a" else None
    assert [one.metadata for one in thread.conversation.messages if one.role == "tool"] == [told]
    calls = [call for message in thread.conversation.messages for call in getattr(message, "tool_calls", None) or ()]
    assert [call.function.arguments for call in calls] == ['{"path":"/a"}']


async def deletes_several(run: Any) -> Any:
    told = await run.tool_call("keep", {"path": "/c"})
    approvals = await run.approve_all(
        [
            ProposedCall(tool_name="delete", args={"path": "/a"}),
            ProposedCall(tool_name="delete", args={"path": "/b"}, message="Really?", key="b", metadata={"k": 1}),
            ProposedCall(tool_name="keep", args={"path": "/c"}, call=told),
        ]
    )
    for approval in approvals:
        await approval.call.result(f"{approval.approved} {approval.arguments['path']}")
    return [approval.approved for approval in approvals]


def deletes_several_in_a_thread(run: Any) -> Any:
    told = run.tool_call("keep", {"path": "/c"})
    approvals = run.approve_all(
        [
            ProposedCall(tool_name="delete", args={"path": "/a"}),
            ProposedCall(tool_name="delete", args={"path": "/b"}, message="Really?", key="b", metadata={"k": 1}),
            ProposedCall(tool_name="keep", args={"path": "/c"}, call=told),
        ]
    )
    for approval in approvals:
        approval.call.result(f"{approval.approved} {approval.arguments['path']}")
    return [approval.approved for approval in approvals]


@pytest.mark.parametrize("agent", [deletes_several, deletes_several_in_a_thread])
async def test_several_calls_are_approved_at_once_in_one_run_and_one_that_was_shown_is_not_shown_again(
    agent: Any,
) -> None:
    thread = Thread(tools=[Tool(name="delete", description="Deletes."), Tool(name="keep", description="Keeps.")])
    first = await thread.run(agent)
    edited = {"approved": True, "editedArgs": {"path": "/z"}}
    second = await thread.resume(agent, edited, {"approved": False}, {"approved": True})
    asked = first.ending.interrupts
    assert [one.message for one in asked] == ["Allow the call of delete?", "Really?", "Allow the call of keep?"]
    assert [one.metadata for one in asked] == [None, {"k": 1}, None]
    calls = [event.tool_call_id for event in first.of(ToolCallStartEvent)]
    assert [one.tool_call_id for one in asked] == [calls[1], calls[2], calls[0]]
    assert second.types == ["RUN_STARTED", *["TOOL_CALL_RESULT"] * 3, "RUN_FINISHED"]
    assert [event.content for event in second.of(ToolCallResultEvent)] == ["True /z", "False /b", "True /c"]
    assert second.last.result == [True, False, True]
    assert second.last.outcome.pending_tool_call_ids is None


async def test_identical_calls_cannot_be_approved_at_once() -> None:
    async def agent(run: Any) -> None:
        await run.approve_all([ProposedCall(tool_name="delete", args={}, key="k")] * 2)

    assert (await run_agent(agent)).ending.outcome == "error"


async def test_ids_that_an_agent_asks_for_are_the_same_in_a_replay() -> None:
    seen: list[str] = []

    async def agent(run: Any) -> None:
        seen.append(run.new_id("thing"))
        await run.ask("?")
        seen.append(run.new_id("thing"))

    thread = Thread()
    await thread.run(agent)
    await thread.resume(agent, 1)
    assert seen[0] == seen[1] != seen[2]


async def test_giving_up_an_approval_cancels_the_run_as_giving_up_any_question_does() -> None:
    thread = Thread()
    await thread.run(deletes)
    assert (await thread.give_up(deletes)).ending.outcome == "cancelled"


async def answers_what_was_given_up(run: Any) -> Any:
    try:
        await run.approve("delete", {"path": "/"})
    except InterruptCancelled as given_up:
        (approval,) = given_up.answers
        await approval.call.result("kept")
        return [given_up.interrupt_ids, approval.approved, approval.reason]


def answers_what_was_given_up_in_a_thread(run: Any) -> Any:
    try:
        run.approve("delete", {"path": "/"})
    except InterruptCancelled as given_up:
        (approval,) = given_up.answers
        approval.call.result("kept")
        return [given_up.interrupt_ids, approval.approved, approval.reason]


@pytest.mark.parametrize("agent", [answers_what_was_given_up, answers_what_was_given_up_in_a_thread])
async def test_an_agent_may_answer_the_call_of_an_approval_that_was_given_up(agent: Any) -> None:
    thread = Thread()
    first = await thread.run(agent)
    second = await thread.give_up(agent)
    asked = first.ending.interrupts[0]
    assert second.last.result == [[asked.id], False, "cancelled"]
    assert [(one.tool_call_id, one.content) for one in second.of(ToolCallResultEvent)] == [(asked.tool_call_id, "kept")]


@pytest.mark.parametrize("expires_at", ["tomorrow", "", "2030-13-01T00:00:00Z", 5])
async def test_an_expiry_that_is_not_a_time_is_refused_at_the_call(expires_at: Any) -> None:
    async def agent(run: Any) -> Any:
        refused: list[str] = []
        for ask in (
            run.ask("?", expires_at=expires_at),
            run.ask_all([Question(question="?", expires_at=expires_at)]),
            run.approve("delete", {}, expires_at=expires_at),
        ):
            try:
                await ask
            except ValueError as error:
                refused.append(str(error))
        return refused

    outcome = await run_agent(agent)
    assert outcome.ending.outcome == "success"
    assert "TOOL_CALL_START" not in outcome.types
    assert [str(one).partition(" such")[0] for one in outcome.last.result] == ["expires_at is an ISO 8601 time"] * 3


@pytest.mark.parametrize("schema", [{"type": "strin"}, {"properties": 5}, {"$ref": "https://example.com/schema"}])
async def test_a_broken_schema_is_refused_at_the_call(schema: Any) -> None:
    async def agent(run: Any) -> None:
        try:
            await run.ask("?", schema=schema)
        except ValueError as error:
            run.result = {"refused": str(error)}

    assert "schema is not a usable JSON Schema: " in (await run_agent(agent)).last.result["refused"]


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"schema": str}, "schema must be a dict, not the class str"),
        ({"schema": "string"}, "schema must be a dict, not str"),
        ({"metadata": "x"}, "metadata must be a dict, not str"),
    ],
)
async def test_a_schema_and_metadata_of_another_type_are_refused_at_the_call(options: Any, refusal: str) -> None:
    async def agent(run: Any) -> None:
        try:
            await run.ask("?", **options)
        except ValueError as error:
            run.result = {"refused": str(error)}

    assert (await run_agent(agent)).last.result["refused"] == refusal


async def test_a_time_and_a_schema_that_are_in_order_are_asked_with() -> None:
    async def agent(run: Any) -> None:
        await run.ask("?", expires_at="2030-01-31T12:00:00Z", schema={"type": "string"})

    (asked,) = (await run_agent(agent)).ending.interrupts
    assert (asked.expires_at, asked.response_schema) == ("2030-01-31T12:00:00Z", {"type": "string"})


async def test_an_approval_of_other_arguments_is_another_question() -> None:
    path = "/a"

    async def agent(run: Any) -> Any:
        return (await run.approve("delete", {"path": path})).approved

    thread = Thread()
    await thread.run(agent)
    path = "/"
    assert (await thread.resume(agent, {"approved": True})).ending.outcome == "interrupt"
