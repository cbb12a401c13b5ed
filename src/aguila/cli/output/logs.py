"""The log format of ``aguila serve``: one line per record, as text or as JSON.

A record may have an ``event`` and ``fields``, which become members of a JSON line. Every record that is made within a
span has its ids, those of other libraries too: a handler formats a record where it is made.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from aguila.codec.logs import escape_text, format_fields
from aguila.telemetry import trace_fields


class JSONFormatter(logging.Formatter):
    """Format a record as one line of JSON. Characters that are not printable are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record. See ``logging.Formatter``."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": getattr(record, "event", None) or record.getMessage(),
            **getattr(record, "fields", {}),
            **trace_fields(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False, default=repr)
        if text.isprintable():
            return text
        return "".join([char if char.isprintable() else json.dumps(char)[1:-1] for char in text])


class LineFormatter(logging.Formatter):
    """Format a record as one line of text, with the thread and run it belongs to, and its span.

    Line breaks in it are escaped, and the lines of a traceback are indented, so that no text can look like a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record. See ``logging.Formatter``."""
        record.exc_text = None  # another formatter may have left its own there
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        """Format a record. See ``logging.Formatter``."""
        line = escape_text(super().formatMessage(record))
        fields: dict[str, Any] = getattr(record, "fields", {})
        shown = {name: fields[name] for name in ("thread", "run") if name in fields} | trace_fields()
        if hasattr(record, "event"):  # its text has its fields already
            shown = {name: value for name, value in shown.items() if name not in fields}
        return f"{line} {format_fields(shown)}".rstrip()

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name in logging
        """Format an exception. See ``logging.Formatter``."""
        return "\n".join([f"    {escape_text(line)}" for line in super().formatException(ei).splitlines()])


def log_config(*, as_json: bool, level: str = "info") -> dict[str, Any]:
    """Return the logging configuration: all records from ``level``, uvicorn's at least from WARNING, to stderr.

    Errors of python-multipart are responses to clients, and are not logged.
    """
    text = {
        "()": "aguila.cli.output.logs.LineFormatter",
        "fmt": "%(asctime)s %(levelname)s %(message)s",
        "datefmt": "%H:%M:%S",
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "aguila.cli.output.logs.JSONFormatter"} if as_json else text},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {
            "uvicorn": {"level": "ERROR" if level == "error" else "WARNING"},
            "python_multipart": {"level": "CRITICAL"},
        },
        "root": {"level": level.upper(), "handlers": ["stderr"]},
    }
