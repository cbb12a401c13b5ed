"""Reading the official conformance streams: where they are, and what a case asserts.

The streams are data of the public AG-UI project. They lie beside the repository (``../shared/conformance``, or where
``AGUILA_CONFORMANCE`` says) and are no part of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_DEFAULT = Path(__file__).parents[4] / "shared" / "conformance"
STREAMS = Path(os.environ.get("AGUILA_CONFORMANCE", _DEFAULT)) / "streams"

# Our rule for each first-party error message.
REFUSED_BY = {
    "chunk-conflicting-role-fatal": "CHK-5",
    "chunk-conflicting-tool-name-fatal": "CHK-5",
    "content-without-start-fatal": "STR-2",
    "custom-closes-chunk-stream-fatal": "CHK-3",
    "duplicate-interrupt-id-fatal": "INT-3",
    "event-after-run-finished-fatal": "LIFE-15",
    "first-chunk-missing-id-fatal": "CHK-3",
    "first-event-not-run-started-fatal": "LIFE-1",
    "first-tool-chunk-missing-name-fatal": "CHK-3",
    "malformed-known-field-fatal": "PROC-2",
    "nested-run-started-fatal": "LIFE-17",
    "open-message-at-run-finished-fatal": "STR-3",
    "reasoning-discipline-verified": "RSN-4",
    "reasoning-message-wrong-role-fatal": "PROC-2",
    "run-finished-with-active-subagent-fatal": "SUB-14",
    "run-finished-wrong-run-id-fatal": "IN-3",
    "run-finished-wrong-thread-id-fatal": "IN-3",
    "second-run-on-another-thread-fatal": "IN-3",
    "step-finished-without-start-fatal": "STEP-1",
    "subagent-attribution-mismatch-fatal": "SUB-8",
    "subagent-finished-unstarted-fatal": "SUB-4",
    "subagent-started-missing-name-fatal": "PROC-2",
    "truncated-stream-fails-the-run": "TRN-7",
    "unknown-outcome-array-fatal": "PROC-2",
}

# Expectations we do not hold a case to, and why. Nothing else is relaxed; `warnings` and `expectOverrides.dotnet` are
# treated as the corpus' README says: a warning's wording is first-party, so we ask for a notice, not for its text.
RELAXED = {
    "unknown-enum-value-role-fatal": (
        {"outcome", "errorContains"},
        "an admitted gap of the corpus that asserts the opposite of the pages (AMB-1): the role is stripped",
    ),
    "truncated-run-reported-as-completed": (
        {"outcome"},
        "an admitted gap of 1.0 that TRN-7 of 1.1 forbids: its messages are kept, the stream counts as truncated",
    ),
    "era-0-0-47-upgrades-binary-content": (
        {"request"},
        "the pages only permit downgrading: to a peer pinned to 0.0.47 we send the parts it knows (text and binary)",
    ),
    "era-current-peer-keeps-modern-content": (
        {"noWarnings"},
        "SHOULD-level: we tell the developer that a binary part of the application's own input was translated",
    ),
}

# Duties of the producer in 1.1, which no page asks a consumer to refuse: these are judged with producer=True.
PRODUCER_DUTIES = {
    "duplicate-interrupt-id-fatal",
    "run-finished-wrong-run-id-fatal",
    "run-finished-wrong-thread-id-fatal",
    "second-run-on-another-thread-fatal",
}

_MISSING = object()


@dataclass
class Seen:
    """The result of a stream for an application. ``rule`` is why the stream was refused, if it was."""

    rule: str | None = None
    error: str = ""
    run_error: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    state: Any = None
    request: dict[str, Any] = field(default_factory=dict)


def load_cases() -> list[dict[str, Any]]:
    """Return all cases; none if the corpus is missing."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(STREAMS.glob("*.json"))]


def expectations(case: dict[str, Any]) -> dict[str, Any]:
    """Return the expectations that are checked for a case."""
    wanted = dict(case["expect"])
    wanted.update(case.get("expectOverrides", {}).get("typescript", {}))  # one case: a real check of order
    wanted.pop("intentional", None)
    for key in RELAXED.get(case["name"], (set(), ""))[0]:
        wanted.pop(key, None)
    return wanted


def failures(case: dict[str, Any], seen: Seen) -> list[str]:
    """Return the expectations of the case that the result does not meet."""
    wanted = expectations(case)
    bad: list[str] = []

    def need(ok: bool, what: str) -> None:
        if not ok:
            bad.append(what)

    if "outcome" in wanted:
        need((seen.rule is None) == (wanted["outcome"] == "completed"), f"outcome: {seen.rule} {seen.error}")
    if "errorContains" in wanted:
        need(seen.rule == REFUSED_BY[case["name"]], f"refused by {seen.rule}: {seen.error}")
    if "runError" in wanted:
        expected = wanted["runError"]
        need((seen.run_error is None) == (expected is False), f"run error {seen.run_error!r}")
        if isinstance(expected, str):
            need(expected in (seen.run_error or ""), f"run error {seen.run_error!r}")
    types = [event["type"] for event in seen.events]
    if "eventTypes" in wanted:
        need(types == wanted["eventTypes"], f"delivered {types}")
    for absent in wanted.get("eventTypesAbsent", []):
        need(absent not in types, f"{absent} was delivered")
    for path, value in wanted.get("eventPaths", {}).items():
        found = _at(seen.events, path)
        need(found is not _MISSING and _same(found, value), f"{path} is {found!r}")
    for path in wanted.get("eventAbsentPaths", []):
        need(_at(seen.events, path) is _MISSING, f"{path} is there")
    if wanted.get("warnings"):
        need(bool(seen.notices), "no notice was given")
    if wanted.get("noWarnings") is True:
        need(not seen.notices, f"notices {seen.notices}")
    if "messageCount" in wanted:
        need(len(seen.messages) == wanted["messageCount"], f"{len(seen.messages)} messages")
    for key in ("messages", "state", "request"):
        if key in wanted:
            need(_covers(getattr(seen, key), wanted[key]), f"{key}: {getattr(seen, key)!r}")
    for path in wanted.get("requestAbsentPaths", []):
        need(_at(seen.request, path) is _MISSING, f"request has {path}")
    return bad


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


def _covers(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_covers, found, wanted))
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(k in found and _covers(found[k], v) for k, v in wanted.items())
    return _same(found, wanted)


def _at(node: Any, path: str) -> Any:
    for key in path.split("."):
        if isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        elif isinstance(node, dict) and key in node:
            node = node[key]
        else:
            return _MISSING
    return node
