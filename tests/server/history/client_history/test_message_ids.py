"""Messages without ids: each turn is one message, whether the client sends all messages or only new ones."""

from __future__ import annotations

from typing import Any

import pytest
from serving import serving, text_of

from aguila import App
from aguila.server import Sends
from aguila.store import SQLiteStore


async def echo(run: Any) -> Any:
    yield " | ".join(str(message.content) for message in run.messages)


def message_without_id(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def turn(server: Any, run_id: str, *messages: dict[str, Any]) -> str:
    """Run a turn without a version, as such clients do (VER-8); return the messages that the agent saw."""
    return text_of(server.events(run_id=run_id, messages=list(messages), protocolVersion=...))


def contents(server: Any) -> list[str]:
    messages = server.get("/threads/thread").json()["messages"]
    ids = [message["id"] for message in messages]
    assert len(set(ids)) == len(ids)
    return [message["content"] for message in messages]


@pytest.fixture(params=["client", "server"])
def history(request: pytest.FixtureRequest) -> str:
    return request.param


def test_env_12_a_client_that_sends_only_what_is_new_loses_no_turn(history: Any) -> None:
    with serving(App(echo, history=history)) as server:
        first = turn(server, "r1", message_without_id("yes"))
        second = turn(server, "r2", message_without_id("yes"))
        assert second == ("yes" if history == "client" else "yes | yes | yes")
        third = turn(server, "r3", message_without_id("no"))
        assert contents(server) == ["yes", first, "yes", second, "no", third]


def test_env_12_a_client_that_sends_all_there_is_repeats_nothing(history: Any) -> None:
    with serving(App(echo, history=history)) as server:
        first = turn(server, "r1", message_without_id("one"))
        sent = [message_without_id("one"), message_without_id(first, "assistant"), message_without_id("one")]
        second = turn(server, "r2", *sent)
        assert second == "one | one | one"
        turn(server, "r3", *sent, message_without_id(second, "assistant"), message_without_id("three"))
        assert contents(server) == ["one", "one", "one", second, "three", f"one | one | one | {second} | three"]


def test_all_of_a_thread_without_an_answer_is_known_as_well(history: Any) -> None:
    async def agent(run: Any) -> Any:
        if run.run_id == "r1":
            raise ValueError
        yield " | ".join(str(message.content) for message in run.messages)

    with serving(App(agent, history=history)) as server:
        turn(server, "r1", message_without_id("one"))
        assert turn(server, "r2", message_without_id("one"), message_without_id("two")) == "one | two"
        assert contents(server) == ["one", "two", "one | two"]


def test_where_the_client_keeps_the_history_an_edit_after_an_answer_replaces_the_rest() -> None:
    with serving(App(echo)) as server:
        first = turn(server, "r1", message_without_id("one"))
        turn(server, "r2", message_without_id("one"), message_without_id(first, "assistant"), message_without_id("two"))
        turn(
            server, "r3", message_without_id("one"), message_without_id(first, "assistant"), message_without_id("other")
        )
        assert contents(server) == ["one", "one", "other", "one | one | other"]


def test_the_same_request_is_the_same_run_again_and_its_ids_survive_a_restart(history: Any, tmp_path: Any) -> None:
    path = tmp_path / "threads.db"
    with serving(App(echo, history=history, store=SQLiteStore(path))) as server:
        turn(server, "r1", message_without_id("one"))
        turn(server, "r2", message_without_id("two"))
        before = server.get("/threads/thread").json()["messages"]
        turn(server, "r2", message_without_id("two"))  # hydration: the answer is the thread
        found = server.get("/threads/thread").json()
        assert (len(found["runs"]), found["messages"]) == (2, before)
    with serving(App(echo, history=history, store=SQLiteStore(path))) as server:
        assert server.get("/threads/thread").json()["messages"] == before


def test_the_agent_and_the_echo_have_the_ids_that_the_thread_has(history: Any) -> None:
    seen: list[str] = []

    async def agent(run: Any) -> Any:
        seen.extend(message.id for message in run.messages)
        yield "ok"

    with serving(App(agent, history=history, sends=Sends(echo_input=True))) as server:
        started = server.events(messages=[message_without_id("one")], protocolVersion=...)[0]
        held = server.get("/threads/thread").json()["messages"][0]["id"]
        assert seen == [held] == [message["id"] for message in started["input"]["messages"]]
