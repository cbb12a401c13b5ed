"""Additions to the protocol for TanStack AI's client."""

from typing import Any, Final

APP_OPTIONS: Final[dict[str, Any]] = {"history": "server"}
"""What an app needs to serve TanStack AI pages: its client sends the messages of an answer back as one."""
