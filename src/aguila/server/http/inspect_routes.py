"""The handlers of the inspector: the input of a run, and the violations of its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.text import parse_json
from aguila.codec.notices import ignore_notice
from aguila.offload import offload
from aguila.server.http.request import Request
from aguila.server.http.responses import Response, document_response, json_response
from aguila.server.http.run_routes import find_run
from aguila.server.http.service import Service
from aguila.server.threads.log import read_log
from aguila.server.threads.requests import load_request
from aguila.store import RunRecord, Want
from aguila.stream.verification.checker import UPSTREAM_FINDINGS, Finding, StreamChecker, UpstreamFindings

Source = Literal["run", "upstream"]


async def get_run_input(service: Service, request: Request) -> Response:
    """``GET /threads/{id}/runs/{run}/input``: the request of a run, and the messages and state that its events change.

    With ``history="server"`` the messages are more than those of the request.
    """
    record = await find_run(service, request)
    sent = await load_request(service.store, record)
    view = await service.runs.threads.at(request.caller.scope, record.thread_id, record.run_id)
    messages = view.initial_messages
    answer: dict[str, Any] = {"input": sent, "messages": messages, "state": {} if sent.state is None else sent.state}
    return await document_response(answer, service.unsent)


async def check_run(service: Service, request: Request) -> Response:
    """``GET /threads/{id}/runs/{run}/check``: the findings about a run's events, with the texts of their rules.

    A finding has the sequence number of its event. If another server made the run, its own findings are included: those
    about the events that it sent, before this server made them valid.
    """
    record = await find_run(service, request)
    sent = await load_request(service.store, record)
    checked = _CheckedRun(record, StreamChecker(messages=sent.messages, state=sent.state))
    async for batches in read_log(service.store, record.scope, record.thread_id, record.first - 1, record.last):
        for batch in batches:
            await offload(checked.feed, batch.events)
    found = await service.store.thread(record.scope, record.thread_id, Want(root_run_id=record.run_id))
    upstream = found.results(record.run_id).get(UPSTREAM_FINDINGS)
    answer = await offload(
        checked.close, None if upstream is None else parse_json(upstream, strict=False, warn=ignore_notice)
    )
    return json_response(answer)


class _CheckedRun:
    """Checks one run, and finds the sequence numbers of its findings."""

    def __init__(self, record: RunRecord, checker: StreamChecker) -> None:
        self._record = record
        self._checker = checker
        self._count = 0
        self._numbers: dict[tuple[Any, ...], int] = {}
        """The first event of each type and item."""

    def feed(self, events: Sequence[bytes]) -> None:
        for data in events:
            self._checker.feed(data)
            self._numbers.setdefault(_identity(data), self._record.first + self._count)
            self._count += 1

    def close(self, upstream: Any) -> dict[str, Any]:
        """Return the response. ``upstream`` is the recorded check of another server's run."""
        record = self._record
        findings = [self._describe(one, "run") for one in self._checker.close(is_cut=record.is_running)]
        answer: dict[str, Any] = {"threadId": record.thread_id, "runId": record.run_id, "events": self._count}
        if upstream is not None:
            found = msgspec.convert(upstream, UpstreamFindings)
            findings += [self._describe(one, "upstream", found.events.get(str(one.index))) for one in found.findings]
            answer["upstreamEvents"] = found.count
        return {**answer, "isRunning": record.is_running, "findings": findings}

    def _describe(self, finding: Finding, source: Source, sent: str | None = None) -> dict[str, Any]:
        number = None
        if sent is not None:
            number = self._numbers.get(_identity(sent.encode()))
        elif source == "run" and finding.index is not None and finding.index < self._count:
            number = self._record.first + finding.index
        found: dict[str, Any] = {"source": source, "number": number, **msgspec.to_builtins(finding)}
        found |= {"text": finding.text, "help": finding.help}
        if sent is not None:
            found["sent"] = sent
        return found


class _Item(msgspec.Struct, rename="camel"):
    """The members of an event that name its item. Any JSON value: an invalid event has an identity, too."""

    type: Any = None
    message_id: Any = None
    tool_call_id: Any = None
    step_name: Any = None
    subagent_run_id: Any = None
    name: Any = None


def _identity(data: bytes) -> tuple[Any, ...]:
    """Return the key that an event shares with events of its type about the same item."""
    try:
        found = decode_json(data, _Item)
    except (msgspec.DecodeError, UnicodeError):
        return (data,)
    ids = (found.type, found.message_id, found.tool_call_id, found.step_name, found.subagent_run_id, found.name)
    return tuple(one if isinstance(one, str) else None for one in ids)
