"""``python -m benchmarks [part ...]``: run the parts, print a table, write ``results.md``.

A part is a module of this package with ``rows()``. A row has a ``name``, ``ours`` and ``peer`` in the same unit (more
is better), the ``peer_name`` and the ratio that we must reach (``floor``); or a single ``value`` with ``most`` as its
bound. Ratios below their floor make the command fail; above it the simpler code wins. Absolute numbers on a shared
machine are noise.
"""

from __future__ import annotations

import importlib
import platform
import sys
from pathlib import Path
from typing import Any

PARTS = [
    "codec",
    "patch",
    "consume",
    "client",
    "store",
    "many_threads",
    "server",
    "server_peers",
    "postgres",
    "sizing",
    "large",
    "long_threads",
    "telemetry",
]
RESULTS = Path(__file__).parent / "results.md"


def ratio(row: dict[str, Any]) -> float | None:
    return row["ours"] / row["peer"] if "peer" in row else None


def is_met(row: dict[str, Any]) -> bool:
    found = ratio(row)
    if found is not None and "floor" in row:
        return found >= row["floor"]
    return "most" not in row or row["value"] <= row["most"]


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cells(row: dict[str, Any]) -> list[str]:
    unit, found = row.get("unit", "ops/s"), ratio(row)
    spread = f"±{row['spread']:.0%}" if "spread" in row else ""
    if found is None:
        bound = f"at most {row['most']}" if "most" in row else "none"
        return [
            row["name"],
            f"{number(row['value'])} {unit}",
            "",
            "",
            bound,
            spread,
            "" if is_met(row) else "MISSED",
        ]
    return [
        row["name"],
        f"{number(row['ours'])} {unit}",
        f"{number(row['peer'])} ({row['peer_name']})",
        f"{found:.1f}x",
        f"{row['floor']}x" if "floor" in row else "none",
        spread,
        "" if is_met(row) else "MISSED",
    ]


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(PARTS)
    if unknown:
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    head = ["what", "ours", "peer", "ratio", "floor", "spread", ""]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    missed: list[str] = []
    parts = [importlib.import_module(f"benchmarks.{part}") for part in wanted or PARTS]  # one may lack a package
    for part in parts:
        for row in part.rows():
            line = "| " + " | ".join(cells(row)) + " |"
            print(line, flush=True)
            lines.append(line)
            if not is_met(row):
                missed.append(row["name"])
    if not wanted:
        about = (
            f"Python {platform.python_version()}, {platform.machine()}, by `make bench`. Only the ratios mean anything."
        )
        RESULTS.write_text("# Benchmarks\n\n" + about + "\n\n" + "\n".join(lines) + "\n")
        print(f"written to {RESULTS.relative_to(Path.cwd())}")
    for name in missed:
        print(f"below its floor: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
