"""Layer: cli. What the log of ``aguila serve`` looks like: one line per thing that happened, for people or as JSON.

Above: ``serve``. The layers below only log; a record may have an ``event`` and ``fields``, which JSON lines show as
members.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any


class JSONFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """See ``logging.Formatter``."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": getattr(record, "event", None) or record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=repr)


class LineFormatter(logging.Formatter):
    """A record as one line of text, which names the run it belongs to."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as it is called there
        """See ``logging.Formatter``."""
        line = super().formatMessage(record)
        if not hasattr(record, "event"):  # else its text has all of them
            fields: dict[str, Any] = getattr(record, "fields", {})
            line += "".join(f" {name}={fields[name]}" for name in ("thread", "run") if name in fields)
        return line


def log_config(*, as_json: bool) -> dict[str, Any]:
    """The configuration: our own lines from INFO, those of the HTTP server from WARNING, all to stderr.

    What python-multipart finds wrong with a form is the answer to whoever sent it, and no line.
    """
    text = {
        "()": "aguila.cli.logs.LineFormatter",
        "fmt": "%(asctime)s %(levelname)s %(message)s",
        "datefmt": "%H:%M:%S",
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "aguila.cli.logs.JSONFormatter"} if as_json else text},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {
            "aguila": {"level": "INFO"},
            "uvicorn": {"level": "WARNING"},
            "python_multipart": {"level": "CRITICAL"},
        },
        "root": {"level": "WARNING", "handlers": ["stderr"]},
    }
