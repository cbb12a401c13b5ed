"""One text message at a time: what is queued, what is released, and when a text is closed early."""

from __future__ import annotations

from typing import Any

import pytest
from builders import RUN_FINISHED

from aguila.errors import EncodeError
from aguila.protocol import (
    AssistantMessage,
    Event,
    MessagesSnapshotEvent,
    RunErrorEvent,
    StateDeltaEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallStartEvent,
)
from aguila.stream.one_text import TextSequencer


def start(message_id: str, **members: Any) -> Event:
    return TextMessageStartEvent(message_id=message_id, role="assistant", **members)


def delta(message_id: str, text: str) -> Event:
    return TextMessageContentEvent(message_id=message_id, delta=text)


def end(message_id: str, **members: Any) -> Event:
    return TextMessageEndEvent(message_id=message_id, **members)


STATE = StateDeltaEvent(delta=[{"op": "add", "path": "/a", "value": 1}])
CALL = ToolCallStartEvent(tool_call_id="c", tool_call_name="look", parent_message_id="b")
ENDING = RUN_FINISHED


def sequencer(max_held: int = 100) -> TextSequencer:
    return TextSequencer(max_held, lambda event: 1)


def test_a_second_text_waits_for_the_first_with_what_follows_it() -> None:
    one = sequencer()
    assert one.feed([start("a")]) == [start("a")]
    assert one.feed([STATE]) == [STATE]  # nothing is held yet
    assert one.feed([start("b")]) == []
    assert one.feed([delta("b", "1"), CALL]) == []
    assert one.feed([STATE]) == []
    assert one.feed([delta("a", "2")]) == [delta("a", "2")]
    assert one.held_bytes == 4
    assert one.feed([end("a")]) == [end("a"), start("b"), delta("b", "1"), CALL, STATE]
    assert one.feed([delta("b", "3")]) == [delta("b", "3")]
    assert one.held_bytes == 0


def test_what_waits_is_released_up_to_the_next_text_that_is_not_complete() -> None:
    one = sequencer()
    one.feed([start("a"), start("b"), start("c"), delta("c", "1"), delta("b", "2"), end("b")])
    assert one.feed([end("a")]) == [end("a"), start("b"), delta("b", "2"), end("b"), start("c"), delta("c", "1")]
    assert one.feed([end("c")]) == [end("c")]


def test_beyond_the_bound_the_open_text_is_closed_and_opened_again_later() -> None:
    one = sequencer(2)
    first = start("a", metadata={"k": 1}, name="Ada", subagent_run_id="s")
    one.feed([first])
    assert one.feed([start("b"), delta("b", "1")]) == []
    assert one.feed([delta("b", "2")]) == [
        end("a", subagent_run_id="s"),
        start("b"),
        delta("b", "1"),
        delta("b", "2"),
    ]
    assert one.feed([delta("a", "3")]) == []  # now it is the other way round
    assert one.feed([end("b")]) == [end("b"), start("a", name="Ada", subagent_run_id="s"), delta("a", "3")]
    assert one.feed([end("a")]) == [end("a")]


@pytest.mark.parametrize("members", [{}, {"metadata": {"k": 1}}, {"raw_event": 1}])
def test_the_end_of_a_text_that_was_closed_early_is_sent_only_if_it_says_something(members: dict[str, Any]) -> None:
    one = sequencer(0)
    one.feed([start("a")])
    assert one.feed([start("b")]) == [end("a"), start("b")]
    one.feed([end("b")])
    assert one.feed([end("a", **members)]) == ([start("a"), end("a", **members)] if members else [])


def test_a_snapshot_comes_after_everything_it_contains() -> None:
    one = sequencer()
    one.feed([start("a"), delta("a", "1"), start("b"), delta("b", "2")])
    snapshot = MessagesSnapshotEvent(
        messages=[AssistantMessage(id="a", content="1"), AssistantMessage(id="b", content="2")]
    )
    assert one.feed([snapshot]) == [end("a"), start("b"), delta("b", "2"), snapshot]
    assert one.feed([delta("b", "3")]) == [delta("b", "3")]
    assert one.feed([delta("a", "4"), end("b")]) == [end("b"), start("a"), delta("a", "4")]


def test_a_snapshot_while_nothing_waits_closes_nothing() -> None:
    one = sequencer()
    one.feed([start("a")])
    snapshot = MessagesSnapshotEvent(messages=[AssistantMessage(id="a", content="")])
    assert one.feed([snapshot]) == [snapshot]
    assert one.feed([delta("a", "1")]) == [delta("a", "1")]


def test_a_failure_comes_after_everything_that_was_said() -> None:
    one = sequencer()
    one.feed([start("a"), start("b"), delta("b", "1"), STATE])
    failure = RunErrorEvent(message="no")
    assert one.feed([failure]) == [end("a"), start("b"), delta("b", "1"), STATE, failure]
    assert one.feed([start("a")]) == [start("a")]  # of the next run


def test_a_run_that_ends_in_order_ends_after_everything() -> None:
    one = sequencer()
    one.feed([start("a"), start("b"), delta("b", "1")])
    assert one.feed([end("a"), end("b"), ENDING]) == [end("a"), start("b"), delta("b", "1"), end("b"), ENDING]


def test_an_event_that_cannot_be_sent_changes_nothing() -> None:
    def measure(event: Event) -> int:
        if event is STATE:
            raise EncodeError("no")
        return 1

    one = TextSequencer(100, measure)
    one.feed([start("a")])
    one.feed([start("b")])
    with pytest.raises(EncodeError):
        one.feed([delta("b", "1"), STATE])
    assert one.feed([end("a")]) == [end("a"), start("b")]
