"""Count the end of a run: its outcome, how long it took, and the tokens that its agent reported."""

from __future__ import annotations

from aguila.protocol import RunErrorEvent, RunFinishedEvent
from aguila.telemetry.counts import OTHER, Counts
from aguila.telemetry.instruments import DURATION, RUNS, TOKENS


def count_end(
    counts: Counts, agent: str, outcome: str, event: RunFinishedEvent | RunErrorEvent | None, seconds: float
) -> None:
    """Count a run whose end this process has stored. ``event`` is the terminal event of its agent, if it has one."""
    code = event.code if isinstance(event, RunErrorEvent) else None
    counts.add(RUNS, 1, outcome)
    counts.record(DURATION, seconds, agent, "" if outcome != "error" else code or OTHER)
    for usage in () if event is None or event.usage is None else event.usage:
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if count is not None:
                counts.record(TOKENS, count, "invoke_agent", usage.provider or OTHER, usage.model or "", kind)
