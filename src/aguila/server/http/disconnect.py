"""Listen for the disconnect of a client while its request is processed or its response is sent."""

from __future__ import annotations

import asyncio

from aguila.server.http.responses import Receive


def listen_for_disconnect(receive: Receive) -> asyncio.Task[None]:
    """Start a task that is done when the client disconnects. Cancel it when the response is complete.

    The body of the request has to be read before: the task discards the rest of it.
    """
    return asyncio.get_running_loop().create_task(_wait_for_disconnect(receive))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
