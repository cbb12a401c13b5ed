"""Layer: codec. The records we log: what they say as text, and the same as members for structured logs.

A record's ``event`` is what happened, its ``fields`` are the members: ``thread`` and ``run`` of what it belongs to, and
what else there is to know (``reference``, ``code``, ``rule``, ``path``). The names are not attributes of the record
itself: ``thread`` is one already. ``OfRun`` says for whom a task works, so that whatever is noticed in it, however far
below, names its run. Above: whoever logs. It decides nothing about formats, levels or where lines go.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Any

_run: ContextVar[Mapping[str, str] | None] = ContextVar("aguila.run", default=None)


class OfRun:
    """What this task, and those it starts, log meanwhile belongs to this run."""

    __slots__ = ("_run", "_token")

    def __init__(self, thread_id: str, run_id: str | None = None) -> None:
        self._run = {"thread": thread_id} if run_id is None else {"thread": thread_id, "run": run_id}
        self._token: Token[Mapping[str, str] | None] | None = None

    def __enter__(self) -> None:
        self._token = _run.set(self._run)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _run.reset(self._token)


def members(**more: Any) -> dict[str, Any]:
    """The ``extra`` of a log call: the run it belongs to, if there is one, and what is not None of the rest."""
    return {"fields": {**(_run.get() or {}), **{name: value for name, value in more.items() if value is not None}}}


def tell(log: logging.Logger, level: int, event: str, *, error: BaseException | None = None, **more: Any) -> None:
    """Log one line: what happened and its members; with an ``error`` its traceback too."""
    if log.isEnabledFor(level):
        extra = members(**more)
        text = " ".join([event, *(f"{name}={value}" for name, value in extra["fields"].items())])
        log.log(level, "%s", text, exc_info=error, extra={"event": event, **extra}, stacklevel=2)
