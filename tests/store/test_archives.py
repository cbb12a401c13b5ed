"""The file format of archives: a small file cannot expand to a large thread."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest

from aguila.store import ThreadArchive
from aguila.store.archives.file_format import decode_archives

DIGEST = 16


def lines(runs: int) -> Iterator[bytes]:
    """Yield a thread in which the list of messages of each run is twice that of the run before."""
    head = {"format": 1, "scope": "s", "threadId": "t", "agent": "a", "createdAt": 0, "updatedAt": 0, "first": 1}
    yield json.dumps({"record": "thread", **head}).encode()
    times = {"epoch": 1, "leaseUntil": 0, "startedAt": 0, "endedAt": 0}
    size = DIGEST
    for number in range(runs):
        given: list[object] = ["00" * DIGEST] if number == 0 else [[0, size], [0, size]]
        size = size if number == 0 else 2 * size
        run = {"id": str(number), "fingerprint": "", "first": 1, "last": 1, "outcome": "success", "owner": "o", **times}
        yield json.dumps({"record": "run", **run, "input": {}, "messages": given}).encode()


def test_a_small_archive_does_not_expand_without_limit() -> None:
    assert sum(map(len, lines(40))) < 10_000
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"^line 26: the lists of messages of the thread have more than 268435456"):
            list(decode_archives(lines(40)))
        assert tracemalloc.get_traced_memory()[1] < 600 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", [[-16, 16], [0, 32], [16, 0]])
def test_a_part_of_a_list_is_within_the_list_before_it(part: list[int]) -> None:
    first, second, third = lines(2)
    broken = json.dumps({**json.loads(third), "messages": [part]}).encode()
    with pytest.raises(ValueError, match="line 3: a list of messages takes more"):
        list(decode_archives([first, second, broken]))


def thread(
    *, ids: Sequence[str] = ("r",), first: int = 1, events: Sequence[object] = ({"type": "A"}, {"type": "B"})
) -> Iterator[bytes]:
    """Yield a thread whose runs have one event each."""
    yield from itertools.islice(lines(0), 1)
    for number, run_id in enumerate(ids):
        run = json.loads([*lines(1)][1]) | {"id": run_id, "first": first + number, "last": first + number}
        del run["messages"]
        yield json.dumps(run).encode()
    yield json.dumps({"record": "events", "first": 1, "at": 0, "token": "", "events": list(events)}).encode()
    yield json.dumps({"record": "end", "threadId": "t", "last": len(events)}).encode()


def test_an_archive_whose_parts_do_not_fit_is_refused_before_it_is_stored() -> None:
    (archive,) = decode_archives(thread(ids=["r", "s"]))
    assert isinstance(archive, ThreadArchive)
    assert archive.thread.summary.last == 2
    for broken, what in (
        (thread(ids=["r", "r"]), "two runs have the same id"),
        (thread(ids=["r"]), "event 2 belongs to no run"),
        (thread(ids=["r"], first=2), "events of run 'r' are missing"),
        (thread(ids=["r", "s"], events=[{"type": "A"}, "text"]), "an event is not an object"),
        (thread(ids=["r", "s"], events=[{"type": "A"}, {"type": 1}]), "an event is not an object"),
    ):
        with pytest.raises(ValueError, match=what):
            list(decode_archives(broken))
