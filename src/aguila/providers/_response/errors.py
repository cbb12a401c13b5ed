"""Convert errors of a provider to ``RunFailed`` with texts that may be sent: no key, URL or request is in them.

SDK errors are recognised by their status, without importing an SDK. The same failure has the same code for every
provider:

=======================  ================================================================================
before the answer        by the status; ``provider_unreachable`` if there is none
the stream breaks off    ``provider_truncated``: the connection was cut, or closed before the end
the stream is invalid    ``provider_malformed``: the data is not in the provider's format
an error in the stream   by its status, code or type, else ``provider_unavailable``
=======================  ================================================================================
"""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.codec.json.values import is_object
from aguila.errors import RunFailed

_REJECTED = ("provider_rejected", "The model provider did not accept the request.")
_AUTH = ("provider_auth", "The model provider did not accept the credentials.")
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
"""Codes and types of errors in a stream, which have no HTTP status."""

_SDKS = ("openai", "anthropic", "google.genai", "httpx", "httpx2", "httpcore", "httpcore2", "aiohttp")


def make_failure(error: Exception) -> RunFailed | None:
    """Return the failure for an SDK error before the answer started; None if it is not an SDK error."""
    if isinstance(error, TypeError) and "authentication method" in str(error):  # how Anthropic reports a missing key
        return _failed(_AUTH)
    if not _is_of_an_sdk(error):
        return None
    status = _status_of(error)
    if status is not None:
        return _failed(_BY_STATUS.get(status, _UNAVAILABLE))
    name = type(error).__name__
    is_connection = any(word in name for word in ("Connect", "Timeout", "Network", "Protocol", "Read", "Write"))
    return _failed(_UNREACHABLE if is_connection else _UNAVAILABLE)


def make_stream_failure(error: Exception) -> RunFailed | None:
    """Return the failure for an exception while reading an answer; None if it is our own bug."""
    if isinstance(error, RunFailed):
        return error
    if isinstance(error, ValueError):  # not JSON, not UTF-8, or not in the SDK's format
        return _failed(_MALFORMED)
    if isinstance(error, OSError):
        return _failed(_TRUNCATED)
    if not _is_of_an_sdk(error):
        return None
    status = _status_of(error)
    if status is not None and status >= 400:
        return _failed(_BY_STATUS.get(status, _UNAVAILABLE))
    name = type(error).__name__
    if name == "UnknownApiResponseError":  # how Google reports invalid JSON
        return _failed(_MALFORMED)
    body: Any = getattr(error, "body", None)
    return read_stream_error(body) if body is not None else _failed(_TRUNCATED)


def read_stream_error(reported: Any) -> RunFailed:
    """Return the failure for an error in a stream: an object, or the SDK's model of one."""
    inner = reported.get("error") if is_object(reported) else None
    if is_object(inner):
        reported = inner
    for member in ("code", "type"):
        name: Any = reported.get(member) if is_object(reported) else getattr(reported, member, None)
        words = _BY_TYPE.get(name) if isinstance(name, str) else None
        if words is None and member == "code":
            words = _BY_STATUS.get(_number(name))
        if words is not None:
            return _failed(words)
    return _failed(_UNAVAILABLE)


def _number(code: Any) -> int:
    """Return a code as HTTP status, also if it is spelled out; 0 if it is not a status."""
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
        return int(code)
    return code if type(code) is int else 0


def truncated() -> RunFailed:
    """Return the failure for an answer without an end."""
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
        """Whether the provider or the model withdrew the answer, so that its calls are not executed."""
        return self.reason in ("refusal", "content_filter")


_PROBLEMS = {
    "length": "The answer was cut off: the model reached its limit.",
    "content_filter": "The answer was withheld by the provider's filter.",
    "refusal": "The model refused to answer.",
    "malformed_call": "The model made an invalid tool call.",
    "other": "The model stopped for an unknown reason.",
    "empty": "The model's answer was empty.",
}
