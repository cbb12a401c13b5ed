"""Layer: providers. What goes wrong at a provider, in words that may be sent: no key, address or request is in them.

Below: nothing of any SDK: its errors are known by what they all have, a status. Above: ``_loop``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.errors import RunFailed

_BY_STATUS = {
    400: ("provider_rejected", "The model provider did not accept the request."),
    401: ("provider_auth", "The model provider did not accept the credentials."),
    403: ("provider_auth", "The model provider did not accept the credentials."),
    404: ("provider_not_found", "The model provider does not know the model."),
    408: ("provider_unreachable", "The model provider did not answer in time."),
    413: ("provider_too_large", "The request is too large for the model provider."),
    422: ("provider_rejected", "The model provider did not accept the request."),
    429: ("provider_rate_limit", "The model provider has had too many requests."),
    529: ("provider_unavailable", "The model provider is overloaded."),
}
_UNAVAILABLE = ("provider_unavailable", "The model provider failed.")
_UNREACHABLE = ("provider_unreachable", "The model provider could not be reached.")

_SDKS = ("openai", "anthropic", "google.genai", "httpx", "httpx2", "httpcore", "httpcore2", "aiohttp")


def failure_of(error: Exception) -> RunFailed | None:
    """The failure to report for an error of an SDK; None if it is not one of theirs."""
    module = type(error).__module__
    if not any(module == sdk or module.startswith(f"{sdk}.") for sdk in _SDKS):
        return None
    status: Any = getattr(error, "status_code", getattr(error, "code", None))
    if isinstance(status, int):
        code, message = _BY_STATUS.get(status, _UNAVAILABLE)
    else:
        name = type(error).__name__
        is_connection = any(word in name for word in ("Connect", "Timeout", "Network", "Protocol", "Read", "Write"))
        code, message = _UNREACHABLE if is_connection else _UNAVAILABLE
    return RunFailed(message, code=code)


class FinishProblem(msgspec.Struct, frozen=True):
    """A reason to stop that the user has to know."""

    reason: str
    message: str

    @staticmethod
    def of(reason: str | None) -> FinishProblem | None:
        """The problem that a finish reason is, if it is one."""
        message = _PROBLEMS.get(reason) if reason is not None else None
        return None if message is None or reason is None else FinishProblem(reason, message)


_PROBLEMS = {
    "length": "The answer was cut off: the model reached its limit.",
    "content_filter": "The answer was withheld by the provider's filter.",
    "refusal": "The model refused to answer.",
    "malformed_call": "The model made a call that could not be read.",
}
