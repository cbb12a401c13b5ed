"""assistant-ui's AG-UI runtime: what an app needs to serve its pages."""

from typing import Any, Final

APP_OPTIONS: Final[dict[str, Any]] = {}
"""assistant-ui needs nothing but the defaults."""
