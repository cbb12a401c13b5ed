"""Leave a run: break the loop, close it, cancel the task; and use the thread afterwards."""

import asyncio
import threading

import pytest
from builders import run_started_json, text_message_json
from scripted_server import Answer, ScriptedServer, frames, run_of
from waiting import DEADLINE

from aguila.client import AsyncClient, Client
from aguila.errors import IllegalStep, StreamTruncated

pytestmark = pytest.mark.anyio

OPTIONS = {"options": {"verify": False}}


def endless(asked):
    return Answer([frames([run_started_json(asked.json["runId"], "t")]), threading.Event()])


async def test_the_next_run_may_follow_at_once_in_the_same_task():
    with ScriptedServer(endless, run_of(*text_message_json("m", "ok"))) as server:
        async with AsyncClient(server.url, **OPTIONS) as client:
            thread = client.thread()
            async for _ in thread.run("x"):
                break
            assert (await thread.run("y")).text == "ok"
        assert server.requests[0].closed.wait(DEADLINE)


async def test_a_run_is_closed_by_its_with_block():
    with ScriptedServer(endless, endless) as server:
        async with AsyncClient(server.url, **OPTIONS) as client:
            async with client.thread().run("x") as run:
                events = run.__aiter__()
                assert (await events.__anext__()).type == "RUN_STARTED"
            assert server.requests[0].closed.wait(DEADLINE)
            with pytest.raises(StreamTruncated):
                await run
            await events.aclose()
        with Client(server.url, **OPTIONS) as client:
            with client.thread().run("x") as run:
                events = iter(run)
                next(events)
            assert server.requests[1].closed.wait(DEADLINE)
            with pytest.raises(StreamTruncated):
                run.result()


async def test_cancelling_the_task_hangs_up_and_stays_a_cancellation():
    with ScriptedServer(endless) as server:
        async with AsyncClient(server.url, **OPTIONS) as client:
            thread = client.thread()
            began = asyncio.Event()

            async def follow():
                async for _ in thread.run("x"):
                    began.set()

            task = asyncio.create_task(follow())
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            assert [run.outcome for run in thread.runs] == [None], "cut off, and nothing else"
        assert server.requests[0].closed.wait(DEADLINE)


async def test_a_timeout_around_a_run_is_the_callers_own():
    with ScriptedServer(endless) as server:
        async with AsyncClient(server.url, **OPTIONS) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.thread().run("x")


async def test_two_tasks_cannot_follow_one_thread():
    with ScriptedServer(run_of()) as server:
        async with AsyncClient(server.url, **OPTIONS) as client:
            thread = client.thread()
            first = asyncio.create_task(anext(thread.run("x").__aiter__()))
            await asyncio.sleep(0)
            run = thread.run("y")
            with pytest.raises(IllegalStep) as caught:
                await run
            run._has_begun = True
            await asyncio.gather(first, return_exceptions=True)
            assert caught.value.rule == "LIFE-17"


def test_the_state_is_the_agents_while_a_run_is_on(twin):
    with ScriptedServer(run_of()) as server:
        thread = twin.client(server.url).thread()
        rules = []

        def meddle(event):
            with pytest.raises(IllegalStep) as caught:
                thread.state = {}
            rules.append(caught.value.rule)
            return False

        twin.events(thread.run("x"), meddle)
        assert set(rules) == {"STATE-2"}
        thread.state = {"mine": 1}
        assert thread.state == {"mine": 1}


async def test_many_threads_share_one_client():
    def echo(asked):
        return run_of(*text_message_json("m", asked.json["messages"][0]["content"]))(asked)

    with ScriptedServer(*[echo] * 20) as server:
        async with AsyncClient(server.url, **OPTIONS) as client:
            results = await asyncio.gather(*(client.thread().run(f"{n}").result() for n in range(20)))
            assert [result.text for result in results] == [f"{n}" for n in range(20)]
