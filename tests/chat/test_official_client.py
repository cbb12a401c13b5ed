"""``@ag-ui/client`` reads the streams of the chat mapping and holds the same conversation."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from chats.chat_streams import chat_update, run_input, stream
from processes.node import run_node

from aguila.chat import (
    ApprovalRequestContent,
    Content,
    FunctionCallContent,
    FunctionResultContent,
    InterruptRequestContent,
    ReasoningContent,
    TextContent,
    UsageContent,
    as_chat_messages,
)
from aguila.codec import decode, encode
from aguila.codec.sse import SSEEncoder
from aguila.protocol import (
    AssistantMessage,
    CustomEvent,
    Event,
    FunctionCall,
    Message,
    StateSnapshotEvent,
    TokenUsage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguila.stream import consume

pytestmark = pytest.mark.anyio


COUNT = 250
HISTORY: list[Message] = [
    UserMessage(id="u", content="hi"),
    AssistantMessage(id="a", tool_calls=[ToolCall(id="done", function=FunctionCall(name="f", arguments="{}"))]),
    ToolMessage(id="t", tool_call_id="done", content="x"),
]


Pairs = list[tuple[list[Event], dict[str, Any]]]


def content(rng: random.Random) -> Content:
    call_id = rng.choice(["c1", "c2", "c3", "done"])
    return rng.choice(
        [
            TextContent(rng.choice(["Hello", " wörld", "", "🙂"])),
            TextContent("text"),
            ReasoningContent("hm", rng.choice([None, "sig"])),
            ReasoningContent("", "only sealed"),
            FunctionCallContent(call_id, "f", '{"a":1}'),
            FunctionCallContent(call_id, "f", rng.choice(["", "{", '"a"']), is_complete=False),
            FunctionResultContent(call_id, rng.choice(["ok", "", "{}"])),
            UsageContent(TokenUsage(model="m", output_tokens=3)),
            ApprovalRequestContent("i1", FunctionCallContent(call_id, "f", "{}")),
            InterruptRequestContent("i2", message="Sure?"),
        ]
    )


def updates(seed: int) -> list[Any]:
    rng = random.Random(seed)
    items: list[Any] = []
    for _ in range(rng.randrange(1, 10)):
        if rng.random() < 0.1:
            items.append(rng.choice([CustomEvent(name="x", value=None), StateSnapshotEvent(snapshot={"n": 1}), "text"]))
        else:
            contents = [content(rng) for _ in range(rng.randrange(1, 4))]
            tag = {"ag_ui_subagent_run_id": "s"} if rng.random() < 0.15 else {}
            items.append(chat_update(*contents, message_id=rng.choice([None, "m1", "m2", "u", "t"]), **tag))
    return items


@pytest.fixture(scope="module")
async def read_by_both() -> Pairs:
    sse = SSEEncoder()
    runs = [await stream(updates(seed), run_input(*HISTORY), warn=[].append) for seed in range(COUNT)]
    lines = [
        json.dumps(
            {
                "body": b"".join(sse.encode(event) for event in events).decode(),
                "messages": json.loads(encode(HISTORY)),
                "state": {},
            }
        )
        for events in runs
    ]
    answers = run_node("differential.mjs", "\n".join(lines)).splitlines()
    return list(zip(runs, map(json.loads, answers), strict=True))


async def test_the_official_client_accepts_every_stream(read_by_both: Pairs) -> None:
    assert [answer["error"] for _, answer in read_by_both if answer["verdict"] != "accepted"] == []


async def test_it_holds_the_conversation_that_we_hold(read_by_both: Pairs) -> None:
    interrupted = 0
    for events, answer in read_by_both:
        conversation = consume(events, messages=HISTORY)
        assert answer["messages"] == json.loads(encode(conversation.messages))
        assert answer["state"] == conversation.state
        assert [i["id"] for i in answer["interrupts"]] == [i.id for i in conversation.interrupts]
        interrupted += bool(conversation.interrupts)
    assert 0 < interrupted < COUNT


async def test_what_it_sends_back_is_a_history_that_we_read(
    read_by_both: list[tuple[list[Event], dict[str, Any]]],
) -> None:
    for _, answer in read_by_both:
        messages = decode(encode(answer["messages"]), list[Message], strict=True)
        assert len(as_chat_messages(messages)) == len(messages)
