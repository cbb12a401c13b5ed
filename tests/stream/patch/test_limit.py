"""Patches do not make documents that are larger than their limit."""

import tracemalloc
from contextlib import suppress

import pytest

from aguila.codec import encode
from aguila.errors import IllegalStep, PatchError
from aguila.protocol import StateDeltaEvent
from aguila.stream import EventWriter, consume
from aguila.stream.patch import PatchLimit
from aguila.stream.patch import apply as limits


def bomb(count: int) -> list[dict[str, str]]:
    """Double a document many times."""
    return [{"op": "copy", "from": "", "path": f"/{i}"} for i in range(count)]


def test_a_patch_of_copies_is_refused_at_the_limit():
    document = {"text": "x" * 100}
    tracemalloc.start()
    with pytest.raises(PatchError, match="operation 13: the document would have more than 1000000 bytes") as caught:
        PatchLimit(1_000_000).apply_patch(document, bomb(24))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.rule == "limit-size"
    assert peak < 8_000_000
    assert document == {"text": "x" * 100}


def test_the_limit_counts_what_is_left_not_what_was_added():
    patch = [{"op": "replace", "path": "/a", "value": "x" * 600} for _ in range(10)]
    assert len(encode(PatchLimit(1_000).apply_patch({"a": "y" * 600}, patch))) < 1_000
    grow = [{"op": "add", "path": f"/{i}", "value": ["x" * 300]} for i in range(10)]
    with pytest.raises(PatchError, match="operation 3"):
        PatchLimit(1_000).apply_patch({}, grow)


def test_a_document_that_is_patched_again_and_again_is_measured_once(monkeypatch):
    sizes = []
    limit = PatchLimit(100_000)
    monkeypatch.setattr(limits, "size_of", lambda value: sizes.append(value) or 10_000)
    state = {"list": list(range(1_000)), "n": 0}
    for i in range(100):
        state = limit.apply_patch(state, [{"op": "replace", "path": "/n", "value": i}])
    assert len(sizes) == 1


def test_copies_over_many_patches_are_refused_too():
    limit, document, refused = PatchLimit(1_000_000), {"text": "x" * 100}, 0
    for i in range(40):
        try:
            document = limit.apply_patch(document, [{"op": "copy", "from": "", "path": f"/{i}"}])
        except PatchError:
            refused += 1
    assert refused > 20
    assert len(encode(document)) < 1_200_000


LARGE = {"text": "x" * 100}
"""Becomes a document of nearly ``LIMIT`` bytes by ``bomb(11)``, without as many bytes on the wire."""
LIMIT = 500_000

ATTACKS = {
    "patches that fail": [{"op": "remove", "path": "/missing"}],
    "a part is copied over and over": [{"op": "copy", "from": "/9", "path": "/z"}],
    "a part is copied and removed": [{"op": "copy", "from": "/9", "path": "/z"}, {"op": "remove", "path": "/z"}],
    "a part is copied and changed": [
        {"op": "copy", "from": "/9", "path": "/z"},
        {"op": "add", "path": "/z/k", "value": 1},
        {"op": "copy", "from": "/z", "path": "/y"},
    ],
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("documents", [1, 20])
def test_small_patches_of_large_documents_are_not_measured_over_and_over(monkeypatch, name, documents):
    measured = []

    def size_of(value):
        size = len(encode(value))
        measured.append(size)
        return size

    monkeypatch.setattr(limits, "size_of", size_of)
    limit, sent = PatchLimit(LIMIT), 0
    large = [limit.apply_patch({**LARGE, "number": i}, bomb(11), str(i)) for i in range(documents)]
    for i in range(400):
        sent += len(encode(ATTACKS[name]))
        with suppress(PatchError):
            large[i % documents] = limit.apply_patch(large[i % documents], ATTACKS[name], str(i % documents))
    assert sum(measured) < 6 * LIMIT + 256 * sent
    added = limit.apply_patch({"a": 1}, [{"op": "add", "path": "/b", "value": 2}])  # it is still of use
    assert added == {"a": 1, "b": 2}


def test_copies_of_small_parts_are_never_refused():
    limit, document = PatchLimit(100_000), {"document": ["x" * 100] * 50, "previous": None}
    for i in range(5_000):
        document = limit.apply_patch(
            document,
            [
                {"op": "copy", "from": "/document", "path": "/previous"},
                {"op": "replace", "path": "/document/0", "value": i},
            ],
        )
    assert document["document"][0] == 4_999
    assert document["previous"][0] == 4_998


def started(*events):
    ids = {"threadId": "t", "runId": "r"}
    return [{"type": "RUN_STARTED", **ids}, *events, {"type": "RUN_FINISHED", **ids}]


def test_a_reader_of_a_stream_keeps_its_state_and_activities():
    notices = []
    conversation = consume(
        started(
            {"type": "STATE_SNAPSHOT", "snapshot": {"text": "x" * 1000}},
            {"type": "STATE_DELTA", "delta": bomb(24)},
            {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "PLAN", "content": {"text": "x" * 1000}},
            {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "PLAN", "patch": bomb(24)},
        ),
        warn=notices.append,
    )
    assert conversation.state == {"text": "x" * 1000}
    assert conversation.messages[0].content == {"text": "x" * 1000}
    assert [notice.rule for notice in notices] == ["SNAP-9", "SNAP-9"]
    assert "more than 10485760 bytes" in notices[0].message


def test_a_writer_refuses_the_patch():
    writer = EventWriter("t", "r", new_id=lambda: "id", state={"text": "x" * 1000}, max_size=100_000)
    writer.start()
    with pytest.raises(IllegalStep, match="makes the state too large"):
        writer.patch_state(bomb(24))
    with pytest.raises(IllegalStep, match="makes the state too large"):
        writer.emit(StateDeltaEvent(delta=bomb(24)))
    assert writer.state == {"text": "x" * 1000}


def test_a_prepared_patch_is_applied_without_computing_it_again(monkeypatch):
    applied = []
    apply = limits.apply_limited
    monkeypatch.setattr(limits, "apply_limited", lambda *args: applied.append(args) or apply(*args))
    limit, document, patch = PatchLimit(1_000), {"a": 1}, [{"op": "add", "path": "/b", "value": 2}]
    limit.prepare(document, patch)
    result = limit.apply_patch(document, patch)
    assert (result, document, len(applied)) == ({"a": 1, "b": 2}, {"a": 1}, 1)
    assert limit.apply_patch(result, [{"op": "remove", "path": "/a"}]) == {"b": 2}


def test_a_prepared_patch_counts_only_for_the_same_objects():
    limit, patch = PatchLimit(1_000), [{"op": "add", "path": "/b", "value": 2}]
    limit.prepare({"a": 1}, patch)
    assert limit.apply_patch({"a": 3}, patch) == {"a": 3, "b": 2}
    limit.prepare({"a": 1}, patch)
    assert limit.apply_patch({"a": 1}, [{"op": "remove", "path": "/a"}]) == {}


@pytest.mark.parametrize("patch", [bomb(24), [{"op": "remove", "path": "/missing"}], [{"op": "spell"}]])
def test_a_prepared_patch_fails_as_it_would_have(patch):
    with pytest.raises(PatchError) as expected:
        PatchLimit(10_000).apply_patch(LARGE, patch)
    limit = PatchLimit(10_000)
    limit.prepare(LARGE, patch)
    with pytest.raises(PatchError) as found:
        limit.apply_patch(LARGE, patch)
    assert (str(found.value), found.value.rule) == (str(expected.value), expected.value.rule)
    assert limit.apply_patch(LARGE, [{"op": "add", "path": "/b", "value": 2}]) == {**LARGE, "b": 2}


def test_the_bytes_of_copies_are_counted():
    limit = PatchLimit(100_000)
    limit.apply_patch({"a": ["x" * 1_000]}, [{"op": "copy", "from": "/a", "path": "/b"}])
    assert limit.take_measured() == 1_004
    assert limit.take_measured() == 0
    limit.apply_patch({"a": 1}, [{"op": "add", "path": "/b", "value": ["x" * 1_000]}])
    assert limit.take_measured() == 0
    assert PatchLimit(None).take_measured() == 0
