"""Format the checks of ``aguila doctor``: as text, and as JSON lines."""

from __future__ import annotations

import msgspec

from aguila.cli.doctor.checks import Check
from aguila.cli.output.transcript import escape_controls
from aguila.testing.plurals import counted


def as_text(check: Check) -> str:
    """Format one line for what was seen, and one for its fix."""
    text = f"{check.name}: {_on_one_line(check.text)}"
    return f"ok: {text}" if check.fix is None else f"finding: {text}\n  fix: {_on_one_line(check.fix)}"


def _on_one_line(text: str) -> str:
    """Escape what a server has said, so that it cannot forge a line."""
    return escape_controls(text.replace("\n", "\\n"))


def as_json(check: Check) -> str:
    """Format a JSON object: ``name``, ``ok``, ``text`` and ``fix``."""
    found = {"name": check.name, "ok": check.fix is None, "text": check.text, "fix": check.fix}
    return msgspec.json.encode(found).decode()


def summary(findings: int) -> str:
    """Format the last line."""
    return f"\n{counted(findings, 'finding')}" if findings else "\nall well"
