"""A check for schemathesis, besides its own: a request of the documented form is refused only for its meaning."""

from __future__ import annotations

from typing import Any

import schemathesis

_REFUSED = {400, 405, 410, 413, 415, 422, 431, 507}
_MEANINGS = (
    "needs ?threadId= to read a thread",  # parameters that need each other
    "metadataValue needs metadataKey",
    "send times=true or compact=true",
    "needs Accept",
    "cursor_expired",
    "interrupt_duplicate",
    "interrupt_foreign",
    "interrupt_uncovered",
    "media_not_allowed",
    "resume_not_stored",
    "unknown_parent",
    "malformed_upload",  # schemathesis takes */*, any media type, for a form without a file, too
)
_BY_METHOD = "POST /copilotkit"  # what an envelope needs depends on the method in it


@schemathesis.check
def accepts_valid_requests(_: Any, response: schemathesis.Response, case: schemathesis.Case) -> None:
    """Fail for a valid request that is refused with a code that does not judge its meaning."""
    if case.meta is None or not case.meta.generation.mode.is_positive or case.operation.label == _BY_METHOD:
        return
    if response.status_code in _REFUSED and not any(one in response.text for one in _MEANINGS):
        raise AssertionError(f"{case.operation.label} refuses a valid request: {response.text}")
