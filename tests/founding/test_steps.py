"""Steps, document 001: id, name, parent, status and result."""

from __future__ import annotations

from typing import Any

import pytest
from agent_threads import run_agent

from aguila.codec import EventDecoder
from aguila.protocol import StepFinishedEvent, StepStartedEvent
from aguila.stream import StepDetails, step_details

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
