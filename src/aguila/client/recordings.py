"""Read recordings: the JSON lines that ``Record`` and ``aguila record`` write, or plain events as JSON.

A line is ``{"ms": 0, "input": {...}}``, which starts a run, or ``{"ms": 12, "event": {...}}``. A line or element with a
``type`` is a plain event. Events are returned as the JSON that was sent, unchecked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from aguila.codec.json.bounded_floats import decode_json

_BOM = b"\xef\xbb\xbf"
_ABSENT = msgspec.Raw(b"")


class RecordedEvent(msgspec.Struct, frozen=True):
    """One event as JSON: its place in the stream, and milliseconds since the start if they are known."""

    index: int
    data: bytes
    ms: float | None = None


class RecordedRun(msgspec.Struct, kw_only=True):
    """The events of a run, and its input if that was recorded."""

    input: Any = None
    events: list[RecordedEvent] = []


class _Line(msgspec.Struct):
    """A line of a recording. A plain event may have members of these names, and always has a type."""

    ms: float | None = None
    input: msgspec.Raw = _ABSENT
    event: msgspec.Raw = _ABSENT
    type: Any = None


def read_lines(data: bytes, *, strict: bool = False) -> list[RecordedRun]:
    """Return the runs in JSON lines: one for each input, or one run if no input was recorded.

    A line that is neither an input nor an event is returned as an event. With ``strict``, it raises ValueError.
    """
    runs: list[RecordedRun] = []
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), 1):
        line = line.strip()
        if not line:
            continue
        try:
            found = decode_json(line, _Line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            if strict:
                raise ValueError(f"line {number} is not a line of a recording: {error}") from error
            found = _Line(type=line)
        is_plain = found.type is not None
        if not is_plain and bytes(found.input):
            runs.append(RecordedRun(input=decode_json(bytes(found.input)), events=[]))
            continue
        if not runs:
            runs.append(RecordedRun(events=[]))
        events = runs[-1].events
        if not is_plain and bytes(found.event):
            events.append(RecordedEvent(len(events), bytes(found.event), found.ms))
        elif is_plain or not strict:
            events.append(RecordedEvent(len(events), line))
        else:
            raise ValueError(f"line {number} is not a line of a recording: it has neither an event nor an input")
    return runs


def read_array(data: bytes) -> RecordedRun:
    """Return the events of a JSON array. Raise ValueError if the data is not one."""
    try:
        elements = decode_json(data.removeprefix(_BOM), list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not a JSON array: {error}") from error
    return RecordedRun(events=[RecordedEvent(index, bytes(element)) for index, element in enumerate(elements)])


def split_runs(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Split recorded events before each RUN_STARTED, unless the runs are already separated by their inputs."""
    if any(run.input is not None for run in runs):
        return list(runs)
    split: list[RecordedRun] = []
    for event in (event for run in runs for event in run.events):
        if not split or (split[-1].events and _is_run_start(event.data)):
            split.append(RecordedRun(events=[]))
        split[-1].events.append(event)
    return split


def _is_run_start(data: bytes) -> bool:
    try:
        return decode_json(data, _Line).type == "RUN_STARTED"
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
