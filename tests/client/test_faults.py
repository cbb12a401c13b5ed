"""Runs through a proxy that cuts connections at random: nothing lost, nothing doubled, tools called once."""

import random
from collections import Counter

import pytest
from cutting import CuttingProxy
from serving import Gate, serving

from aguila import App
from aguila.client import Reconnect

WORDS = [f"word{n} " for n in range(60)]


async def agent(run):
    """Talks, leaves a call to the front end, and talks on when it is answered."""
    last = run.messages[-1]
    if last.role == "tool":
        run.state["answers"] = [*run.state.get("answers", []), last.content]
        async with run.text() as text:
            for word in WORDS:
                await text.write(word)
        return
    async with run.text() as text:
        for word in WORDS:
            await text.write(word)
    await run.tool_call("lookup", {"key": run.messages[-1].content})


@pytest.mark.parametrize("seed", range(3))
def test_every_run_ends_as_without_faults(twin, seed):
    draw = random.Random(seed)
    faults = False
    made = Counter()

    def lookup(key: str) -> str:
        """Look something up."""
        made[key] += 1
        return f"value of {key}"

    def budget():
        if not faults or draw.random() < 0.2:
            return None
        return draw.choice([-1, 0, draw.randrange(1, 400), draw.randrange(400, 4000), draw.randrange(4000, 20000)])

    with serving(App(agent)) as server, CuttingProxy(server.url, budget) as proxy:
        client = twin.client(
            proxy.url,
            tools=[lookup],
            reconnect=Reconnect(attempts=40, initial=0.0),
            headers={"Connection": "close"},  # so that every request meets the proxy anew
        )
        thread = client.thread()
        twin.result(thread.run("warm"))
        faults = True
        for n in range(6):
            result = twin.result(thread.run(f"key{n}"))
            assert result.text == "".join(WORDS)
            assert [m.role for m in result.messages] == ["user", "assistant", "assistant", "tool", "assistant"] or [
                m.role for m in result.messages
            ] == ["user", "assistant", "tool", "assistant"]
        assert made == {"warm": 1} | {f"key{n}": 1 for n in range(6)}
        assert thread.state["answers"] == ["value of warm", *(f"value of key{n}" for n in range(6))]
        assert [run.outcome for run in thread.runs] == ["success"] * 14
        assert proxy.cuts > 5
        faults = False
        fresh = client.thread(thread.id)
        twin.wait(fresh.refresh())
        said = [m.content for m in fresh.messages if m.role == "assistant" and m.content]
        assert said == [m.content for m in thread.messages if m.role == "assistant" and m.content]


def test_an_attached_stream_that_drops_goes_on_where_it_was(twin):
    gate = Gate()

    async def slow(run):
        async with run.text() as text:
            await text.write("one ")
            await gate.wait()
            for word in WORDS:
                await text.write(word)

    with serving(App(slow)) as server, CuttingProxy(server.url, lambda: None) as proxy:
        client = twin.client(proxy.url)
        twin.events(client.thread("t").run("x"), lambda event: event.type == "TEXT_MESSAGE_CONTENT")
        thread = client.thread("t")
        seen = []

        def look(event):
            seen.append(event.type)
            if event.type == "TEXT_MESSAGE_START":  # the last of what is told to newcomers
                proxy.cut_now()
                gate.open()
            return False

        twin.events(thread.attach(), look)
        assert thread.messages[-1].content == "one " + "".join(WORDS)
        assert seen.count("RUN_STARTED") == seen.count("RUN_FINISHED") == 1
        assert proxy.cuts >= 1
