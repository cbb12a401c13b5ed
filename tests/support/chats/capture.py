"""One turn of a chat at eight points, as JSON that a person can follow.

Out: what the application says (1), what is sent (2), what the agent is given (3), as chat messages (4). Back: what the
agent yields (5), what is sent (6), what the client makes of it (7), and what the application is told (8). Each
neighbouring pair shows one mapping. Tools that the client calls make several runs of one turn.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from aguila import App, ChatClient
from aguila.chat import ChatMessage, ChatUpdate
from aguila.client import AsyncClient, ChatOptions, ChatResponse
from aguila.client.transports.asgi import ASGITransport
from aguila.codec import encode, encode_event
from aguila.errors import RunFailed
from aguila.protocol import Event
from chats.chat_app import Tap

_MINTED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b(?:msg|int|call)_[0-9a-f]{20,32}")


@dataclass
class Scenario:
    """``turns`` says what the application does with each response; it gives the messages of the next turn, or None."""

    about: str
    agent: Callable[[Any], Any]
    first: list[ChatMessage]
    next: Callable[[ChatResponse], list[ChatMessage] | None] = lambda response: None
    tools: tuple[Any, ...] = ()
    state: Any = None


def plain(value: Any) -> Any:
    """Return a chat value as JSON: its type and the fields that are not defaults, without the raw representation."""
    if isinstance(value, bytes):
        return f"base64:{base64.b64encode(value).decode()}"
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    shown: dict[str, Any] = {"is": type(value).__name__}
    for field in msgspec.structs.fields(value):
        found = getattr(value, field.name)
        if field.name == "raw_representation" or found is None or found in ({}, []):
            continue
        if field.default is msgspec.NODEFAULT or found != field.default:
            shown[field.name] = plain(found)
    if isinstance(value, ChatUpdate) and value.raw_representation is not None and not value.contents:
        shown["event"] = json.loads(encode_event(value.raw_representation))
    return shown


class _Recorder:
    """Wrap an agent; keep its input and the values that it yields."""

    def __init__(self, agent: Callable[[Any], Any]) -> None:
        self._agent = agent
        self.runs: list[dict[str, Any]] = []

    async def __call__(self, run: Any) -> Any:
        yielded: list[Any] = []
        self.runs.append(
            {
                "3 the agent's input": json.loads(encode(run.input)),
                "4 as chat messages": plain(await run.chat_messages()),
                "5 the agent's updates": yielded,
            }
        )
        async for update in self._agent(run):
            shown = json.loads(encode_event(update)) if isinstance(update, Event) else plain(update)
            yielded.append(shown)
            yield update


async def capture(scenario: Scenario) -> dict[str, Any]:
    """Play a scenario with a client and an app; return the captures."""
    recorder = _Recorder(scenario.agent)
    tap = Tap(ASGITransport(App(recorder)))
    numbers = count(1)
    turns: list[dict[str, Any]] = []
    async with AsyncClient("http://agent.test", transport=tap, new_id=lambda: f"id-{next(numbers)}") as client:
        options = ChatOptions(tools=scenario.tools, state=scenario.state)
        conversation: list[ChatMessage] = []
        new: list[ChatMessage] | None = scenario.first
        while new is not None:
            conversation += new
            asked, answered, before = len(tap.inputs), len(tap.events), len(recorder.runs)
            told = await _turn(ChatClient(client), conversation, options)
            turns.append(
                {
                    "1 the chat request": plain(conversation),
                    "runs": _runs(tap.inputs[asked:], recorder.runs[before:], tap.events[answered:]),
                    "7 the client's updates": told.updates,
                    "8 the chat response": told.shown,
                }
            )
            if told.response is None:
                break
            conversation += told.response.messages
            new = scenario.next(told.response)
    return _normalised({"about": scenario.about, "turns": turns})


@dataclass
class _Told:
    updates: list[Any]
    shown: Any
    response: ChatResponse | None


async def _turn(client: ChatClient, conversation: list[ChatMessage], options: ChatOptions) -> _Told:
    updates: list[Any] = []
    stream = client.get_streaming_response(list(conversation), options)
    try:
        async for update in stream:
            updates.append(_shown(update))
    except RunFailed as error:
        return _Told(updates, {"raises": type(error).__name__, "message": error.message, "code": error.code}, None)
    response = stream.response
    shown = {
        "outcome": response.outcome,
        "messages": plain(response.messages),
        "state": response.state,
        "usage": plain(response.usage),
        "text": response.text,
    }
    return _Told(updates, {key: value for key, value in shown.items() if value not in ({}, [], "")}, response)


def _shown(update: ChatUpdate) -> Any:
    """Return an update as the type of its event and its contents; the event itself is under 6."""
    event = update.raw_representation
    shown = {} if event is None else {"of": event.type}
    shown |= {"role": update.role, "message_id": update.message_id, "contents": plain(update.contents)}
    return {key: value for key, value in shown.items() if value not in (None, [])}


def _runs(inputs: list[Any], seen: list[Any], events: list[Any]) -> list[dict[str, Any]]:
    """Return the captures of each run of a turn, in the order of the points."""
    pieces: list[list[Any]] = []
    for event in events:
        if event["type"] == "RUN_STARTED":
            pieces.append([])
        pieces[-1].append(event)
    assert len(inputs) == len(seen) == len(pieces)
    return [
        {"2 the wire request": sent, **view, "6 the wire events": came}
        for sent, view, came in zip(inputs, seen, pieces, strict=True)
    ]


def _normalised(document: dict[str, Any]) -> dict[str, Any]:
    """Replace generated ids by numbers, in the order in which they appear."""
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"minted-{len(names) + 1}")

    return json.loads(_MINTED.sub(name, json.dumps(document)))


def pretty(value: Any, indent: int = 0) -> str:
    """Format JSON; a value that fits into a line stays on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= 116 or not isinstance(value, dict | list) or not value:
        return line
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {pretty(one, indent + 2)}" for key, one in value.items()]
    else:
        items = [pretty(one, indent + 2) for one in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return begin + "\n" + ",\n".join(pad + item for item in items) + "\n" + " " * indent + end
