"""The script that every peer follows, and a count of its agents.

It needs only the standard library, because each peer has its own packages. A server program takes its port as the only
argument. The first word of the last user message chooses the feature. ``GET /probe`` tells how many agents began, and
how they ended: so the driver sees the effect of a disconnect.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

FEATURES = (
    "text",
    "backend",
    "two",
    "handoff",
    "frontend",
    "state",
    "reasoning",
    "interrupt",
    "error",
    "fault",
    "cut",
    "cancel",
)

TEXT = ["Hello ", "from ", "the ", "other ", "side."]
SUM = "The sum is 5."
TWO_SUMS = "The sums are 3 and 7."
TWO_SUMS_SWAPPED = "The sums are 7 and 3."  # some frameworks keep the order in which parallel calls end
COLOUR = "The colour is teal."
COUNTED = "Counted."
THOUGHT = ["Let me ", "think."]
THOUGHT_OF = "Forty-two."
SENT = "Sent."
NOT_SENT = "Not sent."
BEFORE_THE_ERROR = "So far so good."
ERROR = "the agent broke"
TICK = "tick "

BACKEND_TOOL = "add"
FRONTEND_TOOL = "favourite_colour"
APPROVED_TOOL = "send_mail"
STATE_TOOL = "count"

# For the benchmark, whose only message is "Hello".
DELTAS = int(os.environ.get("PEER_DELTAS", "5"))
YIELDING = os.environ.get("PEER_YIELDING") == "1"


async def many_words() -> AsyncIterator[str]:
    """Yield the deltas of the benchmark, the same from every server."""
    for i in range(DELTAS):
        yield f"word{i} "
        if YIELDING:
            await asyncio.sleep(0)


def feature_of(text: str) -> str:
    """Return the feature that a user asks for."""
    first, _, _ = text.partition(" ")
    return first if first in FEATURES else "many"


def add(a: int, b: int) -> int:
    """Add two numbers, as the tool ``add`` of each agent. Raises for two zeros, which the feature ``fault`` sends."""
    if a == b == 0:
        raise RuntimeError(ERROR)
    return a + b


def send_mail() -> str:
    """Note in a file that the mail was sent. Kill the process in the middle, once, if the driver wants that."""
    store = os.environ.get("PEER_STORE")
    if store is not None:
        with Path(f"{store}.sent").open("a") as file:
            file.write("sent\n")
        wish = Path(f"{store}.kill")
        if wish.exists():
            wish.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    return "sent"


class Probe:
    """Counts agents that take their time."""

    def __init__(self) -> None:
        self.counts = {"begun": 0, "cancelled": 0, "ended": 0, "ticks": 0}

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        self.counts["begun"] += 1
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            self.counts["cancelled"] += 1
            raise
        self.counts["ended"] += 1

    async def ticks(self) -> AsyncIterator[str]:
        """Yield ticks for a minute. A disconnect should end them."""
        async with self.at_work():
            for _ in range(600):
                self.counts["ticks"] += 1
                yield TICK
                await asyncio.sleep(0.1)


probe = Probe()


MODEL_URL = f"http://127.0.0.1:{sys.argv[1] if len(sys.argv) > 1 else 0}/v1"
"""Where the model of scripted_chat.py is."""


def app_options() -> dict[str, Any]:
    """Return the options of an app: a run of a killed server is lost after a second, and each delta can be seen."""
    from aguila.server import Sends, Timing

    store = os.environ.get("PEER_STORE")
    return {"store": store, "timing": Timing(lease=1.0), "sends": Sends(merge_deltas=False)}


def serve_app(app: Any, port: int) -> None:
    """Serve an app of Aguila, with the probe and the model of scripted_chat.py beside it."""

    async def with_probe(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/v1/chat/completions":
            from scripted_chat import serve_model

            await serve_model(scope, receive, send)
            return
        if scope["type"] != "http" or scope["path"] != "/probe":
            await app(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(probe.counts).encode()})

    serve(with_probe, port)


def serve(app: object, port: int) -> None:
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)  # pyright: ignore
