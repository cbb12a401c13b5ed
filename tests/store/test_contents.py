"""Inline files are cut out of JSON and put back."""

from __future__ import annotations

import base64
import json
import random

import pytest

from aguila.store.contents import INLINE, cut_values, file_digests, hash_content, read_content

PHOTO = base64.b64encode(random.Random(1).randbytes(3 << 20))
TEXT = b"A" * INLINE


def cut(text: bytes) -> tuple[bytes, int]:
    """Cut a text; return what it is after it was put together again, and how many files it has."""
    digest = hash_content(text)
    contents = {one: bytes(body) for one, body in cut_values({digest: text}).items()}
    return read_content(contents[digest], contents.__getitem__), len(file_digests(contents[digest]))


def test_a_photo_is_cut_out_once_and_put_back() -> None:
    text = json.dumps({"a": PHOTO.decode(), "b": ["x", PHOTO.decode(), "A" * (INLINE - 1)]}).encode()
    contents = cut_values({hash_content(text): text})
    assert sorted(map(len, contents.values()))[1:] == [len(PHOTO)]
    assert cut(text) == (text, 2)


@pytest.mark.parametrize(
    "text",
    [
        b'["' + TEXT + b'\\n"]',
        b'["\xc3\xa9' + TEXT + b'"]',
        b'["\\"' + TEXT + b'\\""]',
        b'{"' + TEXT + b'" : 1}',
        b'["", ' + b"1, " * INLINE + b'""]',
    ],
    ids=["escape", "not ASCII", "within quotes", "a name", "numbers"],
)
def test_whatever_is_cut_out_is_put_back(text: bytes) -> None:
    assert cut(text) == (text, 1)


@pytest.mark.parametrize(
    "text",
    [json.dumps(["A" * (INLINE - 1), "B" * 9]).encode(), TEXT, b'["' + TEXT, b"[%b1]" % (b"1, " * INLINE), TEXT + b'"'],
)
def test_a_text_without_a_long_string_stays_whole(text: bytes) -> None:
    assert cut(text) == (text, 0)
