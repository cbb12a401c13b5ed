"""Authenticate requests.

A thread id is not a credential: a request sees the scope that the ``authenticate`` hook returns, and nothing else.
Without a hook all callers are anonymous and share one scope.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from aguila.server.errors import Rejected
from aguila.server.request import Request

ANONYMOUS = "anonymous"
"""The scope of every request to an app without an ``authenticate`` hook."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated caller, which the agent gets as ``run.principal``. It sees the threads of its ``scope``."""

    scope: str
    name: str | None = None
    claims: dict[str, Any] = {}


Authenticate = Callable[[Request], Awaitable[Any] | Any]
"""Returns a ``Principal``, a scope, any object with a ``scope``, or None to refuse the request (401)."""


async def identify(authenticate: Authenticate, request: Request) -> tuple[Any, str]:
    """Return the principal of a request and its scope. Raises ``Rejected`` (401), or the exception of the hook."""
    try:
        principal = authenticate(request)
        if inspect.isawaitable(principal):
            principal = await principal
    except Exception as error:
        rejected = _convert_http_exception(error)
        if rejected is None:
            raise
        raise rejected from error
    if principal is None:
        raise Rejected(401, "unauthenticated", "Authentication required.", headers={"www-authenticate": "Bearer"})
    scope = principal if isinstance(principal, str) else getattr(principal, "scope", None)
    if not isinstance(scope, str) or scope == "":
        raise TypeError(
            f"authenticate returned {type(principal).__name__} without a scope; "
            "return a Principal, a non-empty string or None"
        )
    return principal, scope


def _convert_http_exception(error: Exception) -> Rejected | None:
    """Convert an ``HTTPException`` of Starlette or FastAPI with a status below 500; return None for other errors."""
    if not any(
        cls.__name__ == "HTTPException" and cls.__module__.startswith("starlette.") for cls in type(error).__mro__
    ):
        return None  # other libraries' errors may have a status too, but are faults here
    status: Any = getattr(error, "status_code", None)
    if not isinstance(status, int) or not 400 <= status < 500:
        return None
    code = {401: "unauthenticated", 403: "forbidden", 429: "too_many_requests"}.get(status, "refused")
    detail: Any = getattr(error, "detail", None)
    headers: Any = getattr(error, "headers", None)
    return Rejected(status, code, detail if isinstance(detail, str) else "refused", headers=headers)
