"""Facts about stored events."""

from __future__ import annotations

from typing import Final

TERMINAL: Final = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')
"""How a stored event begins that ends its run. The type is always its first member."""
