"""assistant-ui's AG-UI runtime: what an app needs to serve its pages."""

from typing import Any, Final

APP_OPTIONS: Final[dict[str, Any]] = {"one_text_at_a_time": True}
"""assistant-ui appends every text to the message that began last."""
