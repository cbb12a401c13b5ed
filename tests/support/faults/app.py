"""The server that tests/faults break: an agent that does what ``forwardedProps.act`` says, on a shared SQLite file.

Started as a script with its settings as JSON; when it is up it writes its port to a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

from aguila import App
from aguila.server import Limits, Sends, Timing
from aguila.store import PostgresStore, SQLiteStore

FOLDER = Path()
TEXT = [
    "Two",
    "eagles,",
    "a fish\nand",
    "\u2028",
    "a snail",
    "\U0001f985",
    "\\u0000",
    '"quoted"',
    "data: id: 7",
    "\u00e9",
    "\r\n",
    ".",
]


def note(name: str, line: str) -> str:
    """Append a whole line to a file, also while other processes do."""
    file = os.open(FOLDER / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)
    return line


async def reached(valve: str | None, size: int) -> None:
    """Wait until the test opens the valve this far."""
    while valve is not None and (FOLDER / valve).stat().st_size < size:  # noqa: ASYNC110 - another process does
        await asyncio.sleep(0.001)


class Beat:
    """The pace of an agent: the test's valve, or a pause."""

    def __init__(self, props: Any) -> None:
        self._valve = props.get("valve")
        self._pause = props.get("pause", 0)
        self._count = 0

    async def __call__(self) -> None:
        self._count += 1
        await reached(self._valve, self._count)
        if self._valve is None:
            await asyncio.sleep(self._pause)


async def recorded(run: Any, props: Any) -> None:
    """Send items of every kind, with ids that the agent chooses."""
    beat = Beat(props)
    for turn in range(props.get("turns", 1)):
        async with run.step(f"plan {turn}"):
            async with run.reasoning(message_id=f"reasoning-{turn}") as reasoning:
                for word in TEXT[:4]:
                    await beat()
                    await reasoning.write(word)
            await beat()
            call = await run.tool_call("search", {"q": TEXT}, tool_call_id=f"call-{turn}")
            await beat()
            await call.result({"found": turn}, message_id=f"result-{turn}")
        async with run.text(message_id=f"text-{turn}") as text:
            for word in TEXT:
                await beat()
                await text.write(word + " ")
        run.state = {"turn": turn, "words": TEXT[: turn + 3]}
        await beat()
        await run.custom("mark", {"turn": turn, "text": " ".join(TEXT)})
        activity = await run.activity("PLAN", {"turn": turn, "done": False}, message_id=f"activity-{turn}")
        await beat()
        await activity.update({"turn": turn, "done": True})


async def talk(run: Any, props: Any) -> None:
    """Write text; the input sets how much and how fast."""
    beat = Beat(props)
    try:
        async with run.text() as text:
            for i in range(props["count"]):
                await beat()
                await text.write(f"{i}:" + "x" * props.get("size", 10))
    except BaseException:
        note("stopped", run.thread_id)
        raise


async def counted(run: Any, props: Any) -> None:
    """Note in a file that the agent was called."""
    note("calls", f"{run.thread_id} {run.run_id}")
    await run.say("before", message_id="before")
    await reached(props.get("valve"), 1)
    await run.say("after", message_id="after")


async def ask(run: Any, props: Any) -> None:
    """Pay once, ask, and repeat the answer."""
    thread = run.thread_id
    note("began", f"{thread} {run.run_id}")
    await run.say("before")
    receipt = await run.once("pay", lambda: note("paid", thread))
    assert receipt == thread
    await reached(props.get("valve"), 1)
    question = FOLDER / "question"
    asked = question.read_text() if question.exists() else "Send it?"
    answer = await run.ask(asked, schema={"type": "object", "required": ["ok"]})
    note("answered", f"{thread} {run.run_id} {json.dumps(answer)}")
    await reached(props.get("valve"), 2)
    await run.once("send", lambda: note("sent", thread))
    await run.say("after")
    await reached(props.get("valve"), 3)


async def converse(run: Any, props: Any) -> None:
    """Send text, leave a call to the front end, and send more text when it is answered."""
    note("conversed", f"{run.thread_id} {run.run_id}")
    last = run.messages[-1]
    is_answer = last.role == "tool"
    if is_answer:
        run.state["answers"] = [*run.state.get("answers", []), last.content]
    beat = Beat(props)
    async with run.text() as text:
        for word in TEXT * 3:
            await beat()
            await text.write(word + " ")
            run.state["words"] = run.state.get("words", 0) + 1
    if not is_answer:
        await run.tool_call("lookup", {"key": last.content})


async def everything_open(run: Any, props: Any) -> None:
    """Open an item of every kind, and wait for ever."""
    async with run.step("outer"), run.step("inner"), run.reasoning() as reasoning:
        await reasoning.write("hm")
        async with run.subagent("helper") as helper, helper.text() as theirs:
            await theirs.write("I")
            async with run.stream_tool_call("search") as call:
                await call.args('{"q":')
                async with run.text() as text:
                    await text.write("open")
                    await asyncio.Event().wait()


ACTS: dict[str, Callable[[Any, Any], Awaitable[None]]] = {
    act.__name__: act for act in (recorded, talk, counted, ask, converse, everything_open)
}


async def agent(run: Any) -> None:
    """Act as the input says."""
    await ACTS[run.forwarded_props["act"]](run, run.forwarded_props)


class Announced(uvicorn.Server):
    """Writes its port to a file when it listens."""

    port_file = Path()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        self.port_file.write_text(f"{port}\n")


def main(settings: dict[str, Any]) -> None:
    """Serve until killed."""
    global FOLDER
    FOLDER = Path(settings["folder"])
    if offset := settings.get("clock_offset"):
        real = time.time
        time.time = lambda: real() + offset
    if settings.get("bad_agents"):
        from faults.bad_agents import build

        app: Any = build(FOLDER)
    else:
        if "postgres" in settings:
            store: Any = PostgresStore(**settings["postgres"])
        else:
            store = SQLiteStore(FOLDER / "threads.db", **settings.get("store", {}))
        limits = Limits(runs_per_scope=1000)
        groups = {"timing": Timing, "sends": Sends}
        options = {name: groups[name](**it) if name in groups else it for name, it in settings.get("app", {}).items()}
        app = App(agent, store=store, allow_anonymous=True, limits=limits, **options)
    Announced.port_file = Path(settings["port"])
    config = uvicorn.Config(
        app,
        host=settings.get("host", "127.0.0.1"),
        port=0,
        access_log=False,
        log_level="warning",
        backlog=4096,
    )
    Announced(config).run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
