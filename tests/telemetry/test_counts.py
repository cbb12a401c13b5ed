"""``Counts``: what it counts, what another process reads of it, and what a dead process leaves."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from metrics import samples
from prometheus_client.parser import text_string_to_metric_families

from aguila.telemetry.counts import OTHER, Counts
from aguila.telemetry.instruments import APPEND, INSTRUMENTS, OUTAGES, REFUSALS, RUNNING, RUNS, TOKENS
from aguila.telemetry.prometheus import name_of, write_text

DYING = """
import os, sys
from pathlib import Path
from aguila.telemetry.counts import Counts
from aguila.telemetry.instruments import REFUSALS, RUNNING, RUNS

counts = Counts(Path(sys.argv[1]))
counts.add(RUNS, 3, "success")
counts.add(REFUSALS, 1, "thread_busy")
counts.add(RUNNING, 2)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Callable[[], Counts]]:
    """Make the counts of processes that share a folder."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(Counts(tmp_path)))


def kill_one(folder: Path) -> None:
    """Count in a process that is killed."""
    assert subprocess.run([sys.executable, "-c", DYING, str(folder)], check=False).returncode == -9


def series(counts: Counts) -> Counter[str]:
    return samples(write_text(counts).decode())


def test_a_series_exists_from_the_start_if_its_attributes_are_known() -> None:
    found = series(Counts())
    assert found["aguila_run_running"] == 0
    assert found["aguila_run_ended_total lost"] == 0
    assert found["aguila_store_outages_total"] == 0
    assert not any(name.startswith("aguila_request_refused") for name in found)


def test_names_with_half_a_surrogate_pair_are_counted(shared: Callable[[], Counts]) -> None:
    counts = shared()
    counts.add(REFUSALS, 1, "a\ud800")
    counts.add(REFUSALS, 1, "a\ud800")
    assert series(counts)["aguila_request_refused_total a?"] == 2


def test_numbers_are_counted_by_the_values_of_their_attributes() -> None:
    counts = Counts()
    counts.add(RUNS, 1, "success")
    counts.add(RUNS, 2, "error")
    counts.add(RUNS, 1, "error")
    counts.add(RUNNING, 2)
    counts.add(RUNNING, -1)
    found = series(counts)
    assert found["aguila_run_ended_total success"] == 1
    assert found["aguila_run_ended_total error"] == 3
    assert found["aguila_run_running"] == 1


def test_a_value_is_in_the_bucket_of_its_bound_and_in_all_larger_ones() -> None:
    counts = Counts()
    for value in (0.005, 0.0051, 30.0, 31.0):
        counts.record(APPEND, value)
    found = series(counts)
    assert found["aguila_event_append_seconds_bucket 0.005"] == 1
    assert found["aguila_event_append_seconds_bucket 0.01"] == 2
    assert found["aguila_event_append_seconds_bucket 30"] == 3
    assert found["aguila_event_append_seconds_bucket +Inf"] == 4
    assert found["aguila_event_append_seconds_count"] == 4
    assert found["aguila_event_append_seconds_sum"] == pytest.approx(61.0101)


def test_an_empty_attribute_is_absent_and_any_text_is_a_value() -> None:
    counts = Counts()
    counts.record(TOKENS, 5, "invoke_agent", "openai", "", "input")
    counts.add(REFUSALS, 1, 'a "quoted"\\path\nand é')
    text = write_text(counts).decode()
    assert "gen_ai_request_model" not in text
    (family,) = [one for one in text_string_to_metric_families(text) if one.name == "aguila_request_refused"]
    assert [sample.labels for sample in family.samples] == [{"error_type": 'a "quoted"\\path\nand é'}]


def test_more_series_than_there_is_room_for_are_counted_as_other() -> None:
    counts = Counts()
    for number in range(2_000):
        counts.add(REFUSALS, 1, f"code {number}")
    counts.record(APPEND, 1.0)
    refused = counts.read()[REFUSALS]
    assert sum(number for (number,) in refused.values()) == 2_000
    assert refused[OTHER,][0] > 900
    assert counts.read()[APPEND][()][-1] == 1.0


def test_every_name_is_one_that_prometheus_accepts_and_has_its_unit_at_its_end() -> None:
    names = [name_of(one) for one in INSTRUMENTS]
    assert len(names) == len(set(names))
    assert "aguila_stream_bytes_total" in names
    assert "gen_ai_invoke_agent_duration_seconds" in names
    assert "gen_ai_client_token_usage" in names


# Several processes


def test_the_processes_of_a_folder_read_their_sums(shared: Callable[[], Counts]) -> None:
    one, two = shared(), shared()
    one.add(RUNS, 1, "success")
    two.add(RUNS, 2, "success")
    two.add(REFUSALS, 1, "not_found")
    one.add(RUNNING, 1)
    two.add(RUNNING, 2)
    one.record(APPEND, 0.001)
    two.record(APPEND, 0.001)
    assert one.read() == two.read()
    found = series(one)
    assert found["aguila_run_ended_total success"] == 3
    assert found["aguila_request_refused_total not_found"] == 1
    assert found["aguila_run_running"] == 3
    assert found["aguila_event_append_seconds_count"] == 2


def test_the_counters_of_a_killed_process_stay_and_its_gauges_go(tmp_path: Path, shared: Callable[[], Counts]) -> None:
    living = shared()
    living.add(RUNNING, 1)
    kill_one(tmp_path)
    found = series(living)
    assert found["aguila_run_ended_total success"] == 3
    assert found["aguila_request_refused_total thread_busy"] == 1
    assert found["aguila_run_running"] == 1


def test_the_next_process_continues_the_counters_of_a_killed_one(tmp_path: Path, shared: Callable[[], Counts]) -> None:
    for _ in range(3):
        kill_one(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    heir = shared()
    heir.add(RUNS, 1, "success")
    heir.add(OUTAGES, 1)
    found = series(heir)
    assert found["aguila_run_ended_total success"] == 10
    assert found["aguila_request_refused_total thread_busy"] == 3
    assert found["aguila_store_outages_total"] == 1
    assert found["aguila_run_running"] == 0


def test_a_file_that_its_process_is_just_making_counts_nothing(tmp_path: Path, shared: Callable[[], Counts]) -> None:
    counts = shared()
    counts.add(RUNS, 1, "success")
    (file,) = tmp_path.iterdir()
    file.with_name("new" + "".join(file.suffixes)).write_bytes(b"")
    file.with_name("longer" + "".join(file.suffixes)).write_bytes(file.read_bytes()[:-1])
    assert series(counts)["aguila_run_ended_total success"] == 1


def test_a_name_that_a_killed_process_left_half_written_is_no_series(
    tmp_path: Path, shared: Callable[[], Counts]
) -> None:
    kill_one(tmp_path)
    (file,) = tmp_path.iterdir()
    data = file.read_bytes()
    end = data.rindex(b"\n") + 1
    half = b'["aguila.request.refused",["half'
    file.write_bytes(data[:end] + half + data[end + len(half) :])
    heir = shared()
    heir.add(REFUSALS, 2, "x")
    found = series(heir)
    assert found["aguila_request_refused_total x"] == 2
    assert found["aguila_request_refused_total thread_busy"] == 1
    heir.close()
    assert series(shared()) == found


def test_long_names_are_counted_as_other_when_there_is_no_room_for_them(shared: Callable[[], Counts]) -> None:
    counts = shared()
    for number in range(20):
        counts.add(REFUSALS, 1, f"{number}" + "x" * 10_000)
    refused = counts.read()[REFUSALS]
    assert sum(number for (number,) in refused.values()) == 20
    assert refused[OTHER,][0] > 1


def test_a_file_of_a_version_with_other_instruments_is_left_alone(tmp_path: Path, shared: Callable[[], Counts]) -> None:
    other = tmp_path / "1.00000000.counts"
    other.write_bytes(b"something else")
    shared().add(RUNS, 1, "success")
    assert series(shared())["aguila_run_ended_total success"] == 1
    assert other.read_bytes() == b"something else"
