"""JSON that is encoded in pieces is the same as JSON that is encoded at once."""

from __future__ import annotations

import base64
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aguila.codec import encode, encode_event
from aguila.codec.json import pieces
from aguila.codec.json.pieces import encode_pieces
from aguila.errors import EncodeError
from aguila.protocol import CustomEvent, RunAgentInput, ToolCallResultEvent, UserMessage
from aguila.protocol.parts import DataSource, ImagePart, TextPart

PHOTO = base64.b64encode(random.Random(1).randbytes(3 << 20)).decode()


def joined(value: Any) -> bytes:
    return b"".join(encode_pieces(value))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE", 8)


parts = st.sampled_from(["A", "z/+9", '"', "\\", "é", "\x01", "\x7f", "\n", ":", ",null", "0123456789", "\U0001f426"])
strings = st.one_of(st.text(st.sampled_from("AZaz09+/="), max_size=60), st.lists(parts, max_size=20).map("".join))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), strings),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(strings, inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=values)
def test_pieces_are_the_same_json(small: None, value: Any) -> None:
    assert joined(value) == encode(value)
    event = CustomEvent(name="n", value=value)
    assert joined(event) == encode_event(event)


def test_a_large_string_is_encoded_in_small_pieces() -> None:
    found = list(encode_pieces({"a": PHOTO, "b": ("x", [PHOTO])}))
    assert max(map(len, found)) <= 1 << 16
    assert b"".join(found) == encode({"a": PHOTO, "b": ["x", [PHOTO]]})


def test_plain_text_in_a_message_is_respelled_beside_a_photo() -> None:
    messages = [
        UserMessage(id="a", content=[TextPart(text="x")]),
        UserMessage(id="b", content=[ImagePart(source=DataSource(value=PHOTO, mime_type="image/png"))]),
    ]
    asked = RunAgentInput(thread_id="t", run_id="r", messages=messages)
    assert joined(asked) == encode(asked)
    assert joined(messages) == encode(messages)


@pytest.mark.parametrize("odd", ["\ud83d", msgspec.Raw(b'{"a": 1}'), ("x", 1), {1: 2}, b"bytes"])
def test_what_needs_another_way_of_writing_has_it(odd: Any) -> None:
    event = ToolCallResultEvent(message_id="m", tool_call_id="c", content=PHOTO, metadata={"odd": odd})
    assert joined(event) == encode_event(event)


@pytest.mark.parametrize("odd", [float("nan"), object()])
def test_what_cannot_be_written_is_refused_beside_a_photo(odd: Any) -> None:
    with pytest.raises(EncodeError) as plain:
        encode_event(CustomEvent(name="n", value=[odd]))
    with pytest.raises(EncodeError) as caught:
        joined(CustomEvent(name="n", value=[odd, PHOTO]))
    assert str(caught.value) == str(plain.value)
