"""Multimodal messages, document 000: the mapping of parts to contents and back, and the wire."""

from __future__ import annotations

import base64
import json
from typing import Any, get_args

import pytest
from agent_threads import Thread

from aguila.chat import (
    ChatMessage,
    DataContent,
    HostedFileContent,
    TextContent,
    UriContent,
    as_agui_messages,
    as_chat_messages,
)
from aguila.codec import Notice, decode, encode
from aguila.codec.compat import Level
from aguila.codec.dialects import GENERATIONS
from aguila.codec.dialects.content import translate_message
from aguila.errors import DecodeError
from aguila.protocol import (
    AssistantMessage,
    ContentPart,
    DocumentPart,
    FileSource,
    ImagePart,
    Message,
    MessagesSnapshotEvent,
    RunAgentInput,
    SystemMessage,
    TextPart,
    UserMessage,
)
from aguila.protocol.legacy import BinaryInputContent

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n"
BASE64 = base64.b64encode(PNG).decode()


def read_user(content: Any) -> UserMessage:
    message = decode(json.dumps({"id": "u", "role": "user", "content": content}), Message, warn=[].append)
    assert isinstance(message, UserMessage)
    return message


def read_part(**part: Any) -> Any:
    """Return the content that a binary part on the wire becomes."""
    (message,) = as_chat_messages([read_user([{"type": "binary", **part}])])
    (content,) = message.contents
    return content


def write_for_old_peer(content: Any) -> dict[str, Any]:
    """Return a content of a user message as a client of 0.0.47 gets it."""
    (message,) = as_agui_messages([ChatMessage("user", [content, TextContent("?")], message_id="u")])
    written = translate_message(message, GENERATIONS[(0, 0, 47)], None, lambda what, path: None, "")
    return json.loads(encode(written))["content"][0]


# A reference without a MIME type


def test_an_absent_mime_type_stays_absent() -> None:
    (part,) = read_user([{"type": "binary", "id": "up-1"}]).content
    assert part == DocumentPart(source=FileSource(value="up-1"))
    assert read_part(id="up-1").media_type is None
    assert read_part(url="https://x.test/a").media_type is None
    assert BinaryInputContent(id="up-1").mime_type is None
    assert json.loads(encode(BinaryInputContent(id="up-1"))) == {"type": "binary", "id": "up-1"}


def test_data_without_a_mime_type_is_of_no_known_type() -> None:
    assert read_part(data=BASE64).media_type == "application/octet-stream"


def test_data_content_without_a_media_type_is_written_with_that_of_unknown_data() -> None:
    (message,) = as_agui_messages([ChatMessage("user", [DataContent(b"x", None)], "u")])
    assert json.loads(encode(message))["content"] == [
        {"type": "document", "source": {"type": "data", "value": "eA==", "mimeType": "application/octet-stream"}}
    ]


async def test_an_upload_without_a_mime_type_reaches_the_agent_with_its_own() -> None:
    async def agent(run: Any) -> Any:
        (message,) = await run.chat_messages()
        (content,) = message.contents
        assert (content.data, content.media_type) == (PNG, "image/png")
        yield "seen"

    thread = Thread(messages=[read_user([{"type": "binary", "id": "up-1"}])])
    thread.shelf.files["up-1"] = (PNG, "image/png", None)
    assert (await thread.run(agent)).types[-1] == "RUN_FINISHED"


def test_a_client_that_requires_a_mime_type_gets_one() -> None:
    part = write_for_old_peer(HostedFileContent("up-1"))
    assert part == {"type": "binary", "mimeType": "application/octet-stream", "id": "up-1"}


# The id beside data and url


@pytest.mark.parametrize("source", [{"data": BASE64}, {"url": "https://x.test/a.png"}])
def test_the_id_beside_data_or_url_goes_both_ways(source: dict[str, str]) -> None:
    content = read_part(mimeType="image/png", id="c-1", filename="a.png", **source)
    assert isinstance(content, DataContent | UriContent)
    assert content.additional_properties == {"ag_ui_content_id": "c-1", "filename": "a.png"}
    (message,) = as_agui_messages([ChatMessage("user", [content], message_id="u")])
    (part,) = message.content  # type: ignore[union-attr]
    assert isinstance(part, ImagePart)
    assert part.id == "c-1"
    written = write_for_old_peer(content)
    assert written == {"type": "binary", "mimeType": "image/png", "id": "c-1", "filename": "a.png", **source}


def test_a_reference_alone_has_to_be_resolved() -> None:
    content = read_part(mimeType="audio/wav", id="up-1", filename="song.wav")
    assert isinstance(content, HostedFileContent)
    assert content.file_id == "up-1"
    assert content.additional_properties == {
        "ag_ui_content_id": "up-1",
        "ag_ui_requires_resolution": True,
        "filename": "song.wav",
    }


@pytest.mark.parametrize("members", [{}, {"data": "", "url": "", "id": ""}, {"data": ""}, {"url": "", "id": None}])
def test_a_binary_part_without_content_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match="data, url or id"):
        read_user([{"type": "binary", "mimeType": "image/png", **members}])
    with pytest.raises(DecodeError, match="data, url and id"):
        as_chat_messages([UserMessage(content=[BinaryInputContent(mime_type="image/png", **members)])])  # type: ignore[list-item]


# The wire


EXAMPLES: list[tuple[Any, list[Any]]] = [
    ("What's in this image?", ["What's in this image?"]),
    (
        [
            {"type": "text", "text": "What's in this image?"},
            {"type": "binary", "mimeType": "image/jpeg", "data": BASE64},
        ],
        ["What's in this image?", (PNG, "image/jpeg")],
    ),
    (
        [
            {"type": "text", "text": "Compare these two images"},
            {"type": "binary", "mimeType": "image/png", "url": "https://example.com/image1.png"},
            {"type": "binary", "mimeType": "image/png", "url": "https://example.com/image2.png"},
        ],
        [
            "Compare these two images",
            ("https://example.com/image1.png", "image/png"),
            ("https://example.com/image2.png", "image/png"),
        ],
    ),
    (
        [
            {"type": "text", "text": "Please transcribe this audio recording"},
            {"type": "binary", "mimeType": "audio/wav", "id": "audio-upload-123", "filename": "meeting-recording.wav"},
        ],
        ["Please transcribe this audio recording", ("audio-upload-123", "audio/wav")],
    ),
    (
        [
            {"type": "text", "text": "Summarize the key points from this PDF"},
            {
                "type": "binary",
                "mimeType": "application/pdf",
                "filename": "quarterly-report.pdf",
                "url": "https://example.com/reports/q4-2024.pdf",
            },
        ],
        [
            "Summarize the key points from this PDF",
            ("https://example.com/reports/q4-2024.pdf", "application/pdf"),
        ],
    ),
]


def seen(content: Any) -> Any:
    if isinstance(content, TextContent):
        return content.text
    if isinstance(content, DataContent):
        return content.data, content.media_type
    if isinstance(content, UriContent):
        return content.uri, content.media_type
    assert isinstance(content, HostedFileContent)
    return content.file_id, content.media_type


@pytest.mark.parametrize(("content", "expected"), EXAMPLES)
def test_the_five_wire_examples_are_read(content: Any, expected: list[Any]) -> None:
    message = read_user(content)
    (chat,) = as_chat_messages([message])
    assert [seen(one) for one in chat.contents] == expected
    names = [one.additional_properties.get("filename") for one in chat.contents]
    raw = content if isinstance(content, list) else [{}]
    assert names == [part.get("filename") for part in raw]
    (back,) = as_agui_messages([chat])
    assert back == message
    # A client of that time gets the same parts again.
    old = translate_message(message, GENERATIONS[(0, 0, 47)], None, lambda what, path: None, "")
    assert json.loads(encode(old))["content"] == content


def test_a_text_part_has_type_and_text() -> None:
    assert json.loads(encode(TextPart(text="hi"))) == {"type": "text", "text": "hi"}
    assert decode(b'{"type":"text","text":"hi"}', TextPart) == TextPart(text="hi")


def test_a_binary_part_has_its_members() -> None:
    part = BinaryInputContent(mime_type="image/jpeg", data=BASE64, filename="photo.jpg", url="https://x.test", id="i")
    raw = {
        "type": "binary",
        "mimeType": "image/jpeg",
        "id": "i",
        "url": "https://x.test",
        "data": BASE64,
        "filename": "photo.jpg",
    }
    assert json.loads(encode(part)) == raw
    assert decode(json.dumps(raw), BinaryInputContent) == part
    assert (BinaryInputContent.type, TextPart.type) == ("binary", "text")


KINDS = {
    "image": ["image/jpeg", "image/png", "image/gif", "image/webp"],
    "audio": ["audio/wav", "audio/mpeg", "audio/flac"],
    "video": ["video/mp4"],
    "document": ["application/pdf", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"],
}


@pytest.mark.parametrize(("kind", "mime"), [(kind, mime) for kind in KINDS for mime in KINDS[kind]])
def test_a_binary_part_is_of_the_kind_of_its_mime_type_and_goes_both_ways(kind: str, mime: str) -> None:
    message = read_user([{"type": "binary", "mimeType": mime, "data": BASE64}])
    (part,) = message.content
    assert (part.type, part.source.mime_type) == (kind, mime)  # type: ignore[union-attr]
    (chat,) = as_chat_messages([message])
    assert chat.contents == [DataContent(PNG, mime)]
    assert as_agui_messages([chat]) == [message]


@pytest.mark.parametrize("cls", [*get_args(ContentPart), BinaryInputContent])
def test_every_part_is_identified_by_its_type(cls: Any) -> None:
    assert (cls.__struct_config__.tag_field, cls.__struct_config__.tag) == ("type", cls.type)
    raw: dict[str, Any] = {"type": cls.type, "text": "hi"}
    if cls is not TextPart:
        raw = {"type": cls.type, "source": {"type": "url", "value": "x:y"}}
    if cls is BinaryInputContent:
        raw = {"type": "binary", "id": "up-1"}
    assert type(decode(json.dumps(raw), cls, strict=True)) is cls
    (part,) = read_user([raw]).content
    assert type(part) is (DocumentPart if cls is BinaryInputContent else cls)


def test_a_name_is_optional_and_is_omitted_when_absent() -> None:
    assert json.loads(encode(UserMessage(id="u", content="hi"))) == {"id": "u", "role": "user", "content": "hi"}
    assert json.loads(encode(UserMessage(id="u", content="hi", name="Ada")))["name"] == "Ada"
    assert decode(b'{"id":"u","role":"user","content":"hi"}', UserMessage, strict=True).name is None


def test_a_chat_message_that_is_given_text_has_that_content() -> None:
    (message,) = as_agui_messages([ChatMessage("user", "hi", message_id="u")])
    assert message == UserMessage(id="u", content="hi")


def test_the_discriminator_may_stand_anywhere() -> None:
    (part,) = read_user([{"text": "hi", "id": "p", "type": "text"}]).content
    assert part == TextPart(text="hi", id="p")


LEVELS: list[Level] = ["off", "standard", "wide"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("part", [{"text": "hi"}, {"type": None, "text": "hi"}, {"type": 5}])
def test_a_part_without_a_type_is_refused_with_its_path(part: dict[str, Any], level: Level) -> None:
    raw = json.dumps({"id": "u", "role": "user", "content": [{"type": "text", "text": "hi"}, part]})
    with pytest.raises(DecodeError, match="type") as refused:
        decode(raw, Message, compat=level)
    assert (refused.value.rule, refused.value.path) == ("AMB-3", "/content/1/type")


def test_a_part_of_unknown_type_is_removed_with_a_notice() -> None:
    # The protocol removes what it does not know, with a notice, and the message stays. Strict mode refuses it.
    part = {"type": "hologram"}
    raw = json.dumps({"id": "u", "role": "user", "content": [part, {"type": "text", "text": "hi"}]})
    notices: list[Notice] = []
    assert decode(raw, Message, warn=notices.append).content == [TextPart(text="hi")]
    assert [(notice.rule, notice.path) for notice in notices] == [("PROC-3", "/content/0")]
    with pytest.raises(DecodeError):
        decode(raw, Message, strict=True)


def test_null_members_of_a_binary_part_are_absent() -> None:
    content = read_part(mimeType="image/png", data=BASE64, url=None, id=None, filename=None)
    assert isinstance(content, DataContent)
    assert content.additional_properties == {}


# Raw representations


def test_a_binary_part_is_the_raw_representation_of_its_content() -> None:
    part: Any = BinaryInputContent(mime_type="image/png", data=BASE64, id="c-1")
    (chat,) = as_chat_messages([UserMessage(content=[part])])
    assert chat.contents[0].raw_representation is part


@pytest.mark.parametrize(
    "message",
    [
        UserMessage(id="u", content="Which bird is this?"),
        AssistantMessage(id="a", content="A heron."),
        SystemMessage(id="s", content="Be brief."),
    ],
)
def test_the_text_of_a_plain_message_has_a_raw_representation(message: Message) -> None:
    (chat,) = as_chat_messages([message])
    (text,) = chat.contents
    assert text.raw_representation is message
    assert chat.raw_representation is message


def test_each_part_has_itself_as_raw_representation() -> None:
    parts = read_user([{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "url", "value": "x:y"}}])
    (chat,) = as_chat_messages([parts])
    assert [content.raw_representation for content in chat.contents] == parts.content


def test_a_binary_part_from_the_wire_is_the_raw_representation_of_its_content() -> None:
    parts = [
        {"type": "binary", "mimeType": "image/png", "data": BASE64, "id": "c-1", "filename": "a.png"},
        {"type": "binary", "mimeType": "image/png", "data": BASE64, "url": "https://x.test/a.png"},
        {"type": "binary", "id": "up-1"},
        {"type": "image", "source": {"type": "url", "value": "https://x.test/a.png"}},
    ]
    raw = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": parts}]}
    given = decode(json.dumps(raw), RunAgentInput, warn=[].append)
    (chat,) = as_chat_messages(given.messages)
    assert [json.loads(encode(content.raw_representation)) for content in chat.contents] == parts
    assert "ag_ui_metadata" not in chat.contents[0].additional_properties
    assert as_agui_messages([chat]) == given.messages
    old = translate_message(given.messages[0], GENERATIONS[(0, 0, 47)], None, lambda what, path: None, "")
    assert json.loads(encode(old))["content"][0] == parts[0]


# Content that is a string, or nothing


@pytest.mark.parametrize("content", ["", []])
def test_empty_content_is_written_as_an_empty_string(content: Any) -> None:
    message = UserMessage(id="u", content=content)
    expected = {"id": "u", "role": "user", "content": ""}
    assert json.loads(encode(message)) == expected
    assert json.loads(encode([message])) == [expected]
    assert json.loads(encode(MessagesSnapshotEvent(messages=[message])))["messages"] == [expected]
    given = RunAgentInput(thread_id="t", run_id="r", messages=[message])
    assert json.loads(encode(given))["messages"] == [expected]


def test_a_chat_message_without_contents_is_written_as_an_empty_string() -> None:
    (message,) = as_agui_messages([ChatMessage("user", [], message_id="u")])
    assert message == UserMessage(id="u", content="")


def test_a_single_text_part_is_written_as_a_string() -> None:
    message = UserMessage(id="u", content=[TextPart(text="hi")])
    assert json.loads(encode(message))["content"] == "hi"
