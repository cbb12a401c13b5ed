"""Every published generation of @ag-ui/client judges, with its own schemas, our events in its dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import UNVERSIONED_RUN_STARTED, run_finished_json, user_json
from processes.node import CLIENTS, run_node
from streams.vectors import VALID

from aguila.codec import decode_event, encode
from aguila.codec.dialects import UNDECLARED, UNDECLARED_WITH_SUBAGENTS, Dialect, Translator, dialect_of
from aguila.protocol import Event

PUBLISHED = [
    "0.0.35",
    "0.0.40",
    "0.0.41",
    "0.0.44",
    "0.0.45",
    "0.0.47",
    "0.0.50",
    "0.0.53",
    "0.0.57",
    "0.0.59",
    "1.0.0",
]


def refusals(documents: dict[str, list[Any]]) -> dict[str, list[str | None]]:
    """Ask versions of the client about events: for each event None, or why it was refused."""
    asked = [{"generation": generation, "events": events} for generation, events in documents.items()]
    answers = json.loads(run_node("judge.mjs", json.dumps(asked), folder=CLIENTS))
    return dict(zip(documents, answers, strict=True))


IMAGE = {"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}}
FILE = {"type": "document", "source": {"type": "file", "value": "f-1"}, "metadata": {"filename": "a.pdf"}}
LINK = {"type": "video", "source": {"type": "url", "value": "https://x.test/v"}, "id": "p"}


def vectors() -> list[Event]:
    """Return every valid event of the vectors, and every valid message and input inside of one."""
    wire: list[Any] = [vector.wire for vector in VALID if vector.read_as == "Event"]
    wire += [
        {"type": "MESSAGES_SNAPSHOT", "messages": [vector.wire]} for vector in VALID if vector.read_as == "Message"
    ]
    for vector in VALID:
        if vector.read_as == "RunAgentInput":
            wire.append({"type": "RUN_STARTED", "threadId": "t", "runId": "r", "input": vector.wire})
    for parts in ([IMAGE], [{"type": "text", "text": "x"}, FILE, LINK], []):
        wire.append({"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "u", "role": "user", "content": parts}]})
        wire.append(
            {
                "type": "MESSAGES_SNAPSHOT",
                "messages": [{"id": "o", "role": "tool", "toolCallId": "c", "content": parts}],
            }
        )
        wire.append({"type": "TOOL_CALL_RESULT", "messageId": "o", "toolCallId": "c", "content": parts})
    events = [decode_event(json.dumps(one), strict=True) for one in wire]
    return [event for event in events if event is not None]


def translated(dialect: Dialect, events: list[Event]) -> list[Any]:
    written: list[Any] = []
    for event in events:
        translator = Translator(dialect, warn=lambda _: None)
        translator.supply_state("r", {"n": 1})
        written += [json.loads(encode(one)) for one in translator.feed(event)]
    return written


def test_every_generation_accepts_every_event_of_its_dialect() -> None:
    events = vectors()
    # Protocol versions have two components.
    dialects = {one: dialect_of("1.0" if one == "1.0.0" else one) for one in PUBLISHED}
    written = {generation: translated(dialect, events) for generation, dialect in dialects.items()}
    verdicts = refusals(written)
    refused = {
        generation: [(event, why) for event, why in zip(written[generation], verdicts[generation], strict=True) if why]
        for generation in PUBLISHED
    }
    assert {generation: found for generation, found in refused.items() if found} == {}
    assert all(len(found) > len(events) / 2 for found in verdicts.values())


@pytest.mark.parametrize(
    ("dialect", "generations"),
    [(UNDECLARED, ["0.0.53", "0.0.57", "0.0.59", "1.0.0"]), (UNDECLARED_WITH_SUBAGENTS, ["0.0.59", "1.0.0"])],
    ids=["flatten", "subagents"],
)
def test_an_undeclared_client_from_0_0_53_on_accepts_every_event(dialect: Dialect, generations: list[str]) -> None:
    written = translated(dialect, vectors())
    for generation, verdict in refusals(dict.fromkeys(generations, written)).items():
        refused = [(event, why) for event, why in zip(written, verdict, strict=True) if why is not None]
        assert refused == [], generation


# Each row of the table exists because its generation refuses something.

TOOL_PARTS = {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": [IMAGE]}
PENDING = {**run_finished_json(), "outcome": {"type": "success", "pendingToolCallIds": ["c"]}}
CANCELLED = {**run_finished_json(), "outcome": {"type": "cancelled"}}
SUBAGENT = {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"}
ECHO = UNVERSIONED_RUN_STARTED | {"input": {"threadId": "t", "runId": "r", "messages": []}}
REASONING = {"type": "REASONING_START", "messageId": "m"}
ACTIVITY = {"type": "ACTIVITY_SNAPSHOT", "messageId": "m", "activityType": "a", "content": {}}
EMPTY = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": ""}
ROLE = {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "user"}


def user_snapshot(*parts: Any) -> dict[str, Any]:
    return {"type": "MESSAGES_SNAPSHOT", "messages": [user_json("u", list(parts))]}


RULES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "tool parts": (TOOL_PARTS, PUBLISHED[:10]),
    "pending calls": (PENDING, ["0.0.57", "0.0.59"]),
    "cancelled": (CANCELLED, ["0.0.57", "0.0.59"]),
    "subagents": (SUBAGENT, PUBLISHED[:9]),
    "input echo": (ECHO, PUBLISHED[2:10]),
    "reasoning": (REASONING, PUBLISHED[:4]),
    "activities": (ACTIVITY, PUBLISHED[:2]),
    "empty deltas": (EMPTY, PUBLISHED[:6]),
    "roles": (ROLE, PUBLISHED[:1]),
    "text parts": (user_snapshot({"type": "text", "text": "x"}), PUBLISHED[:2]),
    "images": (user_snapshot(IMAGE), PUBLISHED[:6]),
    "file sources": (user_snapshot(FILE), PUBLISHED[:10]),
}


def test_each_rule_of_the_table_is_there_because_a_generation_refuses_the_event() -> None:
    verdicts = refusals({generation: [event for event, _ in RULES.values()] for generation in PUBLISHED})
    refusing = {
        name: [generation for generation in PUBLISHED if verdicts[generation][at] is not None]
        for at, name in enumerate(RULES)
    }
    assert refusing == {name: refusing for name, (_, refusing) in RULES.items()}
