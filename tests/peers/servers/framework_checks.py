"""Check a framework in one process, since importing one takes seconds: ``framework_checks.py NAME < PROGRAM``.

PROGRAM is the one of docs/frameworks.md; its ``app`` is asked, and the last line printed is its answer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import message_round_trips

from aguila import App
from aguila.testing import client_for


async def ask(app: App) -> str:
    async with client_for(app) as client:
        return (await client.thread().run("Hi")).text


def main(framework: str) -> None:
    if framework != "llama_index":
        message_round_trips.main(framework, 200)
    if framework == "langgraph":
        import langgraph_details

        asyncio.run(langgraph_details.main())
    elif framework == "llama_index":
        import llama_index_details

        asyncio.run(llama_index_details.main())
    names: dict[str, Any] = {}
    exec(sys.stdin.read(), names)
    print(asyncio.run(ask(names["app"])))


if __name__ == "__main__":
    main(sys.argv[1])
