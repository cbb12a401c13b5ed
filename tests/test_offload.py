"""Work on large values is done in one thread, and one predicate decides which values are large."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from aguila.chat import ChatMessage, ChatUpdate, DataContent, FunctionCallContent, FunctionResultContent, TextContent
from aguila.offload import LARGE, is_large, is_large_patch, offload
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


@pytest.mark.parametrize(
    "value",
    [
        TEXT,
        DATA,
        {"a": {"b": [1, TEXT]}},
        [*range(200), TEXT],
        [1] * 4_000,
        [10**4_000],
        [[[]] * 50 for _ in range(100)],
        {str(i): {} for i in range(4_000)},
        UserMessage(id="m", content=TEXT),
        UserMessage(id="m", content=[TextPart(text="look"), PICTURE]),
        ToolMessage(id="m", tool_call_id="c", content=[PICTURE]),
        [SMALL] * 1000 + [UserMessage(id="m", content=TEXT)],
        RunAgentInput(thread_id="t", run_id="r", messages=[], state=[1] * 4_000),
        StateSnapshotEvent(snapshot=[1] * 4_000),
        StateDeltaEvent(delta=[{"op": "remove", "path": "/a"}] * 2_000),
        ActivityDeltaEvent(message_id="m", activity_type="P", patch=[{"op": "remove", "path": "/a"}] * 2_000),
        MessagesSnapshotEvent(messages=[SMALL] * 1_001),
        TextContent(TEXT),
        DataContent(DATA, "image/png"),
        FunctionCallContent("c", "f", TEXT),
        FunctionResultContent("c", [DataContent(DATA, "image/png")]),
        ChatMessage("user", [TextContent("a"), DataContent(DATA, "image/png")]),
        ChatUpdate("tool", [FunctionResultContent("c", [DataContent(DATA, "image/png")])]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_with_a_large_text_or_file_is_large(value: Any) -> None:
    assert is_large(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "x" * LARGE,
        {"a": ["x"]},
        [SMALL] * 1000,
        AssistantMessage(id="m"),
        StateDeltaEvent(delta=[{"op": "remove", "path": "/a"}]),
        ChatMessage("user", [TextContent("a")]),
        [1] * 3_999,
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_not(value: Any) -> None:
    assert not is_large(value)


@pytest.mark.parametrize("value", [1, "x", TEXT, {"a": [TEXT]}, [1] * 4_000, [10**4_000], None])
@pytest.mark.parametrize("count", [1, 10, 17])
def test_a_patch_is_large_if_its_values_or_its_operations_are(value: Any, count: int) -> None:
    patch = [{"op": "add", "path": "/a", "value": 0}] * (count - 1) + [{"op": "add", "path": "/a", "value": value}]
    assert is_large_patch(patch) == is_large(patch)
    assert is_large_patch([{"op": "remove", "path": "/a"}] * 2_000)
    assert is_large_patch(["x", TEXT])  # not a patch, and refused later
    assert not is_large_patch([{"op": "remove", "path": "/a"}])


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
