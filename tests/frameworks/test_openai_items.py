"""Items of OpenAI's Responses API: every part, and what is dropped. Random histories: tests/peers."""

from __future__ import annotations

from typing import Any

import pytest

from aguila.chat import ChatMessage, Content, DataContent, HostedFileContent, ReasoningContent, TextContent, UriContent
from aguila.chat.property_keys import FILENAME, PART_KIND
from aguila.codec.notices import Notice
from aguila.errors import EncodeError
from aguila.frameworks.openai_agents import from_items, to_items

IMAGE: dict[str, Any] = {PART_KIND: "image"}
PARTS: list[tuple[Content, dict[str, Any]]] = [
    (TextContent("a"), {"type": "input_text", "text": "a"}),
    (
        DataContent(b"a", "image/png"),
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,YQ=="},
    ),
    (
        UriContent("https://a.test/b", additional_properties=IMAGE),
        {"type": "input_image", "detail": "auto", "image_url": "https://a.test/b"},
    ),
    (
        HostedFileContent("file-1", additional_properties=IMAGE),
        {"type": "input_image", "detail": "auto", "file_id": "file-1"},
    ),
    (DataContent(b"a", "audio/wav"), {"type": "input_audio", "input_audio": {"data": "YQ==", "format": "wav"}}),
    (
        DataContent(b"a", "application/pdf", additional_properties={FILENAME: "a.pdf"}),
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,YQ=="},
    ),
    (UriContent("https://a.test/b"), {"type": "input_file", "file_url": "https://a.test/b"}),
    (HostedFileContent("file-1"), {"type": "input_file", "file_id": "file-1"}),
]


@pytest.mark.parametrize(("content", "part"), PARTS, ids=lambda one: one.get("type") if isinstance(one, dict) else "")
def test_every_part_goes_and_returns(content: Content, part: dict[str, Any]) -> None:
    message = ChatMessage("user", [TextContent("see"), content])
    (item,) = to_items([message])
    assert item == {"role": "user", "content": [{"type": "input_text", "text": "see"}, part]}
    assert from_items([item]) == [message]


@pytest.mark.parametrize(
    "content",
    [
        DataContent(b"a", "video/mp4"),
        DataContent(b"a", "audio/ogg"),
        UriContent("https://a.test/b", "audio/wav"),
    ],
)
def test_a_part_that_openai_does_not_take_is_dropped_with_a_notice(content: Content) -> None:
    notices: list[Notice] = []
    (item,) = to_items([ChatMessage("user", [TextContent("see"), content])], warn=notices.append)
    assert item["content"] == [{"type": "input_text", "text": "see"}]
    assert [notice.rule for notice in notices] == ["openai"]


def test_reasoning_without_its_item_is_dropped_with_a_notice() -> None:
    notices: list[Notice] = []
    thoughts: list[Content] = [ReasoningContent("Hm."), ReasoningContent("Hm.", "not JSON"), ReasoningContent("", "[]")]
    thoughts.append(ReasoningContent("", "[" * 100_000))
    assert to_items([ChatMessage("assistant", thoughts)], warn=notices.append) == []
    assert len(notices) == 4


def test_an_item_of_a_hosted_tool_is_dropped_with_a_notice() -> None:
    notices: list[Notice] = []
    assert from_items([{"type": "web_search_call", "id": "ws", "status": "completed"}], warn=notices.append) == []
    assert "web_search_call" in notices[0].message


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(EncodeError, match="critic"):
        to_items([ChatMessage("critic", "no")])
