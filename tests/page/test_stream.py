"""The page's reader of SSE and of recordings (TypeScript), in Node."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from processes.node import run_node

WEB = Path(__file__).parents[2] / "web"
STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
TEXT = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "wörld 🙂\u2028"}


def read_in_page(bodies: list[list[bytes]], recordings: list[str]) -> dict[str, Any]:
    pieces = [[base64.b64encode(piece).decode() for piece in body] for body in bodies]
    script = str(Path(__file__).parent / "read.mjs")
    return json.loads(run_node(script, json.dumps({"bodies": pieces, "recordings": recordings}), folder=WEB))


def test_a_stream_is_read_however_it_is_cut_and_written() -> None:
    data = json.dumps(TEXT, ensure_ascii=False)
    body = (
        ": a comment\n\n: time=1700\n\n"
        f"id: 7\nevent: message\ndata: {json.dumps(STARTED)}\n\n"
        f"id: 8-a1_-B2cd\ndata:{data}\n\n"
        'data: {"type": "CUSTOM",\ndata: "name": "x", "value": 1}\n\n'
    )
    plain = body.encode()
    variants = [plain, plain.replace(b"\n", b"\r\n"), plain.replace(b"\n", b"\r")]
    bodies = [[variant] for variant in variants]
    bodies += [[variant[at : at + 1] for at in range(len(variant))] for variant in variants]
    for found in read_in_page(bodies, [])["bodies"]:
        assert found["error"] is None
        assert [one["event"] for one in found["events"]] == [
            STARTED,
            TEXT,
            {"type": "CUSTOM", "name": "x", "value": 1},
        ]
        assert [one["seq"] for one in found["events"]] == [7, 8, None]
        assert [one.get("cursor") for one in found["events"]] == ["7", "8-a1_-B2cd", None]
        assert [one["time"] for one in found["events"]] == [1700, 1700, 1700]
        assert found["events"][1]["raw"] == data


def test_a_stream_that_breaks_off_inside_an_event_is_an_error() -> None:
    whole = b"data: %b\n\n" % json.dumps(STARTED).encode()
    found = read_in_page([[whole, b"data: {"], [whole], [whole, b'data: {"type":\n']], [])["bodies"]
    assert [one["error"] for one in found] == [
        "the stream broke off inside an event",
        None,
        "the stream broke off inside an event",
    ]
    assert all([stored["event"] for stored in one["events"]] == [STARTED] for one in found)


def test_recordings_of_every_kind_are_read() -> None:
    again = {**STARTED, "runId": "s"}
    recordings = [
        "\n".join(json.dumps(line) for line in (STARTED, TEXT, again)),
        "\n".join(
            json.dumps(line)
            for line in ({"ms": 0, "input": {"state": 1}}, {"ms": 5, "event": STARTED}, {"event": TEXT})
        ),
        f"data: {json.dumps(STARTED)}\n\ndata: {json.dumps(TEXT)}",
        json.dumps([STARTED, TEXT], indent=2),
        '{"type": "RUN_STARTED", "runId": "r"}\nnonsense',
        "[]",
    ]
    lines, timed, sse, array, broken, empty = read_in_page([], recordings)["recordings"]
    assert [(run["name"], len(run["events"])) for run in lines] == [("r", 2), ("s", 1)]
    assert timed[0]["input"] == {"state": 1}
    assert [one.get("time") for one in timed[0]["events"]] == [5, None]
    assert [one["event"] for one in sse[0]["events"]] == [STARTED, TEXT]
    assert [one["event"] for one in array[0]["events"]] == [STARTED, TEXT]
    assert (broken[0]["events"][1]["event"]["type"], broken[0]["events"][1]["raw"]) == ("unreadable", "nonsense")
    assert empty.startswith("The file has no events")
