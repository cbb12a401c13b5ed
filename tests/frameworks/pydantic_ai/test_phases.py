"""Messages of OpenAI's Responses: each is one of its own, and keeps its phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from models.answers import items, next_turn, of_type
from models.model_server import Recorded
from models.request_checkers import check_responses

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
Start = Callable[..., tuple[Any, Recorded]]
CALL = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "look", "arguments": "{}", "status": "completed"}


def look() -> str:
    """Look."""
    return "seen"


def message(number: int, text: str, phase: str | None = None) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    made = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}
    return made if phase is None else {**made, "phase": phase}


def texts(events: list[Json]) -> list[str]:
    """Return the text of each message."""
    said: dict[str, str] = {}
    for event in of_type(events, "TEXT_MESSAGE_CONTENT"):
        said[event["messageId"]] = said.get(event["messageId"], "") + event["delta"]
    return [*said.values()]


def assistant(recorded: Recorded) -> list[list[tuple[str, str | None]]]:
    """Return the texts of the assistant with their phases, for each request."""
    for request in recorded.requests:
        assert check_responses(request) == []
    said = [[one for one in request["input"] if one.get("role") == "assistant"] for request in recorded.requests]
    return [[("".join(part["text"] for part in one["content"]), one.get("phase")) for one in each] for each in said]


@pytest.mark.parametrize("phases", [("commentary", "final_answer"), (None, None), ("commentary", None)])
def test_two_messages_of_a_response_are_two_and_keep_their_phases(answering: Start, phases: tuple[Any, Any]) -> None:
    first = items(message(1, "I look.", phases[0]), message(2, "It is 4.", phases[1]))
    thread, recorded = answering("openai responses", first, {"text": "Bye."})
    events = thread.send("Hi")
    assert texts(events) == ["I look.", "It is 4."]
    next_turn(thread, events)
    assert assistant(recorded)[1] == [("I look.", phases[0]), ("It is 4.", phases[1])]


def test_a_phase_goes_back_within_the_run_and_after_it_with_the_text_that_had_it(answering: Start) -> None:
    first = items(message(1, "I look.", "commentary"), CALL, message(2, "Wait."))
    second = items(message(3, "It is 4.", "final_answer"))
    thread, recorded = answering("openai responses", first, second, {"text": "Bye."}, tools=[look])
    next_turn(thread, thread.send("Hi"))
    within = [("I look.", "commentary"), ("Wait.", None)]
    assert assistant(recorded)[1:] == [within, [*within, ("It is 4.", "final_answer")]]


def test_a_phase_that_is_not_known_is_not_sent(answering: Start) -> None:
    thread, recorded = answering("openai responses", items(message(1, "Hm.", "dreaming")), {"text": "Bye."})
    next_turn(thread, thread.send("Hi"))
    assert assistant(recorded)[1] == [("Hm.", None)]
