"""A chat client and an app in one process; everything sent between them is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aguila import App, ChatClient
from aguila.client import AsyncClient
from aguila.client.transports.asgi import ASGITransport
from aguila.client.transports.base import Request
from aguila.codec.sse import SSEParser

URL = "http://agent.test"


class Tap:
    """A transport that keeps requests and responses."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.sent: list[Request] = []
        self.received: list[bytes] = []

    async def send(self, request: Request) -> Any:
        self.sent.append(request)
        response = await self._inner.send(request)
        read = response.read

        async def keeping() -> bytes:
            piece = await read()
            self.received.append(piece)
            return piece

        response.read = keeping
        return response

    async def close(self) -> None:
        await self._inner.close()

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The run inputs that were sent."""
        return [json.loads(one.body) for one in self.sent if one.method == "POST" and one.body is not None]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that came back, as JSON."""
        return [json.loads(data) for data in self.lines]

    @property
    def lines(self) -> list[bytes]:
        """The events that came back, as bytes."""
        parser = SSEParser()
        return [frame.data for piece in self.received for frame in parser.feed(piece)]


@asynccontextmanager
async def chatting(agent: Any, app: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[tuple[Any, Tap]]:
    """A chat client for an agent served in this process, and the tap between them."""
    served = App(agent, **{"allow_anonymous": True, **(app or {})})
    tap = Tap(ASGITransport(served))
    async with AsyncClient(URL, transport=tap, **options) as client:
        yield ChatClient(client), tap


async def chat(agent: Any, turns: Callable[[Any, Tap], Awaitable[Any]], **options: Any) -> Any:
    """Return the result of ``turns``, called with a client and the tap between it and the agent."""
    async with chatting(agent, **options) as (client, tap):
        return await turns(client, tap)
