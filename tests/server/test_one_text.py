"""``App(one_text_at_a_time=True)``: over HTTP and in the log."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from serving import check_valid, serving, types

from aguila import App
from aguila.server import Limits

TEAM = ("one", "two", "three")


async def team(run: Any) -> None:
    turns = {name: asyncio.Event() for name in TEAM}
    turns["one"].set()

    async def delegate(name: str, following: str) -> None:
        async with run.subagent(name) as subagent:
            async with subagent.text() as text:
                for word in range(5):
                    await turns[name].wait()
                    turns[name].clear()
                    await text.write(f"{name}{word} ")
                    turns[following].set()
            await (await subagent.tool_call("look", {"by": name})).result(name)

    async with asyncio.TaskGroup() as tasks:
        for name, following in zip(TEAM, (*TEAM[1:], TEAM[0]), strict=True):
            tasks.create_task(delegate(name, following))
    run.state["done"] = True


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [event["messageId"] for event in events if event["type"].startswith("TEXT_MESSAGE_")]


def blocks(events: list[dict[str, Any]]) -> int:
    """Return how often one message follows another."""
    found = texts(events)
    return sum(one != other for one, other in itertools.pairwise(found)) + 1


def message_texts(events: list[dict[str, Any]]) -> set[str]:
    words: dict[str, str] = {}
    for event in events:
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            words[event["messageId"]] = words.get(event["messageId"], "") + event["delta"]
    return set(words.values())


WORDS = {" ".join(f"{name}{word}" for word in range(5)) + " " for name in TEAM}


def test_parallel_texts_come_one_after_the_other() -> None:
    with serving(App(team)) as server:
        assert blocks(server.events()) > 3
    with serving(App(team, one_text_at_a_time=True)) as server:
        events = server.events()
        check_valid(events)
        assert blocks(events) == 3
        assert message_texts(events) == WORDS
        assert types(events).count("TEXT_MESSAGE_START") == 3
        with server.stream("GET", "/threads/thread/runs/run/events?protocolVersion=1.1") as stored:
            assert stored.rest() == events
        assert server.get("/threads/thread").json()["state"] == {"done": True}


def test_it_holds_for_runs_that_are_not_stored() -> None:
    with serving(App(team, one_text_at_a_time=True)) as server, server.run("/?store=false") as stream:
        events = stream.rest()
        assert blocks(events) == 3
        assert message_texts(events) == WORDS


@pytest.mark.parametrize("held", [0, 500])
def test_beyond_the_bound_texts_are_continued(held: int) -> None:
    with serving(App(team, one_text_at_a_time=True, limits=Limits(held=held))) as server:
        events = server.events()
        check_valid(events)
        assert message_texts(events) == WORDS
        open_texts: set[str] = set()
        for event in events:
            if event["type"] == "TEXT_MESSAGE_START":
                open_texts.add(event["messageId"])
            elif event["type"] == "TEXT_MESSAGE_END":
                open_texts.discard(event["messageId"])
            assert len(open_texts) <= 1


def test_a_large_event_does_not_wait() -> None:
    large = "x" * (2 * 1024 * 1024)

    async def agent(run: Any) -> None:
        async with run.text() as first, run.text() as second:
            await first.write("1")
            await second.write("2")
            await run.custom("large", large)
            await first.write("3")

    with serving(App(agent, one_text_at_a_time=True)) as server:
        events = server.events()
        check_valid(events)
        assert next(event["value"] for event in events if event["type"] == "CUSTOM") == large
        assert message_texts(events) == {"13", "2"}


def test_a_failing_agent_loses_nothing_that_it_said() -> None:
    async def agent(run: Any) -> None:
        first, second = run.text(), run.text()
        await (await first.__aenter__()).write("first")
        await (await second.__aenter__()).write("second")
        raise RuntimeError("no")

    with serving(App(agent, one_text_at_a_time=True)) as server:
        events = server.events()
        check_valid(events)
        assert types(events)[-1] == "RUN_ERROR"
        assert message_texts(events) == {"first", "second"}


def test_an_event_that_cannot_be_sent_raises_where_it_was_sent() -> None:
    found: list[str] = []

    async def agent(run: Any) -> None:
        async with run.text() as first, run.text() as second:
            await first.write("1")
            await second.write("2")
            try:
                await run.custom("bad", float("nan"))
            except ValueError as error:
                found.append(type(error).__name__)

    with serving(App(agent, one_text_at_a_time=True)) as server:
        events = server.events()
        assert types(events)[-1] == "RUN_FINISHED"
        assert found == ["EncodeError"]
