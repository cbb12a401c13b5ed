"""Tencent's TDesign Chat (``protocol: "agui"``): what an app needs to serve its pages."""

from typing import Any, Final

APP_OPTIONS: Final[dict[str, Any]] = {"history": "server"}
"""TDesign Chat sends only what the page puts into the request, which is the new message."""
