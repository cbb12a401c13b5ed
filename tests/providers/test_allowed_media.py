"""Provider agents pass on only references to media that ``allowed_media`` admits, also from their own tools."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from in_process import Reader
from serving import run_input

from aguila import App
from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    TextContent,
    UriContent,
)
from aguila.chat.allowed_media import DEFAULT_MEDIA, AllowedMedia
from aguila.chat.property_keys import PROVIDER
from aguila.codec.notices import Notice
from aguila.protocol import ImagePart, UrlSource
from aguila.providers._agent.loop import make_agent
from aguila.providers._request.media import leave_out_media
from aguila.providers._request.prompt import Prompt
from aguila.providers._response.reader import FINISH_REASON
from aguila.server import Trust

PUBLIC, PRIVATE = "https://example.com/a.png", "https://10.0.0.1/a.png"


def test_references_in_messages_and_results_are_left_out_with_a_notice() -> None:
    notices: list[Notice] = []
    stored = HostedFileContent("f", "image/png", additional_properties={PROVIDER: "openai"})
    upload = HostedFileContent("u", "image/png")
    parts = [ImagePart(source=UrlSource(value=PRIVATE)), ImagePart(source=UrlSource(value=PUBLIC))]
    messages = [
        ChatMessage("user", [TextContent("look"), UriContent(PRIVATE, None), UriContent(PUBLIC, None), stored, upload]),
        ChatMessage("tool", [FunctionResultContent("c", parts)]),
        ChatMessage("assistant", [UriContent(PRIVATE, None)]),  # of the model itself
    ]
    user, result, answer = leave_out_media(messages, DEFAULT_MEDIA, notices.append)
    assert [getattr(one, "uri", None) for one in user.contents] == [None, PUBLIC, None]
    assert user.contents[-1] == upload
    (left,) = result.contents
    assert isinstance(left, FunctionResultContent)
    assert left.result == parts[1:]
    assert answer is messages[2]
    assert [notice.rule for notice in notices] == ["allowed-media"] * 3
    assert all("AllowedMedia" in notice.message for notice in notices)
    wide = AllowedMedia(hosts=["*", "10.0.0.1"], providers=["openai"])
    assert all(new is old for new, old in zip(leave_out_media(messages, wide, notices.append), messages, strict=True))


class Model:
    """A model that calls ``look`` once, and keeps the prompts that it gets."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    async def answer(self, prompt: Prompt, warn: Any) -> AsyncIterator[ChatUpdate]:
        self.prompts.append(Prompt(messages=list(prompt.messages)))
        if len(self.prompts) == 1:
            yield ChatUpdate("assistant", [FunctionCallContent("c1", "look", "{}")], message_id="a1")
            yield ChatUpdate("assistant", [], additional_properties={FINISH_REASON: "tool_calls"})
        else:
            yield ChatUpdate("assistant", [TextContent("done")], message_id="a2")
            yield ChatUpdate("assistant", [], additional_properties={FINISH_REASON: "stop"})


def look() -> Any:
    """Look."""
    return [ImagePart(source=UrlSource(value=PRIVATE)), ImagePart(source=UrlSource(value=PUBLIC))]


@pytest.mark.anyio
async def test_the_result_of_an_own_tool_is_filtered_too(caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    agent = make_agent(model, tools=[look], instructions=None, max_rounds=3, allowed_media=DEFAULT_MEDIA)
    everything = AllowedMedia(hosts=["*", "10.0.0.1"])
    source = {"type": "url", "value": PRIVATE, "mimeType": "image/png"}
    message = {"id": "m", "role": "user", "content": [{"type": "image", "source": source}]}
    with caplog.at_level(logging.WARNING, logger="aguila"):
        async with App(agent, trust=Trust(media=everything)) as app:
            reader = Reader(app)
            body = json.dumps(run_input("t", "r", messages=[message])).encode()
            assert await reader.request("POST", "/", body, content_type="application/json") == 200
    assert b"done" in reader.body
    first, second = model.prompts
    assert PRIVATE not in repr(first.messages[0].contents)
    result = repr(second.messages[-1].contents)
    assert PRIVATE not in result
    assert PUBLIC in result
    assert caplog.text.count("the host 10.0.0.1 is not allowed") == 2
