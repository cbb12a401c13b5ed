"""docs/metrics.md has every metric, and its alerts use only those."""

from __future__ import annotations

import re
from pathlib import Path

from aguila.telemetry.counts import Counts
from aguila.telemetry.instruments import INSTRUMENTS
from aguila.telemetry.prometheus import name_of, write_text

TEXT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def test_the_table_is_the_instruments() -> None:
    rows = [
        f"| `{name_of(one)}` | `{one.name}` | {one.kind}, `{one.unit}` | "
        f"{', '.join(f'`{name}`' for name in one.attributes)} | {one.description} |"
        for one in INSTRUMENTS
    ]
    assert [line for line in TEXT.splitlines() if re.match(r"\| `(aguila|gen_ai)_", line)] == rows


def test_every_alert_is_about_series_that_exist_from_the_start() -> None:
    alerts = TEXT[TEXT.index("groups:") : TEXT.index("## Who")]
    used = {*re.findall(r"\baguila_\w+(?=[\[{) ])", alerts)} - {"aguila_outcome"}
    assert len(used) == 3
    served = write_text(Counts()).decode()
    assert [name for name in used if not re.search(rf"^{name}[ {{]", served, re.MULTILINE)] == []
    for outcome in re.findall(r'aguila_outcome=~"([^"]+)"', alerts)[0].split("|"):
        assert f'aguila_run_ended_total{{aguila_outcome="{outcome}"}} 0' in served
