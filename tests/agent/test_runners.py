"""Sync, async and generator agents give the same stream, in one task, and are closed at the end."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest
from agent_threads import ListSink, Thread, run_agent
from waiting import let_tasks_run, wait_until_async

from aguila.protocol import (
    CustomEvent,
    RunFinishedEvent,
    StateDeltaEvent,
    StepStartedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)

pytestmark = pytest.mark.anyio


async def async_generator(run: Any) -> Any:
    yield "Hello "
    yield "world"


async def async_function(run: Any) -> None:
    async with run.text() as text:
        await text.write("Hello ")
        await text.write("world")


def plain_generator(run: Any) -> Any:
    yield "Hello "
    yield "world"


def plain_function(run: Any) -> None:
    with run.text() as text:
        text.write("Hello ")
        text.write("world")


class AsyncObject:
    async def __call__(self, run: Any) -> Any:
        yield "Hello "
        yield "world"


class PlainObject:
    def __call__(self, run: Any) -> Any:
        yield "Hello "
        yield "world"


def wrapped(agent: Any) -> Any:
    @functools.wraps(agent)
    def wrapper(run: Any) -> Any:
        return agent(run)

    return wrapper


async def hands_on(run: Any) -> Any:
    return async_generator(run)


async def emits(run: Any) -> None:
    await run.emit(["Hello ", "world"])


def with_prefix(prefix: str, run: Any) -> Any:
    yield prefix
    yield "world"


async def official(run: Any) -> Any:
    from ag_ui import core

    yield core.RunStartedEvent(thread_id=run.thread_id, run_id=run.run_id)
    yield core.TextMessageStartEvent(message_id="m", role="assistant")
    yield core.TextMessageContentEvent(message_id="m", delta="Hello ")
    yield core.TextMessageContentEvent(message_id="m", delta="world")
    yield core.TextMessageEndEvent(message_id="m")
    yield core.RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id)


async def our_events(run: Any) -> Any:
    yield [TextMessageStartEvent(message_id="m"), TextMessageContentEvent(message_id="m", delta="Hello ")]
    yield (TextMessageContentEvent(message_id="m", delta="world"), TextMessageEndEvent(message_id="m"))


async def chunks(run: Any) -> Any:
    yield TextMessageChunkEvent(message_id="m", delta="Hello ")
    yield TextMessageChunkEvent(delta="world")


FORMS = [
    async_generator,
    async_function,
    plain_generator,
    plain_function,
    AsyncObject(),
    PlainObject(),
    wrapped(async_generator),
    wrapped(async_function),
    hands_on,
    emits,
    functools.partial(with_prefix, "Hello "),
    functools.partial(AsyncObject()),
    official,
    our_events,
    chunks,
]


@pytest.mark.parametrize("agent", FORMS, ids=lambda agent: getattr(agent, "__name__", type(agent).__name__))
async def test_every_form_of_agent_gives_the_same_stream(agent: Any) -> None:
    outcome = await run_agent(agent)
    assert outcome.types == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert outcome.text == "Hello world"
    assert outcome.ending.outcome == "success"


async def returns_text(run: Any) -> str:
    return "Hello"


def returns_text_from_a_thread(run: Any) -> str:
    return "Hello"


def returns_text_after_yielding(run: Any) -> Any:
    yield from ()
    return "Hello"


@pytest.mark.parametrize("agent", [returns_text, returns_text_from_a_thread, returns_text_after_yielding])
async def test_a_returned_string_is_a_text_message(agent: Any) -> None:
    outcome = await run_agent(agent)
    assert outcome.text == "Hello"
    assert outcome.last.result is None


@pytest.mark.parametrize("value", [{"a": [1, None]}, [], 0, False, 1.5])
@pytest.mark.parametrize("is_async", [True, False])
async def test_any_other_returned_json_value_is_the_result(value: Any, is_async: bool) -> None:
    async def on_the_loop(run: Any) -> Any:
        return value

    def in_a_thread(run: Any) -> Any:
        return value

    outcome = await run_agent(on_the_loop if is_async else in_a_thread)
    assert outcome.types == ["RUN_STARTED", "RUN_FINISHED"]
    assert outcome.last.result == value
    assert type(outcome.last.result) is type(value)


async def test_an_agent_that_says_nothing_finishes() -> None:
    async def agent(run: Any) -> None:
        return None

    assert (await run_agent(agent)).types == ["RUN_STARTED", "RUN_FINISHED"]


async def test_strings_go_on_after_state_and_custom_events_and_begin_anew_after_others() -> None:
    async def agent(run: Any) -> Any:
        yield "a"
        yield CustomEvent(name="x", value=1)
        yield StateDeltaEvent(delta=[{"op": "add", "path": "/n", "value": 1}])
        yield "b"
        yield StepStartedEvent(step_name="s")
        yield "c"
        await run.tool_call("search", {})
        yield "d"

    outcome = await run_agent(agent)
    starts = outcome.of(TextMessageStartEvent)
    texts = {start.message_id: "" for start in starts}
    for content in outcome.of(TextMessageContentEvent):
        texts[content.message_id] += content.delta
    assert list(texts.values()) == ["ab", "c", "d"]


async def test_empty_strings_are_nothing() -> None:
    async def agent(run: Any) -> Any:
        yield ""
        async with run.text() as text:
            await text.write("")

    assert (await run_agent(agent)).types == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"]


async def test_an_agents_own_run_finished_is_the_end_of_the_run() -> None:
    async def agent(run: Any) -> Any:
        yield TextMessageStartEvent(message_id="m")
        yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, result={"ok": True})

    outcome = await run_agent(agent)
    assert outcome.types == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert outcome.last.result == {"ok": True}


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.mark.parametrize("is_async", [True, False])
async def test_context_variables_hold_from_first_to_last_line(is_async: bool) -> None:
    async def on_the_loop(run: Any) -> Any:
        yield variable.get()
        token = variable.set("inside")
        task = asyncio.current_task()
        for _ in range(100):
            yield "."
        assert variable.get() == "inside"
        assert asyncio.current_task() is task
        variable.reset(token)

    def in_a_thread(run: Any) -> Any:
        yield variable.get()
        token = variable.set("inside")
        for _ in range(100):
            yield "."
        assert variable.get() == "inside"
        variable.reset(token)

    variable.set("outside")
    outcome = await Thread().run(on_the_loop if is_async else in_a_thread)
    assert outcome.ending.outcome == "success"
    assert outcome.text.startswith("outside")


async def test_a_context_variable_is_reset_where_it_was_set_when_a_generator_is_cancelled() -> None:
    seen: list[str] = []
    started = asyncio.Event()

    async def agent(run: Any) -> Any:
        token = variable.set("inside")
        try:
            yield "a"
            started.set()
            await asyncio.Event().wait()
        finally:
            variable.reset(token)  # ValueError in another context
            seen.append(variable.get())

    task = asyncio.create_task(Thread().run(agent))
    await started.wait()
    task.cancel()
    assert (await task).ending.outcome == "cancelled"
    assert seen == ["unset"]


async def test_a_generator_in_a_thread_waits_when_it_is_too_far_ahead() -> None:
    produced = 0
    stop = threading.Event()

    def agent(run: Any) -> Any:
        nonlocal produced
        while not stop.is_set() and produced < 100_000:
            produced += 1
            yield "."

    full, release = asyncio.Event(), asyncio.Event()

    class Stuck(ListSink):
        async def room(self) -> None:
            full.set()
            await release.wait()

    thread = Thread()
    thread.new_sink = Stuck
    task = asyncio.create_task(thread.run(agent))
    await full.wait()
    await wait_until_async(lambda: produced >= 64)
    await let_tasks_run(1000)  # the agent could produce more now, and must not
    standing = produced
    stop.set()
    release.set()
    await task
    assert standing <= 64 + 2


async def test_a_plain_function_that_returns_something_async_fails_with_the_reason_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcome = await run_agent(lambda run: async_generator(run))
    assert outcome.last.code == "agent_error"
    assert "functools.partial" in caplog.text
