"""OpenTelemetry for runs, tools and logs. Without it, everything here does nothing.

A process traces if it has set a tracer provider: ``opentelemetry-instrument``, an SDK or a vendor's library does that.
Aguila never imports OpenTelemetry before the process has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.telemetry.meter import Forward
    from aguila.telemetry.spans import Spans

NoteResult = Callable[[Any, str | None], None]
"""Receives the result of a tool call, and its error if it failed."""


def load_spans() -> Spans | None:
    """Return what makes spans; None if this process does not trace."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from aguila.telemetry.spans import find_spans

    return find_spans()


def load_meter() -> Forward | None:
    """Return what passes measurements to OpenTelemetry; None if this process has set no meter provider."""
    if "opentelemetry.metrics" not in sys.modules:
        return None
    from aguila.telemetry.meter import find_meter

    return find_meter()


def tool_span(name: str, call_id: str, arguments: Mapping[str, Any] | str) -> AbstractContextManager[NoteResult]:
    """Make the span ``execute_tool`` of the work within. Pass the result of the tool to what this returns.

    ``arguments`` are JSON, as a value or as text. An exception that leaves the work is its error, unless it asks the
    user or cancels.
    """
    spans = load_spans()
    return nullcontext(_ignore) if spans is None else spans.of_tool(name, call_id, arguments)


def _ignore(result: Any, error: str | None) -> None:
    """Take the result of a tool call that has no span."""


def span(name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Make a span of the work within."""
    spans = load_spans()
    return nullcontext() if spans is None else spans.of_work(name, attributes)


def current_context() -> Any:
    """Return the trace context of the caller, for ``use_context`` in another task or thread; None without traces."""
    spans = load_spans()
    return None if spans is None else spans.current_context()


def use_context(context: Any) -> AbstractContextManager[None]:
    """Make the spans of the work within children of a context that ``current_context`` returned."""
    spans = load_spans()
    return nullcontext() if spans is None or context is None else spans.use(context)


def trace_fields() -> dict[str, str]:
    """Return ``trace_id`` and ``span_id`` of the caller, for its log records; nothing outside of a span."""
    spans = load_spans()
    return {} if spans is None else spans.current_ids()
