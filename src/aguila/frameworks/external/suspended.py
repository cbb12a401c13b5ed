"""A framework's run that waits for answers: its outcome, and its state, which is kept in ``run.session``."""

from __future__ import annotations

from typing import Any

from aguila.agent.run import Run
from aguila.codec.json.values import is_object
from aguila.protocol import RunFinishedEvent


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
