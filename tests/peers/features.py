"""The features that every peer is tried with, through the real client over HTTP.

A feature raises ``Broken`` if it does not work. A feature that works, but not as the protocol requires, gets remarks:
from the client's notices, from a strict check of the raw events, and from the feature itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from environments import HERE, Peer, Running, running

from aguila.client import AsyncClient, AsyncThread, Stage, Timeouts, approve, tool
from aguila.codec import decode_event, encode
from aguila.codec.compat import Level
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.notices import Notice
from aguila.errors import AguilaError, DecodeError, HTTPRejected, RunFailed, StreamTruncated
from aguila.protocol import Event, ReasoningMessage, TextMessageContentEvent, ToolMessage
from aguila.stream import verify

sys.path.insert(0, str(HERE / "agents"))
import script

Feature = Callable[["Trial"], Awaitable[None]]


class Broken(Exception):
    """The feature does not work."""


class Trial:
    """One feature tried on one server: clients that keep what went over the wire, and the remarks."""

    def __init__(self, peer: Peer, server: Running, compat: Level) -> None:
        self.peer = peer
        self.server = server
        self.remarks: list[str] = []
        self.runs: list[list[dict[str, Any]]] = []
        self.client = AsyncClient(
            server.url,
            protobuf=peer.is_protobuf,
            compat=compat,
            middleware=[self._record],
            warn=self._notice,
            timeouts=Timeouts(first_event=20, idle=20),
            options={"trust_env": False},
        )

    def remark(self, words: str) -> None:
        words = _without_ids(words)
        if words not in self.remarks:
            self.remarks.append(words)

    def thread(self, **options: Any) -> AsyncThread:
        return self.client.thread(**options)

    def content_type(self) -> str:
        """Return the content type of the response to a run."""
        body = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "text"}]}
        rest: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
        headers = {"Content-Type": "application/json", "Accept": self.client.settings.accept}
        request = Request(self.server.url, encode(body | rest), headers)
        with urlopen(request, timeout=20) as answer:
            return answer.headers["Content-Type"]

    async def goes_on(self, thread: AsyncThread) -> None:
        """Check that the peer accepts its own conversation in a further run."""
        try:
            result = await thread.run("text")
        except AguilaError as error:
            self.remark(f"the next run on the thread fails: {error_text(error)}")
        else:
            if result.text != "".join(script.TEXT):
                self.remark(f"the next run on the thread says {result.text!r}")

    def judge(self) -> None:
        """Check every run by all rules for producers."""
        for raw_events in self.runs:
            for words in (*_changed_ids(raw_events), *_ballast(raw_events)):
                self.remark(words)
            events: list[Event] = []
            for raw in raw_events:
                try:
                    event = decode_event(encode(raw), strict=True)
                except DecodeError as error:
                    self.remark(f"{raw.get('type')}: {error.message}{_at(error.path)} [{error.rule}]")
                    event = _leniently(raw)
                if event is not None:
                    events.append(event)
            for finding in verify(events, producer=True, collect=True).findings:
                if finding.rule != "TRN-3":  # a run that was hung up on has no end
                    self.remark(f"{finding.message} [{finding.rule}]")

    def _record(self) -> Stage:
        events: list[dict[str, Any]] = []
        self.runs.append(events)

        class Recording(Stage):
            def event(self, event: dict[str, Any]) -> tuple[dict[str, Any]]:
                events.append(event)
                return (event,)

        return Recording()

    def _notice(self, notice: Notice) -> None:
        self.remark(f"tolerated: {notice}")


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _changed_ids(events: list[dict[str, Any]]) -> Iterator[str]:
    """Messages that the last MESSAGES_SNAPSHOT knows under another id than the stream did, or not at all.

    A snapshot may leave out all reasoning: then clients keep what they have (MSGS-2, MSGS-3).
    """
    snapshots = [event["messages"] for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
    if not snapshots:
        return
    stated = snapshots[-1]
    known = {message["id"] for message in stated}
    answered = {message.get("toolCallId") for message in stated}
    reasoned = any(message["role"] == "reasoning" for message in stated)
    for event in events:
        kind = event["type"]
        if kind not in _MESSAGE_STARTS or event["messageId"] in known:
            continue
        if kind == "REASONING_MESSAGE_START" and not reasoned:
            continue
        is_there = event["toolCallId"] in answered if kind == "TOOL_CALL_RESULT" else kind[0] == "R"
        how = "gives another id to" if is_there else "leaves out"
        yield f"MESSAGES_SNAPSHOT {how} a message that was streamed by {kind}"


def _ballast(events: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how much of the stream is for debugging only."""
    everything = sum(len(encode(event)) for event in events)
    needed = sum(
        len(encode({name: value for name, value in event.items() if name != "rawEvent"}))
        for event in events
        if event["type"] != "RAW"
    )
    if everything > 2 * needed:
        yield "most of the bytes it sends are RAW events and rawEvent members"


_MESSAGE_STARTS = frozenset({"TEXT_MESSAGE_START", "REASONING_MESSAGE_START", "TOOL_CALL_RESULT"})


def _leniently(raw: dict[str, Any]) -> Event | None:
    try:
        return decode_event(encode(raw), compat="wide", warn=lambda _: None)
    except DecodeError:
        return None


def _at(path: str) -> str:
    return f" at {path!r}" if path else ""


def _without_ids(words: str) -> str:
    """Remove generated ids from a remark, so that it is the same in every run of the matrix."""
    words = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}\b", "…", words)
    return re.sub(r"event \d+: ", "", words)


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise Broken(otherwise)


# The features


async def text(trial: Trial) -> None:
    thread = trial.thread()
    found = await asyncio.to_thread(trial.content_type)
    wanted = PROTOBUF_MEDIA_TYPE if trial.peer.is_protobuf else SSE_MEDIA_TYPE
    check(found.partition(";")[0] == wanted, f"it answers with {found}")
    pieces = [event.delta async for event in thread.run("text") if isinstance(event, TextMessageContentEvent)]
    check("".join(pieces) == "".join(script.TEXT), f"it said {''.join(pieces)!r}")
    check(len(pieces) > 1, "it came in one piece")
    if thread.state != {}:
        held = ", ".join(f"{name} ({type(value).__name__})" for name, value in sorted(thread.state.items()))
        trial.remark(f"a run without state in its input ends with one: {held}")
    await trial.goes_on(thread)


async def backend(trial: Trial) -> None:
    thread = trial.thread()
    result = await thread.run("backend")
    answers = [message.content for message in result.messages if isinstance(message, ToolMessage)]
    check([_number(one) for one in answers] == [5], f"the tool's answers are {answers}")
    check(result.text == script.SUM, f"it said {result.text!r}")
    calls = [call for message in result.messages for call in getattr(message, "tool_calls", None) or []]
    check([call.function.name for call in calls] == [script.BACKEND_TOOL], f"the calls are {calls}")
    check(result.pending_tool_calls == [], "the call is still pending")
    await trial.goes_on(thread)


async def frontend(trial: Trial) -> None:
    asked: list[str] = []

    @tool
    def favourite_colour(of: str) -> str:
        """Somebody's favourite colour."""
        asked.append(of)
        return "teal"

    thread = trial.thread(tools=[favourite_colour])
    result = await thread.run("frontend")
    check(asked == ["Ada"], f"the tool was called for {asked}")
    check(result.text == script.COLOUR, f"it said {result.text!r}")
    outcomes = [event.get("outcome", {}) for event in trial.runs[0] if event["type"] == "RUN_FINISHED"]
    if not outcomes[0].get("pendingToolCallIds"):
        trial.remark("RUN_FINISHED does not list the frontend call in pendingToolCallIds; the client derives it [FT-3]")
    await trial.goes_on(thread)


async def state(trial: Trial) -> None:
    thread = trial.thread(state={"count": 1})
    await thread.run("state")
    check(isinstance(thread.state, dict) and thread.state.get("count") == 2, f"the state is {thread.state}")
    strangers = sorted(set(thread.state) - {"count"})
    if strangers:
        trial.remark(f"the state also holds {', '.join(strangers)}")
    await thread.run("state")
    check(thread.state["count"] == 3, f"after a second run the state is {thread.state}")


async def reasoning(trial: Trial) -> None:
    thread = trial.thread()
    result = await thread.run("reasoning")
    check(result.text == script.THOUGHT_OF, f"it said {result.text!r}")
    thoughts = [message.content for message in result.messages if isinstance(message, ReasoningMessage)]
    check(thoughts == ["".join(script.THOUGHT)], f"the thoughts are {thoughts}")
    await trial.goes_on(thread)


async def interrupt(trial: Trial) -> None:
    thread = trial.thread()
    result = await thread.run("interrupt")
    check(result.outcome == "interrupt", f"the outcome is {result.outcome}")
    check(len(result.interrupts) == 1, f"the interrupts are {result.interrupts}")
    question = result.interrupts[0]
    check(question.message != "null", "the question has lost its message")
    wanted = (question.response_schema or {}).get("type")
    result = await thread.resume({question.id: "yes" if wanted == "string" else approve()})
    check(result.text == script.SENT, f"after the answer it said {result.text!r}")
    check(thread.interrupts == [], "the interrupt is still open")
    answered = {message.tool_call_id for message in thread.messages if isinstance(message, ToolMessage)}
    calls = [call for message in thread.messages for call in getattr(message, "tool_calls", None) or []]
    for call in calls:
        if call.function.name != script.APPROVED_TOOL:
            trial.remark(f"it also calls {call.function.name}, a tool that the client did not offer [FT-6]")
        if call.id not in answered:
            trial.remark(f"its call of {call.function.name} is never answered")
    await trial.goes_on(thread)


async def error(trial: Trial) -> None:
    thread = trial.thread()
    try:
        result = await thread.run("error")
    except RunFailed as failed:
        if script.ERROR in failed.message:
            trial.remark("the text of the exception is sent to the client")
        if failed.code == "RuntimeError":
            trial.remark("the class of the exception is sent to the client, as RUN_ERROR.code")
    except StreamTruncated:
        raise Broken("the stream just ends, without RUN_ERROR") from None
    else:
        raise Broken(f"the run ends with outcome {result.outcome}")
    kept = [message.content for message in thread.messages if message.role == "assistant"]
    if kept != [script.BEFORE_THE_ERROR]:
        trial.remark(f"what was said before the error is {kept}")
    await trial.goes_on(thread)


async def cancel(trial: Trial) -> None:
    thread = trial.thread()
    run = thread.run("cancel")
    async with run:
        async for event in run:
            if isinstance(event, TextMessageContentEvent):
                break
        try:
            await thread.cancel()
        except HTTPRejected as rejected:
            trial.remark(f"it has no route to cancel a run (HTTP {rejected.status}); a client can only disconnect")
    check(thread.messages[-1].content == script.TICK, f"kept is {thread.messages[-1]}")
    for _ in range(300):
        before = await asyncio.to_thread(trial.server.counts)
        if before["cancelled"]:
            break
        await asyncio.sleep(0.1)
    else:
        await asyncio.sleep(0.5)
        ticks = (await asyncio.to_thread(trial.server.counts))["ticks"]
        if ticks > before["ticks"]:
            raise Broken("half a minute after the disconnect the agent is still running")
        trial.remark("half a minute after the disconnect the agent is neither cancelled nor running")
    await trial.goes_on(thread)


def _number(content: Any) -> Any:
    """Return the number of a tool's answer, which ADK sends as ``{"result": 3}``."""
    value = json.loads(content)
    return value.get("result") if isinstance(value, dict) else value


async def two_tools(trial: Trial) -> None:
    thread = trial.thread()
    result = await thread.run("two")
    answers = [message.content for message in result.messages if isinstance(message, ToolMessage)]
    check(sorted(_number(one) for one in answers) == [3, 7], f"the tool's answers are {answers}")
    check(result.text in (script.TWO_SUMS, script.TWO_SUMS_SWAPPED), f"it said {result.text!r}")
    await trial.goes_on(thread)


async def reload(trial: Trial) -> None:
    """Leave a run, come back with a new client, and cancel it there."""
    thread = trial.thread()
    run = thread.run("cancel")
    async with run:
        async for event in run:
            if isinstance(event, TextMessageContentEvent):
                break
    page = trial.client.thread(thread.id)
    attached = page.attach()
    async with attached:
        async for event in attached:
            if isinstance(event, TextMessageContentEvent) and str(page.messages[-1].content) >= script.TICK * 3:
                break
        await page.cancel()
    check(str(page.messages[-1].content).startswith(script.TICK * 3), f"the page shows {page.messages[-1]}")
    await trial.goes_on(page)


async def tool_error(trial: Trial) -> None:
    thread = trial.thread()
    try:
        result = await thread.run("fault")
    except RunFailed as failed:
        trial.remark("an exception in a tool fails the run")
        if script.ERROR in failed.message:
            trial.remark("the text of the exception is sent to the client")
    else:
        answers = [message.content for message in result.messages if isinstance(message, ToolMessage)]
        check(len(answers) == 1, f"the answers to the call are {answers}")
        if script.ERROR in str(answers[0]):
            trial.remark("the text of a tool's exception is the result of the call")
    await trial.goes_on(thread)


async def early_end(trial: Trial) -> None:
    thread = trial.thread()
    try:
        result = await thread.run("cut")
    except RunFailed:
        pass
    else:
        check(result.outcome == "success", f"the outcome is {result.outcome}")
        trial.remark("an answer of a model that breaks off without an end is a success")
    kept = [message.content for message in thread.messages if message.role == "assistant"]
    check(kept == [script.BEFORE_THE_ERROR], f"kept is {kept}")
    await trial.goes_on(thread)


async def kill_in_a_call(trial: Trial) -> None:
    """Kill a server of its own within an approved call, and answer again on the next. The call is not made twice."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "threads.db"
        environment = {"PEER_STORE": str(store)}
        with running(trial.peer, environment) as server:
            first = Trial(trial.peer, server, "standard")
            thread = first.thread()
            result = await thread.run("interrupt")
            (question,) = result.interrupts
            wanted = (question.response_schema or {}).get("type")
            answer = {question.id: "yes" if wanted == "string" else approve()}
            Path(f"{store}.kill").touch()
            try:
                await thread.resume(answer)
            except AguilaError:
                pass
            else:
                raise Broken("the server was not killed")
            await first.client.close()
        with running(trial.peer, environment) as server:
            second = Trial(trial.peer, server, "standard")
            page = second.client.thread(thread.id)
            with suppress(RunFailed):
                await page.attach()
            entry = {"interruptId": question.id, "status": "resolved", "payload": answer[question.id]}
            events = await asyncio.to_thread(_post, server.url, thread.id, entry)
            sent = Path(f"{store}.sent").read_text().splitlines()
            check(len(sent) == 1, f"the approved call is made {len(sent)} times")
            if events[-1]["type"] == "RUN_ERROR":
                trial.remark(f"the run that is answered again fails: {events[-1]['message']}")
            await page.refresh()
            await second.goes_on(page)
            await second.client.close()
        trial.remarks += second.remarks


def _post(url: str, thread_id: str, entry: Any) -> list[dict[str, Any]]:
    """Answer a question that the client no longer knows as open: its run was lost. Return the events."""
    body = {"threadId": thread_id, "runId": "again", "messages": [], "tools": [], "context": [], "resume": [entry]}
    request = Request(url, encode(body | {"forwardedProps": {}}), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]


async def kill(trial: Trial) -> None:
    """Kill the server during a run. The run ends as lost, and the thread continues on the next server."""
    thread = trial.thread()
    run = thread.run("cancel")
    async with run:
        async for event in run:
            if isinstance(event, TextMessageContentEvent):
                os.kill(trial.server.pid, signal.SIGKILL)
                break
    with running(trial.peer, trial.server.environment) as server:
        second = Trial(trial.peer, server, "standard")
        page = second.client.thread(thread.id)
        try:
            await page.attach()
        except RunFailed as failed:
            check(failed.code == "run_lost", f"the lost run ended with {failed.code}")
        else:
            raise Broken("the lost run did not end as lost")
        check(script.TICK in str(page.messages[-1].content), f"kept is {page.messages[-1]}")
        await second.goes_on(page)
        await second.client.close()
    trial.remarks += second.remarks


FRAMEWORK_FEATURES: dict[str, Feature] = {
    "text": text,
    "two tools": two_tools,
    "front-end tool": frontend,
    "state": state,
    "reasoning": reasoning,
    "interrupt": interrupt,
    "error": error,
    "cancel": cancel,
    "reload during a run": reload,
    "kill -9": kill,
}
"""The features that a framework behind ``App`` is tried with. The last one ends the server."""

APP_FEATURES: dict[str, Feature] = {
    "exception in a tool": tool_error,
    "answer that breaks off": early_end,
    "kill -9 in an approved call": kill_in_a_call,
    **FRAMEWORK_FEATURES,
}
"""The same, and what fails within a framework."""

CLIENT_FEATURES = (
    "text",
    "second turn",
    "backend tools, in parallel",
    "frontend tool",
    "state",
    "reasoning",
    "activity",
    "subagents, in parallel",
    "interrupt",
    "approval with edited arguments",
    "image attachment",
    "image result",
    "error",
    "cancel",
)
"""The features of the demo that a client of others is tried with, by its own program."""

FEATURES: dict[str, Feature] = {
    "text": text,
    "backend tools": backend,
    "frontend tools": frontend,
    "state": state,
    "reasoning": reasoning,
    "interrupt": interrupt,
    "error": error,
    "cancel": cancel,
}
