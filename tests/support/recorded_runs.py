"""Runs whose frames are recorded, as users write their agents, and the requests that read them.

The same run always has the same frames. Ids are given or derived from the run. Deltas that wait together are merged,
and how many wait depends on the machine: so an agent here sends a delta and waits until the log has it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from in_process import Reader
from serving import run_input

from aguila import App
from aguila.protocol import (
    AssistantMessage,
    CustomEvent,
    DataSource,
    ImagePart,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    UserMessage,
)
from aguila.server import Sends
from aguila.store import MemoryStore

DECLARED = ("0.0.35", "0.0.40", "0.0.41", "0.0.45", "0.0.47", "0.0.50", "0.0.53", "0.0.57", "0.0.59", "1.0", "1.1")
UNDECLARED = ("flatten", "parallel", "subagents", "meta")
TRANSPORTS = {"sse": "text/event-stream", "protobuf": "application/vnd.ag-ui.event+proto"}
NEWEST = ("1.1", "sse")
VARIANTS = [(dialect, transport) for dialect in (*DECLARED, *UNDECLARED) for transport in TRANSPORTS]

_LARGE = 66_000
_SECONDS = 60


def make_app(undeclared: str) -> App:
    """An app with all agents. The scope of a caller is what it sends, so that many can use the same ids at once."""
    return App(
        AGENTS,
        store=MemoryStore(clock=lambda: 1_700_000_000.0),
        authenticate=lambda request: request.headers.get("x-scope"),
        heartbeat=3600,
        sends=Sends(undeclared_peers=undeclared, echo_input=True),  # type: ignore[arg-type]
        warn=lambda notice: None,
    )


# Waiting for the log


class _Log(Reader):
    """Follows the log of a run as the newest client does."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self._arrived = asyncio.Condition()

    async def send(self, message: Any) -> None:
        async with self._arrived:
            await super().send(message)
            self._arrived.notify_all()

    async def wait_for(self, text: bytes) -> None:
        async with asyncio.timeout(_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: text in self.body)


class Logs:
    """The logs of the runs of an app, each followed from when it is first asked for."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._logs: dict[tuple[str, str], _Log] = {}
        self._tasks: list[asyncio.Task[int]] = []

    async def wait_for(self, scope: str, run_id: str, text: str) -> None:
        """Wait until the log of the thread has this text: of this run, or of an earlier one that it replays."""
        log = self._logs.get((scope, run_id))
        if log is None:
            log = self._logs[scope, run_id] = _Log(self._app)
            path = "/threads/thread/events?protocolVersion=1.1"
            self._tasks.append(asyncio.create_task(log.request("GET", path, x_scope=scope)))
        await log.wait_for(json.dumps(text, ensure_ascii=False)[1:-1].encode())

    async def close(self) -> None:
        """Wait until all runs have ended."""
        await asyncio.gather(*self._tasks)


_logs: list[Logs] = []
"""The logs of the app that is recorded. Agents get nothing but their run."""


async def _stored(run: Any, text: str) -> None:
    await _logs[-1].wait_for(run.principal, run.run_id, text)


async def _write(run: Any, write: Callable[[str], Awaitable[None]], *deltas: str) -> None:
    for delta in deltas:
        await write(delta)
        await _stored(run, delta)


# The agents


async def text(run: Any) -> AsyncIterator[Any]:
    """Text, and a second message with a role, a name and metadata; usage and a result."""
    for word in ("Guten ", "Morgen, ", "Zoë \U0001f44b"):
        yield word
        await _stored(run, word)
    async with run.text(role="system", name="clerk", message_id="note", metadata={"a": [1, None, 1.5]}) as note:
        await _write(run, note.write, "noted: ", 'a "quote"\n', "and </p>")
    run.add_usage(TokenUsage(provider="p", model="m", input_tokens=3, output_tokens=4))
    run.result = {"words": 3}


async def parallel_texts(run: Any) -> AsyncIterator[Any]:
    """Texts and calls that are open at once."""
    for item in "ab":
        yield TextMessageStartEvent(message_id=item, role="assistant")
    for item in "cd":
        yield ToolCallStartEvent(tool_call_id=item, tool_call_name="look")
    for number in range(3):
        for item in "ab":
            yield TextMessageContentEvent(message_id=item, delta=f"{item}{number} ")
            await _stored(run, f"{item}{number} ")
        for item in "cd":
            delta = f'{"," if number else "{"}"{item}{number}":{number}'
            yield ToolCallArgsEvent(tool_call_id=item, delta=delta)
            await _stored(run, delta)
        run.state = {"round": number}
        await run.flush()
    yield TextMessageEndEvent(message_id="b")
    for item in "dc":
        yield ToolCallArgsEvent(tool_call_id=item, delta="}")
        yield ToolCallEndEvent(tool_call_id=item)
        yield ToolCallResultEvent(message_id=f"result-{item}", tool_call_id=item, content=f"found {item}")
    yield TextMessageEndEvent(message_id="a")


async def tool_calls(run: Any) -> None:
    """Calls with arguments in pieces, a result of parts, a refused one, and a call for the front end."""
    async with run.text(message_id="m") as message:
        await message.write("I look it up.")
    async with run.stream_tool_call("search", tool_call_id="one", parent_message_id="m") as call:
        await _write(run, call.args, '{"q":', '"weather ', 'in Köln"}')
    await call.result("12 °C", message_id="one-result", metadata={"source": "sensor"})
    drawing = await run.tool_call("draw", {"size": 2}, tool_call_id="two")
    await drawing.encrypted("c2VjcmV0", "tool-call")
    picture = ImagePart(source=DataSource(value="QUJD", mime_type="image/png"))
    await drawing.result([TextPart(text="A square."), picture], message_id="two-result")
    await run.tool_call("pick", {"from": [1, 2]}, tool_call_id="three")


async def state(run: Any) -> None:
    """A state that is sent with the input, changed, sent whole and changed again."""
    run.state["count"] = 1
    await run.flush()
    run.state["list"] = [1, {"a/b": "~"}]
    await run.flush()
    await run.say("changed", message_id="m")
    await run.state_snapshot()
    run.state["list"][1]["a/b"] = None
    del run.state["old"]
    await run.flush()
    run.state = ["another", "kind"]
    await run.flush()


async def reasoning(run: Any) -> None:
    """Reasoning before, between and beside text."""
    async with run.reasoning(message_id="r1") as thought:
        await _write(run, thought.write, "First ", "I think.")
        await thought.encrypted("c2VjcmV0")
    await run.say("An answer.", message_id="m1")
    async with run.reasoning(message_id="r2") as thought, run.text(message_id="m2") as message:
        await _write(run, thought.write, "Now ")
        await _write(run, message.write, "More ")
        await _write(run, thought.write, "both.")
        await _write(run, message.write, "answer.")


async def activities(run: Any) -> None:
    """Activities that are replaced, updated, patched and left alone, and one of a subagent."""
    plan = await run.activity("PLAN", {"steps": [1], "done": False}, message_id="plan")
    await plan.update({"steps": [1, 2], "done": False})
    await plan.patch([{"op": "replace", "path": "/done", "value": True}])
    await run.activity("SEARCH", {"query": "x"}, message_id="search", replace=False)
    async with run.subagent("helper", subagent_run_id="sub") as helper:
        own = await helper.activity("PLAN", {"mine": []}, message_id="own")
        await own.update({"mine": ["yes"]})


async def steps(run: Any) -> None:
    """Steps within and beside each other."""
    async with run.step("outer") as outer:
        async with run.step("inner", parent=outer, metadata={"level": 2}):
            await run.say("inside", message_id="m1")
        await run.say("between", message_id="m2")
    async with run.step("last"):
        pass


async def custom(run: Any) -> AsyncIterator[Any]:
    """CUSTOM, META in a CUSTOM and RAW, with the members that every event may have."""
    await run.custom("progress", {"percent": 10, "none": None}, metadata={"m": 1})
    await run.custom("meta:thumbs_up", {"messageId": "x", "reason": "good"})
    await run.raw({"type": "other", "n": [1.0, -0.5, 10**15]}, source="elsewhere")
    yield CustomEvent(name="timed", value=[], timestamp=1_700_000_000_123, raw_event={"was": "this"})
    async with run.subagent("helper", subagent_run_id="sub") as helper:
        await helper.custom("own", "value")


async def interrupt(run: Any) -> None:
    """Two questions one after the other, and an approval."""
    await run.say("Before.", message_id="before")
    name = await run.ask("Name?", schema={"type": "object", "properties": {"name": {"type": "string"}}}, key="name")
    async with run.text(message_id="after") as message:
        await _write(run, message.write, "Thanks, ", name["name"])
    approval = await run.approve("pay", {"amount": 5}, message="Pay 5?", key="pay")
    await approval.call.result("paid" if approval.approved else "refused", message_id="paid")


async def error(run: Any) -> None:
    """An exception while a text, a call, a step and a subagent are open."""
    async with run.step("work"), run.subagent("helper", subagent_run_id="sub") as helper:
        await helper.tool_call("look", tool_call_id="c", stream=True)
        async with helper.text(message_id="m") as message:
            await _write(run, message.write, "half ")
            raise LookupError("the text of an exception is not sent")


async def cancelled(run: Any) -> None:
    """A run that is cancelled while a text and a call are open."""
    await run.tool_call("look", tool_call_id="c", stream=True)
    async with run.text(message_id="m") as message:
        await message.write("waiting ")
        await asyncio.Event().wait()


async def subagents(run: Any) -> AsyncIterator[Any]:
    """Subagents beside and within each other, and deltas that do not all say whose they are (SUB-9)."""
    async with run.subagent("a", "the first", subagent_run_id="A") as a, run.subagent("b", subagent_run_id="B") as b:
        async with a.text(message_id="of-a") as of_a, b.text(message_id="of-b") as of_b:
            await _write(run, of_a.write, "a one, ")
            await _write(run, of_b.write, "b one, ")
            await _write(run, of_a.write, "a two")
            await _write(run, of_b.write, "b two")
        call = await a.tool_call("delegate", {}, tool_call_id="call")
        async with a.subagent("c", subagent_run_id="C", tool_call=call) as c:
            await c.say("nested", message_id="of-c")
            c.result = {"ok": True}
        await call.result("done", message_id="call-result")
        yield TextMessageStartEvent(message_id="tagged", role="assistant", subagent_run_id="B")
        for delta, owner in (("one ", "B"), ("two ", None), ("three ", "B")):
            yield TextMessageContentEvent(message_id="tagged", delta=delta, subagent_run_id=owner)
            await _stored(run, delta)
        yield TextMessageEndEvent(message_id="tagged", subagent_run_id="B")
        await b.fail("b cannot", "no_way")
    yield "all done"


async def large(run: Any) -> None:
    """Events of more than 64 KiB between small ones."""
    await run.say("x" * _LARGE, message_id="long")
    call = await run.tool_call("fetch", {}, tool_call_id="c")
    await call.result("z" * _LARGE, message_id="result")
    run.state = {"blob": "s" * _LARGE, "n": 1}
    await run.flush()
    run.state["n"] = 2
    await run.flush()
    await run.say("The end.", message_id="end")


async def messages(run: Any) -> None:
    """A conversation that is replaced in the middle of a run."""
    await run.say("Forget this.", message_id="old")
    await run.messages_snapshot(
        [
            UserMessage(id="u", content="Hello"),
            AssistantMessage(id="kept", content="Hi", name="clerk", metadata={"aguila": {"x": 1}}),
        ]
    )
    async with run.text(message_id="new") as message:
        await _write(run, message.write, "Go ", "on.")


async def multimodal(run: Any) -> None:
    """An input with files, which is on RUN_STARTED, and an answer to it."""
    await run.say(f"I got {len(run.messages[-1].content)} parts.", message_id="answer")


AGENTS: dict[str, Callable[[Any], Any]] = {
    agent.__name__: agent
    for agent in (
        text, parallel_texts, tool_calls, state, reasoning, activities, steps, custom, interrupt, error, cancelled,
        subagents, large, messages, multimodal,
    )
}  # fmt: skip

_INPUTS: dict[str, dict[str, Any]] = {
    "tool_calls": {
        "tools": [{"name": "pick", "description": "picks", "parameters": {"type": "object"}}],
        "messages": [{"id": "u", "role": "user", "content": "weather?"}],
        "context": [{"description": "place", "value": "Köln"}],
    },
    "state": {"state": {"count": 0, "old": True}},
    "messages": {"messages": [{"id": "first", "role": "user", "content": "", "name": "Ada"}]},
    "multimodal": {
        "forwardedProps": {"a": 1},
        "messages": [
            {
                "id": "u",
                "role": "user",
                "content": [
                    {"type": "text", "text": "See these:"},
                    {"type": "image", "source": {"type": "data", "value": "QUJD", "mimeType": "image/png"}},
                    {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}},
                    {
                        "type": "document",
                        "source": {"type": "url", "value": "https://example.com/a.pdf", "mimeType": "application/pdf"},
                        "metadata": {"pages": 3},
                    },
                    {"type": "audio", "source": {"type": "file", "value": "file-1", "mimeType": "audio/wav"}},
                    {"type": "binary", "mimeType": "image/gif", "data": "R0lG", "filename": "a.gif"},
                ],
            }
        ],
    },
}

_ANSWERS: dict[str, list[dict[str, Any]]] = {"interrupt": [{"name": "Ada"}, {"approved": True}]}
"""What the runs after the first one answer."""


# The requests


class Caller:
    """A client of one dialect and transport."""

    def __init__(self, app: App, logs: Logs, dialect: str, transport: str) -> None:
        self._app = app
        self._logs = logs
        self.scope = f"{dialect} {transport}"
        self._declared = dialect if dialect in DECLARED else None
        self._accept = TRANSPORTS[transport]
        self._transport = transport
        self.responses: dict[str, bytes] = {}

    async def record(self, agent: str) -> dict[str, bytes]:
        """Run an agent and read what it wrote in every way. Return the responses by what they are."""
        await self._run(agent, "live", 0, [])
        answers = _ANSWERS.get(agent, [])
        for turn, answer in enumerate(answers, 1):
            await self._run(agent, f"live, answer {turn}", turn, await self._resume(answer))
        last = f"run{len(answers)}"
        for what, path in {
            "log": "/threads/thread/events",
            "log of the run": f"/threads/thread/runs/{last}/events",
            "compact log": "/threads/thread/events?compact=true",
            "compact log of the run": f"/threads/thread/runs/{last}/events?compact=true",
        }.items():
            await self._get(what, path)
        if self._transport == "sse":
            ids = [line[4:] for line in self.responses["live"].decode().splitlines() if line.startswith("id: ")]
            await self._get("log after a middle id", f"/threads/thread/events?after={ids[len(ids) // 2]}")
        count = await self._last_number(last)
        for after in (1, count // 2):
            await self._get(f"log after {after}", f"/threads/thread/events?after={after}")
        body = self._body(agent, "joining", messages=[])
        await self._post("hydration", "/connect", body)
        await self._post("sent again", f"/agents/{agent}", self._body(agent, "run0"))
        return self.responses

    async def record_unstored(self) -> dict[str, bytes]:
        """Run an agent that sends one delta of each item, without storing it."""
        await self._post("live", "/agents/steps?store=false", self._body("steps", "run0"))
        return self.responses

    async def _run(self, agent: str, what: str, turn: int, resume: list[Any]) -> None:
        run_id = f"run{turn}"
        body = self._body(agent, run_id, **({"resume": resume} if resume else {}))
        posting = asyncio.create_task(self._post(what, f"/agents/{agent}", body))
        if agent == "cancelled":
            await self._begun(run_id, posting)
            await self._logs.wait_for(self.scope, run_id, "waiting ")
            await self._request("POST", f"/threads/thread/runs/{run_id}/cancel", b"")
        await posting

    async def _begun(self, run_id: str, posting: asyncio.Task[None]) -> None:
        while not posting.done():
            reader = Reader(self._app)
            if await reader.request("GET", f"/threads/thread/runs/{run_id}", x_scope=self.scope) == 200:
                return
            await asyncio.sleep(0)

    async def _resume(self, payload: dict[str, Any]) -> list[Any]:
        reader = Reader(self._app)
        await reader.request("GET", "/threads/thread/events?protocolVersion=1.1", x_scope=self.scope)
        events = [json.loads(line[6:]) for line in reader.body.splitlines() if line.startswith(b"data: ")]
        asked = events[-1]["outcome"]["interrupts"]
        return [{"interruptId": one["id"], "status": "resolved", "payload": payload} for one in asked]

    async def _last_number(self, run_id: str) -> int:
        reader = Reader(self._app)
        await reader.request("GET", f"/threads/thread/runs/{run_id}", x_scope=self.scope)
        return json.loads(reader.body)["last"]

    def _body(self, agent: str, run_id: str, **members: Any) -> bytes:
        declared = ... if self._declared is None else self._declared
        given = {**_INPUTS.get(agent, {}), **members, "protocolVersion": declared}
        return json.dumps(run_input(run_id=run_id, **given), ensure_ascii=False).encode()

    async def _get(self, what: str, path: str) -> None:
        if self._declared is not None:
            path += f"{'&' if '?' in path else '?'}protocolVersion={self._declared}"
        self.responses[what] = await self._request("GET", path, b"")

    async def _post(self, what: str, path: str, body: bytes) -> None:
        self.responses[what] = await self._request("POST", path, body, content_type="application/json")

    async def _request(self, method: str, path: str, body: bytes, **headers: str) -> bytes:
        reader = Reader(self._app)
        async with asyncio.timeout(_SECONDS):
            status = await reader.request(method, path, body, accept=self._accept, x_scope=self.scope, **headers)
        sent = dict(reader.messages[0]["headers"])
        assert reader.is_complete
        return b"%d %b\n" % (status, sent.get(b"content-type", b"")) + reader.body


async def record(agent: str) -> dict[tuple[str, str], dict[str, bytes]]:
    """Run an agent for every dialect and transport. Return the responses."""
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    for undeclared in UNDECLARED:
        app = make_app(undeclared)
        logs = Logs(app)
        _logs.append(logs)
        dialects = (*DECLARED, undeclared) if undeclared == UNDECLARED[0] else (undeclared,)
        callers = {
            (dialect, transport): Caller(app, logs, dialect, transport)
            for dialect in dialects
            for transport in TRANSPORTS
        }
        try:
            tasks = [one.record_unstored() if agent == "unstored" else one.record(agent) for one in callers.values()]
            found |= dict(zip(callers, await asyncio.gather(*tasks), strict=True))
            await logs.close()
        finally:
            _logs.pop()
            await app.close()
    return {variant: {what: _stable(sent) for what, sent in found[variant].items()} for variant in VARIANTS}


def _stable(response: bytes) -> bytes:
    """Replace what is random, the tokens of cursors and references, and shorten long values."""
    tokens: dict[bytes, int] = {}

    def number(match: re.Match[bytes]) -> bytes:
        return b"%b-token%d" % (match[1], tokens.setdefault(match[2], len(tokens)))

    response = re.sub(rb"(?m)^(id: [0-9]+)-([A-Za-z0-9_-]{8})(?=[.\n])", number, response)
    response = re.sub(rb"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", b"(a reference)", response)
    return re.sub(rb"([a-z])\1{999,}", lambda found: b"(%d times %b)" % (len(found[0]), found[1]), response)
