"""Recordings are read by one reader: strict for the client, tolerant for the checker."""

import pytest

from aguila.client.recordings import read_array, read_lines, split_runs

INPUT = b'{"ms":0,"input":{"runId":"r"}}'
START = b'{"type":"RUN_STARTED"}'


def datas(runs):
    return [[event.data for event in run.events] for run in runs]


def test_an_input_starts_a_run_and_timed_events_follow_it():
    runs = read_lines(b"\n".join([INPUT, b'{"ms":5,"event":{"type":"X"}}', b"", INPUT, START]))
    assert [run.input for run in runs] == [{"runId": "r"}] * 2
    assert datas(runs) == [[b'{"type":"X"}'], [START]]
    assert runs[0].events[0].ms == 5
    assert split_runs(runs) == runs


def test_an_event_with_members_of_a_recording_is_a_plain_event():
    line = b'{"type":"CUSTOM","event":{"type":"X"},"input":{}}'
    assert datas(read_lines(line, strict=True)) == [[line]]


def test_without_inputs_a_run_begins_with_its_start_and_not_with_a_mention_of_it():
    mention = b'{"type":"CUSTOM","name":"RUN_STARTED"}'
    runs = split_runs(read_lines(b"\n".join([START, mention, START])))
    assert datas(runs) == [[START, mention], [START]]


def test_events_before_the_first_start_are_a_run_of_their_own():
    error = b'{"type":"RUN_ERROR"}'
    assert datas(split_runs([read_array(b"[" + error + b"," + START + b"]")])) == [[error], [START]]


@pytest.mark.parametrize("line", [b"nonsense", b"{}", b'{"ms":5}', b"[1]"])
def test_another_line_is_an_event_to_report_or_an_error(line):
    assert datas(read_lines(START + b"\n" + line)) == [[START, line]]
    with pytest.raises(ValueError, match="line 2 is not a line of a recording"):
        read_lines(START + b"\n" + line, strict=True)
