"""The examples of ``aguila.frameworks``, as real processes."""

from __future__ import annotations

from pathlib import Path

from processes.commands import example
from serving import check_valid, text_of


def test_18_a_server_that_keeps_nothing_becomes_durable(tmp_path: Path) -> None:
    with example("18_upstream.py", tmp_path) as server:
        first = server.events(
            thread_id="t1", run_id="r1", messages=[{"id": "m1", "role": "user", "content": "To Oslo"}]
        )
        check_valid(first)
        assert text_of(first) == "One question first."
        assert [one["id"] for one in first[-1]["outcome"]["interrupts"]] == ["seat-r1"]
    with example("18_upstream.py", tmp_path) as server:  # restarted
        answer = {"interruptId": "seat-r1", "status": "resolved", "payload": "window"}
        second = server.events(thread_id="t1", run_id="r2", resume=[answer])
        check_valid(second)
        assert text_of(second) == "Booked: window."
        with server.stream("GET", "/threads/t1/events?after=0") as stream:
            stream.read_until("RUN_FINISHED")
            assert stream.read_until("TEXT_MESSAGE_CONTENT")["delta"] == "Booked: window."
