"""Spans that tests look at: by name, with their parents and attributes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Traces:
    """The provider of a process, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        """Return the only span of this name, or the last one that ended."""
        return [span for span in self.ended if span.name == name][-1]

    def tree(self) -> dict[str, Any]:
        """Return the names of all spans as nested dicts. Siblings are in the order in which they began."""
        spans = sorted(self.ended, key=lambda span: span.start_time or 0)
        ids = {span.context.span_id for span in spans}

        def below(parent: int | None) -> dict[str, Any]:
            return {span.name: below(span.context.span_id) for span in spans if parent_of(span, ids) == parent}

        return below(None)


def parent_of(span: ReadableSpan, known: set[int] | None = None) -> int | None:
    """Return the id of the parent; None for a root, or if the parent is not among ``known``."""
    found = None if span.parent is None else span.parent.span_id
    return found if known is None or found in known else None


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@contextmanager
def tracing() -> Iterator[Traces]:
    """Trace this process, as ``set_tracer_provider`` does, but not for ever."""
    found = Traces()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer_provider", lambda: found.provider)
        yield found
