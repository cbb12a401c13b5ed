"""Draws the tables of aguila.stream into ARCHITECTURE.md, between its diagram markers.

python scripts/diagrams.py           write them
python scripts/diagrams.py --check   say whether they are current (exit 1 if not)
"""

from __future__ import annotations

import sys
from pathlib import Path

from aguila.stream.chunks import ENDS_EVERY_LANE, ENDS_NAMED_LANE, ENDS_OWN_LANE, SHORTHANDS
from aguila.stream.rules import DUTIES, ITEMS, RUN_TABLE, Item, Other, Refused, RunState, wire_name

DOCUMENT = Path(__file__).parents[1] / "ARCHITECTURE.md"
BEGIN, END = "<!-- diagrams:begin -->", "<!-- diagrams:end -->"


def label(event_class: type) -> str:
    return "any other event" if event_class is Other else wire_name(event_class)


def run_diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {RunState.NEW}"]
    for state, row in RUN_TABLE.items():
        for event_class, cell in row.items():
            if isinstance(cell, RunState):
                lines.append(f"    {state} --> {cell}: {label(event_class)}")
    return "\n".join([*lines, "```"])


def run_refusals() -> str:
    lines = ["| run is | refused | rule |", "|---|---|---|"]
    for state, row in RUN_TABLE.items():
        refused: dict[str, list[str]] = {}
        for event_class, cell in row.items():
            if isinstance(cell, Refused):
                refused.setdefault(cell.rule, []).append(label(event_class))
        lines += [f"| {state} | {', '.join(labels)} | {rule} |" for rule, labels in refused.items()]
    return "\n".join(lines)


def item_diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    for item in ITEMS:
        name = item.noun.replace(" ", "_")
        lines.append(f'    state "{item.noun}" as {name} {{')
        lines.append(f'        state "open" as {name}_open')
        lines.append(f'        state "closed" as {name}_closed')
        lines.append(f"        [*] --> {name}_open: {wire_name(item.opener)}")
        lines += [f"        {name}_open --> {name}_open: {wire_name(cls)}" for cls in item.content]
        lines += [f"        {name}_open --> {name}_closed: {wire_name(cls)}" for cls in item.closers]
        if item.reopen is None:
            lines.append(f"        {name}_closed --> {name}_open: {wire_name(item.opener)}")
        lines.append("    }")
    return "\n".join([*lines, "```"])


def known_by(item: Item) -> str:
    return f"owner and `{item.id_field}`" if item.keyed_by_owner else f"`{item.id_field}`"


def item_refusals() -> str:
    lines = [
        "| item | known by | opened while open | used while not open | opened again | open at RUN_FINISHED |",
        "|---|---|---|---|---|---|",
    ]
    for item in ITEMS:
        legal = "legal, content appends" if item.content else "legal"
        again = legal if item.reopen is None else item.reopen
        cells = [item.noun, known_by(item), item.double_open, item.not_open, again, item.open_at_finish]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def chunk_tables() -> str:
    lines = ["| chunk | stands for | the first one must carry |", "|---|---|---|"]
    for kind in SHORTHANDS:
        spelled = ", ".join(wire_name(cls) for cls in (kind.start, kind.content, kind.end))
        required = ", ".join(f"`{name}`" for name in (kind.id_field, *kind.required))
        lines.append(f"| {wire_name(kind.chunk)} | {spelled} | {required} |")
    lines += ["", "| ends | events |", "|---|---|"]
    for what, classes in (
        ("the item of the lane it is tagged with", ENDS_OWN_LANE),
        ("every chunked item", ENDS_EVERY_LANE),
        ("the item of the subagent it is about", ENDS_NAMED_LANE),
    ):
        lines.append(f"| {what} | {', '.join(sorted(map(wire_name, classes)))} |")
    return "\n".join(lines)


def duty_table() -> str:
    return "\n".join(["| rule | duty |", "|---|---|", *(f"| {rule} | {duty} |" for rule, duty in DUTIES.items())])


def section() -> str:
    parts = [
        "### Runs",
        run_diagram(),
        run_refusals(),
        "### Items within a run",
        "Items of all kinds overlap freely. RUN_ERROR ends them all; before RUN_FINISHED each is closed, by a writer in"
        " the order of this table.",
        item_diagram(),
        item_refusals(),
        "### Chunks",
        "One lane per owner, at most one chunked item per lane. An event in no row ends nothing.",
        chunk_tables(),
        "### What a producer owes besides",
        "Judged only with `producer=True`, and kept by whatever `EventWriter` writes.",
        duty_table(),
    ]
    return "\n\n".join(parts)


def drawn_into(document: str) -> str:
    """The document with the current diagrams between its markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{DOCUMENT.name} lacks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{section()}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    document = DOCUMENT.read_text("utf-8")
    current = drawn_into(document)
    if arguments == ["--check"]:
        if document != current:
            print(f"{DOCUMENT.name} is not what the tables say: run python scripts/diagrams.py")
            return 1
        return 0
    DOCUMENT.write_text(current, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
