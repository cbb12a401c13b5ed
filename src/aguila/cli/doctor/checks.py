"""What a check has found."""

from __future__ import annotations

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked, what was seen, and how to repair it."""

    name: str
    text: str
    fix: str | None = None
    """What to change; None if all is well."""
