"""A framework's run that waits for answers: its outcome, its state in ``run.session``, and the answers."""

from __future__ import annotations

from typing import Any

from aguila.agent.run import Run
from aguila.codec.json.values import is_object
from aguila.protocol import ResumeEntry, RunFinishedEvent, replace


def finished(run: Run, outcome: Any) -> RunFinishedEvent:
    """Return the event that ends this run."""
    return RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, outcome=outcome)


def keep_suspended(run: Run, framework: str, state: Any) -> None:
    """Keep the state of a framework's run for the run that answers it. Raise TypeError if the session is not a dict."""
    if not is_object(run.session):
        raise TypeError(f"run.session must be a dict to keep questions in it, not {type(run.session).__name__}")
    run.session[framework] = state


def take_suspended(run: Run, framework: str) -> Any:
    """Return the state that ``keep_suspended`` kept, and remove it. None if there is none."""
    return run.session.pop(framework, None) if is_object(run.session) else None


_UNKNOWN = (
    "It is unknown whether the call was made: the run in which it was approved has failed."
    " Check before calling it again."
)


async def answers_of(run: Run) -> list[ResumeEntry]:
    """Return the answers of a run for a framework that continues by itself, and records no calls.

    If a run with the same answers has failed, it may have made the calls that the user approved. So they are refused
    now, for a reason that the model is told.
    """
    if not run.resume or not run.is_stored:
        return run.resume
    first = await run.once("aguila.answers", lambda: run.run_id)
    return run.resume if first == run.run_id else [_refused(entry) for entry in run.resume]


def _refused(entry: ResumeEntry) -> ResumeEntry:
    payload: Any = entry.payload
    if not is_object(payload) or payload.get("approved") is not True:
        return entry
    return replace(entry, payload={"approved": False, "reason": _UNKNOWN})
