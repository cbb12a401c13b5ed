"""The same measurements go to OpenTelemetry, if the process has set a meter provider."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from metrics import samples
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes
from serving import run_input, serving
from waiting import wait_until

from aguila import App
from aguila.errors import RunFailed
from aguila.protocol import TokenUsage
from aguila.telemetry import load_meter
from aguila.telemetry.counts import Counts
from aguila.telemetry.instruments import INSTRUMENTS, REFUSALS, RUNNING, TOKENS
from aguila.telemetry.prometheus import name_of, write_text

NOT_PACKAGED = {"gen_ai.invoke_agent.duration"}
"""Names that only the repository of the conventions for generative AI has, and no package."""


class Meters:
    """The provider of a process, and what it exports."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def read(self) -> Counter[str]:
        """Return the numbers under the names that Prometheus has for them."""
        found: Counter[str] = Counter()
        names = {one.name: name_of(one) for one in INSTRUMENTS}
        data: Any = self._reader.get_metrics_data()
        for metric in [
            one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics
        ]:
            for point in metric.data.data_points:
                labels = [str(value) for value in point.attributes.values()]
                if not isinstance(point, HistogramDataPoint):
                    found[" ".join([names[metric.name], *labels])] = point.value
                    continue
                found[" ".join([names[metric.name] + "_sum", *labels])] = point.sum  # type: ignore[assignment]
                found[" ".join([names[metric.name] + "_count", *labels])] = point.count
                bounds = [f"{bound:.15g}" for bound in point.explicit_bounds]
                for bound, count in zip([*bounds, "+Inf"], accumulate(point.bucket_counts), strict=True):
                    found[" ".join([names[metric.name] + "_bucket", *labels, bound])] = count
        return found


@pytest.fixture
def meters(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meters]:
    found = Meters()
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: found.provider)
    yield found
    found.provider.shutdown()


async def agent(run: Any) -> Any:
    if run.messages[-1].content == "fail":
        raise RunFailed("no", code="teapot")
    run.add_usage(TokenUsage(provider="openai", model="gpt", input_tokens=100, output_tokens=7))
    yield "Hello"


def test_both_outputs_have_the_same_numbers(meters: Meters) -> None:
    with serving(App(agent, store=":memory:", metrics=True)) as server:
        for number, text in enumerate(["go", "go", "fail"]):
            server.events(
                run_id=f"r{number}", thread_id=text, messages=[{"id": f"u{number}", "role": "user", "content": text}]
            )
        assert server.post("/", json=run_input(run_id="r0", thread_id="go")).status_code == 409
        assert server.get("/nowhere").status_code == 404

        def look() -> tuple[Counter[str], Counter[str]] | None:
            text = server.get("/metrics").text
            return None if "aguila_run_running 1" in text else (samples(text), meters.read())

        served, exported = wait_until(look)
    assert served["aguila_run_ended_total success"] == 2
    assert served["gen_ai_client_token_usage_sum invoke_agent openai gpt input"] == 200
    assert +exported == pytest.approx(+served)


def test_without_the_route_they_go_to_opentelemetry_alone(meters: Meters) -> None:
    with serving(App(agent, store=":memory:")) as server:
        server.events(messages=[{"id": "u", "role": "user", "content": "go"}])
        assert server.get("/metrics").status_code == 404
        wait_until(lambda: meters.read()["aguila_run_ended_total success"] == 1)


def test_a_process_without_a_provider_passes_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_meter() is None
    monkeypatch.setattr(metrics, "get_meter_provider", metrics.NoOpMeterProvider)
    assert load_meter() is None


def test_gauges_that_are_reset_are_zero_in_both(meters: Meters, tmp_path: Path) -> None:
    counts = Counts(tmp_path, load_meter())
    counts.add(RUNNING, 2)
    counts.close()
    assert meters.read()["aguila_run_running"] == 0
    heir = Counts(tmp_path, load_meter())
    heir.add(RUNNING, 1)
    assert meters.read()["aguila_run_running"] == 1
    heir.close()


# The conventions


def test_the_names_are_those_of_the_published_conventions() -> None:
    packaged = {value for name, value in vars(gen_ai_metrics).items() if name.startswith("GEN_AI_")}
    named = {one.name for one in INSTRUMENTS if one.name.startswith("gen_ai.")}
    assert named - NOT_PACKAGED <= packaged
    attributes = {
        value
        for part in (gen_ai_attributes, error_attributes)
        for value in vars(part).values()
        if isinstance(value, str)
    }
    used = {name for one in INSTRUMENTS for name in one.attributes}
    assert used - attributes == {"aguila.outcome"}


def test_tokens_have_the_buckets_of_the_conventions() -> None:
    assert TOKENS.bounds[:5] == (1, 4, 16, 64, 256)
    assert TOKENS.bounds[-1] == 67108864


def test_names_follow_the_rules_of_opentelemetry() -> None:
    names = [one.name for one in INSTRUMENTS]
    assert [name for name in names if not re.fullmatch(r"[a-z][a-z_]*(\.[a-z][a-z_]*)+", name)] == []
    assert [name for name in names if any(other.startswith(name + ".") for other in names)] == []


def test_a_label_that_is_empty_is_no_attribute(meters: Meters) -> None:
    counts = Counts(forward=load_meter())
    counts.record(TOKENS, 5, "invoke_agent", "openai", "", "input")
    counts.add(REFUSALS, 1, "not_found")
    assert +meters.read() == +samples(write_text(counts).decode())


def test_what_there_is_no_room_for_is_other_in_both(meters: Meters) -> None:
    counts = Counts(forward=load_meter())
    for number in range(2_000):
        counts.add(REFUSALS, 1, f"code {number}")
    exported = meters.read()
    assert exported["aguila_request_refused_total _OTHER"] > 900
    assert +exported == +samples(write_text(counts).decode())
