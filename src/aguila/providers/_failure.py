"""Layer: providers. What goes wrong at a provider, in words that may be sent: no key, address or request is in them.

Below: nothing of any SDK: its errors are known by what they all have, a status. Above: ``_reading`` and ``_loop``. The
same failure has the same code with every provider:

=======================  ================================================================================
before the answer        by the status; ``provider_unreachable`` if there is none
the stream breaks off    ``provider_truncated``: the connection was cut, or closed before the end
the stream is not read   ``provider_malformed``: what came is not what the provider speaks
an error in the stream   by its status, code or type, else ``provider_unavailable``
=======================  ================================================================================
"""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.codec.values import is_object
from aguila.errors import RunFailed

_REJECTED = ("provider_rejected", "The model provider did not accept the request.")
_AUTH = ("provider_auth", "The model provider did not accept the credentials.")
_RATE_LIMIT = ("provider_rate_limit", "The model provider has had too many requests.")
_OVERLOADED = ("provider_unavailable", "The model provider is overloaded.")
_UNAVAILABLE = ("provider_unavailable", "The model provider failed.")
_UNREACHABLE = ("provider_unreachable", "The model provider could not be reached.")
_TRUNCATED = ("provider_truncated", "The model's answer broke off.")
_MALFORMED = ("provider_malformed", "The model provider sent what could not be read.")

_BY_STATUS = {
    400: _REJECTED,
    401: _AUTH,
    403: _AUTH,
    404: ("provider_not_found", "The model provider does not know the model."),
    408: ("provider_unreachable", "The model provider did not answer in time."),
    413: ("provider_too_large", "The request is too large for the model provider."),
    422: _REJECTED,
    429: _RATE_LIMIT,
    529: _OVERLOADED,
}
_BY_TYPE = {
    "rate_limit_exceeded": _RATE_LIMIT,
    "rate_limit_error": _RATE_LIMIT,
    "insufficient_quota": _RATE_LIMIT,
    "overloaded_error": _OVERLOADED,
    "invalid_request_error": _REJECTED,
    "invalid_prompt": _REJECTED,
    "authentication_error": _AUTH,
    "permission_error": _AUTH,
}
"""What errors in a stream, which have no status of their own, say of themselves."""

_SDKS = ("openai", "anthropic", "google.genai", "httpx", "httpx2", "httpcore", "httpcore2", "aiohttp")


def failure_of(error: Exception) -> RunFailed | None:
    """The failure to report for an error of an SDK before there was an answer; None if it is not one of theirs."""
    if isinstance(error, TypeError) and "authentication method" in str(error):  # Anthropic's word for no key at all
        return _failed(_AUTH)
    if not _is_of_an_sdk(error):
        return None
    status = _status_of(error)
    if status is not None:
        return _failed(_BY_STATUS.get(status, _UNAVAILABLE))
    name = type(error).__name__
    is_connection = any(word in name for word in ("Connect", "Timeout", "Network", "Protocol", "Read", "Write"))
    return _failed(_UNREACHABLE if is_connection else _UNAVAILABLE)


def stream_failure_of(error: Exception) -> RunFailed | None:
    """The failure to report for what reading an answer raised; None if it is nobody's but ours."""
    if isinstance(error, RunFailed):
        return error
    if isinstance(error, ValueError):  # what is no JSON, no UTF-8, or has not the shape that the SDK knows
        return _failed(_MALFORMED)
    if isinstance(error, OSError):
        return _failed(_TRUNCATED)
    if not _is_of_an_sdk(error):
        return None
    status = _status_of(error)
    if status is not None and status >= 400:
        return _failed(_BY_STATUS.get(status, _UNAVAILABLE))
    name = type(error).__name__
    if name == "UnknownApiResponseError":  # Google's word for JSON that is none
        return _failed(_MALFORMED)
    body: Any = getattr(error, "body", None)
    return told_failure(body) if body is not None else _failed(_TRUNCATED)


def told_failure(told: Any) -> RunFailed:
    """The failure that an error in a stream means, an object or the SDK's model of one."""
    inner = told.get("error") if is_object(told) else None
    if is_object(inner):
        told = inner
    for member in ("code", "type"):
        name: Any = told.get(member) if is_object(told) else getattr(told, member, None)
        words = _BY_TYPE.get(name) if isinstance(name, str) else None
        if words is None and member == "code":
            words = _BY_STATUS.get(_number(name))
        if words is not None:
            return _failed(words)
    return _failed(_UNAVAILABLE)


def _number(code: Any) -> int:
    """A code that is the status which the error would have had, as a number or spelled; 0 if it is none."""
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
        return int(code)
    return code if type(code) is int else 0


def truncated() -> RunFailed:
    """The failure that an answer without an end is."""
    return _failed(_TRUNCATED)


def _is_of_an_sdk(error: Exception) -> bool:
    module = type(error).__module__
    return any(module == sdk or module.startswith(f"{sdk}.") for sdk in _SDKS)


def _status_of(error: Exception) -> int | None:
    status: Any = getattr(error, "status_code", getattr(error, "code", None))
    return status if isinstance(status, int) else None


def _failed(words: tuple[str, str]) -> RunFailed:
    code, message = words
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

    @property
    def is_refusal(self) -> bool:
        """Whether the answer is not to be acted upon: the provider, or the model itself, took it back."""
        return self.reason in ("refusal", "content_filter")


_PROBLEMS = {
    "length": "The answer was cut off: the model reached its limit.",
    "content_filter": "The answer was withheld by the provider's filter.",
    "refusal": "The model refused to answer.",
    "malformed_call": "The model made a call that could not be read.",
    "other": "The model stopped for a reason that is not known.",
    "empty": "The model answered nothing.",
}
