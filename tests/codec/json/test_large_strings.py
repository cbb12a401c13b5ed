"""JSON with large strings in it: read and written without them, and the same as with them.

The threshold for large strings is low here, so that every kind of text has large strings in many places.
"""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aguila.codec import EventDecoder, decode, decode_event, encode, encode_event
from aguila.codec.json import decoder as codec_json
from aguila.codec.json import large_strings as large
from aguila.codec.json.encoder import encode_large
from aguila.codec.json.large_strings import ExcisedValue, excise_strings
from aguila.codec.notices import Notice
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import CustomEvent, RunAgentInput, ToolCallResultEvent, UserMessage
from aguila.protocol.parts import DataSource, ImagePart, TextPart

MIB = 1 << 20
PHOTO = base64.b64encode(random.Random(1).randbytes(3 * MIB)).decode()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_WINDOW", 4)
    monkeypatch.setattr(large, "_SLICE", 8)
    monkeypatch.setattr(codec_json, "LARGE", 16)


pieces = st.sampled_from(
    ["A", "z/+9", '"', "\\", "é", "\x01", "\x7f", "\n", ":", ",null", "0123456789", "[{", "\U0001f426"]
)
strings = st.one_of(st.text(st.sampled_from("AZaz09+/="), max_size=60), st.lists(pieces, max_size=20).map("".join))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), strings),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(strings, inner, max_size=4)),
    max_leaves=12,
)
of_a_test = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
writers: list[Any] = [
    lambda value: json.dumps(value).encode(),
    lambda value: json.dumps(value, ensure_ascii=False, indent=2).encode(),
    encode,
]


@of_a_test
@given(value=values, write=st.sampled_from(writers))
def test_what_is_put_back_is_what_was_cut_out(small: None, value: Any, write: Any) -> None:
    data: bytes = write(value)
    short = excise_strings(data)
    if short is None:
        return
    try:
        found = msgspec.json.decode(short.text)
    except msgspec.DecodeError:
        return  # something else was taken for a string
    assert short.full_size(short.text) == len(data)
    assert short.restore(found) == value


@of_a_test
@given(value=values, write=st.sampled_from(writers))
def test_an_event_is_read_the_same_with_large_strings(small: None, value: Any, write: Any) -> None:
    data: bytes = write({"type": "CUSTOM", "name": "n", "value": value})
    expected = CustomEvent(name="n", value=value)
    assert decode_event(data, strict=True) == expected
    assert EventDecoder().feed(data) == [expected]


@of_a_test
@given(value=values)
def test_what_is_large_is_written_the_same(small: None, value: Any) -> None:
    assert encode_large(value) == encode(value)
    event = CustomEvent(name="n", value=value)
    assert encode_large(event) == encode_event(event)


def test_a_photo_is_cut_out_and_put_back() -> None:
    data = json.dumps({"a": PHOTO, "b": ["x", PHOTO]}).encode()
    short = excise_strings(data)
    assert short is not None
    assert len(short.text) < 200
    assert short.full_size(short.text) == len(data)
    assert short.restore(msgspec.json.decode(short.text)) == {"a": PHOTO, "b": ["x", PHOTO]}


def test_a_photo_is_taken_out_and_filled_in() -> None:
    value = {"a": PHOTO, "b": ("x", [PHOTO])}
    taken = ExcisedValue(value)
    rest = msgspec.json.encode(taken.rest)
    assert len(rest) < 200
    assert taken.splice(rest) == msgspec.json.encode(value)


@pytest.mark.parametrize(
    "text",
    [
        b'["' + b"A" * MIB + b'\\n"]',
        b'["\xc3\xa9' + b"A" * MIB + b'"]',
        b'["\\"' + b"A" * MIB + b'\\""]',
        b'["' + b"A" * MIB + b"\x00" + b'"]',
        b'{"' + b"A" * MIB + b'" : 1}',
        b"A" * MIB,
        b'["' + b"A" * MIB,
    ],
    ids=["escape", "not ASCII", "within quotes", "control character", "a name", "no string", "no end"],
)
def test_what_is_no_plain_string_stays(text: bytes) -> None:
    assert excise_strings(text) is None


def test_many_numbers_between_two_strings_are_read_as_they_are() -> None:
    value = ["a", *range(200_000), "b"]
    data = json.dumps({"type": "CUSTOM", "name": "n", "value": value}).encode()
    assert len(data) > MIB
    assert decode_event(data) == CustomEvent(name="n", value=value)


def test_a_text_that_looks_like_a_mark_is_not_taken_for_one() -> None:
    first = excise_strings(json.dumps([PHOTO, "x"]).encode())
    assert first is not None
    mark = json.loads(first.text)[0]
    again = excise_strings(json.dumps([PHOTO, mark]).encode())
    assert again is not None
    assert again.restore(json.loads(again.text)) == [PHOTO, mark]


def test_an_input_keeps_its_notices_and_its_photo() -> None:
    part = {"type": "image", "source": {"type": "data", "value": PHOTO, "mimeType": "image/png"}, "odd": 1}
    message = {"id": "m", "role": "user", "content": [part]}
    data = json.dumps({"threadId": "t", "runId": "r", "messages": [message]}).encode()
    notices: list[Notice] = []
    found = decode(data, RunAgentInput, warn=notices.append, max_size=10 * MIB)
    source = DataSource(value=PHOTO, mime_type="image/png")
    assert found.messages == [UserMessage(id="m", content=[ImagePart(source=source)])]
    assert [notice.path for notice in notices] == ["/messages/0/content/0/odd"]


def test_a_broken_document_with_large_strings_raises_once_without_notices() -> None:
    data = json.dumps({"threadId": "t", "runId": 1, "messages": [], "state": PHOTO, "odd": 1}).encode()
    notices: list[Notice] = []
    with pytest.raises(DecodeError) as caught:
        decode(data, RunAgentInput, warn=notices.append, max_size=10 * MIB)
    assert caught.value.path == "/runId"
    assert notices == []


def test_nesting_is_measured_without_the_photo() -> None:
    deep: Any = PHOTO
    for _ in range(300):
        deep = [deep]
    with pytest.raises(DecodeError) as caught:
        decode_event(json.dumps({"type": "CUSTOM", "name": "n", "value": deep}).encode())
    assert caught.value.rule == "limit-depth"


def test_plain_text_in_a_message_is_respelled_beside_a_photo() -> None:
    messages = [
        UserMessage(id="a", content=[TextPart(text="x")]),
        UserMessage(id="b", content=[ImagePart(source=DataSource(value=PHOTO, mime_type="image/png"))]),
    ]
    asked = RunAgentInput(thread_id="t", run_id="r", messages=messages)
    assert encode_large(asked) == encode(asked)
    assert encode_large(messages) == encode(messages)


@pytest.mark.parametrize("odd", ["\ud83d", msgspec.Raw(b'{"a": 1}'), ("x", 1), {1: 2}, b"bytes"])
def test_what_needs_another_way_of_writing_has_it(odd: Any) -> None:
    event = ToolCallResultEvent(message_id="m", tool_call_id="c", content=PHOTO, metadata={"odd": odd})
    assert encode_large(event) == encode_event(event)


@pytest.mark.parametrize("odd", [float("nan"), object()])
def test_what_cannot_be_written_is_refused_beside_a_photo(odd: Any) -> None:
    with pytest.raises(EncodeError) as plain:
        encode_event(CustomEvent(name="n", value=[odd]))
    with pytest.raises(EncodeError) as caught:
        encode_large(CustomEvent(name="n", value=[odd, PHOTO]))
    assert str(caught.value) == str(plain.value)
