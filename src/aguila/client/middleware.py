"""Layer: client. What stands between the wire and enforcement: changes to the input and to raw events (PROC-7).

Below: the codec. Above: ``thread`` makes a ``Stage`` of each middleware for every run. Stages see events as the agent
sent them, unknown ones and chunks too, as plain dicts; what they give is enforced and verified like anything else.
The first middleware is the outermost: it sees the input first and events last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from errno import EEXIST
from pathlib import Path
from typing import Any, BinaryIO, Literal

from aguila.codec import encode
from aguila.codec.formats import format_of
from aguila.codec.json.text import load
from aguila.codec.json.values import is_object
from aguila.errors import DecodeError
from aguila.protocol import RunAgentInput

RawEvent = dict[str, Any]


class Stage:
    """A middleware at work on one run. Override what you need."""

    def input(self, input: RunAgentInput) -> RunAgentInput:  # noqa: A002 - the protocol's word for it
        """The input to send instead. It is enforced afterwards."""
        return input

    def event(self, event: RawEvent) -> Iterable[RawEvent]:
        """The events to go on with instead: this one, none, several."""
        return (event,)

    def close(self) -> None:
        """The run is over, however it ended."""


Middleware = Callable[[], Stage]
"""Makes a stage for each run: a subclass of ``Stage``, or an object such as ``Record("run.jsonl")``."""


def on_input(function: Callable[[RunAgentInput], RunAgentInput]) -> Middleware:
    """A middleware that changes the input of every run."""

    class OnInput(Stage):
        def input(self, input: RunAgentInput) -> RunAgentInput:  # noqa: A002
            return function(input)

    return OnInput


def on_event(function: Callable[[RawEvent], RawEvent | None]) -> Middleware:
    """A middleware that changes raw events one by one, or drops them by giving None."""

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
        """The input as the stages leave it."""
        for stage in self._stages:
            input = stage.input(input)  # noqa: A001
        return input

    def event(self, data: bytes) -> list[bytes]:
        """One raw event as the stages leave it. What is no JSON object passes as it is, to be refused."""
        try:
            raw = load(data, strict=False, warn=_ignore)
        except DecodeError:
            return [data]
        if not is_object(raw):
            return [data]
        events: list[RawEvent] = [raw]
        for stage in reversed(self._stages):
            events = [changed for event in events for changed in stage.event(event)]
        return [encode(event) for event in events]

    def close(self) -> None:
        """Tell every stage that the run is over."""
        for stage in self._stages:
            stage.close()


def _ignore(notice: object) -> None:
    """The consumer reads the same bytes and reports for itself."""


class FilterToolCalls:
    """Hides tool calls from the application: those of the ``disallowed`` tools, or all but the ``allowed``.

    The call's start, arguments, end and result are dropped, chunks too; snapshots are not touched. Raises ValueError
    unless exactly one of the two is given.
    """

    def __init__(self, *, allowed: Iterable[str] | None = None, disallowed: Iterable[str] | None = None) -> None:
        if (allowed is None) == (disallowed is None):
            raise ValueError("give the tools that are allowed, or those that are not, and not both")
        self._names = frozenset(allowed if allowed is not None else disallowed or ())
        self._is_allowing = allowed is not None

    def __call__(self) -> Stage:
        """A stage for one run."""
        return _FilterStage(self._is_hidden)

    def _is_hidden(self, name: Any) -> bool:
        return (name in self._names) != self._is_allowing


class _FilterStage(Stage):
    def __init__(self, is_hidden: Callable[[Any], bool]) -> None:
        self._is_hidden = is_hidden
        self._hidden: set[Any] = set()
        self._hides_chunks = False  # whether chunks that name no call go on with a hidden one

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
    """Writes what goes over the wire to a file: a line for each input and each raw event, run after run.

    A line is ``{"ms": 12, "event": {...}}`` or ``{"ms": 0, "input": {...}}``, where ``ms`` counts from the start of the
    run. With ``form="events"`` only events are written, and as they are: what other tools read. Recordings hold
    whole conversations: keep them accordingly.

    A file that is there already is refused with FileExistsError, unless ``existing`` says to append to it or to
    replace it. Raises ValueError for a name that promises another form than JSON lines, such as ``.sse``.
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
        if format_of(self._path) not in (None, "jsonl"):
            message = f"runs are recorded as JSON lines: name {self._path} .jsonl; aguila convert makes others of it"
            raise ValueError(message)
        if existing == "refuse" and self._path.is_file():
            raise FileExistsError(
                EEXIST, 'there is a file already; Record(existing="append") adds to it', str(self._path)
            )
        self._mode: Literal["ab", "wb"] = "wb" if existing == "replace" else "ab"
        self._is_timed = form == "timed"
        self._clock = clock

    def __call__(self) -> Stage:
        """A stage for one run."""
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
