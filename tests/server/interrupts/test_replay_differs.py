"""A replay that does not repeat what was sent before the question is reported with the first difference."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from builders import user_json
from serving import serving, text_of

from aguila import App
from aguila.errors import RunFailed
from aguila.testing import sync_client_for


def texts() -> Callable[[Any], Any]:
    numbers = itertools.count(1)

    async def agent(run: Any) -> Any:
        yield f"Offer {next(numbers)}: "
        answer = await run.ask("Take it?")
        yield f"you said {answer}"

    return agent


def messages() -> Callable[[Any], Any]:
    lengths = itertools.count(5, -1)

    async def agent(run: Any) -> Any:
        await run.say("x" * next(lengths))
        yield await run.ask("Enough?")

    return agent


def calls() -> Callable[[Any], Any]:
    numbers = itertools.count(1)

    async def agent(run: Any) -> Any:
        call = await run.tool_call("draw", {"card": next(numbers)})
        await call.result("drawn")
        yield await run.ask("Another?")

    return agent


def results() -> Callable[[Any], Any]:
    numbers = itertools.count(1)

    async def agent(run: Any) -> Any:
        call = await run.tool_call("roll", {})
        await call.result(f"a {next(numbers)}")
        yield await run.ask("Again?")

    return agent


def reasoning() -> Callable[[Any], Any]:
    numbers = itertools.count(1)

    async def agent(run: Any) -> Any:
        async with run.reasoning() as thought:
            await thought.write(f"Thought {next(numbers)}")
        yield await run.ask("Go on?")

    return agent


DIFFERENT = [
    (texts, "was '1: ' from character 6 and is '2: ' now"),
    (messages, "was 'x' from character 4 and is '' now"),
    (calls, """was '1}' from character 8 and is '2}' now"""),
    (results, "was 'a 1' and is 'a 2' now"),
    (reasoning, "was '1' from character 8 and is '2' now"),
]


def answer_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    return [{"interruptId": interrupt["id"], "status": "resolved", "payload": "yes"}]


@pytest.mark.parametrize(("make", "difference"), DIFFERENT, ids=[row[0].__name__ for row in DIFFERENT])
def test_with_debug_the_run_fails_with_the_first_difference(make: Any, difference: str) -> None:
    with serving(App(make(), debug=True)) as server:
        first = server.events(run_id="r1", messages=[user_json("u", "Hi")])
        ended = server.events(run_id="r2", resume=answer_of(first))[-1]
    assert ended["type"] == "RUN_ERROR"
    assert "does not repeat what it sent before the question" in ended["message"]
    assert difference in ended["message"]
    assert "run.once" in ended["message"]


def test_without_debug_it_is_a_notice_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="aguila"), serving(App(texts())) as server:
        first = server.events(run_id="r1", messages=[user_json("u", "Hi")])
        events = server.events(run_id="r2", resume=answer_of(first))
    assert events[-1]["outcome"] == {"type": "success"}
    assert text_of(events) == "you said yes"
    (record,) = [record for record in caplog.records if "replay-differs" in record.getMessage()]
    assert "was '1: ' from character 6" in record.getMessage()


def test_in_tests_of_an_agent_it_is_an_error() -> None:
    with sync_client_for(texts()) as client:
        thread = client.thread()
        result = thread.run("Hi").result()
        with pytest.raises(RunFailed, match="does not repeat what it sent"):
            thread.resume({result.interrupts[0].id: "yes"}).result()


@pytest.mark.parametrize("history", ["client", "server"])
def test_a_replay_that_repeats_everything_is_not_reported(history: Any) -> None:
    async def agent(run: Any) -> Any:
        yield "One, "
        async with run.reasoning() as thought:
            await thought.write("Hm.")
        call = await run.tool_call("draw", {"card": 1})
        await call.result("drawn")
        async with run.step("search"):
            for number in range(3):
                try:
                    text = f"{number}: {await run.ask(f'Go {number}?')} "
                finally:
                    await run.custom("asked", number)
                yield text
        yield str(await run.once("time", lambda: 7))
        yield await run.ask("Done?")

    with serving(App(agent, debug=True, history=history)) as server:
        events = server.events(run_id="r0", messages=[user_json("u", "Hi")])
        for number in range(1, 5):
            assert events[-1]["type"] == "RUN_FINISHED", events[-1]
            events = server.events(run_id=f"r{number}", resume=answer_of(events))
        assert events[-1]["outcome"] == {"type": "success"}
        assert text_of(events) == "yes"
