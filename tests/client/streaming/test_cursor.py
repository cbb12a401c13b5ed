"""The position in a stream, by the ids of its events."""

import pytest

from aguila.client.streaming.cursor import WINDOW, Cursor
from aguila.codec.sse import Frame

COUNT = 5 * WINDOW


def frame(id):
    return Frame(data=b"", id=id)


def cursor_after(count):
    cursor = Cursor()
    for n in range(count):
        cursor.advance(f"id-{n}")
    return cursor


def test_ids_that_are_no_numbers_are_not_all_remembered():
    cursor = cursor_after(COUNT)
    assert len(cursor._seen) <= 2 * WINDOW
    assert cursor.id == f"id-{COUNT - 1}"


@pytest.mark.parametrize("count", [3, 2 * WINDOW, COUNT])
@pytest.mark.parametrize("start", ["the beginning", "among the last", "the cursor", "after it"])
def test_what_comes_again_is_known_however_long_the_run(count, start):
    test = cursor_after(count).new_frame_test()
    first = {"the beginning": 0, "among the last": count - 2, "the cursor": count - 1, "after it": count}[start]
    again = [frame(f"id-{n}") for n in range(first, count)]
    assert not any(test(one) for one in again)
    assert test(frame("next"))


def test_without_anything_forgotten_an_id_that_was_not_seen_is_new_at_once():
    test = cursor_after(10).new_frame_test()
    assert not test(frame("id-3"))
    assert test(frame("other"))
