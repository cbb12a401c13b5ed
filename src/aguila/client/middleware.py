"""Middleware: changes to the input and to raw events, before they are validated (PROC-7).

A stage sees events as the agent sent them, unknown ones and chunks too, as plain dicts. The events that it returns are
validated and verified like any other. The first middleware is the outermost: it sees the input first and events last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from errno import EEXIST
from pathlib import Path
from typing import Any, BinaryIO, Literal

from aguila.codec import encode
from aguila.codec.formats import format_from_name
from aguila.codec.json.text import parse_json
from aguila.codec.json.values import is_object
from aguila.codec.notices import ignore_notice
from aguila.errors import DecodeError
from aguila.protocol import RunAgentInput

RawEvent = dict[str, Any]


class Stage:
    """A middleware during one run. Override what you need."""

    def input(self, input: RunAgentInput) -> RunAgentInput:  # noqa: A002 - the protocol's word for it
        """Return the input to send. It is validated afterwards."""
        return input

    def event(self, event: RawEvent) -> Iterable[RawEvent]:
        """Return the events that replace this one: itself, none, or several."""
        return (event,)

    def close(self) -> None:
        """Release the resources of the stage. Called at the end of the run, however it ended."""


Middleware = Callable[[], Stage]
"""Returns a stage for each run: a subclass of ``Stage``, or an object such as ``Record("run.jsonl")``."""


def on_input(function: Callable[[RunAgentInput], RunAgentInput]) -> Middleware:
    """Return a middleware that changes the input of every run."""

    class OnInput(Stage):
        def input(self, input: RunAgentInput) -> RunAgentInput:  # noqa: A002
            return function(input)

    return OnInput


def on_event(function: Callable[[RawEvent], RawEvent | None]) -> Middleware:
    """Return a middleware that changes raw events one by one; None drops an event."""

    class OnEvent(Stage):
        def event(self, event: RawEvent) -> Iterable[RawEvent]:
            changed = function(event)
            return () if changed is None else (changed,)

    return OnEvent


class Chain:
    """The stages of one run, in order."""

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        self._stages = [make() for make in middleware]

    def __bool__(self) -> bool:
        return bool(self._stages)

    def input(self, input: RunAgentInput) -> RunAgentInput:  # noqa: A002
        """Return the input after all stages."""
        for stage in self._stages:
            input = stage.input(input)  # noqa: A001
        return input

    def event(self, data: bytes) -> list[bytes]:
        """Return one raw event after all stages. Values that are not JSON objects pass, and are refused later."""
        try:
            # The consumer reads the same bytes and reports notices.
            raw = parse_json(data, strict=False, warn=ignore_notice)
        except DecodeError:
            return [data]
        if not is_object(raw):
            return [data]
        events: list[RawEvent] = [raw]
        for stage in reversed(self._stages):
            events = [changed for event in events for changed in stage.event(event)]
        return [encode(event) for event in events]

    def close(self) -> None:
        """Close every stage."""
        for stage in self._stages:
            stage.close()


class FilterToolCalls:
    """Hide tool calls from the application: those of the ``disallowed`` tools, or all but the ``allowed``.

    The events of a hidden call are dropped, chunks and result included; snapshots are unchanged. Raise ValueError
    unless exactly one of the two is given.
    """

    def __init__(self, *, allowed: Iterable[str] | None = None, disallowed: Iterable[str] | None = None) -> None:
        if (allowed is None) == (disallowed is None):
            raise ValueError("give either allowed= or disallowed=")
        self._names = frozenset(allowed if allowed is not None else disallowed or ())
        self._is_allowing = allowed is not None

    def __call__(self) -> Stage:
        """Return a stage for one run."""
        return _FilterStage(self._is_hidden)

    def _is_hidden(self, name: Any) -> bool:
        return (name in self._names) != self._is_allowing


class _FilterStage(Stage):
    def __init__(self, is_hidden: Callable[[Any], bool]) -> None:
        self._is_hidden = is_hidden
        self._hidden: set[Any] = set()
        self._hides_chunks = False  # whether chunks without a call id continue a hidden call

    def event(self, event: RawEvent) -> Iterable[RawEvent]:
        kind: Any = event.get("type")
        if kind == "RUN_STARTED":
            self._hidden.clear()
            self._hides_chunks = False
        if kind not in _CALL_EVENTS:
            return (event,)
        call_id, name = event.get("toolCallId"), event.get("toolCallName")
        if kind in ("TOOL_CALL_START", "TOOL_CALL_CHUNK") and name is not None and self._is_hidden(name):
            self._hidden.add(call_id)
        if kind == "TOOL_CALL_CHUNK":
            if call_id is not None:
                self._hides_chunks = call_id in self._hidden
            return () if self._hides_chunks else (event,)
        if call_id not in self._hidden:
            return (event,)
        if kind == "TOOL_CALL_RESULT":
            self._hidden.discard(call_id)
        return ()


_CALL_EVENTS: frozenset[Any] = frozenset(
    {"TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_CHUNK", "TOOL_CALL_RESULT"}
)


class Record:
    """Record inputs and raw events of all runs to a file of JSON lines.

    A line is ``{"ms": 12, "event": {...}}`` or ``{"ms": 0, "input": {...}}``, where ``ms`` counts from the start of the
    run. With ``form="events"`` only the events are written, one per line, as other tools read them. A recording
    contains whole conversations: protect it accordingly.

    Raise FileExistsError for an existing file, unless ``existing`` is ``append`` or ``replace``. Raise ValueError for a
    file name of another format, such as ``.sse``.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        form: Literal["timed", "events"] = "timed",
        existing: Literal["refuse", "append", "replace"] = "refuse",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(path)
        if format_from_name(self._path) not in (None, "jsonl"):
            message = f"runs are recorded as JSON lines; name {self._path} .jsonl, and use aguila convert"
            raise ValueError(message)
        if existing == "refuse" and self._path.is_file():
            raise FileExistsError(EEXIST, 'the file exists; Record(existing="append") adds to it', str(self._path))
        self._mode: Literal["ab", "wb"] = "wb" if existing == "replace" else "ab"
        self._is_timed = form == "timed"
        self._clock = clock

    def __call__(self) -> Stage:
        """Return a stage for one run."""
        mode, self._mode = self._mode, "ab"
        return _RecordStage(self._path.open(mode), self._is_timed, self._clock)


class _RecordStage(Stage):
    def __init__(self, file: BinaryIO, is_timed: bool, clock: Callable[[], float]) -> None:
        self._file = file
        self._is_timed = is_timed
        self._clock = clock
        self._began = clock()

    def input(self, input: RunAgentInput) -> RunAgentInput:  # noqa: A002
        if self._is_timed:
            self._began = self._clock()
            self._write("input", input)
        return input

    def event(self, event: RawEvent) -> Iterable[RawEvent]:
        if self._is_timed:
            self._write("event", event)
        else:
            self._file.write(encode(event) + b"\n")
        if event.get("type") in ("RUN_FINISHED", "RUN_ERROR"):
            self._file.flush()
        return (event,)

    def close(self) -> None:
        self._file.close()

    def _write(self, name: str, value: Any) -> None:
        ms = int((self._clock() - self._began) * 1000)
        self._file.write(b'{"ms":%d,"%b":%b}\n' % (ms, name.encode(), encode(value)))
