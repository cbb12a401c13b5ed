"""Choose the media type for an Accept header."""

from __future__ import annotations

import pytest

from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE, is_protobuf, negotiate

PROTO = "application/vnd.ag-ui.event+proto"


def test_the_media_types_are_those_of_the_protocol() -> None:
    assert SSE_MEDIA_TYPE == "text/event-stream"
    assert PROTOBUF_MEDIA_TYPE == PROTO


@pytest.mark.parametrize(
    "accept",
    [
        PROTO,
        PROTO.upper(),
        f"text/event-stream, {PROTO}",
        f"{PROTO};q=0.1, text/event-stream",
        f"{PROTO} ; Q = 0.001",
        f"{PROTO};q=1.000;v=2",
        f"{PROTO};;q=.5",
        f"{PROTO};",
        f",, ,{PROTO},",
        f"{PROTO};q=0, {PROTO};q=0.2",
        f"garbage, ///, {PROTO}",
        f'text/plain;a="x, y", {PROTO}',
        f'text/plain;a="x\\", y", {PROTO}',
        f"\t{PROTO}\t",
    ],
)
def test_protobuf_is_answered_where_it_is_named_with_a_weight_above_zero(accept: str) -> None:
    assert negotiate(accept) == PROTOBUF_MEDIA_TYPE


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        " ",
        ",",
        "text/event-stream",
        "application/json",
        "*/*",
        "application/*",
        "text/event-stream, */*;q=0.1",
        f"*/*, {PROTO};q=0",
        f"{PROTO};q=0",
        f"{PROTO};q=0.000",
        f"{PROTO};q=abc",
        f"{PROTO};q=",
        f"{PROTO};q",
        f"{PROTO};q=-1",
        f"{PROTO};q=nan",
        f"{PROTO};q=1e0",
        f'{PROTO};q="1"',
        f"{PROTO};v=1",
        f"{PROTO};v=1;q=1",
        f"{PROTO}x",
        f"x{PROTO}",
        f"application/json {PROTO}",
        f'text/plain;a="{PROTO}"',
        f'text/plain;a="x, {PROTO}, y"',
        f'text/plain;a="never closed, {PROTO}',
        '"',
        "\\",
        ";" * 5000,
        '"\\' * 5000,
    ],
)
def test_everything_else_gets_sse_and_never_a_refusal(accept: str | None) -> None:
    assert negotiate(accept) == SSE_MEDIA_TYPE


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (PROTO, True),
        (PROTO.title(), True),
        (f" {PROTO} ; charset=utf-8", True),
        ("text/event-stream", False),
        ("text/event-stream; charset=utf-8", False),
        (f"{PROTO}2", False),
        ("", False),
        (None, False),
    ],
)
def test_a_reader_knows_protobuf_by_its_media_type_alone(content_type: str | None, expected: bool) -> None:
    assert is_protobuf(content_type) is expected


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (f"{PROTO}, text/event-stream", SSE_MEDIA_TYPE),
        (f"text/event-stream;q=0.1, {PROTO};q=1", SSE_MEDIA_TYPE),
        (f"{PROTO}, text/*;q=0.5", SSE_MEDIA_TYPE),
        (f"{PROTO}, */*", SSE_MEDIA_TYPE),
        (PROTO, PROTO),
        (f"{PROTO}, application/json", PROTO),
        (f"{PROTO}, text/event-stream;q=0", PROTO),
        (None, SSE_MEDIA_TYPE),
    ],
)
def test_a_reader_of_both_gets_sse_if_that_is_preferred(accept: str | None, expected: str) -> None:
    assert negotiate(accept, prefers_sse=True) == expected
