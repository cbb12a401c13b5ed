"""Values that are not JSON, in patches and in runs."""

from datetime import date

import pytest

from aguila.errors import EncodeError
from aguila.stream.json_values import MAX_JSON_DEPTH, check_json, copy_json
from aguila.stream.patch import make_patch
from aguila.stream.writer import EventWriter


def cyclic():
    document = {"list": [1]}
    document["list"].append({"again": document})
    return document


def nested(depth):
    document = {}
    for _ in range(depth - 1):
        document = {"a": document}
    return document


def writer(state=None):
    written = EventWriter("t", "r", new_id=iter("abc").__next__, state=state)
    written.start()
    return written


NOT_JSON = [
    (cyclic, "contains itself"),
    (lambda: {"a": {1, 2}}, "type set"),
    (lambda: {"a": [date(2026, 1, 1)]}, "type date"),
    (lambda: {"a": b""}, "type bytes"),
    (lambda: {"a": object()}, "type object"),
    (lambda: {1: "a"}, "must be a string, not 1"),
    (lambda: {"a": 10**5000}, "more than 1000 digits"),
    (lambda: {"a": [-(10**5000)]}, "more than 1000 digits"),
]


@pytest.mark.parametrize(("make", "why"), NOT_JSON)
@pytest.mark.parametrize("old", [{}, {"a": 1}, {"a": {"a": 1}}, {"a": [1]}, [], None, {"a": "\ud800"}])
def test_no_patch_leads_to_what_is_not_json(make, why, old):
    with pytest.raises(EncodeError, match=why):
        make_patch(old, make())


@pytest.mark.parametrize(("make", "why"), NOT_JSON)
def test_a_patch_leads_away_from_what_is_not_json_or_says_so(make, why):
    for new in ({}, {"a": 1}, {"a": [1]}, []):
        try:
            assert make_patch(make(), new)
        except EncodeError as error:
            assert why in str(error)  # noqa: PT017 - either will do, anything else will not


@pytest.mark.parametrize(("make", "why"), NOT_JSON)
def test_a_state_that_is_not_json_is_refused_and_changes_nothing(make, why):
    with pytest.raises(EncodeError, match=why):
        writer().set_state(make())
    with pytest.raises(EncodeError, match=why):
        writer(make())
    written = writer({"a": {"b": 1}, "keep": "x" * 500})
    with pytest.raises(EncodeError, match=why):
        written.set_state(make())
    assert written.state == {"a": {"b": 1}, "keep": "x" * 500}


@pytest.mark.parametrize("depth", [MAX_JSON_DEPTH + 2, 3_000, 100_000])
def test_a_state_too_deep_for_any_receiver_is_refused(depth):
    with pytest.raises(EncodeError, match="deeper than"):
        writer().set_state(nested(depth))
    assert writer().set_state(nested(MAX_JSON_DEPTH)) != []


def test_the_error_points_to_the_place():
    with pytest.raises(EncodeError) as caught:
        make_patch({"keep": 1, "a": {}}, {"keep": 1, "a": {"x/y": [0, {1}]}})
    assert caught.value.path == "/a/x~1y/1"
    with pytest.raises(EncodeError) as caught:
        writer().set_state({"a": [{"b": {1}}]})
    assert caught.value.path == "/a/0/b"
    with pytest.raises(EncodeError) as caught:
        check_json(cyclic())
    assert caught.value.path == "/list/1/again"


def test_the_same_part_twice_is_no_cycle():
    part = [1]
    document = {"a": part, "b": [part, part]}
    check_json(document)
    assert copy_json(document) == document
    assert make_patch({"a": "\ud800"}, document) != []


def test_what_cannot_be_sent_but_compared_is_no_concern_of_a_patch():
    check_json({"a": float("nan"), "b": "\ud800", "c": nested(5000)})
    assert make_patch({"a": 1}, {"a": float("inf")}) == [{"op": "replace", "path": "/a", "value": float("inf")}]
