r"""Reconnect and attach: a broken stream continues where it was. A run is joined again by its thread id, and cancelled.

aguila serve
python examples/11_reconnect_and_attach.py
"""

import asyncio
import os

from aguila import AsyncClient
from aguila.client.transports.httpx2 import AsyncHTTPX2Transport
from aguila.testing import Chaos

URL = os.environ.get("AGUILA_URL", "http://127.0.0.1:8000")


async def reconnecting() -> None:
    """Read a run over a connection that breaks again and again."""
    chaos = Chaos(seed=3, cuts=0)
    async with AsyncClient(URL, transport=chaos.wrap(AsyncHTTPX2Transport())) as client:
        thread = client.thread()
        await thread.run("Help")  # the first answer shows the client that this server sends event ids
        chaos.allow(5, chance=0.9)
        result = await thread.run("Show me text")
        cuts = sum(fate.cut_at is not None for fate in chaos.done)
        print(f"{cuts} connections were cut: {result.text}")


async def attaching() -> None:
    """Leave the loop, which only disconnects, and join the run again by its thread id."""
    async with AsyncClient(URL) as client, AsyncClient(URL) as other:
        thread = client.thread()
        async for event in thread.run("Show me something slow"):
            if event.type == "TEXT_MESSAGE_CONTENT" and event.delta.strip() == "3":
                break
        print("left it at 3")

        joined = other.thread(thread.id)
        run = joined.attach()
        async for event in run:
            if event.type == "TEXT_MESSAGE_CONTENT" and event.delta.strip() == "9":
                print("joined it, and saw:", joined.messages[-1].content)
                await joined.cancel()
        print("it ended as", (await run).outcome)


asyncio.run(reconnecting())
asyncio.run(attaching())
