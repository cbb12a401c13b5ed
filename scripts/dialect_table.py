"""Write the table of dialects into docs/dialects.md; ``--check`` fails if it is out of date."""

from __future__ import annotations

import sys
from pathlib import Path

from aguila.codec.dialects import GENERATIONS, UNDECLARED, Dialect

PAGE = Path(__file__).parents[1] / "docs" / "dialects.md"
BEGIN, END = "<!-- dialects:begin -->", "<!-- dialects:end -->"


def row(dialect: Dialect) -> list[str]:
    """Return the cells of one dialect."""
    outcomes = "all" if dialect.outcomes is None else ", ".join(sorted(dialect.outcomes))
    parts = {"text": "text only", "binary": "`binary`", "typed": "data, URL", "any": "all sources"}
    reasoning = {"none": "no", "thinking": "THINKING_*", "reasoning": "REASONING_*"}
    version = {"own": "1.1", "1.0": "1.0", "none": "none"}
    return [
        dialect.name,
        version[dialect.protocol_version],
        outcomes,
        "text or parts" if dialect.tool_parts else "text",
        parts[dialect.user_parts],
        "yes" if dialect.subagents else "flattened",
        ("added, and at the end" if dialect.final_state else "added") if dialect.state_baseline else "as sent",
        "yes" if dialect.patches else "as snapshots",
        "completed" if dialect.complete_inputs else "as sent",
        reasoning[dialect.reasoning],
        "yes" if dialect.activities else "no",
        "yes" if dialect.empty_deltas else "dropped",
        "assistant" if not dialect.text_roles else "any" if dialect.implied_text_role else "any, always sent",
        "yes" if dialect.parallel_items else "one at a time",
    ]


def table() -> str:
    """Return the table as Markdown."""
    head = [
        "dialect",
        "`protocolVersion`",
        "outcomes",
        "tool results",
        "user parts",
        "subagents",
        "snapshot before a delta",
        "deltas",
        "input echo",
        "reasoning",
        "activities",
        "empty deltas",
        "streamed roles",
        "parallel texts and calls",
    ]
    rows = [row(dialect) for dialect in [*GENERATIONS.values(), UNDECLARED]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def main() -> None:
    """Write the page, or check it."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    written = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if "--check" in sys.argv:
        if written != text:
            raise SystemExit("docs/dialects.md is out of date; run python scripts/dialect_table.py")
        return
    PAGE.write_text(written)


if __name__ == "__main__":
    main()
