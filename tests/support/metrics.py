"""What a Prometheus client reads."""

from __future__ import annotations

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families


def samples(text: str) -> Counter[str]:
    """Return the samples by name and labels' values: ``aguila_run_ended_total success``. One that is absent is 0."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[" ".join([sample.name, *sample.labels.values()])] += sample.value  # type: ignore[assignment]
    return found
