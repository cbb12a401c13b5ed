"""The review points of document 002 (multimodal user messages), as executable cases."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from aguila.chat import (
    ChatMessage,
    Content,
    DataContent,
    ErrorContent,
    HostedFileContent,
    InterruptRequestContent,
    TextContent,
    UriContent,
    UsageContent,
    as_agui_messages,
    as_chat_messages,
)
from aguila.codec import Notice, decode, encode
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import TokenUsage, UserMessage

PNG = b"\x89PNG"


def read(raw: dict[str, Any]) -> UserMessage:
    return decode(json.dumps(raw), UserMessage, warn=[].append)


@pytest.mark.parametrize("content", ["hi", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]])
def test_string_and_array_content_both_round_trip(content: Any) -> None:
    raw = {"id": "u", "role": "user", "content": content}
    message = read(raw)
    assert json.loads(encode(message)) == raw
    (chat,) = as_chat_messages([message])
    assert as_agui_messages([chat]) == [message]


def test_text_data_url_and_file_are_preserved() -> None:
    contents = [
        TextContent("look"),
        DataContent(PNG, "image/png"),
        UriContent("https://x.test/a.png", "image/png"),
        HostedFileContent("file-1", "application/pdf"),
    ]
    (message,) = as_agui_messages([ChatMessage("user", list(contents), message_id="u")])
    (back,) = as_chat_messages([decode(encode(message), UserMessage)])
    assert back.contents[:3] == contents[:3]
    assert (back.contents[3].file_id, back.contents[3].media_type) == ("file-1", "application/pdf")  # type: ignore[attr-defined]


@pytest.mark.parametrize("role", ["assistant", "User", None])
def test_another_role_is_not_read_as_a_user(role: str | None) -> None:
    raw = {"id": "u", "content": "hi"} if role is None else {"id": "u", "role": role, "content": "hi"}
    with pytest.raises(DecodeError):
        read(raw)


def test_the_role_is_written_and_cannot_be_another() -> None:
    assert json.loads(encode(UserMessage(id="u", content="hi")))["role"] == "user"
    with pytest.raises(TypeError, match="role"):
        UserMessage(id="u", content="hi", role="assistant")  # type: ignore[call-arg]


@pytest.mark.parametrize("contents", [[TextContent("hi")], [TextContent("hi"), DataContent(PNG, "image/png")]])
def test_the_name_of_the_author_goes_both_ways(contents: list[Any]) -> None:
    (message,) = as_agui_messages([ChatMessage("user", contents, message_id="u", author_name="Ada")])
    assert isinstance(message, UserMessage)
    assert message.name == "Ada"
    (back,) = as_chat_messages([message])
    assert back.author_name == "Ada"


def test_content_that_cannot_be_expressed_is_an_error_that_names_it() -> None:
    from aguila.chat import ReasoningContent

    with pytest.raises(EncodeError, match="ReasoningContent"):
        as_agui_messages([ChatMessage("user", [ReasoningContent("hm")])])


@pytest.mark.parametrize(
    "content",
    [UsageContent(TokenUsage(input_tokens=1)), ErrorContent("no"), InterruptRequestContent("i", message="Why?")],
    ids=lambda content: type(content).__name__,
)
def test_user_content_that_no_message_has_raises_with_index_and_kind_or_is_dropped_with_a_notice(
    content: Content,
) -> None:
    chat = [ChatMessage("user", "a", "u1"), ChatMessage("user", [TextContent("b"), content], "u2")]
    with pytest.raises(EncodeError, match=f"user cannot contain {type(content).__name__}; .* at '/1'"):
        as_agui_messages(chat)
    notices: list[Notice] = []
    kept = as_agui_messages(chat, unsupported="drop", warn=notices.append)
    assert kept == [UserMessage(id="u1", content="a"), UserMessage(id="u2", content="b")]
    (notice,) = notices
    assert notice.path == "/1"
    assert type(content).__name__ in notice.message


def test_a_hosted_file_without_a_type_is_written_without_one() -> None:
    (message,) = as_agui_messages([ChatMessage("user", [HostedFileContent("file-1")], message_id="u")])
    source = json.loads(encode(message))["content"][0]["source"]
    assert source == {"type": "file", "value": "file-1"}


def test_missing_content_is_refused() -> None:
    with pytest.raises(DecodeError, match="required member is missing at '/content'"):
        read({"id": "u", "role": "user"})


def test_a_discriminator_in_another_case_is_read_and_written_in_lower_case() -> None:
    message = read({"id": "u", "role": "user", "content": [{"type": "Text", "text": "a", "id": "p"}]})
    assert json.loads(encode(message))["content"] == [{"type": "text", "text": "a", "id": "p"}]


def test_one_of_data_url_and_id_is_needed_and_they_count_in_this_order() -> None:
    binary = {"type": "binary", "mimeType": "image/png"}
    with pytest.raises(DecodeError, match="data, url or id"):
        read({"id": "u", "role": "user", "content": [binary]})
    given = {"id": "i", "url": "https://x.test", "data": base64.b64encode(PNG).decode()}
    for expected in ("data", "url", "file"):
        (part,) = read({"id": "u", "role": "user", "content": [{**binary, **given}]}).content
        assert part.source.type == expected  # type: ignore[union-attr]
        given.pop({"data": "data", "url": "url", "file": "id"}[expected])
