"""The instruments of a server: what it counts, under the names of OpenTelemetry.

Each is defined once. ``Counts`` holds the values, ``prometheus`` writes them as text.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RUN_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_TOKENS: Final = tuple(float(4**power) for power in range(14))

LOST: Final = "lost"
"""The outcome of a run whose process died."""


class Instrument(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One thing that a server counts.

    A counter only grows. A gauge is the sum of its changes, and the living processes of a server have one each.
    ``unit`` is a UCUM code. ``attributes`` are the names of its attributes, whose values come with each measurement. An
    empty value is absent. ``initial`` are the values that have a series from the start: Prometheus sees no growth from
    absent to 1. ``bounds`` are the upper bounds of a histogram's buckets.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str
    attributes: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    initial: tuple[tuple[str, ...], ...] = ((),)

    @property
    def size(self) -> int:
        """How many numbers a series has: of a histogram those of its buckets, and the sum of the values."""
        return 1 if self.kind != "histogram" else len(self.bounds) + 2


RUNS: Final = Instrument(
    name="aguila.run.ended",
    kind="counter",
    unit="{run}",
    description="Runs that have ended, by outcome. A run is lost if its process died; another process counts it.",
    attributes=("aguila.outcome",),
    initial=(("success",), ("interrupt",), ("cancelled",), ("error",), (LOST,)),
)
RUNNING: Final = Instrument(
    name="aguila.run.running", kind="gauge", unit="{run}", description="Runs that have begun and not ended."
)
QUEUED: Final = Instrument(
    name="aguila.run.queued",
    kind="gauge",
    unit="{request}",
    description="Requests whose run has not begun: they wait for their thread, or for the store.",
)
FIRST_EVENT: Final = Instrument(
    name="aguila.run.first_event",
    kind="histogram",
    unit="s",
    description="Time from a request until the first event of its agent is stored.",
    bounds=_SECONDS,
)
DURATION: Final = Instrument(
    name="gen_ai.invoke_agent.duration",
    kind="histogram",
    unit="s",
    description="Time from the begin of a run until its end is stored. error.type is the code of RUN_ERROR.",
    attributes=("gen_ai.agent.name", "error.type"),
    initial=(),
    bounds=_RUN_SECONDS,
)
TOKENS: Final = Instrument(
    name="gen_ai.client.token.usage",
    kind="histogram",
    unit="{token}",
    description="Tokens of a run, by provider, model and type.",
    attributes=("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.token.type"),
    initial=(),
    bounds=_TOKENS,
)
APPEND: Final = Instrument(
    name="aguila.event.append",
    kind="histogram",
    unit="s",
    description="Time from the first event of an append until the store has all of its events.",
    bounds=_SECONDS,
)
VIEWERS: Final = Instrument(
    name="aguila.stream.viewers", kind="gauge", unit="{stream}", description="Open event streams."
)
EVENTS: Final = Instrument(
    name="aguila.stream.events", kind="counter", unit="{event}", description="Events that were sent to viewers."
)
BYTES: Final = Instrument(
    name="aguila.stream.bytes", kind="counter", unit="By", description="Bytes of event streams that were sent."
)
REFUSALS: Final = Instrument(
    name="aguila.request.refused",
    kind="counter",
    unit="{request}",
    description="Requests that were answered with an error, by its code.",
    attributes=("error.type",),
    initial=(),
)
OUTAGES: Final = Instrument(
    name="aguila.store.outages", kind="counter", unit="{outage}", description="Outages of the store that have begun."
)
FAILING: Final = Instrument(
    name="aguila.store.failing", kind="gauge", unit="{process}", description="Processes whose store is failing."
)

INSTRUMENTS: Final = (
    RUNS,
    RUNNING,
    QUEUED,
    FIRST_EVENT,
    DURATION,
    TOKENS,
    APPEND,
    VIEWERS,
    EVENTS,
    BYTES,
    REFUSALS,
    OUTAGES,
    FAILING,
)
