"""Check a framework in one process, since importing one takes seconds: ``framework_checks.py NAME < PROGRAM``.

PROGRAM is the one of docs/frameworks.md; its ``app`` is asked, and the last line printed is its answer.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import message_round_trips
import native_round_trips

from aguila import App
from aguila.testing import client_for


async def ask(app: App) -> str:
    async with client_for(app) as client:
        return (await client.thread().run("Hi")).text


def main(framework: str) -> None:
    if framework in ("langgraph", "openai_agents", "pydantic_ai"):
        message_round_trips.main(framework, 200)
    if framework in ("langgraph", "openai_agents"):  # docs/frameworks.md: a way back loses parts of ModelMessages
        native_round_trips.main(framework, 200)
    if (Path(__file__).parent / f"{framework}_details.py").exists():
        asyncio.run(importlib.import_module(f"{framework}_details").main())
    names: dict[str, Any] = {"__name__": "program"}
    exec(sys.stdin.read(), names)
    print(asyncio.run(ask(names["app"])))


if __name__ == "__main__":
    main(sys.argv[1])
