"""Files as parts: the kind, the MIME type and the bytes."""

import base64

import pytest
from serving import serving

from aguila import App
from aguila.client import part
from aguila.client.files import mime_type_of, uploaded_part
from aguila.errors import EncodeError


@pytest.mark.parametrize(
    ("data", "filename", "mime_type", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n...", None, "image/png", "image"),
        (b"\xff\xd8\xff\xe0", None, "image/jpeg", "image"),
        (b"GIF89a", None, "image/gif", "image"),
        (b"RIFF\0\0\0\0WEBPVP8", None, "image/webp", "image"),
        (b"RIFF\0\0\0\0WAVEfmt", None, "audio/wav", "audio"),
        (b"ID3\x04", None, "audio/mpeg", "audio"),
        (b"\0\0\0\x18ftypmp42", None, "video/mp4", "video"),
        (b"\x1aE\xdf\xa3", None, "video/webm", "video"),
        (b"%PDF-1.7", None, "application/pdf", "document"),
        (
            b"PK\x03\x04",
            "a.docx",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "document",
        ),
        (b"PK\x03\x04", None, "application/zip", "document"),
        (b"plain words", None, "text/plain", "document"),
        ("\u00e4" * 3000, None, "text/plain", "document"),
        (b"a,b\n1,2", "t.csv", "text/csv", "document"),
        (b"\0\1\2", None, "application/octet-stream", "document"),
        (b"\0\1\2", "x.unheardof", "application/octet-stream", "document"),
        (b"", None, "application/octet-stream", "document"),
        (b"\x1f\x8b", "x.txt.gz", "application/gzip", "document"),
    ],
)
def test_the_mime_type_is_found_and_decides_the_kind(data, filename, mime_type, kind):
    data = data.encode() if isinstance(data, str) else data
    assert mime_type_of(data, filename) == mime_type
    made = part(data, filename=filename)
    assert made.type == kind
    assert made.source.mime_type == mime_type
    assert base64.b64decode(made.source.value) == data


def test_a_path_gives_bytes_and_name(tmp_path):
    path = tmp_path / "Adler.PNG"
    path.write_bytes(b"not really")
    made = part(path, id="p1")
    assert (made.type, made.id, made.metadata) == ("image", "p1", {"filename": "Adler.PNG"})
    assert part(str(path), mime_type="application/x-own").type == "document"
    with pytest.raises(FileNotFoundError):
        part(tmp_path / "nobody")


def test_what_the_server_says_of_an_upload_makes_the_part():
    said = {"id": "f1", "source": {"type": "file", "value": "f1", "provider": "aguila", "mimeType": "image/gif"}}
    made = uploaded_part(said, "image/png", "x.png")
    assert (made.type, made.source.value, made.source.provider, made.source.mime_type) == (
        "image",
        "f1",
        "aguila",
        "image/gif",
    )
    assert uploaded_part({"id": "f2"}, "application/pdf", None).source.value == "f2"
    with pytest.raises(ValueError, match="no file id"):
        uploaded_part({}, "image/png", None)


def test_a_large_file_inline_is_written_off_the_event_loop_and_arrives_whole(twin):
    seen = []

    async def agent(run):
        seen.append(len(await run.file(run.messages[-1].content[1])))

    with serving(App(agent)) as server:
        result = twin.result(
            twin.client(server.url).thread().run(["Look", part(bytes(2 << 20), mime_type="image/png")])
        )
        assert result.outcome == "success"
    assert seen == [2 << 20]


def test_what_cannot_be_sent_is_an_error_however_large_it_is(twin):
    with serving(App(lambda run: None)) as server:
        thread = twin.client(server.url).thread()
        large = part(bytes(2 << 20), mime_type="image/png")
        with pytest.raises(EncodeError):
            twin.result(thread.run(["Look", large], forwarded_props={"n": float("nan")}))
