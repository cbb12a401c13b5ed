"""The app of ``aguila serve --reload`` while the agent cannot be imported: it answers every request with 503."""

from __future__ import annotations

from typing import Final

from starlette.types import Receive, Scope, Send

from aguila.server.config.errors import Rejected
from aguila.server.http.responses import BufferedResponse, drop_body

# Without Retry-After: the client would wait and repeat the request, but a person has to repair the code.
_NOT_LOADED: Final = Rejected(
    503, "agent_not_loaded", "the agent cannot be imported; the terminal of the server shows why"
)


async def answer_not_loaded(scope: Scope, receive: Receive, send: Send) -> None:
    """Handle an ASGI connection: refuse requests and WebSockets, and start and stop with the server."""
    if scope["type"] == "http":
        response = BufferedResponse(status=_NOT_LOADED.status, body=_NOT_LOADED.body())
        await response(scope, receive, drop_body(send) if scope["method"] == "HEAD" else send)
    elif scope["type"] == "lifespan":
        for phase in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{phase}.complete"})
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
