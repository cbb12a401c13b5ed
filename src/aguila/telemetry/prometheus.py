"""Write counts in the text format of Prometheus, under the names that OpenTelemetry's exporter gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from aguila.telemetry.counts import Counts
from aguila.telemetry.instruments import Instrument

MEDIA_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

_UNITS: Final = {"s": "seconds", "By": "bytes"}
"""The names of units. One in braces, such as ``{run}``, is not part of a name."""


def write_text(counts: Counts) -> bytes:
    """Return all series as text."""
    lines: list[str] = []
    for instrument, series in counts.read().items():
        name = name_of(instrument)
        lines += [f"# HELP {name} {instrument.description}", f"# TYPE {name} {instrument.kind}"]
        for values, numbers in sorted(series.items()):
            labels = [
                f'{attribute.replace(".", "_")}="{_escape(value)}"'
                for attribute, value in zip(instrument.attributes, values, strict=True)
                if value
            ]
            if instrument.kind == "histogram":
                lines += _histogram_lines(name, instrument, labels, numbers)
            else:
                lines.append(_line(name, labels, numbers[0]))
    return "\n".join([*lines, ""]).encode()


def name_of(instrument: Instrument) -> str:
    """Return the name of an instrument: with its unit, and ``_total`` for a counter."""
    name, unit = instrument.name.replace(".", "_"), _UNITS.get(instrument.unit)
    if unit is not None and not name.endswith(unit):
        name = f"{name}_{unit}"
    return f"{name}_total" if instrument.kind == "counter" else name


def _histogram_lines(
    name: str, instrument: Instrument, labels: Sequence[str], numbers: Sequence[float]
) -> Iterator[str]:
    *buckets, total = numbers
    counted = list(accumulate(buckets))
    for bound, count in zip([*map(_number, instrument.bounds), "+Inf"], counted, strict=True):
        yield _line(f"{name}_bucket", [*labels, f'le="{bound}"'], count)
    yield _line(f"{name}_sum", labels, total)
    yield _line(f"{name}_count", labels, counted[-1])


def _line(name: str, labels: Sequence[str], value: float) -> str:
    return f"{name}{{{','.join(labels)}}} {_number(value)}" if labels else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
