"""Large strings are cut out of JSON and put back."""

from __future__ import annotations

import base64
import json
import random

import pytest

from aguila.store.large_strings import excise_strings

MIB = 1 << 20
WINDOW = 1 << 17
PHOTO = base64.b64encode(random.Random(1).randbytes(3 * MIB))


def put_back(text: bytes, found: list[tuple[int, memoryview]]) -> bytes:
    for place, data in reversed(found):
        text = text[:place] + bytes(data) + text[place:]
    return text


@pytest.mark.parametrize("least", [0, MIB, 8 * MIB])
def test_a_photo_is_cut_out_and_put_back(least: int) -> None:
    data = json.dumps({"a": PHOTO.decode(), "b": ["x", PHOTO.decode()]}).encode()
    excised = excise_strings(data, WINDOW)
    assert excised is not None
    assert len(excised.text) < 200
    text, found = excised.take_out(excised.text, least)
    assert len(found) == (0 if least > len(PHOTO) else 2)
    assert put_back(text, found) == data


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
    assert excise_strings(text, WINDOW) is None


def test_a_text_that_looks_like_a_mark_is_not_taken_for_one() -> None:
    first = excise_strings(json.dumps([PHOTO.decode(), "x"]).encode(), WINDOW)
    assert first is not None
    data = json.dumps([PHOTO.decode(), json.loads(first.text)[0]]).encode()
    again = excise_strings(data, WINDOW)
    assert again is not None
    assert put_back(*again.take_out(again.text)) == data
