"""The examples of chat, as real processes."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from processes.commands import aguila_serve, example
from processes.forked import run_script
from serving import REPOSITORY, check_valid, text_of

from aguila.stream import consume

NAMES = ["13_chat_client.py", "16_image_analysis.py", "17_hooks.py"]


def run_example(name: str, folder: Path, *arguments: str, **environment: str) -> list[str]:
    return run_script(REPOSITORY / "examples" / name, folder, *arguments, **environment).splitlines()


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress((b"\0" + b"\x80" * width) * height))
    return b"\x89PNG\r\n\x1a\n" + head + rows + chunk(b"IEND", b"")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_says_how_to_run_it(name: str) -> None:
    source = (REPOSITORY / "examples" / name).read_text()
    assert len(source.splitlines()) <= 90
    assert f"examples/{name}\n" in source


def test_13_a_chat_client_streams_calls_tools_and_answers_in_one_thread(tmp_path: Path) -> None:
    with aguila_serve(tmp_path) as demo:
        text, answered, asked, said, one = run_example("13_chat_client.py", tmp_path, AGUILA_URL=demo.url)
    assert text == "An agent writes text through its run, piece by piece, and everybody who watches sees it grow."
    assert answered.startswith('answered: {"city":')
    assert asked == "asked: Which colour shall it have?"
    assert said == "It will be green."
    assert one == "one thread: True"


def test_16_an_image_is_seen_whether_it_is_inline_or_uploaded(tmp_path: Path) -> None:
    (tmp_path / "grey.png").write_bytes(png(30, 20))
    with example("16_image_analysis.py", tmp_path) as server:
        port = server.url.rpartition(":")[2]
        lines = run_example("16_image_analysis.py", tmp_path, "grey.png", PORT=port)
        assert lines == [
            "inline: grey.png: 30 by 20 pixels, image/png",
            "uploaded: grey.png: 30 by 20 pixels, image/png",
        ]
        (tmp_path / "x.jpg").write_bytes(b"\xff\xd8\xff\xe0")
        assert run_example("16_image_analysis.py", tmp_path, "x.jpg", PORT=port) == [
            "inline: x.jpg: 4 bytes of image/jpeg",
            "uploaded: x.jpg: 4 bytes of image/jpeg",
        ]
        url = {"type": "image", "source": {"type": "url", "value": "https://example.org/x.png"}}
        gone = {"type": "image", "source": {"type": "file", "value": "nothing", "provider": "aguila"}}
        events = server.events(messages=[{"id": "m", "role": "user", "content": [url, gone]}])
        check_valid(events)
        assert text_of(events) == "I do not fetch https://example.org/x.png\nI do not have the file nothing\n"


def test_17_hooks_stand_between_the_model_and_the_user_interface(tmp_path: Path) -> None:
    with example("17_hooks.py", tmp_path) as server:
        message = {"id": "m1", "role": "user", "content": "Write about eagles"}
        events = server.events(run_id="r1", messages=[message])
        check_valid(events)
        conversation = consume(events)
        assert conversation.state == {"draft": "Eagles see very well.", "published": True}
        drafts = [one for one in events if one["type"] == "STATE_DELTA" and one["delta"][0]["path"] == "/draft"]
        assert len(drafts) > 1
        [card] = [one for one in events if one["type"] == "CUSTOM"]
        assert (card["name"], card["value"]) == ("example/source", {"url": "https://example.org/eagles"})
        results = [one for one in events if one["type"] == "TOOL_CALL_RESULT"]
        assert [(one["toolCallId"], one["content"]) for one in results] == [("c1", "written"), ("c2", "")]
        [asked] = conversation.interrupts
        assert asked.response_schema == {"type": "string", "enum": ["nest", "flight"]}
        entry = {"interruptId": "choice", "status": "resolved", "payload": "nest"}
        answered = server.events(run_id="r2", messages=[message], resume=[entry])
        assert text_of(answered) == "Then the nest."
