"""Agents that do everything wrong, and how their runs have to end all the same.

``BAD`` names each with its ending: an error code, an outcome, or ``cancel``: it never ends unless it is cancelled, and
that must do. They share one server and one SQLite file.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aguila import App
from aguila.protocol import (
    CustomEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StepFinishedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from aguila.server import Timing
from aguila.store import SQLiteStore

SECRET = "hunter2"
BAD: dict[str, tuple[Callable[[Any], Any], str]] = {}


def bad(ending: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def remember(agent: Callable[[Any], Any]) -> Callable[[Any], Any]:
        BAD[agent.__name__] = (agent, ending)
        return agent

    return remember


# Raising


@bad("agent_error")
async def raises_at_once(run: Any) -> None:
    raise RuntimeError(SECRET)


@bad("agent_error")
async def raises_with_everything_open(run: Any) -> None:
    async with run.step("step"), run.reasoning() as reasoning:
        await reasoning.write("hm")
        async with run.stream_tool_call("search") as call, run.text() as text:
            await call.args('{"q":')
            await text.write("so far")
            raise RuntimeError(SECRET)


@bad("agent_error")
async def raises_in_a_generator(run: Any) -> Any:
    yield "so far"
    raise RuntimeError(SECRET)


@bad("agent_error")
async def exits(run: Any) -> None:
    await run.say("so far")
    sys.exit(SECRET)


@bad("agent_error")
async def is_interrupted_from_the_keyboard(run: Any) -> None:
    raise KeyboardInterrupt


@bad("agent_error")
async def raises_a_group(run: Any) -> None:
    async def fail() -> None:
        raise RuntimeError(SECRET)

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        group.create_task(asyncio.Event().wait())


@bad("agent_error")
async def recurses(run: Any) -> None:
    await run.say("so far")

    def deeper(depth: int) -> int:
        return deeper(depth + 1)

    deeper(0)


@bad("agent_error")
async def cancels_itself(run: Any) -> None:
    await run.say("so far")
    raise asyncio.CancelledError


@bad("agent_error")
def raises_in_a_thread(run: Any) -> None:
    run.say("so far")
    raise RuntimeError(SECRET)


@bad("agent_error")
def raises_in_a_generator_in_a_thread(run: Any) -> Any:
    yield "so far"
    raise RuntimeError(SECRET)


# Garbage


@bad("agent_output")
async def yields_an_object(run: Any) -> Any:
    yield "so far"
    yield object()


@bad("agent_output")
async def yields_bytes(run: Any) -> Any:
    yield "so far"
    yield SECRET.encode()


@bad("agent_output")
def yields_garbage_in_a_thread(run: Any) -> Any:
    yield "so far"
    yield {1, 2, 3}


@bad("agent_output")
async def yields_what_is_no_json(run: Any) -> Any:
    yield CustomEvent(name="x", value={"a": float("nan")})


@bad("agent_output")
async def returns_an_object(run: Any) -> Any:
    return object()


@bad("agent_output")
async def says_too_much(run: Any) -> Any:
    yield "x" * (11 * 1024 * 1024)


# Order


@bad("agent_output")
async def ends_what_never_began(run: Any) -> Any:
    yield TextMessageEndEvent(message_id="nothing")


@bad("agent_output")
async def writes_into_what_never_began(run: Any) -> Any:
    yield "so far"
    yield ToolCallArgsEvent(tool_call_id="nothing", delta="{")


@bad("agent_output")
async def begins_twice(run: Any) -> Any:
    yield TextMessageStartEvent(message_id="m", role="assistant")
    yield TextMessageStartEvent(message_id="m", role="assistant")


@bad("agent_output")
async def finishes_a_step_that_is_not_on(run: Any) -> Any:
    yield StepFinishedEvent(step_name="nothing")


@bad("agent_output")
async def starts_another_run(run: Any) -> Any:
    yield "so far"
    yield RunStartedEvent(thread_id="other", run_id="other")
    yield "more"


@bad("agent_output")
async def patches_what_is_not_there(run: Any) -> Any:
    yield StateDeltaEvent(delta=[{"op": "remove", "path": "/nothing"}])


@bad("success")
async def leaves_everything_open(run: Any) -> Any:
    yield TextMessageStartEvent(message_id="m", role="assistant")
    yield TextMessageContentEvent(message_id="m", delta="open")
    yield ToolCallStartEvent(tool_call_id="c", tool_call_name="search")
    yield ToolCallArgsEvent(tool_call_id="c", delta="{}")


@bad("any")
async def goes_on_after_its_own_end(run: Any) -> Any:
    yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id)
    yield "more"
    yield RunErrorEvent(message="and more")


@bad("own_words")  # an error of its own stays, whatever comes after it
async def fails_and_finishes(run: Any) -> Any:
    yield RunErrorEvent(message="failed", code="own_words")
    yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id)


@bad("any")
async def finishes_somebody_elses_run(run: Any) -> Any:
    yield TextMessageStartEvent(message_id="m", role="assistant")
    yield RunFinishedEvent(thread_id="other", run_id="other")


# Swallowing


@bad("interrupt")
async def swallows_its_question(run: Any) -> None:
    try:
        await run.ask("Well?")
    except BaseException:  # noqa: BLE001
        await asyncio.sleep(0)
    for _ in range(3):
        try:
            await run.say("went on")
        except BaseException:  # noqa: BLE001
            await asyncio.sleep(0)


@bad("any")
async def swallows_every_refusal(run: Any) -> None:
    for event in (
        TextMessageEndEvent(message_id="nothing"),
        ToolCallEndEvent(tool_call_id="nothing"),
        object(),
        CustomEvent(name="x", value=object()),
    ) * 20:
        try:
            await run.emit(event)
        except BaseException:  # noqa: BLE001
            await asyncio.sleep(0)
    await run.say("as if nothing had happened")


@bad("success")
async def leaves_a_task_that_writes_on(run: Any) -> None:
    async def write() -> None:
        while True:
            await run.say("from behind")
            await asyncio.sleep(0)

    left.append(asyncio.create_task(write()))
    await run.say("done")


left: list[asyncio.Task[None]] = []


@bad("success")
async def leaves_a_handle_open_and_writes_later(run: Any) -> None:
    text = run.text()
    await text.__aenter__()
    await text.write("open")


# Hanging


@bad("cancel")
async def hangs(run: Any) -> None:
    async with run.text() as text:
        await text.write("so far")
        await asyncio.Event().wait()


@bad("cancel")
async def hangs_and_will_not_be_cancelled(run: Any) -> None:
    await run.say("so far")
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:  # noqa: BLE001
            try:
                await run.say("no")
            except BaseException:  # noqa: BLE001
                await asyncio.sleep(0)


@bad("cancel")
async def hangs_in_a_generator_that_will_not_close(run: Any) -> Any:
    while True:
        try:
            yield "so far"
            await asyncio.sleep(0.01)
        except BaseException:  # noqa: BLE001
            await asyncio.sleep(0)


@bad("cancel")
async def raises_when_it_is_cancelled(run: Any) -> None:
    await run.say("so far")
    try:
        await asyncio.Event().wait()
    finally:
        raise RuntimeError(SECRET)


@bad("cancel")
async def returns_when_it_is_cancelled(run: Any) -> Any:
    await run.say("so far")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return {"as if": "nothing had happened"}


@bad("cancel")
async def asks_when_it_is_cancelled(run: Any) -> None:
    await run.say("so far")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await run.ask("Really?")


@bad("cancel")
def hangs_in_a_thread(run: Any) -> None:
    run.say("so far")
    threading.Event().wait()


@bad("cancel")
def never_ends_in_a_thread(run: Any) -> Any:
    while True:
        try:
            yield "so far"
        except BaseException:  # noqa: BLE001
            threading.Event().wait(0.01)


def build(folder: Path) -> Any:
    """Return an app with all bad agents, each below its name."""
    from starlette.applications import Starlette

    root = Starlette()
    store = SQLiteStore(folder / "threads.db")
    for name, (agent, _) in BAD.items():
        App(agent, store=store, timing=Timing(cancel_grace=0.3)).mount_on(root, f"/{name}")
    return root
