"""A server whose agent has a model and tools of pydantic-ai, and that kills itself at a given step of its work.

The model asks for an approved payment and for a tool that asks the user, then for five rounds of a tool, and ends with
text. Steps are the calls of the model and of tools, their ends, and what is before and after each change of the store.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from aguila import App
from aguila.agent import Run
from aguila.frameworks import pydantic_ai
from aguila.server import Timing
from aguila.store import PostgresStore, SQLiteStore
from faults.app import Announced

LOOKS = 5


class Work:
    """The steps of this process, and the files in which the test reads what was done."""

    def __init__(self, folder: Path, kill_at: int | None) -> None:
        self._folder = folder
        self._kill_at = kill_at
        self._steps = 0

    def note(self, name: str, line: str) -> None:
        """Append a line to a file, which survives the process."""
        with (self._folder / name).open("a") as file:
            file.write(f"{line}\n")

    def step(self) -> None:
        """Count a step; be killed at the given one."""
        self._steps += 1
        if self._steps == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def make_agent(work: Work) -> Agent[Run, str]:
    """Make the agent. Each thread has one conversation, so notes begin with the id of the thread."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        requests = [message for message in messages if isinstance(message, ModelRequest)]
        returned = [part.tool_name for one in requests for part in one.parts if isinstance(part, ToolReturnPart)]
        looks = returned.count("look")
        thread_id = str(requests[0].parts[-1].content)  # the first message of the user
        work.note("model", f"{thread_id} {len(returned)}")
        work.step()
        if not returned:
            yield {
                0: DeltaToolCall("pay", '{"amount": 5}', tool_call_id="call-pay"),
                1: DeltaToolCall("add", '{"item": "shirt"}', tool_call_id="call-add"),
            }
        elif looks < LOOKS:
            yield f"Look {looks + 1}: "
            work.step()
            yield {0: DeltaToolCall("look", json.dumps({"at": looks + 1}), tool_call_id=f"call-look-{looks + 1}")}
        else:
            yield "All "
            work.step()
            yield "done."
        work.step()

    agent = Agent(FunctionModel(stream_function=answer), deps_type=Run)

    def begin(thread_id: str, what: str) -> None:
        work.note("entered", f"{thread_id} {what}")
        work.step()

    def end(thread_id: str, what: str) -> str:
        work.note("returned", f"{thread_id} {what}")
        work.step()
        return f"{what} done"

    @agent.tool(requires_approval=True)
    async def pay(ctx: RunContext[Run], amount: int) -> str:
        begin(ctx.deps.thread_id, f"pay {amount}")
        return end(ctx.deps.thread_id, f"pay {amount}")

    @agent.tool
    async def add(ctx: RunContext[Run], item: str) -> str:
        size = await ctx.deps.ask(f"Which size of {item}?")
        begin(ctx.deps.thread_id, f"add {item} {size}")
        await ctx.deps.say(f"Adding {item}.")
        return end(ctx.deps.thread_id, f"add {item} {size}")

    @agent.tool
    async def look(ctx: RunContext[Run], at: int) -> str:
        begin(ctx.deps.thread_id, f"look {at}")
        return end(ctx.deps.thread_id, f"look {at}")

    return agent


def killing(store: type[Any], work: Work) -> type[Any]:
    """Make a kind of store with a step before and after each change of a run."""

    class Killing(store):
        async def begin(self, *args: Any, **kwargs: Any) -> Any:
            work.step()
            begun = await super().begin(*args, **kwargs)
            work.step()
            return begun

        async def write(self, *args: Any, **kwargs: Any) -> Any:
            work.step()
            written = await super().write(*args, **kwargs)
            work.step()
            return written

    return Killing


def main(arguments: Sequence[str]) -> None:
    """Serve until killed."""
    settings = json.loads(arguments[0])
    folder = Path(settings["folder"])
    work = Work(folder, settings.get("kill_at"))
    if "postgres" in settings:
        store: Any = killing(PostgresStore, work)(**settings["postgres"])
    else:
        store = killing(SQLiteStore, work)(folder / "threads.db")
    agent = pydantic_ai.agent(make_agent(work))
    app = App(agent, store=store, allow_anonymous=True, timing=Timing(lease=0.5))
    Announced.port_file = Path(settings["port"])
    Announced(uvicorn.Config(app, host="127.0.0.1", port=0, access_log=False, log_level="warning")).run()


if __name__ == "__main__":
    main(sys.argv[1:])
