"""Check the events of another server before the gateway corrects them, and record the findings with the run.

Events that every reader refuses are recorded and left out, so that the rest of the stream is read and checked, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from aguila.agent.run import Run
from aguila.client import Stage
from aguila.codec import encode
from aguila.errors import ProtocolError
from aguila.protocol import RunAgentInput
from aguila.stream.verification.checker import UPSTREAM_FINDINGS, Finding, StreamChecker, UpstreamFindings

_ENDS: Final = ("RUN_FINISHED", "RUN_ERROR")
_MAX_FINDINGS: Final = 500
_MAX_EVENT: Final = 4096
"""Bytes of an event that is recorded with its finding."""


class UpstreamCheck:
    """The check of one run."""

    def __init__(self, sent: RunAgentInput) -> None:
        self._checker = StreamChecker(messages=sent.messages, state=sent.state)
        self._events: dict[str, str] = {}
        self._count = 0

    def feed(self, event: dict[str, Any]) -> bool:
        """Check the next event as it was sent. Return whether it is passed on; the end of a run always is."""
        if len(self._checker.findings) >= _MAX_FINDINGS:
            return True
        before = len(self._checker.findings)
        data = encode(event)
        self._checker.feed(data)
        if len(self._checker.findings) > before and len(data) <= _MAX_EVENT:
            self._events[str(self._count)] = data.decode()
        self._count += 1
        is_refused = any(finding.level == "error" for finding in self._checker.findings[before:])
        return not is_refused or event.get("type") in _ENDS

    async def record(self, run: Run, error: BaseException | None, *, is_cut: bool) -> None:
        """Store the findings. ``error`` is why the stream was refused, if the checker has not seen it."""
        if not run.is_stored:
            return
        findings = self._checker.close(is_cut=is_cut)
        if isinstance(error, ProtocolError) and all(one.rule != error.rule for one in findings):
            refused = Finding(level="error", rule=error.rule, message=error.message, index=error.index, path=error.path)
            findings.append(refused)
        found = UpstreamFindings(count=self._count, findings=findings[:_MAX_FINDINGS], events=self._events)
        await run.once(UPSTREAM_FINDINGS, lambda: msgspec.to_builtins(found), idempotent=True)


class UpstreamChecks:
    """The checks of the runs in progress: a middleware that passes each event to the check of its run."""

    def __init__(self) -> None:
        self._checks: dict[tuple[str, str], UpstreamCheck] = {}

    def start(self, sent: RunAgentInput) -> UpstreamCheck:
        """Begin to check the run of an input."""
        check = self._checks[sent.thread_id, sent.run_id] = UpstreamCheck(sent)
        return check

    def stop(self, sent: RunAgentInput) -> None:
        """Forget a run."""
        self._checks.pop((sent.thread_id, sent.run_id), None)

    def find(self, sent: RunAgentInput) -> UpstreamCheck | None:
        """Return the check of a run, if there is one."""
        return self._checks.get((sent.thread_id, sent.run_id))

    def __call__(self) -> Stage:
        """Return a stage for one request."""
        return _CheckStage(self)


class _CheckStage(Stage):
    def __init__(self, checks: UpstreamChecks) -> None:
        self._checks = checks
        self._check: UpstreamCheck | None = None

    def input(self, input: RunAgentInput) -> RunAgentInput:  # noqa: A002 - the protocol's word
        self._check = self._checks.find(input)
        return input

    def event(self, event: dict[str, Any]) -> Iterable[dict[str, Any]]:
        return (event,) if self._check is None or self._check.feed(event) else ()
