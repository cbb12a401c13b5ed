"""Every run ends in exactly one terminal event. ``Thread`` verifies every stream."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from agent_threads import Outcome, Thread, run_agent
from waiting import DEADLINE, let_tasks_run, wait_until_async

from aguila import protocol
from aguila.agent import RunInterrupt
from aguila.errors import RunFailed, StaleLease, StoreUnavailable
from aguila.protocol import (
    CustomEvent,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
)

pytestmark = pytest.mark.anyio

SECRET = "the password is 1234"


async def raises(run: Any) -> Any:
    yield "a"
    raise ValueError(SECRET)


async def raises_at_once(run: Any) -> None:
    raise ValueError(SECRET)


def raises_when_called(run: Any) -> Any:
    raise ValueError(SECRET)


def raises_in_a_thread(run: Any) -> Any:
    yield "a"
    raise ValueError(SECRET)


async def exits(run: Any) -> Any:
    yield "a"
    sys.exit(SECRET)


def exits_in_a_thread(run: Any) -> Any:
    with run.text():
        sys.exit(SECRET)


async def presses_control_c(run: Any) -> Any:
    raise KeyboardInterrupt(SECRET)
    yield


async def cancels_itself(run: Any) -> Any:
    yield "a"
    raise asyncio.CancelledError(SECRET)


async def stops_iterating(run: Any) -> None:
    raise StopAsyncIteration(SECRET)


def stops_iterating_in_a_thread(run: Any) -> None:
    raise StopIteration(SECRET)


async def fails_in_a_group(run: Any) -> None:
    async def fail() -> None:
        raise ValueError(SECRET)

    async with run.text() as text, asyncio.TaskGroup() as group:
        await text.write("a")
        group.create_task(fail())


async def has_an_error_that_cannot_be_printed(run: Any) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Unprintable(SECRET)


async def raises_while_things_are_open(run: Any) -> None:
    async with run.step("s"), run.subagent("sub") as sub, sub.text() as text, run.reasoning() as thought:
        await text.write("a")
        await thought.write("b")
        raise ValueError(SECRET)


async def does_not_take_a_run() -> None:
    return None


FAILING = [
    raises,
    raises_at_once,
    raises_when_called,
    raises_in_a_thread,
    exits,
    exits_in_a_thread,
    presses_control_c,
    cancels_itself,
    stops_iterating,
    stops_iterating_in_a_thread,
    fails_in_a_group,
    has_an_error_that_cannot_be_printed,
    raises_while_things_are_open,
    does_not_take_a_run,
]


@pytest.mark.parametrize("agent", FAILING)
async def test_an_agent_that_fails_ends_in_one_run_error_without_details(
    agent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = await run_agent(agent)
    assert outcome.ending.outcome == "error"
    assert outcome.last.code == "agent_error"
    assert SECRET not in repr(outcome.events)
    assert outcome.last.message == f"The agent failed. Reference: {outcome.ending.reference}"
    (logged,) = [record for record in caplog.records if "failed" in record.getMessage()]
    assert (logged.name, vars(logged)["event"]) == ("aguila", "the run failed")
    reference = outcome.ending.reference
    assert vars(logged)["fields"] == {"thread": "t", "run": "run-1", "code": "agent_error", "reference": reference}
    assert logged.getMessage() == f"the run failed thread=t run=run-1 code=agent_error reference={reference}"
    assert logged.exc_info is not None


async def test_a_state_that_cannot_be_sent_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> None:
        run.state["x"] = {1, 2}
        await run.say("x")

    assert (await run_agent(agent)).last.code == "agent_output"
    assert [vars(record)["event"] for record in caplog.records] == ["the run failed"]


async def test_debug_sends_the_text_of_the_exception() -> None:
    assert SECRET in (await run_agent(raises, debug=True)).last.message
    assert (await run_agent(has_an_error_that_cannot_be_printed, debug=True)).ending.outcome == "error"


async def yields_bytes(run: Any) -> Any:
    yield b"a"


async def yields_none(run: Any) -> Any:
    yield None


async def yields_a_number(run: Any) -> Any:
    yield 1


async def yields_a_dict(run: Any) -> Any:
    yield {"type": "TEXT_MESSAGE_START", "messageId": "m"}


async def yields_a_list_with_garbage(run: Any) -> Any:
    yield ["a", object()]


async def yields_a_class(run: Any) -> Any:
    yield TextMessageStartEvent


async def yields_an_official_message(run: Any) -> Any:
    from ag_ui import core

    yield core.UserMessage(id="u", content="hi")


async def ends_what_is_not_open(run: Any) -> Any:
    yield TextMessageEndEvent(message_id="m")


async def opens_twice(run: Any) -> Any:
    yield TextMessageStartEvent(message_id="m")
    yield TextMessageStartEvent(message_id="m")


async def starts_another_run(run: Any) -> Any:
    yield RunStartedEvent(thread_id="t", run_id="other")


async def starts_twice(run: Any) -> Any:
    yield "a"
    yield RunStartedEvent(thread_id="t", run_id=run.run_id)


async def finishes_another_run(run: Any) -> Any:
    yield RunFinishedEvent(thread_id="t", run_id="other")


async def goes_on_after_the_end(run: Any) -> Any:
    yield RunFinishedEvent(thread_id="t", run_id=run.run_id)
    yield "more"


async def sends_events_after_the_end(run: Any) -> Any:
    yield RunFinishedEvent(thread_id="t", run_id=run.run_id)
    yield CustomEvent(name="x", value=1)


async def yields_an_event_with_a_wrong_member(run: Any) -> Any:
    yield TextMessageStartEvent(message_id=5)  # type: ignore[arg-type]


async def yields_what_is_not_json(run: Any) -> Any:
    yield CustomEvent(name="x", value={"a": object()})


async def yields_infinity(run: Any) -> Any:
    yield CustomEvent(name="x", value=float("inf"))


async def returns_what_is_not_json(run: Any) -> Any:
    return {"a": object()}


async def has_a_result_that_is_not_json(run: Any) -> None:
    run.result = {1: 2}


async def has_a_session_that_is_not_json(run: Any) -> None:
    run.session["x"] = object()


async def has_a_state_that_is_not_json(run: Any) -> Any:
    yield "a"
    run.state["x"] = object()


async def has_a_state_that_contains_itself(run: Any) -> None:
    run.state["x"] = run.state


async def writes_after_closing(run: Any) -> None:
    async with run.text() as text:
        pass
    await text.write("a")


async def writes_bytes(run: Any) -> None:
    async with run.text() as text:
        await text.write(b"a")


async def asks_with_a_schema_that_is_not_json(run: Any) -> None:
    await run.ask("?", schema={"a": object()})


async def raises_an_interrupt_that_is_not_json(run: Any) -> None:
    raise RunInterrupt(protocol.Interrupt(id="i", reason="r", metadata={"a": object()}))


async def finishes_with_garbage(run: Any) -> Any:
    yield RunFinishedEvent(thread_id="t", run_id=run.run_id, result=object())


async def finishes_with_pending_calls_that_are_not(run: Any) -> Any:
    yield RunFinishedEvent(
        thread_id="t",
        run_id=run.run_id,
        outcome=protocol.RunFinishedSuccessOutcome(pending_tool_call_ids=["nothing"]),
    )


def yields_garbage_in_a_thread(run: Any) -> Any:
    yield "a"
    yield object()
    yield "b"


def yields_garbage_in_a_thread_and_reads_the_state(run: Any) -> Any:
    run.state["n"] = 1
    yield object()


async def answers_a_frontend_tool(run: Any) -> None:
    call = await run.tool_call("frontend", {})
    await call.result("no")


GARBAGE = [
    yields_bytes,
    yields_none,
    yields_a_number,
    yields_a_dict,
    yields_a_list_with_garbage,
    yields_a_class,
    yields_an_official_message,
    ends_what_is_not_open,
    opens_twice,
    starts_another_run,
    starts_twice,
    finishes_another_run,
    goes_on_after_the_end,
    sends_events_after_the_end,
    yields_an_event_with_a_wrong_member,
    yields_what_is_not_json,
    yields_infinity,
    returns_what_is_not_json,
    has_a_result_that_is_not_json,
    has_a_session_that_is_not_json,
    has_a_state_that_is_not_json,
    has_a_state_that_contains_itself,
    writes_after_closing,
    writes_bytes,
    asks_with_a_schema_that_is_not_json,
    raises_an_interrupt_that_is_not_json,
    finishes_with_garbage,
    finishes_with_pending_calls_that_are_not,
    yields_garbage_in_a_thread,
    yields_garbage_in_a_thread_and_reads_the_state,
    answers_a_frontend_tool,
]


@pytest.mark.parametrize("agent", GARBAGE)
async def test_an_agent_that_says_what_cannot_be_sent_ends_in_one_run_error(agent: Any) -> None:
    outcome = await run_agent(agent, tools=[protocol.Tool(name="frontend", description="")])
    assert outcome.ending.outcome == "error"
    assert outcome.last.code == "agent_output"


async def test_an_agents_own_run_error_is_the_end_even_after_its_run_finished() -> None:
    async def agent(run: Any) -> Any:
        yield RunFinishedEvent(thread_id="t", run_id=run.run_id)
        yield RunErrorEvent(message="sorry", code="mine")

    outcome = await run_agent(agent)
    assert outcome.types == ["RUN_STARTED", "RUN_ERROR"]
    assert (outcome.last.message, outcome.last.code) == ("sorry", "mine")


async def test_an_agents_own_run_error_is_not_followed_by_what_it_still_raises() -> None:
    async def agent(run: Any) -> Any:
        yield RunErrorEvent(message="sorry", code="mine")
        yield RunErrorEvent(message="again")

    assert (await run_agent(agent)).last.message == "sorry"


@pytest.mark.parametrize("then", ["text", "raise"])
async def test_an_agents_own_run_error_keeps_its_code_whatever_comes_after(
    then: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(run: Any) -> Any:
        yield RunErrorEvent(message="sorry", code="quota")
        if then == "raise":
            raise RuntimeError(SECRET)
        yield "more"

    outcome = await run_agent(agent)
    assert outcome.types == ["RUN_STARTED", "RUN_ERROR"]
    assert (outcome.last.message, outcome.last.code) == ("sorry", "quota")
    assert outcome.ending.outcome == "error"
    assert [vars(one)["event"] for one in caplog.records] == ["the agent raised after its own RUN_ERROR"]


@pytest.mark.parametrize(
    "told",
    [RunFinishedCancelledOutcome(), RunFinishedInterruptOutcome(interrupts=[protocol.Interrupt(id="i", reason="r")])],
)
async def test_an_agents_own_outcome_is_the_runs(told: Any) -> None:
    async def agent(run: Any) -> Any:
        yield RunFinishedEvent(thread_id="t", run_id=run.run_id, outcome=told)

    outcome = await run_agent(agent)
    assert outcome.ending.outcome == told.type
    assert outcome.last.outcome == told


async def test_an_agent_that_was_given_up_is_closed() -> None:
    closed: list[str] = []

    async def agent(run: Any) -> Any:
        try:
            yield b"garbage"
        finally:
            closed.append(threading.current_thread().name)

    def agent_in_a_thread(run: Any) -> Any:
        try:
            yield b"garbage"
            for _ in range(1000):
                yield "a"
        finally:
            closed.append("thread")

    await run_agent(agent)
    await run_agent(agent_in_a_thread)
    assert closed == [threading.current_thread().name, "thread"]


async def test_an_agent_that_fails_while_it_is_closed_fails_once(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> Any:
        try:
            yield b"garbage"
        finally:
            raise RuntimeError("in finally")

    outcome = await run_agent(agent)
    assert outcome.last.code == "agent_output"
    assert "in finally" in caplog.text


async def test_an_agent_that_will_not_be_closed_is_given_up() -> None:
    async def agent(run: Any) -> Any:
        try:
            yield b"garbage"
        except GeneratorExit:
            yield "I am not done"

    assert (await run_agent(agent)).last.code == "agent_output"


async def test_an_agent_that_never_finishes_closing_is_given_up() -> None:
    async def agent(run: Any) -> Any:
        try:
            yield b"garbage"
        finally:
            await asyncio.Event().wait()

    thread = Thread()
    thread.grace = 0.01
    assert (await thread.run(agent)).last.code == "agent_output"


# Cancelling


async def cancel(agent: Any, started: Any, **options: Any) -> tuple[Thread, Outcome]:
    thread = Thread()
    thread.grace = options.get("grace", 5.0)
    task = asyncio.create_task(thread.run(agent))
    await wait_until_async(started)
    task.cancel()
    return thread, await task


async def test_cancelling_closes_what_is_open_and_ends_as_cancelled() -> None:
    started = False

    async def agent(run: Any) -> None:
        nonlocal started
        async with run.step("s"), run.subagent("sub") as sub, sub.text() as text:
            await text.write("half a")
            call = run.stream_tool_call("search")
            await call.__aenter__()
            started = True
            await asyncio.Event().wait()

    _, outcome = await cancel(agent, lambda: started)
    assert outcome.ending.outcome == "cancelled"
    assert outcome.last.outcome.type == "cancelled"
    assert "SUBAGENT_ERROR" in outcome.types
    assert "TOOL_CALL_END" in outcome.types


async def test_a_generator_in_a_thread_is_closed_when_the_run_is_cancelled() -> None:
    events: list[str] = []

    def agent(run: Any) -> Any:
        try:
            with run.text() as text:
                text.write("a")
                while True:
                    events.append("yield")
                    yield "."
        finally:
            events.append("closed" if run.is_cancelled else "?")

    _, outcome = await cancel(agent, lambda: events)
    assert outcome.ending.outcome == "cancelled"
    assert events[-1] == "closed"


async def test_a_function_in_a_thread_ends_at_its_next_step_when_the_run_is_cancelled() -> None:
    seen: list[str] = []

    def agent(run: Any) -> None:
        try:
            while True:
                try:
                    run.say("a")
                    seen.append("said")
                except Exception:  # noqa: BLE001
                    continue
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    _, outcome = await cancel(agent, lambda: seen)
    assert outcome.ending.outcome == "cancelled"
    assert seen[-1] == "cancelled"


async def test_a_thread_that_hangs_is_left_behind() -> None:
    hanging, release = threading.Event(), threading.Event()

    def agent(run: Any) -> str:
        run.say("a")
        hanging.set()
        release.wait(DEADLINE)
        return "too late"

    _, outcome = await cancel(agent, hanging.is_set, grace=0.01)
    release.set()
    assert outcome.ending.outcome == "cancelled"
    assert outcome.text == "a"


async def test_an_agent_may_have_a_last_word_when_it_is_cancelled() -> None:
    started = False

    async def agent(run: Any) -> Any:
        nonlocal started
        try:
            started = True
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield "stopped"
            raise

    _, outcome = await cancel(agent, lambda: started)
    assert outcome.text == "stopped"
    assert outcome.ending.outcome == "cancelled"


@pytest.mark.parametrize("how", ["returns", "raises", "asks"])
async def test_whatever_an_agent_makes_of_its_cancellation_the_run_is_cancelled(how: str) -> None:
    started = False

    async def agent(run: Any) -> Any:
        nonlocal started
        try:
            started = True
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "raises":
                raise ValueError("no") from None
            if how == "asks":
                await run.ask("Really?")
            return {"done": True}

    _, outcome = await cancel(agent, lambda: started)
    assert outcome.ending.outcome == "cancelled"
    assert outcome.last.result is None


async def test_an_agent_that_swallows_its_cancellation_is_left_behind_and_its_output_dropped() -> None:
    sent = ended = False

    async def agent(run: Any) -> None:
        nonlocal sent, ended
        while True:
            try:
                await run.say("a")
                sent = True
                await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                if str(error) == "the run is over":
                    ended = True
                    raise

    thread, outcome = await cancel(agent, lambda: sent, grace=0.01)
    size = len(outcome.events)
    await wait_until_async(lambda: ended)
    assert len(thread.log) == size
    assert outcome.ending.outcome == "cancelled"


async def test_an_agent_that_swallows_everything_for_ever_does_not_stop_the_loop() -> None:
    sent = stop = False

    async def agent(run: Any) -> None:
        nonlocal sent
        while not stop:
            try:
                await run.say("a")
                sent = True
            except BaseException:  # noqa: BLE001
                pass

    _, outcome = await cancel(agent, lambda: sent, grace=0.01)
    await let_tasks_run()
    stop = True
    assert outcome.ending.outcome == "cancelled"


async def test_cancelling_twice_does_not_wait_for_the_agent() -> None:
    started = swallowed = False

    async def agent(run: Any) -> None:
        nonlocal started, swallowed
        started = True
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed = True
            await asyncio.Event().wait()

    thread = Thread()
    thread.grace = 1000.0
    task = asyncio.create_task(thread.run(agent))
    await wait_until_async(lambda: started)
    task.cancel()
    await wait_until_async(lambda: swallowed)
    task.cancel()
    outcome = await task
    assert task.cancelling() == 0
    assert outcome.ending.outcome == "cancelled"


async def test_a_run_cancelled_when_its_agent_was_done_is_what_it_was() -> None:
    done: asyncio.Task[Any] | None = None

    async def agent(run: Any) -> str:
        nonlocal done
        done = asyncio.current_task()
        return "done"

    task = asyncio.create_task(Thread().run(agent))
    await wait_until_async(lambda: done is not None and done.done())
    assert not task.done()
    task.cancel()
    assert (await task).ending.outcome == "success"


async def test_output_of_tasks_that_an_agent_leaves_running_is_dropped_after_the_end() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def agent(run: Any) -> None:
        async def linger() -> None:
            await asyncio.sleep(0)
            await let_tasks_run(10)
            await run.say("too late")

        tasks.append(asyncio.create_task(linger()))
        await run.say("in time")

    thread = Thread()
    outcome = await thread.run(agent)
    await asyncio.wait(tasks)
    assert tasks[0].cancelled()
    assert len(thread.log) == len(outcome.events)
    assert outcome.text == "in time"


# The sink


async def test_a_sink_that_refuses_ends_the_run() -> None:
    def refuse(event: Any) -> None:
        if isinstance(event, TextMessageContentEvent):
            raise StoreUnavailable("disk full")

    async def agent(run: Any) -> None:
        while True:
            try:
                await run.say("a")
            except Exception as error:
                if not isinstance(error, StoreUnavailable):
                    raise
                break
        await run.say("b")

    thread = Thread()
    thread.refuse = refuse
    outcome = await thread.run(agent)
    assert outcome.types == ["RUN_STARTED", "TEXT_MESSAGE_START", "RUN_ERROR"]
    assert outcome.last.code == "run_unwritable"


async def test_a_sink_that_refuses_the_end_gets_a_run_error() -> None:
    def refuse(event: Any) -> None:
        if isinstance(event, RunFinishedEvent):
            raise StoreUnavailable("disk full")

    async def raises_nothing(run: Any) -> Any:
        yield "a"

    thread = Thread()
    thread.refuse = refuse
    outcome = await thread.run(raises_nothing)
    assert outcome.last.code == "run_unwritable"


async def test_a_sink_that_refuses_everything_is_reported() -> None:
    def refuse(event: Any) -> None:
        raise StaleLease("someone else has it")

    thread = Thread()
    thread.refuse = refuse
    outcome = await thread.run(raises)
    assert outcome.ending.outcome == "error"
    assert not outcome.ending.is_written
    assert isinstance(outcome.ending.error, StaleLease)


# Usage and session


@pytest.mark.parametrize("end", ["success", "cancelled", "error", "interrupt"])
async def test_usage_is_added_up_on_every_end(end: str) -> None:
    started = False

    async def agent(run: Any) -> None:
        nonlocal started
        run.add_usage(TokenUsage(provider="p", model="m", input_tokens=1))
        run.add_usage(TokenUsage(provider="p", model="m", input_tokens=2, output_tokens=3))
        run.add_usage(TokenUsage(provider="p", model="n", output_tokens=4))
        started = True
        if end == "error":
            raise ValueError
        if end == "interrupt":
            await run.ask("?")
        if end == "cancelled":
            await asyncio.Event().wait()

    outcome = (await cancel(agent, lambda: started))[1] if end == "cancelled" else await run_agent(agent)
    assert outcome.ending.outcome == end
    assert outcome.last.usage == [
        TokenUsage(provider="p", model="m", input_tokens=3, output_tokens=3),
        TokenUsage(provider="p", model="n", output_tokens=4),
    ]


async def test_the_terminal_event_lists_the_model_calls_if_a_model_was_called_twice() -> None:
    async def calls_twice(run: Any) -> None:
        run.add_usage(TokenUsage(provider="p", model="m", input_tokens=1, output_tokens=2))
        run.add_usage(TokenUsage(provider="p", model="m", input_tokens=4, output_tokens=3))

    async def calls_two_models(run: Any) -> None:
        run.add_usage(TokenUsage(model="m", input_tokens=1))
        run.add_usage(TokenUsage(model="n", input_tokens=4))

    assert (await run_agent(calls_twice)).last.metadata == {
        "aguila": {
            "modelCalls": [
                {"provider": "p", "model": "m", "inputTokens": 1, "outputTokens": 2},
                {"provider": "p", "model": "m", "inputTokens": 4, "outputTokens": 3},
            ]
        }
    }
    assert (await run_agent(calls_two_models)).last.metadata is None


async def test_usage_that_is_none_is_refused_when_it_is_added() -> None:
    async def agent(run: Any) -> None:
        run.add_usage(TokenUsage(input_tokens=-1))

    assert (await run_agent(agent)).ending.outcome == "error"


async def test_the_session_is_kept_unless_the_run_fails() -> None:
    async def counts(run: Any) -> None:
        run.session["n"] = run.session.get("n", 0) + 1

    async def counts_and_fails(run: Any) -> None:
        await counts(run)
        raise ValueError

    thread = Thread()
    sessions: list[Any] = []
    for agent in (counts, counts, counts_and_fails, counts):
        await thread.run(agent)
        sessions.append(thread.session)
    assert not any("session" in repr(event) for event in thread.log)
    assert sessions == [{"n": 1}, {"n": 2}, {"n": 2}, {"n": 3}]


async def test_a_state_that_is_nested_too_deep_is_logged_in_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> Any:
        inner = run.state
        for _ in range(600):
            inner["a"] = {}
            inner = inner["a"]
        yield "x"

    outcome = await run_agent(agent)
    assert outcome.ending.outcome == "error"
    assert "nested deeper than" in caplog.text
    assert len(caplog.text) < 5_000


async def test_a_run_that_its_agent_fails_deliberately_logs_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> None:
        raise RunFailed("The shop is closed.", code="closed")

    outcome = await run_agent(agent)
    assert (outcome.last.message, outcome.last.code) == ("The shop is closed.", "closed")
    (record,) = caplog.records
    assert record.exc_info is None
    assert "The shop is closed." in record.getMessage()


async def test_a_failure_with_a_cause_logs_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> None:
        try:
            raise ConnectionError("no route")
        except ConnectionError as error:
            raise RunFailed("The shop cannot be reached.") from error

    assert (await run_agent(agent)).last.message == "The shop cannot be reached."
    (record,) = caplog.records
    assert record.exc_info is not None
