"""Log records name the span that they are made in."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from serving import run_input, serving
from tracing import Traces

from aguila import App
from aguila.cli.output.logs import JSONFormatter, LineFormatter
from aguila.store import MemoryStore

log = logging.getLogger("tests.agent")


async def agent(run: Any) -> None:
    log.warning("thinking")
    with run.span("search"):
        log.warning("searching")


@pytest.fixture
def lines() -> Iterator[StringIO]:
    """The lines of all loggers, in JSON."""
    handler = logging.StreamHandler(StringIO())
    handler.setFormatter(JSONFormatter())
    root, own = logging.getLogger(), logging.getLogger("aguila.server")
    level, own_level = root.level, own.level
    root.addHandler(handler)
    own.setLevel(logging.INFO)
    yield handler.stream
    root.removeHandler(handler)
    root.setLevel(level)
    own.setLevel(own_level)


def test_records_of_a_run_name_its_trace_and_their_span(traces: Traces, lines: StringIO) -> None:
    with serving(App(agent, store=MemoryStore())) as server:
        server.post("/", json=run_input())
    found = {one["message"]: one for one in map(json.loads, lines.getvalue().splitlines())}
    run, search = traces.named("invoke_agent default").context, traces.named("search").context
    ids = {name: (one["trace_id"], one["span_id"]) for name, one in found.items() if "trace_id" in one}
    of_run = f"{run.trace_id:032x}", f"{run.span_id:016x}"
    assert ids["run started"] == ids["run ended"] == ids["thinking"] == of_run
    assert ids["searching"] == (of_run[0], f"{search.span_id:016x}")


def test_records_of_a_run_name_its_span_with_the_formatter_of_any_server(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aguila.server")
    with serving(App(agent, store=MemoryStore())) as server:
        server.post("/", json=run_input())
    run = traces.named("invoke_agent default").context
    ids = {"trace_id": f"{run.trace_id:032x}", "span_id": f"{run.span_id:016x}"}
    records = {one.event: one for one in caplog.records if hasattr(one, "event")}
    for event in ("run started", "run ended"):
        assert records[event].fields.items() >= ids.items()
        assert f"trace_id={ids['trace_id']} span_id={ids['span_id']}" in records[event].getMessage()
        assert LineFormatter("%(message)s").format(records[event]).count("trace_id=") == 1


def test_a_line_of_text_names_its_span_after_its_fields(traces: Traces) -> None:
    record = logging.makeLogRecord({"msg": "hello", "fields": {"thread": "t", "run": "r"}})
    with traces.tracer.start_as_current_span("here") as span:
        line = LineFormatter("%(message)s").format(record)
    own = span.get_span_context()
    assert line == f"hello thread=t run=r trace_id={own.trace_id:032x} span_id={own.span_id:016x}"


def test_a_line_outside_of_a_span_names_none(traces: Traces) -> None:
    record = logging.makeLogRecord({"msg": "hello"})
    assert LineFormatter("%(message)s").format(record) == "hello"
    assert "trace_id" not in json.loads(JSONFormatter().format(record))
