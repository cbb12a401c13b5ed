"""Format the checks of ``aguila doctor``: as text, and as JSON lines."""

from __future__ import annotations

import msgspec

from aguila.cli.doctor.checks import Check
from aguila.cli.output.transcript import escape_controls
from aguila.testing.plurals import counted


def as_text(check: Check) -> str:
    """Format one line for what was seen, and one for its fix."""
    if check.fix is None:
        return escape_controls(f"ok: {check.name}: {check.text}")
    return escape_controls(f"finding: {check.name}: {check.text}\n  fix: {check.fix}")


def as_json(check: Check) -> str:
    """Format a JSON object: ``name``, ``ok``, ``text`` and ``fix``."""
    found = {"name": check.name, "ok": check.fix is None, "text": check.text, "fix": check.fix}
    return msgspec.json.encode(found).decode()


def summary(findings: int) -> str:
    """Format the last line."""
    return f"\n{counted(findings, 'finding')}" if findings else "\nall well"
