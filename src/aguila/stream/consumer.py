"""The complete consumer pipeline, in the order that the protocol prescribes (PROC)::

    raw event -> compatibility boundary -> enforcement -> chunk expansion -> verification -> reduction

The client, the gateway and the command line read streams through it. Client middleware works on raw events, before
``Consumer.feed`` (PROC-7). ``StreamChecker`` consists of the same parts, and goes on after an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from aguila.codec.compat import Level
from aguila.codec.json.decoder import EventDecoder
from aguila.codec.json.encoder import encode
from aguila.codec.json.text import MAX_SIZE
from aguila.codec.notices import Warn, log_notice
from aguila.codec.official import from_official, is_official
from aguila.errors import ProtocolError, StreamTruncated
from aguila.protocol import ActivityDeltaEvent, Event, Message, RunStartedEvent, StateDeltaEvent
from aguila.stream.chunks import ChunkExpander
from aguila.stream.conversation import Conversation
from aguila.stream.reducer import Reducer
from aguila.stream.type_errors import EVENT_CLASSES
from aguila.stream.verification.rules import RunState
from aguila.stream.verification.verifier import Verifier
from aguila.stream.version import producer_version_notice

Raw = bytes | str | dict[str, Any] | Event
"""One event as it may arrive: JSON text, a decoded JSON object, or a typed event."""


class Prepared(msgspec.Struct, frozen=True):
    """The events of one raw event that ``Consumer.prepare`` has decoded."""

    events: Sequence[Event]


class Consumer:
    """Read one stream. ``feed`` returns the events for the application; ``conversation`` is the result so far.

    ``messages`` and ``state`` are those that the run started from. ``producer=True`` also checks the rules for
    producers. ``warn`` receives a ``Notice`` for every tolerated fault.
    """

    def __init__(
        self,
        *,
        messages: Sequence[Message] = (),
        state: Any = msgspec.UNSET,
        compat: Level = "standard",
        producer: bool = False,
        warn: Warn | None = None,
        new_id: Callable[[], str] | None = None,
        reducer: Reducer | None = None,
        max_size: int = MAX_SIZE,
    ) -> None:
        self._warn = warn or log_notice
        self._decoder = EventDecoder(compat=compat, warn=self._warn, new_id=new_id, max_size=max_size)
        self._expander = ChunkExpander()
        self._verifier = Verifier(producer=producer)
        self._reducer = reducer or Reducer(messages=messages, state=state, warn=self._warn, max_size=max_size)
        self._index = 0
        self.on_run_started: Callable[[RunStartedEvent], None] | None = None
        """Callback, called before each RUN_STARTED is applied. If it raises, the consumer is unchanged."""

    @property
    def conversation(self) -> Conversation:
        """The conversation so far. Later events do not change the returned view."""
        return self._reducer.conversation

    @property
    def is_ended(self) -> bool:
        """Whether the last run has ended, so that the stream may end here."""
        return self._verifier.run_state in (RunState.FINISHED, RunState.FAILED)

    def feed(self, raw: Raw | Prepared) -> list[Event]:
        """Process one raw event and return the resulting events, expanded and verified. Empty if it was dropped.

        META, a retired event, is RAW in a run. Outside a run it is returned as it is, and has no effect.

        Raises ``ProtocolError`` if a consumer must refuse the event. ``conversation`` keeps the events that were
        delivered before.
        """
        index, self._index = self._index, self._index + 1
        delivered: list[Event] = []
        try:
            # Most callers have bytes: client bytes to messages, 1.5x.
            for event in self._decoder.feed(raw) if raw.__class__ is bytes else self._typed(raw):  # type: ignore[arg-type]
                if event.__class__ is RunStartedEvent:
                    self._before_run(event)  # type: ignore[arg-type]
                for part in self._expander.feed(event):
                    self._verifier.feed(part)
                    self._reducer.feed(part)
                    delivered.append(part)
        except ProtocolError as error:
            self._locate(error, index)
            raise
        return delivered

    def prepare(self, raw: Raw) -> Prepared:
        """Do the slow part of ``feed``, in another thread, for an event that is large. Feed the result next.

        Raises ``ProtocolError`` as ``feed`` does.
        """
        try:
            events = self._typed(raw)
            for event in events:
                if event.__class__ is StateDeltaEvent or event.__class__ is ActivityDeltaEvent:
                    self._reducer.prepare(event)
        except ProtocolError as error:
            self._locate(error, self._index)
            raise
        return Prepared(events)

    def close(self) -> Conversation:
        """End the stream and return the conversation.

        Raises ``StreamTruncated`` if the last run has not ended (TRN-7), or ``ProtocolError`` with ``producer=True``.
        """
        try:
            end = self._verifier.close()
        except ProtocolError as error:
            self._locate(error, self._index)
            raise
        if end == "truncated":
            truncated = StreamTruncated("the stream ended without RUN_FINISHED or RUN_ERROR: the run was cut off")
            truncated.conversation = self.conversation
            raise truncated
        return self.conversation

    def _typed(self, raw: Any) -> Sequence[Event]:
        if isinstance(raw, (bytes, str, dict)):
            return self._decoder.feed(raw)  # type: ignore[reportUnknownArgumentType]
        if raw.__class__ in EVENT_CLASSES:
            self._decoder.observe(raw)
            return (raw,)
        if raw.__class__ is Prepared:
            return raw.events
        if is_official(raw):
            raw = from_official(raw)
        return self._decoder.feed(encode(raw) if isinstance(raw, msgspec.Struct) else raw)

    def _before_run(self, event: RunStartedEvent) -> None:
        if self.on_run_started is not None:
            self.on_run_started(event)
        notice = producer_version_notice(event.protocol_version)
        if notice is not None:
            self._warn(notice)

    def _locate(self, error: ProtocolError, index: int) -> None:
        error.index, error.conversation = index, self.conversation


def consume(
    events: Iterable[Raw],
    *,
    messages: Sequence[Message] = (),
    state: Any = msgspec.UNSET,
    compat: Level = "standard",
    producer: bool = False,
    warn: Warn | None = None,
    new_id: Callable[[], str] | None = None,
) -> Conversation:
    """Read a whole stream, starting from ``messages`` and ``state`` (default ``{}``), and return the conversation.

    Raises ``ProtocolError`` for a fatal violation, and ``StreamTruncated`` if the stream ends before its run. Both have
    the conversation so far as ``conversation``. A RUN_ERROR does not raise: it is in ``run_error``.
    """
    consumer = Consumer(messages=messages, state=state, compat=compat, producer=producer, warn=warn, new_id=new_id)
    for raw in events:
        consumer.feed(raw)
    return consumer.close()
