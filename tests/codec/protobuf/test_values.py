"""Open JSON as google.protobuf.Value: read and written by hand, with the runtime as the judge."""

from __future__ import annotations

import math
import struct
from datetime import date
from enum import Enum
from typing import Any

import msgspec
import pytest
from google.protobuf import json_format, struct_pb2
from hypothesis import given, settings
from streams.protobuf_bytes import field, number

from aguila.codec.json.text import MAX_DEPTH
from aguila.codec.protobuf import values
from aguila.codec.protobuf.scanner import Malformed
from aguila.codec.protobuf.values import Unwritable, varint, write_struct, write_value
from aguila.testing import strategies


def read_value(*occurrences: bytes) -> Any:
    return values.read_value(occurrences)


def read_struct(*occurrences: bytes) -> dict[str, Any]:
    return values.read_struct(occurrences)


def write(value: Any) -> bytes:
    return write_value(value, lambda inexact: None)


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def double(value: float) -> bytes:
    return b"\x11" + struct.pack("<d", value)


@settings(max_examples=200, deadline=None)
@given(strategies.json_values())
def test_the_runtime_reads_what_we_write_and_we_read_what_it_writes(value: Any) -> None:
    message = struct_pb2.Value.FromString(write(value))
    assert json_format.MessageToDict(message) == value
    assert read_value(message.SerializeToString()) == value
    assert read_value(write(value)) == value


@settings(max_examples=100, deadline=None)
@given(strategies.json_objects())
def test_the_same_for_objects(value: dict[str, Any]) -> None:
    written = write_struct(value, lambda inexact: None)
    assert json_format.MessageToDict(struct_pb2.Struct.FromString(written)) == value
    assert read_struct(written) == value


@pytest.mark.parametrize(
    ("written", "back"),
    [
        (3.0, 3),
        (3, 3),
        (-0.0, 0),
        (2**53 - 1, 2**53 - 1),
        (2**53, float(2**53)),
        (-(2**60), -(2.0**60)),
        (1e300, 1e300),
        (0.1, 0.1),
        (True, True),
        (False, False),
        (None, None),
        ("", ""),
        ((1, 2), [1, 2]),
    ],
)
def test_numbers_come_back_as_integers_where_a_double_is_exact(written: Any, back: Any) -> None:
    read = read_value(write(written))
    assert read == back
    assert type(read) is type(back)


def test_lengths_of_every_width_are_written_and_read() -> None:
    for length in (0, 1, 127, 128, 4095, 4096, 16383, 16384, 2_100_000):
        assert read_value(write({"k" * min(length, 5000): "x" * length})) == {"k" * min(length, 5000): "x" * length}
    assert varint(300) == b"\xac\x02"


def test_nesting_goes_as_deep_as_in_json_and_no_deeper() -> None:
    assert read_value(write(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(ValueError, match="nested deeper"):
        write(nested(MAX_DEPTH + 1))
    deeper = field(6, field(1, write(nested(MAX_DEPTH))))
    with pytest.raises(Malformed, match="nested deeper"):
        read_value(deeper)


def test_a_tower_far_beyond_the_stack_is_refused() -> None:
    tower = write(1)
    for _ in range(20_000):
        tower = field(6, field(1, tower))
    with pytest.raises(Malformed):
        read_value(tower)
    with pytest.raises(Unwritable, match=f"nested deeper than {MAX_DEPTH}"):
        write(nested(3000))


class Colour(Enum):
    RED = "red"


def test_what_json_would_respell_is_respelled_here() -> None:
    class Point(msgspec.Struct):
        x: int

    value = {"day": date(2026, 11, 15), "colour": Colour.RED, "point": Point(1), "set": {1}, 5: "five"}
    assert read_value(write(value)) == msgspec.json.decode(msgspec.json.encode(value))


@pytest.mark.parametrize("value", [object(), 1j, {"a": object()}, {(1, 2): 1}, math.nan, math.inf])
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        write(value)


def test_only_an_object_is_a_struct() -> None:
    with pytest.raises(ValueError, match="expected an object"):
        write_struct([1], lambda inexact: None)


# Valid bytes in a form that encoders do not use


def test_occurrences_merge_as_protobuf_has_it() -> None:
    entry = field(1, field(1, "a"), field(2, field(3, "x")))
    other = field(1, field(1, "b"), field(2, field(3, "y")))
    assert read_value(field(5, entry) + field(5, other)) == {"a": "x", "b": "y"}
    assert read_value(field(6, field(1, double(1))) + field(6, field(1, double(2)))) == [1, 2]
    assert read_value(field(3, "first") + double(2)) == 2
    assert read_value(double(2) + field(3, "last")) == "last"


def test_occurrences_that_are_no_messages_alone_do_not_become_one_together() -> None:
    text = field(3, "long enough")
    with pytest.raises(Malformed, match="occurrences"):
        read_value(text[:5], text[5:])
    with pytest.raises(Malformed, match="occurrences"):
        read_struct(field(1, field(1, "a"), field(2, text[:5]), field(2, text[5:])))


def test_of_two_entries_with_one_key_the_last_counts() -> None:
    entries = field(1, field(1, "a"), field(2, field(3, "x"))) + field(1, field(1, "a"), field(2, field(3, "y")))
    assert read_struct(entries) == {"a": "y"}


def test_unknown_fields_and_unusual_order_are_read() -> None:
    assert read_value(number(77, 1) + field(3, "x")) == "x"
    assert read_struct(field(1, field(2, field(3, "x")), field(1, "a"))) == {"a": "x"}
    assert read_value(number(4, 1 << 40)) is True
    assert read_value(number(1, 5)) is None
    assert read_value(b"\x1a\x81\x00x") == "x"  # an overlong length


def test_a_value_of_no_kind_is_absent_and_null_where_it_holds_a_place() -> None:
    assert read_value(b"") is msgspec.UNSET
    assert read_value(number(77, 1)) is msgspec.UNSET
    assert read_value(field(6, field(1))) == [None]
    assert read_struct(field(1, field(1, "a"))) == {}
    assert read_struct(field(1, field(1, "a"), field(2, number(77, 1)))) == {}
    assert read_struct(field(1)) == {}


@pytest.mark.parametrize(
    "data",
    [b"\xff", b"\x1a\x05ab", b"\x11\x00", b"\x1a\x01\xff", field(5, b"\x0a"), field(6, b"\x0a\x7f"), b"\x2a", b"\x20"],
)
def test_bytes_that_are_no_value_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_value(data)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_double_that_json_has_no_number_for_is_refused(value: float) -> None:
    with pytest.raises(Malformed, match="not a JSON number"):
        read_value(double(value))
