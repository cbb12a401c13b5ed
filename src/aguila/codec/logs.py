"""Structured log records: a sentence for people, and the same facts as fields for log processors.

A record has the attributes ``event`` (what happened) and ``fields`` (``thread``, ``run``, ``reference``, ``code``,
``rule``, ``path``). The fields are one mapping because ``thread`` is an attribute of every log record already.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

log_context: ContextVar[Mapping[str, str] | None] = ContextVar("aguila.run", default=None)
"""The ids (``thread``, ``run``, those of the run's span) that this task, and tasks it starts, add to every record."""


@contextmanager
def use_log_context(thread: str, run: str | None = None) -> Generator[None]:
    """Set ``log_context`` within the block."""
    token = log_context.set({"thread": thread} if run is None else {"thread": thread, "run": run})
    try:
        yield
    finally:
        log_context.reset(token)


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
    return {
        "fields": {**(log_context.get() or {}), **{name: value for name, value in more.items() if value is not None}}
    }


def log_event(log: logging.Logger, level: int, event: str, *, error: BaseException | None = None, **more: Any) -> None:
    """Log what happened in one line with its fields, and the traceback of ``error``."""
    if log.isEnabledFor(level):
        extra = log_fields(**more)
        text = f"{escape_text(event)} {format_fields(extra['fields'])}".rstrip()
        log.log(level, "%s", text, exc_info=error, extra={"event": event, **extra}, stacklevel=2)
