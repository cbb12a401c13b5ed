"""Write docs/rules.md from ``aguila.stream.verification.rule_texts``; ``--check`` fails if it is out of date."""

from __future__ import annotations

import sys
from pathlib import Path

from aguila.errors import rule_help
from aguila.stream.verification.rule_texts import RULE_SECTIONS

PAGE = Path(__file__).parents[1] / "docs" / "rules.md"

NOTES = {
    "Compatibility rules": (
        "Each reads one older shape as the current one. The list in code is `codec/compat/rules.py`. Two rules of the\n"
        "level `standard` go beyond the nulls of ERA-5, for older servers:\n"
        "`null-error-code` and `null-parent-run-id`.\n"
    )
}


def document(introduction: str) -> str:
    """Return the page as Markdown. The introduction is kept as it is."""
    parts = [introduction]
    for title, rules in RULE_SECTIONS.items():
        rows = [
            f'| <a id="{rule_help(rule).partition("#")[2]}"></a>`{rule}` | {text} |' for rule, text in rules.items()
        ]
        note = [NOTES[title]] if title in NOTES else []
        parts.append("\n".join([f"## {title}", "", *note, "| rule | meaning |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page, or check it."""
    text = PAGE.read_text("utf-8")
    written = document(text.partition("## ")[0].rstrip() + "\n")
    if "--check" in sys.argv:
        if written != text:
            raise SystemExit("docs/rules.md is out of date; run python scripts/rules_document.py")
        return
    PAGE.write_text(written, "utf-8")


if __name__ == "__main__":
    main()
