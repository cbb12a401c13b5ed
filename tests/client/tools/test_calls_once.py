"""A tool is called once, however its run is interrupted (SEC-1, FT-5)."""

import asyncio
import logging
import threading

import pytest
from builders import run_started_json, text_message_json, tool_call_json
from scripted_server import Answer, ScriptedServer, frames, run_of
from twins import SyncTwin
from waiting import DEADLINE

from aguila.client import AsyncClient, Client, tool
from aguila.errors import RunFailed, StreamTruncated

pytestmark = pytest.mark.anyio


@pytest.fixture
def server():
    with ScriptedServer(run_of(*tool_call_json("c1", "pay", {})), run_of(*text_message_json("m", "ok"))) as server:
        yield server


def answers(server, request=-1):
    return {m["toolCallId"]: m for m in server.requests[request].json["messages"] if m["role"] == "tool"}


class Pay:
    """A function that waits until the test continues it."""

    def __init__(self):
        self.begun, self.may_end, self.has_ended = threading.Event(), threading.Event(), threading.Event()
        self.made = []

    def function(self):
        self.begun.set()
        assert self.may_end.wait(DEADLINE)
        self.made.append("paid")
        self.has_ended.set()
        return "paid"


@pytest.mark.parametrize("when", ["before the next run", "while the next run waits"])
@pytest.mark.parametrize("returns", ["a value", "an awaitable"])
async def test_a_function_that_goes_on_in_its_thread_after_the_run_was_left_is_answered_by_the_next_run(
    server, when, returns
):
    pay = Pay()

    async def soon(value):
        return value

    pick = {"a value": pay.function, "an awaitable": lambda: soon(pay.function())}[returns]

    async with AsyncClient(server.url, tools=[tool(name="pay", parameters={})(pick)]) as client:
        thread = client.thread()
        first = asyncio.ensure_future(thread.run("x").result())
        await asyncio.to_thread(pay.begun.wait, DEADLINE)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert [c.id for c in thread.pending_tool_calls] == ["c1"]
        if when == "before the next run":
            pay.may_end.set()
            await asyncio.to_thread(pay.has_ended.wait, DEADLINE)
        second = asyncio.ensure_future(thread.run("go on").result())
        await asyncio.sleep(0)
        pay.may_end.set()
        assert (await second).text == "ok"
    assert pay.made == ["paid"]
    assert answers(server)["c1"]["content"] == "paid"
    assert "error" not in answers(server)["c1"]


def test_after_ctrl_c_the_calls_beside_it_go_on_and_are_answered_by_the_next_run():
    pay = Pay()

    def stop():
        assert pay.begun.wait(DEADLINE)
        raise KeyboardInterrupt

    calls = [*tool_call_json("c1", "stop", {}), *tool_call_json("c2", "pay", {})]
    with ScriptedServer(run_of(*calls), run_of(*text_message_json("m", "ok"))) as server:
        with Client(server.url, tools=[tool(name="pay", parameters={})(pay.function), stop]) as client:
            thread = client.thread()
            with pytest.raises(KeyboardInterrupt):
                thread.run("x").result()
            assert pay.made == []
            pay.may_end.set()
            assert thread.run("go on").result().text == "ok"
        assert pay.made == ["paid"]
        assert answers(server)["c2"]["content"] == "paid"
        assert "may have had an effect" in answers(server)["c1"]["error"]


def test_a_function_that_was_interrupted_is_not_called_again_and_the_agent_gets_an_error(twin, server):
    made = []

    def pay():
        made.append("begun")
        raise KeyboardInterrupt

    async def pay_async():
        made.append("begun")
        raise asyncio.CancelledError

    thread = twin.client(
        server.url, tools=[tool(name="pay", parameters={})(pay if isinstance(twin, SyncTwin) else pay_async)]
    ).thread()
    with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        twin.result(thread.run("x"))
    assert twin.result(thread.run("go on")).text == "ok"
    assert made == ["begun"]
    assert "may have had an effect" in answers(server)["c1"]["error"]
    assert thread.pending_tool_calls == []


def test_an_answer_of_the_applications_own_takes_the_place_of_an_interrupted_one(twin, server):
    def pay():
        raise KeyboardInterrupt

    async def pay_async():
        raise asyncio.CancelledError

    thread = twin.client(
        server.url, tools=[tool(name="pay", parameters={})(pay if isinstance(twin, SyncTwin) else pay_async)]
    ).thread()
    with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        twin.result(thread.run("x"))
    twin.result(thread.run({"role": "tool", "id": "t", "toolCallId": "c1", "content": "I looked: it was paid"}))
    assert answers(server)["c1"]["content"] == "I looked: it was paid"


def test_a_call_that_was_not_begun_when_the_run_was_left_is_made_by_the_next_one(twin, server):
    made, asked = [], []

    def confirm(name, arguments):
        asked.append(name)
        if len(asked) == 1:
            raise KeyboardInterrupt if isinstance(twin, SyncTwin) else asyncio.CancelledError
        return True

    async def confirm_async(name, arguments):
        return confirm(name, arguments)

    thread = twin.client(
        server.url,
        tools=[tool(name="pay", parameters={})(lambda: made.append(1))],
        confirm=confirm if isinstance(twin, SyncTwin) else confirm_async,
    ).thread()
    with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        twin.result(thread.run("x"))
    assert made == []
    twin.result(thread.run("go on"))
    assert (made, len(asked)) == ([1], 2)


def failing(asked):
    return Answer([frames([run_started_json(asked.json["runId"], "t"), *tool_call_json("c1", "pay", {}), ERROR])])


def cut(asked):
    return Answer([frames([run_started_json(asked.json["runId"], "t"), *tool_call_json("c1", "pay", {})])], cut=True)


ERROR = {"type": "RUN_ERROR", "message": "no"}


@pytest.mark.parametrize(
    ("first", "raised", "why"),
    [
        (failing, RunFailed, "not executed: the run failed"),
        (cut, StreamTruncated, "not executed: the run was cut off"),
        (
            run_of(*tool_call_json("c1", "pay", {}), outcome={"type": "cancelled"}),
            None,
            "not executed: the run was cancelled",
        ),
    ],
    ids=["failed", "cut", "cancelled"],
)
def test_what_a_run_asked_for_that_did_not_finish_is_not_made(twin, first, raised, why):
    made = []
    with ScriptedServer(first, run_of(*text_message_json("m", "ok"))) as server:
        thread = twin.client(server.url, tools=[tool(name="pay", parameters={})(lambda: made.append(1))]).thread()
        if raised is None:
            twin.result(thread.run("x"))
        else:
            with pytest.raises(raised):
                twin.result(thread.run("x"))
        assert twin.result(thread.run("something else")).text == "ok"
        assert made == []
        assert answers(server)["c1"]["error"] == why


def test_a_function_that_ends_its_thread_is_an_interrupted_call(twin, server, caplog):
    def pay():
        raise SystemExit(3)

    thread = twin.client(server.url, tools=[tool(name="pay", parameters={})(pay)]).thread()
    with caplog.at_level(logging.CRITICAL):
        if isinstance(twin, SyncTwin):
            with pytest.raises(SystemExit):
                twin.result(thread.run("x"))
            twin.result(thread.run())
        else:
            twin.result(thread.run("x"))
    assert "may have had an effect" in answers(server)["c1"]["error"]
