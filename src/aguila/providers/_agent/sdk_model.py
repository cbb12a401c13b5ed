"""The parts that the models of all SDKs share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from aguila.errors import MissingExtra


class SDKModel:
    """A ``Model`` that is called through an SDK. ``options`` are added to every request."""

    def __init__(self, client: Any, model: str, provider: str, options: Mapping[str, Any] | None) -> None:
        self._client = client
        self._model = model
        self._provider = provider
        self._options = dict(options or {})


def is_async_client(client: Any) -> bool:
    """Return whether an SDK client is the async one: its ``close`` is a coroutine function."""
    return inspect.iscoroutinefunction(getattr(client, "close", None))


def make_client(
    client: Any, name: str, *, extra: str, package: str, is_valid: Callable[[Any], bool] = is_async_client
) -> Any:
    """Return the client of a user, or make one of this class (``"openai.AsyncOpenAI"``) from the environment.

    Raises ``MissingExtra`` if the SDK is not installed, ``TypeError`` for a client that is not valid.
    """
    if client is not None:
        if not is_valid(client):
            raise TypeError(f"client must be {name}, which does not block; it is {type(client).__name__}")
        return client
    module, _, cls = name.rpartition(".")
    try:
        found = import_module(module)
    except ImportError as error:
        raise MissingExtra(extra, package) from error
    return getattr(found, cls)()
