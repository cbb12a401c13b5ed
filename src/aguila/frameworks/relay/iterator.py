"""Use any async iterator of AG-UI events as an agent, such as the AG-UI adapters of other frameworks produce."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from inspect import isawaitable
from typing import Any

from aguila.agent.run import Run, read_state
from aguila.codec.sse import SSEParser
from aguila.errors import DecodeError
from aguila.frameworks.relay.events import Errors, Raw, Relay, RelayOptions
from aguila.protocol import Event, RunAgentInput, RunStartedEvent, replace
from aguila.stream import Consumer
from aguila.stream.type_errors import EVENT_CLASSES

Factory = Callable[[Run], Any]
"""Takes the run and returns an async iterator of events, or an awaitable of one."""

OnCancel = Callable[[Run], Awaitable[None] | None]


def from_events(
    factory: Factory,
    *,
    raw: Raw = "drop",
    state_keys: Collection[str] | None = None,
    errors: Errors = "mask",
    on_cancel: OnCancel | None = None,
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of a function that returns an async iterator of events.

    An event is one of ours, one of ``ag_ui.core``, a dict, JSON text, or a piece of an SSE stream. The server owns the
    boundaries of the run: RUN_STARTED may be missing, and an iterator that ends without RUN_FINISHED has succeeded.
    Nothing is replayed: after an interrupt ``factory`` is called again, with the answers in ``run.resume``.

    ``raw="keep"`` sends RAW events and ``rawEvent``. ``state_keys`` are the top-level keys of the state that clients
    get; the default is all but those that begin with ``_ag_ui``. ``errors="pass"`` sends the texts of RUN_ERROR. If the
    run is cancelled, ``on_cancel`` is called and the iterator is closed: use ``on_cancel`` to stop tasks that the
    framework has started.

    Raise TypeError or ValueError for an invalid argument.
    """
    options = RelayOptions(raw=raw, state_keys=state_keys, errors=errors)
    for name, value in (("factory", factory), ("on_cancel", on_cancel)):
        if not callable(value) and (name == "factory" or value is not None):
            raise TypeError(f"{name}: expected a function that takes the run, got {type(value).__name__}")

    async def agent(run: Run) -> AsyncGenerator[Event, None]:
        # The values that a calling agent has set on the run; in a replay they differ from the input's.
        given = replace(run.input, run_id=run.run_id, messages=run.messages, state=read_state(run))
        relay = Relay(run, given, options, may_replay=False)
        reader = _EventReader(given)
        values = factory(run)
        if isawaitable(values):
            values = await values
        if not hasattr(values, "__aiter__"):
            raise TypeError(f"factory: expected an async iterator of events, got {type(values).__name__}")
        has_ended = False
        try:
            async for value in values:
                for event in reader.feed(value):
                    for each in await relay.convert(event):
                        yield each
            for event in reader.close():
                for each in await relay.convert(event):
                    yield each
            has_ended = True
        except Exception:
            has_ended = True
            raise
        finally:
            try:
                # First, because closing an iterator may wait for the tasks that this stops.
                if not has_ended and on_cancel is not None:
                    waiting = on_cancel(run)
                    if waiting is not None:
                        await waiting
            finally:
                close = getattr(values, "aclose", None)
                if close is not None:
                    await close()

    return agent


class _EventReader:
    """Decodes and verifies the values that an iterator yields."""

    def __init__(self, given: RunAgentInput) -> None:
        self._started = RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id)
        self._consumer = Consumer(messages=given.messages, state=given.state)
        self._parser: SSEParser | None = None
        self._is_first = True

    def feed(self, value: Any) -> Sequence[Event]:
        """Return the events of one yielded value. Raise ``ProtocolError``."""
        if value.__class__ in EVENT_CLASSES or not isinstance(value, str | bytes | bytearray):
            return self._consume(value)
        data = value.encode() if isinstance(value, str) else bytes(value)
        if self._parser is None:
            if data.lstrip().startswith(b"{"):
                return self._consume(data)
            self._parser = SSEParser()
        return [event for frame in self._parser.feed(data) for event in self._consume(frame.data)]

    def close(self) -> Sequence[Event]:
        """Return the last event of an SSE stream that lacks its blank line. Raise ``DecodeError`` for half an event."""
        if self._parser is None:
            return []
        return [event for frame in self._parser.close() for event in self._consume(frame.data)]

    def _consume(self, raw: Any) -> Sequence[Event]:
        try:
            prepared = self._consumer.prepare(raw)
        except TypeError as error:
            raise DecodeError(f"expected an AG-UI event, got {type(raw).__name__}", rule="json") from error
        if self._is_first and prepared.events:
            self._is_first = False
            if prepared.events[0].__class__ is not RunStartedEvent:
                self._consumer.feed(self._started)
        return self._consumer.feed(prepared)
