"""Our consumer and the official client read the same random streams. The long run is the script beside this."""

import sys
from pathlib import Path

import pytest
from streams.broken_streams import KINDS, Case, random_case

sys.path.append(str(Path(__file__).parent))

from causes import EVENT_TYPES, Outcome
from differential import REPORT, ROWS, Peer, compare, differences, excused_by, explain, ours, same

COUNT = 1_500


@pytest.fixture(scope="module")
def report():
    return compare(COUNT, seed=0)


@pytest.fixture(scope="module")
def fine():
    """An accepted stream with causes for some differences, none of them about its verdict or state."""
    causes = {"timestamp of a chunk", "defaults of an echoed input"}
    for case in map(random_case, range(2_000)):
        rows = [row for row in ROWS if row.is_cause(case)]
        is_about_more = any(row.refuses or row.excuses for row in rows)
        if causes <= {row.name for row in rows} and not is_about_more and ours(case).verdict == "accepted":
            return case
    raise AssertionError("no such stream among the first")


def test_every_difference_is_a_deliberate_one(report):
    assert not report.unexcused, "\n".join(explain(*difference) for difference in report.unexcused[:5])
    assert report.streams == COUNT


def test_streams_are_accepted_and_rejected(report):
    assert report.verdicts["accepted"] > COUNT / 3
    assert report.verdicts["rejected"] > COUNT / 5


def test_every_event_type_and_every_kind_of_damage_occurs(report):
    assert [event_type for event_type in EVENT_TYPES if report.event_types[event_type] == 0] == []
    assert [kind for kind in ("none", *KINDS) if report.damage[kind] == 0] == []
    assert len(EVENT_TYPES) == 31


def test_the_report_names_every_row_and_kind(report):
    text = report.text()
    assert all(f"| {name} |" in text for name in (*(row.name for row in ROWS), *KINDS, *EVENT_TYPES))


def test_the_report_of_the_long_run_is_of_these_rows_and_each_was_needed():
    text = REPORT.read_text(encoding="utf-8")
    cells = [
        line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and line.count("|") == 5
    ]
    counts = {name: int(count) for name, *_, count in cells[1:]}
    assert list(counts) == [row.name for row in ROWS]
    assert [name for name, count in counts.items() if count == 0] == []
    assert "Differences not accounted for: 0." in text


def test_a_stream_is_the_same_for_the_same_seed():
    assert random_case(7).texts == random_case(7).texts != random_case(8).texts


def test_comparison_tells_booleans_from_numbers_and_null_from_absence():
    assert same({"a": [1, 1.0]}, {"a": [1.0, 1]})
    assert not same(True, 1)
    assert not same({"a": None}, {})
    assert not same([1], [1, 2])
    assert not same("1", 1)


@pytest.mark.parametrize("aspect", ["messages", "state", "interrupts", "runs", "events"])
def test_a_difference_in_any_aspect_is_found(fine, aspect):
    mine, theirs = ours(fine), ours(fine)
    assert (mine.verdict, differences(mine, theirs)) == ("accepted", [])
    setattr(theirs, aspect, ["something else"])
    assert differences(mine, theirs) == [aspect]


def test_a_row_does_not_excuse_what_it_is_not_about(fine):
    """A wrong verdict, or another state, of a stream that has causes for other differences."""
    assert excused_by(fine, Outcome("rejected", "for no reason"), ours(fine)) is None
    assert excused_by(fine, ours(fine), Outcome("rejected", "for no reason")) is None
    mine = ours(fine)
    mine.state = {"another": "state"}
    assert excused_by(fine, mine, ours(fine)) is None


def test_the_peer_gives_one_outcome_per_stream_in_order(fine):
    first, broken, last = Peer().read([fine, Case(0, [], {}, [], texts=["{"]), fine])
    assert [first.verdict, broken.verdict] == ["accepted", "rejected"]
    assert same(first.messages, last.messages)
