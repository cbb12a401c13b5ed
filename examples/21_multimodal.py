r"""Convert multimodal messages to chat types and back: every kind of media, every source, several parts.

python examples/21_multimodal.py
"""

from aguila.chat import ChatMessage, DataContent, HostedFileContent, UriContent, as_agui_messages, as_chat_messages
from aguila.codec import decode, encode
from aguila.protocol import (
    AudioPart,
    DataSource,
    DocumentPart,
    FileSource,
    ImagePart,
    TextPart,
    UrlSource,
    UserMessage,
    VideoPart,
    parts_of,
)

REQUEST = UserMessage(
    id="m1",
    content=[
        TextPart(text="Compare these"),
        ImagePart(source=DataSource(value="iVBORw0KGgo=", mime_type="image/png"), metadata={"filename": "a.png"}),
        ImagePart(source=UrlSource(value="https://example.org/b.webp", mime_type="image/webp")),
        AudioPart(source=FileSource(value="upload-1", mime_type="audio/wav")),  # an upload
        VideoPart(source=FileSource(value="file-2", provider="gemini", mime_type="video/mp4")),  # a file of Gemini
        DocumentPart(source=UrlSource(value="https://example.org/report.pdf", mime_type="application/pdf")),
    ],
)
OLD = b'{"id":"m4","role":"user","content":[{"type":"binary","mimeType":"image/png","data":"iVBORw0KGgo="}]}'


def main() -> None:
    (message,) = as_chat_messages([REQUEST])
    for content in message.contents:
        match content:
            case DataContent(data=data, media_type=media_type):  # base64 is decoded
                print("data:", media_type, len(data), "bytes", content.additional_properties)
            case UriContent(uri=uri, media_type=media_type):  # never fetched
                print("uri:", media_type, uri)
            case HostedFileContent(file_id=file_id, media_type=media_type):  # run.chat_messages() loads uploads
                print("file:", media_type, file_id, content.additional_properties)
            case _:
                print(type(content).__name__)
    print("unchanged:", as_agui_messages([message]) == [REQUEST])

    # From chat types: the media type decides the kind of the part.
    kinds = ["image/jpeg", "audio/mpeg", "video/webm", "application/pdf", "text/csv"]
    (sent,) = as_agui_messages([ChatMessage("user", [DataContent(b"...", kind) for kind in kinds])])
    assert isinstance(sent, UserMessage)
    print([part.type for part in parts_of(sent.content)])

    # A single plain text is sent as a string.
    print(encode(as_agui_messages([ChatMessage("user", "Hello", message_id="m3")])[0]).decode())

    # Parts of the retired type binary are read, and written as the part of their kind.
    upgraded = decode(OLD, UserMessage, warn=lambda notice: print("notice:", notice.rule, notice.path))
    print(encode(upgraded).decode())


main()
