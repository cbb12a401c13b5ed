"""Work on large values is done in one thread, and one predicate decides which values are large."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from aguila.chat import ChatMessage, ChatUpdate, DataContent, FunctionCallContent, FunctionResultContent, TextContent
from aguila.offload import LARGE, is_large, offload
from aguila.protocol import (
    ActivityDeltaEvent,
    AssistantMessage,
    DataSource,
    ImagePart,
    MessagesSnapshotEvent,
    RunAgentInput,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextPart,
    ToolMessage,
    UserMessage,
)

pytestmark = pytest.mark.anyio

TEXT = "x" * (LARGE + 1)
DATA = TEXT.encode()
PICTURE = ImagePart(source=DataSource(value=TEXT, mime_type="image/png"))
SMALL = UserMessage(id="s", content="small")


def _containing_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "value",
    [
        TEXT,
        DATA,
        {"a": {"b": [1, TEXT]}},
        [*range(200), TEXT],
        [1] * 70_000,
        [[[]] * 50 for _ in range(2_000)],
        _containing_itself(),
        {str(i): {} for i in range(20_000)},
        UserMessage(id="m", content=TEXT),
        UserMessage(id="m", content=[TextPart(text="look"), PICTURE]),
        ToolMessage(id="m", tool_call_id="c", content=[PICTURE]),
        [SMALL] * 100 + [UserMessage(id="m", content=TEXT)],
        RunAgentInput(thread_id="t", run_id="r", messages=[], state=[1] * 70_000),
        StateSnapshotEvent(snapshot=[1] * 70_000),
        StateDeltaEvent(delta=[{"op": "remove", "path": "/a"}] * 5_000),
        ActivityDeltaEvent(message_id="m", activity_type="P", patch=[{"op": "remove", "path": "/a"}] * 5_000),
        MessagesSnapshotEvent(messages=[SMALL] * 4_000),
        TextContent(TEXT),
        DataContent(DATA, "image/png"),
        FunctionCallContent("c", "f", TEXT),
        FunctionResultContent("c", [DataContent(DATA, "image/png")]),
        ChatMessage("user", [TextContent("a"), DataContent(DATA, "image/png")]),
        ChatUpdate("tool", [FunctionResultContent("c", [DataContent(DATA, "image/png")])]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_of_many_bytes_or_members_is_large(value: Any) -> None:
    assert is_large(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "x" * (LARGE - 8),
        object(),
        ChatMessage("user", [TextContent("a", raw_representation=object())]),
        {"a": ["x"]},
        [SMALL] * 100,
        AssistantMessage(id="m"),
        StateDeltaEvent(delta=[{"op": "remove", "path": "/a"}]),
        ChatMessage("user", [TextContent("a")]),
        [1] * 8_000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_not(value: Any) -> None:
    assert not is_large(value)


async def test_offloaded_calls_share_one_thread_and_keep_their_context() -> None:
    name: ContextVar[str] = ContextVar("name")
    usual = sys.getswitchinterval()

    def work(given: int) -> tuple[int, int, str]:
        return given, threading.get_ident(), name.get()

    name.set("caller")
    found = await asyncio.gather(*(offload(work, number) for number in range(3)))
    assert [number for number, _, _ in found] == [0, 1, 2]
    assert {thread for _, thread, _ in found} != {threading.get_ident()}
    assert len({thread for _, thread, _ in found}) == 1
    assert {value for _, _, value in found} == {"caller"}
    with pytest.raises(ZeroDivisionError):
        await offload(lambda: 1 // 0)
    assert sys.getswitchinterval() == pytest.approx(usual, abs=2e-6)
