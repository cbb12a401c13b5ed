"""Steps, document 001: id, name, parent, status and result."""

from __future__ import annotations

from typing import Any

import pytest
from agent_threads import run_agent

from aguila.codec import EventDecoder
from aguila.errors import SequenceError
from aguila.protocol import StepFinishedEvent, StepStartedEvent
from aguila.stream import StepDetails, step_details, verify

pytestmark = pytest.mark.anyio


async def steps(run: Any) -> None:
    async with run.step("outer") as outer:
        async with run.step("inner", parent=outer) as inner:
            inner.status = "skipped"
        outer.result = {"n": 1}


async def test_an_agent_writes_status_result_and_parent_as_the_document_names_them() -> None:
    outcome = await run_agent(steps)
    started, finished = outcome.of(StepStartedEvent), outcome.of(StepFinishedEvent)
    assert started[1].metadata == {"aguila": {"parentStepId": "outer"}}
    assert finished[0].metadata == {"aguila": {"status": "skipped"}}
    assert finished[1].metadata == {"aguila": {"status": "completed", "result": {"n": 1}}}
    assert step_details(started[1]) == StepDetails(parent="outer")
    assert step_details(finished[1]) == StepDetails(status="completed", result={"n": 1})


async def test_a_step_that_an_exception_left_has_failed() -> None:
    async def agent(run: Any) -> None:
        async with run.step("one"):
            raise ValueError("no")

    (finished,) = (await run_agent(agent)).of(StepFinishedEvent)
    assert step_details(finished).status == "failed"


@pytest.mark.parametrize("status", ["completed", "failed", "skipped"])
def test_the_steps_of_the_document_are_read_with_the_same_details(status: str) -> None:
    decoder = EventDecoder(warn=[].append)
    decoder.feed({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})
    (started,) = decoder.feed({"type": "STEP_STARTED", "stepId": "s-2", "stepName": "count", "parentStepId": "s-1"})
    (finished,) = decoder.feed({"type": "STEP_FINISHED", "stepId": "s-2", "status": status, "result": 3})
    assert isinstance(started, StepStartedEvent)
    assert isinstance(finished, StepFinishedEvent)
    assert (started.step_name, finished.step_name) == ("count", "count")
    assert step_details(started) == StepDetails(step_id="s-2", parent="s-1")
    assert step_details(finished) == StepDetails(step_id="s-2", status=status, result=3)


@pytest.mark.parametrize(("old", "now"), [("success", "completed"), ("error", "failed"), ("odd", "odd")])
def test_the_spelling_of_earlier_versions_is_read(old: str, now: str) -> None:
    finished = StepFinishedEvent(step_name="x", metadata={"aguila": {"status": old, "parent": "outer"}})
    assert step_details(finished) == StepDetails(status=now, parent="outer")


@pytest.mark.parametrize("metadata", [None, {}, {"aguila": 1}, {"aguila": {"status": 5, "parentStepId": []}}])
def test_details_that_are_absent_or_malformed_are_none(metadata: Any) -> None:
    assert step_details(StepStartedEvent(step_name="x", metadata=metadata)) == StepDetails()


def start(step_id: str, name: str = "search", **members: Any) -> dict[str, Any]:
    return {"type": "STEP_STARTED", "stepId": step_id, "stepName": name, **members}


def finish(**members: Any) -> dict[str, Any]:
    return {"type": "STEP_FINISHED", **members}


def read(*steps: dict[str, Any]) -> list[Any]:
    decoder = EventDecoder(warn=[].append)
    run = {"threadId": "t", "runId": "r"}
    raws = [{"type": "RUN_STARTED", **run}, *steps, {"type": "RUN_FINISHED", **run}]
    events = [event for raw in raws for event in decoder.feed(raw)]
    verify(events)
    return events[1:-1]


def test_open_steps_of_one_name_with_different_ids_are_steps_of_their_own() -> None:
    steps = read(
        start("s-1"),
        start("s-2"),
        start("s-3", subagentRunId="sub"),
        finish(stepId="s-3", subagentRunId="sub"),
        finish(stepId="s-1", stepName="search"),
        start("s-4"),  # the name is free again
        finish(stepId="s-2", status="failed"),
        finish(stepId="s-4"),
    )
    second = "search (s-2)"
    assert [step.step_name for step in steps] == ["search", second, *["search"] * 4, second, "search"]
    assert steps[1].metadata == {"aguila": {"stepName": "search", "stepId": "s-2"}}
    assert steps[6].metadata == {"aguila": {"stepName": "search", "stepId": "s-2", "status": "failed"}}
    assert steps[0].metadata == {"aguila": {"stepId": "s-1"}}


def test_a_name_that_was_made_unique_is_not_made_twice() -> None:
    steps = read(start("1"), start("2", "search (3)"), start("3"), *(finish(stepId=step_id) for step_id in "123"))
    names = [step.step_name for step in steps]
    assert names[:3] == ["search", "search (3)", "search (3, 2)"]
    assert names[3:] == names[:3]


def test_a_step_that_was_ended_by_its_name_leaves_the_name_free() -> None:
    steps = read(start("1"), finish(stepName="search"), start("2"), finish(stepId="2"))
    assert {step.step_name for step in steps} == {"search"}


@pytest.mark.parametrize("again", [{"stepName": "search"}, {"stepName": "search", "stepId": "s-1"}])
def test_a_step_that_is_open_is_not_opened_again_under_its_name_or_its_id_step_1(again: dict[str, str]) -> None:
    with pytest.raises(SequenceError) as refused:
        read(start("s-1"), {"type": "STEP_STARTED", **again})
    assert refused.value.rule == "STEP-1"
