"""Structured log records: a sentence for people, and the same facts as fields for log processors.

A record has the attributes ``event`` (what happened) and ``fields`` (``thread``, ``run``, ``reference``, ``code``,
``rule``, ``path``). The fields are one mapping because ``thread`` is an attribute of every log record already.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Any


class RunLogContext:
    """Adds a run's ids to everything that this task, and tasks it starts, log within the block."""

    __slots__ = ("_run_id", "_thread_id", "_token")

    def __init__(self, thread_id: str, run_id: str | None = None) -> None:
        self._thread_id = thread_id
        self._run_id = run_id
        self._token: Token[RunLogContext | None] | None = None

    @property
    def fields(self) -> Mapping[str, str]:
        """The ids as fields of a record."""
        return {"thread": self._thread_id} if self._run_id is None else {"thread": self._thread_id, "run": self._run_id}

    def __enter__(self) -> None:
        self._token = _run.set(self)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _run.reset(self._token)


_run: ContextVar[RunLogContext | None] = ContextVar("aguila.run", default=None)


def has_run_context() -> bool:
    """Return whether a ``RunLogContext`` is entered."""
    return _run.get() is not None


def escape_text(text: str) -> str:
    """Escape line breaks and other characters that are not printable, so that a text cannot forge a line of a log."""
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])


def format_fields(fields: Mapping[str, Any]) -> str:
    """Format fields as ``name=value``. A value with spaces, quotes or ``=`` is quoted."""
    return " ".join([f"{name}={_format_value(value)}" for name, value in fields.items()])


def _format_value(value: Any) -> str:
    text = str(value)
    return ascii(text) if _AMBIGUOUS.search(text) or not text.isprintable() else text


_AMBIGUOUS = re.compile(r"[\s='\"]")


def log_fields(**more: Any) -> dict[str, Any]:
    """Return the ``extra`` of a log call: the ids of the current run, and the arguments that are not None."""
    run = _run.get()
    ids: Mapping[str, str] = {} if run is None else run.fields
    return {"fields": {**ids, **{name: value for name, value in more.items() if value is not None}}}


def log_event(log: logging.Logger, level: int, event: str, *, error: BaseException | None = None, **more: Any) -> None:
    """Log what happened in one line with its fields, and the traceback of ``error``."""
    if log.isEnabledFor(level):
        extra = log_fields(**more)
        text = f"{escape_text(event)} {format_fields(extra['fields'])}".rstrip()
        log.log(level, "%s", text, exc_info=error, extra={"event": event, **extra}, stacklevel=2)
