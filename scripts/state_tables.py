"""Write the tables of aguila.stream into docs/sequences.md, and those of aguila.store.rules into ARCHITECTURE.md.

They stand between the markers of each document.

python scripts/state_tables.py           write the tables
python scripts/state_tables.py --check   check that they are current (exit 1 if not)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from aguila.store.rules import BEGIN_REFUSALS, INTERRUPT_TABLE, LEASE_TABLE
from aguila.store.rules import RUN_TABLE as STORED_RUN_TABLE
from aguila.stream.chunks import CHUNK_KINDS, ENDS_EVERY_LANE, ENDS_NAMED_LANE, ENDS_OWN_LANE
from aguila.stream.verification.rules import (
    ITEMS,
    PRODUCER_RULES,
    RUN_TABLE,
    Item,
    OtherEvent,
    Refusal,
    RunState,
    wire_name,
)

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- tables:begin -->", "<!-- tables:end -->"


def label(event_class: type) -> str:
    return "any other event" if event_class is OtherEvent else wire_name(event_class)


def run_table() -> str:
    lines = ["| run is | event | run becomes |", "|---|---|---|"]
    for state, row in RUN_TABLE.items():
        lines += [f"| {state} | {label(cls)} | {cell} |" for cls, cell in row.items() if isinstance(cell, RunState)]
    return "\n".join(lines)


def run_refusals() -> str:
    lines = ["| run is | refused | rule |", "|---|---|---|"]
    for state, row in RUN_TABLE.items():
        refused: dict[str, list[str]] = {}
        for event_class, cell in row.items():
            if isinstance(cell, Refusal):
                refused.setdefault(cell.rule, []).append(label(event_class))
        lines += [f"| {state} | {', '.join(labels)} | {rule} |" for rule, labels in refused.items()]
    return "\n".join(lines)


def item_table() -> str:
    lines = ["| item | opens | continues | closes |", "|---|---|---|---|"]
    for item in ITEMS:
        kinds = ([item.opener], item.content, item.closers)
        lines.append(f"| {item.noun} | {' | '.join(', '.join(map(wire_name, found)) for found in kinds)} |")
    return "\n".join(lines)


def identified_by(item: Item) -> str:
    return f"owner and `{item.id_field}`" if item.keyed_by_owner else f"`{item.id_field}`"


def item_refusals() -> str:
    lines = [
        "| item | identified by | opened while open | used while not open | opened again | open at RUN_FINISHED |",
        "|---|---|---|---|---|---|",
    ]
    for item in ITEMS:
        legal = "legal, content appends" if item.content else "legal"
        again = legal if item.reopen is None else item.reopen
        cells = [item.noun, identified_by(item), item.double_open, item.not_open, again, item.open_at_finish]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def chunk_tables() -> str:
    lines = ["| chunk | expands to | required on the first chunk |", "|---|---|---|"]
    for kind in CHUNK_KINDS:
        expanded = ", ".join(wire_name(cls) for cls in (kind.start, kind.content, kind.end))
        required = ", ".join(f"`{name}`" for name in (kind.id_field, *kind.required))
        lines.append(f"| {wire_name(kind.chunk)} | {expanded} | {required} |")
    lines += ["", "| ends | events |", "|---|---|"]
    for what, classes in (
        ("the item of the lane that it is tagged with", ENDS_OWN_LANE),
        ("every chunked item", ENDS_EVERY_LANE),
        ("the item of the subagent that it names", ENDS_NAMED_LANE),
    ):
        lines.append(f"| {what} | {', '.join(sorted(map(wire_name, classes)))} |")
    return "\n".join(lines)


def producer_rule_table() -> str:
    return "\n".join(
        ["| rule | meaning |", "|---|---|", *(f"| {rule} | {text} |" for rule, text in PRODUCER_RULES.items())]
    )


def section() -> str:
    parts = [
        "## Runs",
        "A run begins as new.",
        run_table(),
        run_refusals(),
        "## Items within a run",
        "Items of all kinds may overlap. RUN_ERROR ends all of them. Before RUN_FINISHED each must be closed; a writer"
        " closes them in the order of this table.",
        item_table(),
        item_refusals(),
        "## Chunks",
        "One lane per owner, at most one chunked item per lane. An event that is in no row ends no item.",
        chunk_tables(),
        "## Rules for producers",
        "Checked only with `producer=True`. `EventWriter` keeps them.",
        producer_rule_table(),
    ]
    return "\n\n".join(parts)


def state_table(noun: str, table: Mapping[str, Mapping[str, str]]) -> str:
    lines = [f"| {noun} is | what happens | becomes |", "|---|---|---|"]
    for state, row in table.items():
        lines += [f"| {state} | {action} | {target} |" for action, target in row.items()]
    return "\n".join(lines)


def store_section() -> str:
    refusals = ["| | a run is refused with, in this order |", "|---|---|"]
    for place, text in enumerate(BEGIN_REFUSALS, 1):
        error, _, reason = text.partition(": ")
        refusals.append(f"| {place} | `{error}`: {reason} |")
    parts = [
        "A run as the store sees it:",
        state_table("run", STORED_RUN_TABLE),
        "A lease, which begins as valid:",
        state_table("lease", LEASE_TABLE),
        "An interrupt, which begins as open:",
        state_table("interrupt", INTERRUPT_TABLE),
        "\n".join(refusals),
    ]
    return "\n\n".join(parts)


DOCUMENTS: Mapping[Path, Callable[[], str]] = {
    ROOT / "docs" / "sequences.md": section,
    ROOT / "ARCHITECTURE.md": store_section,
}


def written_into(path: Path, document: str) -> str:
    """Return a document with the current tables between its markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path.name} lacks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{DOCUMENTS[path]()}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    status = 0
    for path in DOCUMENTS:
        document = path.read_text("utf-8")
        current = written_into(path, document)
        if arguments != ["--check"]:
            path.write_text(current, "utf-8")
        elif document != current:
            print(f"{path.name} is not what the tables say: run python scripts/state_tables.py")
            status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
