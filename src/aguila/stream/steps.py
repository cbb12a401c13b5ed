"""Read the details of a step, which events carry in ``metadata["aguila"]``: the protocol has only the name."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from aguila.codec.json.values import is_object
from aguila.protocol import StepFinishedEvent, StepStartedEvent

StepStatus = Literal["completed", "failed", "skipped", "suspended", "cancelled"]
"""How a step ended. An agent may set another word."""

OLD_STATUSES: Final = {"success": "completed", "error": "failed"}
"""Words that earlier versions wrote."""


class StepDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a step that an event carries.

    ``parent`` is the name of the parent step, or its id from older peers.
    """

    step_id: str | None = None
    parent: str | None = None
    status: StepStatus | str | None = None
    result: Any = None


def step_details(event: StepStartedEvent | StepFinishedEvent) -> StepDetails:
    """Return the details of a step. A member that is absent or malformed is None."""
    own: Any = (event.metadata or {}).get("aguila")
    if not is_object(own):
        return StepDetails()
    status = _text(own.get("status"))
    return StepDetails(
        step_id=_text(own.get("stepId")),
        parent=_text(own.get("parentStepId", own.get("parent"))),  # "parent" is what earlier versions wrote
        status=None if status is None else OLD_STATUSES.get(status, status),
        result=own.get("result"),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
