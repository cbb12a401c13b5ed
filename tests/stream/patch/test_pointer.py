"""JSON Pointer (RFC 6901): the grammar of SNAP-7, and text to tokens and back."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.codec.pointer import escape_token, format_pointer, is_pointer, parse_pointer

POINTERS = [
    ("", ()),
    ("/", ("",)),
    ("//", ("", "")),
    ("/a", ("a",)),
    ("/a/b", ("a", "b")),
    ("/a/", ("a", "")),
    ("/a~1b", ("a/b",)),
    ("/m~0n", ("m~n",)),
    ("/~01", ("~1",)),
    ("/~10", ("/0",)),
    ("/~0~1~0", ("~/~",)),
    ("/0/-", ("0", "-")),
    ("/a\nb", ("a\nb",)),
    ("/ ", (" ",)),
    ("/%20", ("%20",)),
    ("/é🙂", ("é🙂",)),
]
NOT_POINTERS = ["a", "a/b", " /a", "#/a", "~0", "/~", "/~2", "/a~", "/a~/b", "/~~0", "/a/b~x", "\n/a"]

# The pattern of SNAP-7 word for word: an independent reading of the grammar.
SNAP_7 = re.compile(r"(/([^/~]|~[01])*)*")


@pytest.mark.parametrize(("text", "tokens"), POINTERS)
def test_a_pointer_is_read_and_written_snap_7(text: str, tokens: tuple[str, ...]):
    assert is_pointer(text)
    assert parse_pointer(text) == tokens
    assert format_pointer(tokens) == text


@pytest.mark.parametrize("text", NOT_POINTERS)
def test_what_is_no_pointer_is_refused_with_its_text_snap_7(text: str):
    assert not is_pointer(text)
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_pointer(text)


def test_indexes_may_be_written_as_numbers():
    assert format_pointer(["rows", 0, "a/b"]) == "/rows/0/a~1b"


def test_one_token_is_escaped():
    assert [escape_token(token) for token in ("plain", "a/b", "m~n", "~1")] == ["plain", "a~1b", "m~0n", "~01"]


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="/~012ab\n"))
def test_the_grammar_is_that_of_snap_7(text: str):
    assert is_pointer(text) == (SNAP_7.fullmatch(text) is not None)
    if is_pointer(text):
        assert format_pointer(parse_pointer(text)) == text
    else:
        with pytest.raises(ValueError):
            parse_pointer(text)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.text(alphabet=st.characters(exclude_categories=[]) | st.sampled_from("/~01"))))
def test_any_tokens_survive_being_written(tokens: list[str]):
    text = format_pointer(tokens)
    assert is_pointer(text)
    assert parse_pointer(text) == tuple(tokens)
