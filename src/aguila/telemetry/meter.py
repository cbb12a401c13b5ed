"""Pass what the instruments measure to OpenTelemetry.

Import this only through ``load_meter``: it needs the extra ``otel``. A measurement of the SDK costs as much as an event
of a run, so counters and gauges are summed up here, and read when they are exported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from aguila.telemetry.instruments import INSTRUMENTS, Instrument


def find_meter() -> Forward | None:
    """Return what passes measurements to the provider of this process; None if it has set none."""
    provider = metrics.get_meter_provider()
    # The providers of the API itself record nothing: the one before a process sets its own, which has no public name,
    # and the no-op.
    is_of_the_api = f"{type(provider).__module__}.".startswith(f"{metrics.__name__}.")
    return None if is_of_the_api else _forward_to(provider)


@lru_cache(maxsize=1)
def _forward_to(provider: MeterProvider) -> Forward:
    return Forward(provider)


class Forward:
    """Passes on the measurements of all apps of a process."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("aguila")
        self._totals: dict[Instrument, dict[tuple[str, ...], float]] = {}
        self._histograms: dict[Instrument, metrics.Histogram] = {}
        for one in INSTRUMENTS:
            if one.kind == "histogram":
                self._histograms[one] = meter.create_histogram(
                    one.name, one.unit, one.description, explicit_bucket_boundaries_advisory=one.bounds
                )
                continue
            self._totals[one] = dict.fromkeys(one.initial, 0.0)
            is_counter = one.kind == "counter"
            create = meter.create_observable_counter if is_counter else meter.create_observable_up_down_counter
            create(one.name, [partial(self._observe, one)], one.unit, one.description)

    def __call__(self, instrument: Instrument, value: float, values: tuple[str, ...]) -> None:
        """Take a change of a counter or a gauge, or a value of a histogram."""
        if instrument.kind == "histogram":
            self._histograms[instrument].record(value, _attributes(instrument, values))
        else:
            totals = self._totals[instrument]
            totals[values] = totals.get(values, 0.0) + value

    def _observe(self, instrument: Instrument, _: CallbackOptions) -> Iterator[Observation]:
        for values, total in list(self._totals[instrument].items()):  # in one step: this is another thread
            yield Observation(total, _attributes(instrument, values))


def _attributes(instrument: Instrument, values: tuple[str, ...]) -> Mapping[str, str]:
    """Return the attributes of a measurement, without those that are empty."""
    return {name: text for name, text in zip(instrument.attributes, values, strict=True) if text}
