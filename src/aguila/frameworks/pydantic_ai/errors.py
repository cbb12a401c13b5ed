"""Convert errors of models to ``RunFailed`` with texts that may be sent: no key, URL or request is in them.

The same failure has the same code for every vendor. Lost connections and undecodable answers have codes of their own:

=======================  ================================================================================
before the answer        by the status; ``provider_unreachable`` if there is none
the stream breaks off    ``provider_truncated``: the connection was cut, or closed before the end
the stream is invalid    ``provider_malformed``: the data is not in the vendor's format
an error in the stream   by its status or category, else ``provider_unavailable``
=======================  ================================================================================
"""

from __future__ import annotations

import msgspec
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelTimeoutError,
    UnexpectedModelBehavior,
)

from aguila.errors import RunFailed

_REJECTED = ("provider_rejected", "The model provider did not accept the request.")
_AUTH = ("provider_auth", "The model provider did not accept the credentials.")
_NOT_FOUND = ("provider_not_found", "The model provider does not know the model.")
_RATE_LIMIT = ("provider_rate_limit", "The model provider has had too many requests.")
_OVERLOADED = ("provider_unavailable", "The model provider is overloaded.")
_UNAVAILABLE = ("provider_unavailable", "The model provider failed.")
_UNREACHABLE = ("provider_unreachable", "The model provider could not be reached.")
_TRUNCATED = ("provider_truncated", "The model's answer broke off.")
_MALFORMED = ("provider_malformed", "The model provider sent invalid data.")

_BY_STATUS = {
    400: _REJECTED,
    401: _AUTH,
    403: _AUTH,
    404: _NOT_FOUND,
    408: ("provider_unreachable", "The model provider did not answer in time."),
    413: ("provider_too_large", "The request is too large for the model provider."),
    422: _REJECTED,
    429: _RATE_LIMIT,
    529: _OVERLOADED,
}
_SDKS = (
    "aiohttp",
    "anthropic",
    "botocore",
    "google",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "mistralai",
    "openai",
)
_BY_CATEGORY: list[tuple[type[ModelAPIError], tuple[str, str]]] = [
    (ModelRateLimitError, _RATE_LIMIT),
    (ModelQuotaExceededError, _RATE_LIMIT),
    (ModelOverloadedError, _OVERLOADED),
    (ModelAuthenticationError, _AUTH),
    (ModelNotFoundError, _NOT_FOUND),
    (ModelTimeoutError, _UNREACHABLE),
    (ModelRequestRejectedError, _REJECTED),
]


def make_failure(error: Exception, *, has_begun: bool) -> RunFailed | None:
    """Return the failure for an error of a model; None if it is not one. ``has_begun``: the answer had begun."""
    if isinstance(error, FallbackExceptionGroup):
        last = error.exceptions[-1]
        return make_failure(last, has_begun=has_begun)
    if isinstance(error, ModelConnectionError) and (has_begun or error.in_stream):
        return _failed(_TRUNCATED)
    if isinstance(error, ModelHTTPError) and error.status_code in _BY_STATUS:
        return _failed(_BY_STATUS[error.status_code])
    if isinstance(error, ModelAPIError):
        if isinstance(error.__cause__, ValueError):  # not JSON, not UTF-8
            return _failed(_MALFORMED)
        known = (words for category, words in _BY_CATEGORY if isinstance(error, category))
        other = _UNREACHABLE if isinstance(error, ModelConnectionError) else _UNAVAILABLE
        return _failed(next(known, other))
    if isinstance(error, UnexpectedModelBehavior):
        return _failed(_MALFORMED)
    # Some of pydantic-ai's models let errors of their SDK pass.
    is_of_sdk = type(error).__module__.partition(".")[0] in _SDKS or isinstance(error, OSError)
    return _failed(_TRUNCATED if has_begun else _UNREACHABLE) if is_of_sdk else None


def truncated() -> RunFailed:
    """Return the failure for an answer without an end."""
    return _failed(_TRUNCATED)


def unavailable() -> RunFailed:
    """Return the failure for an answer that the vendor gave up."""
    return _failed(_UNAVAILABLE)


def tool_lost(name: str) -> RunFailed:
    """Return the failure for a resumed run whose agent has lost the tool of a call."""
    message = f"The tool {name!r} of an earlier call does not exist any more."
    return RunFailed(f"{message} Restore the tool and send the answer again.", code="tool_lost")


def _failed(words: tuple[str, str]) -> RunFailed:
    code, message = words
    return RunFailed(message, code=code)


class FinishProblem(msgspec.Struct, frozen=True):
    """A finish reason that the user has to know."""

    reason: str
    message: str

    @staticmethod
    def of(reason: str | None) -> FinishProblem | None:
        """Return the problem of a finish reason, or None."""
        message = _PROBLEMS.get(reason) if reason is not None else None
        return None if message is None or reason is None else FinishProblem(reason, message)

    @property
    def is_refusal(self) -> bool:
        """Whether the vendor or the model withdrew the answer, so that its calls are not executed."""
        return self.reason in ("refusal", "content_filter")


_PROBLEMS = {
    "length": "The answer was cut off: the model reached its limit.",
    "content_filter": "The answer was withheld by the provider's filter.",
    "refusal": "The model refused to answer.",
    "malformed_call": "The model made an invalid tool call.",
    "other": "The model stopped for an unknown reason.",
    "empty": "The model's answer was empty.",
}
